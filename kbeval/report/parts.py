"""Parts that several pages share: runs, settings, warnings, ledger and provenance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kbeval.metrics.model import AggregateMetrics
from kbeval.report.texts import is_name, name, without
from kbeval.storage.run_config import Difference, config_fields, config_of
from kbeval.storage.runs import Run
from kbeval.util.hiding import Hider, is_hidden
from kbeval.util.text import cut, json_text, shown

# Settings whose values are names, if they look like one.
_NAMES = re.compile(r"(?:.*[._])?(?:version|model|model_id|provider|hash|mode)")
# Shorter values occur in any sentence.
_SHORTEST_TEXT = 4


def about_run(run: Run) -> Mapping[str, Any]:
    """The names of a run, and when it was made."""
    return {
        "id": name(run.run_id),
        "suite": name(run.suite),
        "created": name(run.created_at),
        "commit": None if run.commit_hash is None else name(run.commit_hash),
    }


def value_text(value: object) -> str:
    """A setting as it is shown."""
    if value is None:
        return "–"
    return cut(shown(value if isinstance(value, str) else json_text(value)), 300)


def config_rows(run: Run, *, redact: bool) -> list[list[str]]:
    """The settings of a run, without secrets; with `redact`, without texts."""
    found = sorted(config_fields(config_of(run), Hider()).items())
    return [[name(key), value_text(setting(key, value, redact=redact))] for key, value in found]


def difference_rows(found: Sequence[Difference], *, redact: bool) -> list[list[str]]:
    """The settings that differ, in both runs."""
    return [
        [name(one.key), *(value_text(setting(one.key, value, redact=redact)) for value in (one.a, one.b))]
        for one in found
    ]


def setting(key: str, value: object, *, redact: bool) -> object:
    """A setting as it may be shown: a prompt is a text, the name of a version or a model is not."""
    if not redact or value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str) and ((_NAMES.fullmatch(key) and is_name(value)) or is_hidden(value)):
        return value
    return without(value if isinstance(value, str) else json_text(value))


def warning_lines(warnings: Iterable[str], runs: Sequence[Run], *, redact: bool) -> list[str]:
    """Warnings as they may be shown; with `redact`, without the settings that they quote."""
    found = [shown(text) for text in warnings]
    if redact:
        values = {
            shown(value)
            for run in runs
            for key, value in config_fields(config_of(run), Hider()).items()
            if isinstance(value, str) and len(value) >= _SHORTEST_TEXT and setting(key, value, redact=True) != value
        }
        for value in sorted(values, key=lambda one: (-len(one), one)):
            found = [re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", without(value), text) for text in found]
    return [name(text, 1_000) for text in found]


def ledger_rows(aggregates: Sequence[AggregateMetrics]) -> list[list[str]]:
    """How many rows of each kind the numbers are based on, for each run."""
    names = dict.fromkeys(key for one in aggregates for key, count in one.ledger.items() if isinstance(count, int))
    return [[name.replace("_", " "), *(value_text(one.ledger.get(name)) for one in aggregates)] for name in names]


def provenance_rows(aggregates: Sequence[AggregateMetrics]) -> list[list[str]]:
    """What the numbers were made from, for each run."""
    names = dict.fromkeys(name for one in aggregates for name in one.provenance)
    return [[name.replace("_", " "), *(value_text(one.provenance.get(name)) for one in aggregates)] for name in names]


def sentence(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return f"{text[:1].upper()}{shown(text[1:])}"
