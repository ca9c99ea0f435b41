"""Slices: every number again for each value of a field, or for each combination of the values of several fields.

A field belongs to the golden file (including unknown fields) or to the stored rows. If the value is a list, the query
belongs to the slice of each item.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbeval.engine.quoting import literal
from kbeval.engine.relations import compose
from kbeval.errors import UsageError
from kbeval.util.text import cut, did_you_mean

if TYPE_CHECKING:
    from kbeval.golden import Golden
    from kbeval.scoring.scorer import Scoring

NONE = "(none)"
_BETWEEN = " / "
_MOST_FIELDS = 4


def slice_fields(by: str) -> list[str]:
    """The fields that `by` names, separated by commas. Raises UsageError if there are none, or a duplicate."""
    found = [part.strip() for part in by.split(",")]
    if not all(found) or len(set(found)) < len(found) or len(found) > _MOST_FIELDS:
        msg = (
            f"cannot slice by {cut(by, 60)!r}: specify a field, or up to {_MOST_FIELDS} different ones, e.g."
            " category,lang"
        )
        raise UsageError(msg)
    return found


def golden_values(golden: Golden, field: str) -> dict[str, list[str]] | None:
    """The values of a field of the golden file, by query; None if no entry has it."""
    found = {}
    for entry in golden.entries:
        value = entry.get(field, golden.own.get(entry["id"], {}).get(field))
        if value is not None:
            found[entry["id"]] = sorted(set(_texts(value)))
    return found or ({} if field in SLICE_FIELDS else None)


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401  (any value of a golden file)
    if isinstance(value, list):
        yield from itertools.chain.from_iterable(map(_texts, value))
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, str):
        yield str(value)
    elif value is not None:
        yield json.dumps(value, sort_keys=True, ensure_ascii=False)


def golden_slices(golden: Golden, by: str) -> Mapping[str, list[str]]:
    """The slices of each golden query. Raises UsageError if a field is not in the golden file."""
    fields = []
    for field in slice_fields(by):
        values = golden_values(golden, field)
        if values is None:
            known = sorted({*SLICE_FIELDS, *_golden_fields(golden)})
            msg = (
                f"cannot slice by {cut(field, 60)!r}: no golden query has this field, and slices of a comparison are by"
                f" fields of the golden file{did_you_mean(field, known)}"
            )
            raise UsageError(msg)
        fields.append(values)
    return {
        entry["id"]: [
            name_of(values) for values in itertools.product(*(values.get(entry["id"]) or [NONE] for values in fields))
        ]
        for entry in golden.entries
    }


def name_of(values: Sequence[str]) -> str:
    """The name of a slice: the values of its fields."""
    return values[0] if len(values) == 1 else _BETWEEN.join(map(_quoted, values))


def _quoted(value: str) -> str:
    # Quoted, so that no two combinations have the same name.
    return json.dumps(value, ensure_ascii=False) if _BETWEEN.strip() in value or value.startswith('"') else value


# Fields of golden files that are commonly used for slices.
SLICE_FIELDS = ("category", "difficulty", "lang", "tags", "group")


def _golden_fields(golden: Golden) -> set[str]:
    return {name for entry in golden.entries for name in (*entry, *golden.own.get(entry["id"], ()))}


def load_slices(scoring: Scoring, by: str) -> None:
    """Build `asked_slices`: the slice that each row belongs to."""
    session, fields = scoring.session, slice_fields(by)
    branches, rows = [], []
    for place, field in enumerate(fields):
        values = golden_values(scoring.golden, field)
        if values is not None:
            shown = _quoted if len(fields) > 1 else str
            rows += [(place, query_id, shown(value)) for query_id, texts in values.items() for value in texts]
            branches.append(
                f"SELECT q.result_no, {place} AS place, g.value FROM per_query AS q"
                f" JOIN golden_values AS g ON g.query_id = q.query_id AND g.place = {place}"
            )
        else:
            path = literal(_path_of(scoring, field))
            value = f"fields ->> {path}"
            if len(fields) > 1:
                # As `_quoted`.
                is_odd = f"contains({value}, {literal(_BETWEEN.strip())}) OR starts_with({value}, '\"')"
                value = f"CASE WHEN {is_odd} THEN CAST(to_json({value}) AS VARCHAR) ELSE {value} END"
            branches.append(f"SELECT result_no, {place} AS place, {value} AS value FROM fields")
    session.need("per_query")
    session.execute(
        "CREATE OR REPLACE TABLE golden_values AS SELECT UNNEST($1::BIGINT[]) AS place,"
        " UNNEST($2::VARCHAR[]) AS query_id, UNNEST($3::VARCHAR[]) AS value",
        [[row[column] for row in rows] for column in range(3)],
    )
    values_of = [f"COALESCE(v{place}.value, {literal(NONE)})" for place in range(len(fields))]
    joins = [
        f"LEFT JOIN valued AS v{place} ON v{place}.result_no = q.result_no AND v{place}.place = {place}"
        for place in range(len(fields))
    ]
    label = f" || {literal(_BETWEEN)} || ".join(values_of)
    sql = compose("asked_slices", values="\nUNION ALL\n".join(branches), label=label, joins="\n".join(joins))
    session.execute(f"CREATE OR REPLACE TABLE asked_slices AS {sql}")


def _path_of(scoring: Scoring, field: str) -> str:
    """The path of a field of the stored rows. Raises UsageError if no row has it."""
    session = scoring.session
    session.need("fields")
    candidates: list[str] = [_path([field]), *([_path(field.split("."))] if "." in field else ())]
    for path in candidates:
        # Rows of some runs may lack the field, but at least one row of all runs must have it.
        if session.rows(f"SELECT 1 FROM fields WHERE json_extract(fields, {literal(path)}) IS NOT NULL LIMIT 1"):
            return path
    names = {str(row[0]) for row in session.rows("SELECT DISTINCT UNNEST(json_keys(fields)) FROM fields")}
    hint = did_you_mean(field, sorted({*SLICE_FIELDS, *_golden_fields(scoring.golden), *names}))
    msg = f"cannot slice by {cut(field, 60)!r}: neither a golden query nor a stored row has this field{hint}" + (
        "" if hint else "; 'kbeval sql \"SELECT * FROM field_names\"' lists those of rows"
    )
    raise UsageError(msg)


def _path(names: Sequence[str]) -> str:
    quoted = (name.replace("\\", "\\\\").replace('"', '\\"') for name in names)
    return "$" + "".join(f'."{name}"' for name in quoted)


def without_ignored(warnings: Sequence[str], by: str | None) -> list[str]:
    """The warnings about a golden file, except for unknown fields that are used for slices."""
    used = [] if by is None else [f"unknown field {field!r} is ignored" for field in slice_fields(by)]
    return [warning for warning in warnings if not warning.startswith(tuple(used))] if used else list(warnings)
