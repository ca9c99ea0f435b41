"""The hash that is stored with numbers changes with everything that decides a number, and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kbeval.engine import relations
from kbeval.metrics import catalogue, definitions
from kbeval.metrics.catalogue import metrics_in_config, shipped_metrics
from kbeval.metrics.definitions import definitions_hash
from kbeval.util import numbers

# SQL that does not decide a number: comparisons, questions, checks, and what is stored for later.
OTHERS = {"checks", "compare", "frames", "kept", "pool", "schema", "views"}


@pytest.fixture
def sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all shipped SQL, which is read in place of it."""
    copy = tmp_path / "sql"
    shutil.copytree(relations.sql_folder(), copy)
    monkeypatch.setattr(relations, "sql_folder", lambda: copy)
    return copy


def deciding(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*.sql") if path.relative_to(folder).parts[0] not in OTHERS]
    assert any("@" in path.name for path in found)
    assert {"traces", "former", "metrics", "totals"} <= {path.parent.name for path in found}
    return sorted(found)


def current() -> str:
    """The hash that a program started now would have."""
    definitions.shipped_steps.cache_clear()
    catalogue._shipped.cache_clear()
    return definitions_hash(shipped_metrics())


def test_it_changes_with_every_file_that_decides_a_number(sql: Path) -> None:
    seen = {"none": current()}
    for path in deciding(sql):
        text = path.read_text()
        path.write_text(text.rstrip() + " + 1\n")
        seen[str(path)] = current()
        path.write_text(text)
    assert current() == seen["none"]
    assert len(set(seen.values())) == len(seen)


def test_it_does_not_change_with_comments_and_layout(sql: Path) -> None:
    before = current()
    for path in deciding(sql):
        lines = path.read_text().splitlines()
        n_head = next(place for place, line in enumerate(lines) if not line.startswith("--"))
        head = [f"{lines[0]} More about it.", "-- A note.", *lines[1:n_head]]
        path.write_text("\n".join([*head, "\n\n".join(lines[n_head:]), "", "  -- end"]))
    assert current() == before


def test_files_that_no_number_depends_on_do_not_change_the_hash(sql: Path) -> None:
    before = current()
    for folder in OTHERS:
        for path in (sql / folder).glob("*.sql"):
            path.write_text("SELECT 1")
    assert current() == before


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (catalogue, "AGGREGATIONS", {**catalogue.AGGREGATIONS, "percentiles": ("SUM({value})",)}),
        (catalogue, "SCORED", "COUNT({})"),
        (numbers, "SCALE", 12),
        (numbers, "SUMMABLE", "{value}"),
        (numbers, "WHOLE", "ROUND({value})"),
        (numbers, "LARGEST", 1e12),
        (numbers, "DECIMALS", 3),
        (numbers, "TIE", 1),
        (numbers, "OVERLAP_TOLERANCE", 0.0),
    ],
)
def test_it_changes_with_every_constant_that_decides_a_number(
    module: object, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = current()
    monkeypatch.setattr(module, name, value)
    assert current() != before


def test_it_changes_with_every_part_of_an_own_metric_that_decides_its_number() -> None:
    plain = {"expression": "MAX(CASE WHEN doc_id = 'a--b' THEN 1 END)"}
    seen = {definitions_hash(metrics_in_config({"mine": plain}, "kbeval.toml"))}
    for other in (
        {"expression": "MAX(CASE WHEN doc_id = 'a--c' THEN 1 END)"},
        {"expression": "MAX(CASE WHEN doc_id = 'a  b' THEN 1 END)"},
        {"where": "n_hits > 1"},
        {"grain": "per_expected_hit", "expression": "MAX(rank)"},
        {"if_empty": 0},
        {"missing": "include"},
        {"agg": "sum"},
        {"labels": "tags"},
        {"system": "anchors"},
    ):
        seen.add(definitions_hash(metrics_in_config({"mine": {**plain, **other}}, "kbeval.toml")))
    assert len(seen) == 10
    for same in ({"summary": "Another sentence."}, {"better": "lower"}, {"comparable": "within"}):
        assert definitions_hash(metrics_in_config({"mine": {**plain, **same}}, "kbeval.toml")) in seen
