"""What scoring again would change, and how much of it is due to what."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kbeval.cli import run
from kbeval.scoring.aggregate import store_scored
from kbeval.scoring.attribution import Movement, recompute
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.provenance import DATA, DEFINITIONS, LABELS
from tests.support.workspace import Workspace, hits


@pytest.fixture(scope="module")
def scored_once(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Three equal runs of four queries, all found at rank 1; scored and stored, with a columnar copy."""
    return make_scored(Workspace(tmp_path_factory.mktemp("scored")), "on")


@pytest.fixture(scope="module")
def scored_without_copy(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The same without a columnar copy."""
    return make_scored(Workspace(tmp_path_factory.mktemp("without")), "off")


@pytest.fixture
def scored(scored_once: Workspace, tmp_path: Path) -> Workspace:
    """A copy of it, to change."""
    return copied(scored_once, tmp_path)


@pytest.fixture
def uncopied(scored_without_copy: Workspace, tmp_path: Path) -> Workspace:
    """A copy of the one without a columnar copy, to change."""
    return copied(scored_without_copy, tmp_path)


def make_scored(workspace: Workspace, cache: str) -> Workspace:
    label(workspace, "c1")
    for run_id in ("run", "other", "third"):
        workspace.add_run(run_id, {f"q{n}": {"hits_top_k": hits("c1", "c2", "c3")} for n in range(4)})
    store(workspace, cache=cache)
    return workspace


def copied(workspace: Workspace, folder: Path) -> Workspace:
    shutil.copytree(workspace.db.parent, folder, dirs_exist_ok=True)
    return Workspace(folder)


def label(workspace: Workspace, first: str) -> None:
    """All queries expect c1, and the first one this."""
    labels = [first, "c1", "c1", "c1"]
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": [chunk]} for n, chunk in enumerate(labels)))


def store(workspace: Workspace, cache: str = "on") -> None:
    store_scored(workspace.score(to_store=True, cache=cache), db=workspace.db)


def rewrite(workspace: Workspace, query_id: str, *chunks: str, run_id: str = "run") -> None:
    text = json.dumps({"hits_top_k": hits(*chunks)})
    workspace.execute(
        "UPDATE eval_query_results SET result_json = ? WHERE query_id = ? AND run_id = ?", (text, query_id, run_id)
    )


def moved(workspace: Workspace, *, run_id: str = "run", cache: str = "on", **options: Any) -> dict[str, Movement]:
    return all_moved(workspace, cache=cache, **options).get(run_id, {})


def all_moved(workspace: Workspace, *, cache: str = "on", **options: Any) -> dict[str, dict[str, Movement]]:
    """What moves in each run."""
    found: dict[str, dict[str, Movement]] = {}
    for one in recompute(workspace.db, workspace.golden, ScoreOptions(cache=cache, **options), explain=True).movements:
        found.setdefault(one.run_id, {})[one.metric] = one
    return found


def test_without_changes_no_number_moves(scored: Workspace) -> None:
    found = recompute(scored.db, scored.golden, ScoreOptions(cache="on"), explain=True)
    assert not found.due.reasons
    assert not found.movements


def test_the_change_of_each_run_is_attributed_to_its_causes(scored: Workspace) -> None:
    """By hand: q0 now finds its chunk at rank 2 (1 → 1/2); four queries."""
    label(scored, "c2")
    # q1 finds nothing (1 → 0).
    rewrite(scored, "q1", "c9", "c8")
    # Labels are applied first: under the old rows the new label of q0 is at rank 2, under the new ones at rank 4.
    rewrite(scored, "q0", "c7", "c8", "c9", "c2", run_id="other")
    found = {run_id: metrics["mrr"] for run_id, metrics in all_moved(scored).items()}
    assert (found["run"].stored, found["run"].now) == (1.0, 0.625)
    assert {run_id: one.because for run_id, one in found.items()} == {
        "run": {LABELS: -0.125, DATA: -0.25},
        "other": {LABELS: -0.125, DATA: -0.0625},
        # A single cause is attributed the whole change.
        "third": {LABELS: -0.125},
    }
    # The copy of the earlier rows was read, and must not be taken for the rows that are there now.
    now = scored.aggregate(cache="on")
    assert now == scored.aggregate(cache="off")
    assert now["mrr"] == 0.625


def test_changed_rows_alone_are_attributed_the_whole_change(scored: Workspace) -> None:
    rewrite(scored, "q1", "c9", "c8")
    assert moved(scored)["mrr"].because == {DATA: -0.25}


def test_without_the_earlier_rows_labels_are_still_distinguished(uncopied: Workspace) -> None:
    label(uncopied, "c2")
    rewrite(uncopied, "q1", "c9", "c8")
    assert moved(uncopied, cache="off")["mrr"].because == {DATA: -0.25, LABELS: -0.125}


def test_definitions_labels_and_rows_are_distinguished(scored: Workspace) -> None:
    """A definition that changed: queries without a row count as zero from now on."""
    scored.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c1"]} for n in range(5)))
    store(scored)
    scored.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c2" if n == 0 else "c1"]} for n in range(5)))
    rewrite(scored, "q1", "c9", "c8")
    found = moved(scored, missing="zero")["mrr"]
    assert (found.stored, found.now) == (1.0, 0.5)
    assert found.because == {"missing queries count differently": -0.2, LABELS: -0.1, DATA: -0.2}


def test_causes_that_cannot_be_separated_are_named_together(uncopied: Workspace) -> None:
    rewrite(uncopied, "q1", "c9", "c8")
    found = moved(uncopied, cache="off", extra_ks=(2,))
    assert found["mrr"].because == {f"{DATA} and {DEFINITIONS}": -0.25}
    assert found["hit_at_k.2"].stored is None


def test_the_earlier_rows_are_forgotten_once_new_numbers_are_stored(scored: Workspace) -> None:
    rewrite(scored, "q1", "c9", "c8")
    store(scored)
    assert moved(scored) == {}
    assert scored.aggregate(cache="on") == scored.aggregate(cache="off")


def test_labels_are_kept_as_long_as_a_stored_number_needs_them(scored: Workspace) -> None:
    assert scored.execute("SELECT COUNT(*) FROM kbeval_golden") == [(1,)]
    label(scored, "c2")
    store(scored)
    ((golden_hash,),) = scored.execute("SELECT golden_hash FROM kbeval_golden")
    assert golden_hash == scored.aggregate()["provenance"]["golden"]


def test_kept_labels_that_are_damaged_are_as_good_as_none(scored: Workspace) -> None:
    label(scored, "c2")
    rewrite(scored, "q1", "c9", "c8")
    scored.execute("UPDATE kbeval_golden SET entries = 'no such thing'")
    assert moved(scored)["mrr"].because == {LABELS: -0.125, DATA: -0.25}
    scored.execute("DROP TABLE kbeval_golden")
    assert moved(scored)["mrr"].because == {LABELS: -0.125, DATA: -0.25}


# --- which queries ------------------------------------------------------------------------------------


def changed(workspace: Workspace, **options: Any) -> dict[str, list[str] | None]:
    found = recompute(workspace.db, workspace.golden, ScoreOptions(**options), explain=True)
    return found.queries.get("run", {})


@pytest.mark.parametrize("cache", ["on", "off"])
def test_the_queries_that_changed_are_named(
    scored_once: Workspace, scored_without_copy: Workspace, tmp_path: Path, cache: str
) -> None:
    """With a copy of the earlier rows next to the database, and with what the database itself keeps of them."""
    workspace = copied(scored_once if cache == "on" else scored_without_copy, tmp_path)
    assert changed(workspace, cache=cache) == {}
    rewrite(workspace, "q1", "c9", "c8")
    workspace.execute("DELETE FROM eval_query_results WHERE query_id = 'q3' AND run_id = 'run'")
    workspace.execute("INSERT INTO eval_query_results VALUES ('run', 'new', 'no JSON')")
    assert changed(workspace, cache=cache) == {DATA: ["new", "q1", "q3"]}
    workspace.add_golden({"id": "q0", "expected_chunk_ids": ["c2"]}, {"id": "q1", "expected_chunk_ids": ["c1"]})
    assert changed(workspace, cache=cache) == {LABELS: ["q0", "q2", "q3"], DATA: ["new", "q1", "q3"]}


def test_causes_are_unknown_if_earlier_data_was_not_kept(workspace: Workspace) -> None:
    label(workspace, "c1")
    workspace.add_run("run", {"q0": {"hits_top_k": hits("c1")}})
    store(workspace, cache="off")
    workspace.execute("UPDATE kbeval_rows SET marks = 'no such thing'")
    workspace.execute("DROP TABLE kbeval_golden")
    label(workspace, "c2")
    rewrite(workspace, "q0", "c9")
    assert changed(workspace, cache="off") == {LABELS: None, DATA: None}
    workspace.execute("DROP TABLE kbeval_rows")
    assert changed(workspace, cache="off") == {LABELS: None, DATA: None}


def test_what_is_kept_of_earlier_rows_is_of_those_that_were_scored(workspace: Workspace) -> None:
    """Numbers that another scoring stored since, with a copy, were made from other rows than those that are known."""
    label(workspace, "c1")
    workspace.add_run("run", {"q0": {"hits_top_k": hits("c1")}, "q1": {"hits_top_k": hits("c1")}})
    store(workspace, cache="off")
    rewrite(workspace, "q0", "c9")
    store(workspace, cache="on")
    rewrite(workspace, "q1", "c9")
    assert changed(workspace, cache="off") == {DATA: None}
    assert changed(workspace, cache="on") == {DATA: ["q1"]}


def test_the_table_names_some_and_programs_get_all(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"q{n:02}" for n in range(12)]
    workspace.add_golden(*({"id": name, "expected_chunk_ids": ["c1"]} for name in names))
    for run_id in ("a", "b"):
        workspace.add_run(run_id, {name: {"hits_top_k": hits("c1")} for name in names})
    store(workspace, cache="off")
    workspace.add_golden(*({"id": name, "expected_chunk_ids": ["c2"]} for name in names))
    for run_id in ("a", "b"):
        rewrite(workspace, "q03", "c2", run_id=run_id)
    assert command(workspace, "--explain") == 0
    out = capsys.readouterr().out
    assert re.search(r"2 runs +labels +12  q00, q01, .*q07, and 4 more\n", out)
    assert re.search(r"2 runs +rows +1  q03\n", out)
    assert command(workspace, "--explain", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["queries"]["b"] == {LABELS: names, DATA: ["q03"]}
    assert command(workspace, "--explain", "--format", "csv") == 0
    assert f"labels changed: {' '.join(names)}; rows changed: q03" in capsys.readouterr().out


def command(workspace: Workspace, *more: str) -> int:
    return run(["recompute", "--db", str(workspace.db), "--golden", str(workspace.golden), *more])


def test_the_command_shows_what_moves_and_stores_nothing(scored: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    before = scored.stored()
    label(scored, "c2")
    rewrite(scored, "q1", "c9", "c8")
    assert command(scored, "--explain", "--cache", "on") == 0
    out, err = capsys.readouterr()
    assert re.search(r"run +mrr +1\.0000 +0\.6250 +-0\.3750 +labels changed -0\.1250; rows changed -0\.2500\n", out)
    assert "rows changed, labels changed: run" in err
    assert "nothing was stored" in err
    assert scored.stored() == before


def test_the_command_stores_when_told_to(scored: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    label(scored, "c2")
    assert command(scored, "--store") == 0
    assert "stored the numbers of 3 runs" in capsys.readouterr().err
    assert command(scored) == 0
    assert "3 runs unchanged since the last scoring; no number would change" in capsys.readouterr().err
    assert json.loads(scored.stored())["mrr"] == 0.875


def test_the_command_speaks_json(scored: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    label(scored, "c2")
    assert command(scored, "run", "--explain", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reasons"] == {"run": ["labels changed"]}
    (mrr,) = [moved for moved in found["moved"] if moved["metric"] == "mrr"]
    assert mrr == {
        "run_id": "run",
        "metric": "mrr",
        "stored": 1.0,
        "now": 0.875,
        "change": -0.125,
        "because": {"labels changed": -0.125},
    }


def test_a_run_that_was_never_scored_has_nothing_to_explain(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    label(workspace, "c1")
    workspace.add_run("run", {"q0": {"hits_top_k": hits("c1")}})
    assert command(workspace, "--explain") == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "new: run" in err


def test_wrong_names_are_one_line(scored: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(scored, "rnu") == 2
    assert "did you mean 'run'?" in capsys.readouterr().err
