"""Scoring a history again: what makes a run due, and that nothing else does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kbeval.scoring.provenance
from kbeval.metrics.catalogue import metrics_in_config, parse_metric
from kbeval.metrics.definitions import definitions_hash
from kbeval.scoring import incremental as rescoring
from kbeval.scoring.aggregate import Scored, score_runs
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.provenance import DATA, DEFINITIONS, FORCED, KNOWLEDGE_BASE, LABELS, MATCHING, NEW, PLACES
from tests.support.nights import Edit, Night, drop_row, set_chunk, set_config, set_document, set_row
from tests.support.workspace import answer, hits

LINES = [{"kind": "line", "start": 1, "end": 9}]
ALL = ("r1", "r2", "r3")


@pytest.fixture(scope="module")
def scored_once(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """Three runs of two queries over a knowledge base of one document; scored and stored."""
    found = Night(tmp_path_factory.mktemp("scored"))
    found.add_golden({"id": "q1", "expected_chunk_ids": ["c1"]}, {"id": "q2", "expected_doc_ids": ["d1"]})
    found.edit(set_document("d1", "d1.md"), set_chunk("c1", "d1", "md@1", LINES))
    cited = answer("yes", {"path": "d1.md", **LINES[0]})
    for number, run_id in enumerate(ALL):
        rows = {query: {"hits_top_k": hits("c1", "c2"), "answer": cited} for query in ("q1", "q2")}
        found.add_run(run_id, rows, created_at=f"2026-01-0{number + 1}")
    assert found.night() == {run_id: [NEW] for run_id in ALL}
    return found


@pytest.fixture
def night(scored_once: Night, tmp_path: Path) -> Night:
    """A copy of it, to change."""
    return scored_once.copy(tmp_path / "night")


def everybody(*why: str) -> dict[str, list[str]]:
    return {run_id: list(why) for run_id in ALL}


def own(**metrics: str) -> dict[str, Any]:
    return {"configured_metrics": metrics_in_config(metrics, "kbeval.toml")}


# --- each cause alone -------------------------------------------------------------------------------


# Each to a run of its own: what is done to it, and why it is due afterwards.
EDITS: dict[str, tuple[Edit, list[str]]] = {
    "row changed": (set_row("row changed", "q1", {"hits_top_k": hits("c2")}), [DATA]),
    "row added": (set_row("row added", "q3", {}), [DATA]),
    "row removed": (drop_row("row removed", "q2"), [DATA]),
    "configured": (set_config("configured", {"chunker_version": "md@1", "eval_k": 3}), ["configuration changed"]),
    "new": (set_config("new", {}), [NEW]),
    "numbers of another program": (
        ("UPDATE eval_runs SET aggregate_json = '{\"mrr\": 1.0}' WHERE run_id = 'numbers of another program'", ()),
        ["scored by an older version"],
    ),
    "numbers gone": (("UPDATE eval_runs SET aggregate_json = '' WHERE run_id = 'numbers gone'", ()), [NEW]),
}


def test_what_changed_makes_exactly_its_runs_due(night: Night) -> None:
    rows = {query: {"hits_top_k": hits("c1", "c2")} for query in ("q1", "q2")}
    for run_id in EDITS:
        if run_id != "new":
            night.add_run(run_id, rows)
    assert night.night().keys() == EDITS.keys() - {"new"}
    night.edit(*(edit for edit, _ in EDITS.values()))
    assert night.night() == {run_id: why for run_id, (_, why) in EDITS.items()}
    assert night.reasons() == {}


INDEXED = {
    "a chunk moved": set_chunk("c1", "d1", "md@1", [{"kind": "line", "start": 2, "end": 3}]),
    "a chunk that nobody names": set_chunk("c9", "d1", "md@1", LINES),
    "a document": set_document("d2", "d2.md"),
}


def test_what_changed_in_the_knowledge_base_makes_all_due(scored_once: Night, tmp_path: Path) -> None:
    for what, edit in INDEXED.items():
        changed = scored_once.copy(tmp_path / what)
        changed.edit(edit)
        assert changed.reasons() == everybody(KNOWLEDGE_BASE), what
    assert changed.night() == everybody(KNOWLEDGE_BASE)
    assert changed.reasons() == {}


def test_what_no_number_depends_on_makes_nothing_due(night: Night) -> None:
    night.execute("UPDATE eval_runs SET created_at = '2020', suite = 'x', commit_hash = 'abc'")
    night.execute("UPDATE chunks SET text = 'other words', created_at = 'later'")
    assert night.reasons() == {}


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "another k": ({"extra_ks": (2,)}, DEFINITIONS),
    "a metric of one's own": (own(deepest="MAX(rank)"), DEFINITIONS),
    "matching by spans": ({"match": "span"}, MATCHING),
    "missing queries": ({"missing": "zero"}, "missing queries count differently"),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_numbers_of_another_kind_are_due_until_they_are_stored(night: Night, what: str) -> None:
    options, why = OPTIONS[what]
    assert night.night(**options) == everybody(why)
    assert night.reasons(**options) == {}
    assert night.reasons() == everybody(why)


def test_how_spans_are_matched_matters_only_where_they_are(night: Night) -> None:
    assert night.reasons(min_overlap=0.9, overlap_of="union") == {}
    night.night(match="span")
    assert night.reasons(match="span", min_overlap=0.9) == everybody(MATCHING)
    assert night.reasons(match="span", overlap_of="union") == everybody(MATCHING)


def test_a_metric_file_that_is_edited_makes_all_due_and_its_comments_do_not(night: Night, tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    file = folder / "deepest.sql"
    file.write_text("-- deepest: how deep?\nMAX(rank)\n", encoding="utf-8")
    night.night(metric_folders=(folder,))
    file.write_text("-- deepest: how deep did it look?\n-- better: lower\nMAX(rank)\n", encoding="utf-8")
    assert night.reasons(metric_folders=(folder,)) == {}
    file.write_text("-- deepest: how deep?\nMIN(rank)\n", encoding="utf-8")
    assert night.reasons(metric_folders=(folder,)) == everybody(DEFINITIONS)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("MAX(CASE WHEN lang = 'a b' THEN 1 END)", "MAX(CASE WHEN lang = 'a  b' THEN 1 END)"),
        ("-- grain: per_query\nn_hits", "-- grain: per_query\n-- labels: tags\nn_hits"),
        ("MAX(rank) -- a\n+ 1", "MAX(rank) -- a + 1"),
    ],
)
def test_definitions_that_mean_something_else_have_another_hash(one: str, other: str) -> None:
    first, second = (definitions_hash([parse_metric(f"-- x: what?\n{text}", "test")]) for text in (one, other))
    assert first != second


def test_labels_make_all_due_and_comments_order_and_format_do_not(night: Night) -> None:
    entries = json.loads(night.golden.read_text(encoding="utf-8"))
    yaml = "".join(f"# a comment\n- {json.dumps(entry)}\n" for entry in reversed(entries))
    night.golden = night.golden.with_suffix(".yaml")
    night.golden.write_text(yaml, encoding="utf-8")
    assert night.reasons() == {}
    night.golden.write_text(yaml.replace('"c1"', '"c2"'), encoding="utf-8")
    assert night.night() == everybody(LABELS)
    assert night.reasons() == {}


def test_a_new_version_alone_is_not_a_reason(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its numbers mean is in the hash of the definitions, shipped SQL included."""
    monkeypatch.setattr(kbeval.scoring.provenance, "__version__", "99.0")
    assert night.reasons() == {}
    monkeypatch.setattr("kbeval.metrics.definitions.shipped_steps", lambda _: [["matches", "SELECT something else"]])
    assert night.reasons() == everybody(DEFINITIONS)


def test_several_causes_are_all_named(night: Night) -> None:
    night.edit(set_row("r1", "q1", {}), set_config("r1", {}), set_document("d2", "d2.md"))
    assert night.reasons()["r1"] == [DATA, "configuration changed", KNOWLEDGE_BASE]
    assert night.reasons()["r2"] == [KNOWLEDGE_BASE]


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
@pytest.mark.parametrize("cache", ["on", "off"])
def test_without_changes_nothing_is_written(night: Night, journal: str, cache: str) -> None:
    night.execute(f"PRAGMA journal_mode = {journal}")
    night.night(cache=cache)
    before = night.db.read_bytes()
    assert night.night(cache=cache) == {}
    assert night.db.read_bytes() == before


def test_force_scores_all_again_and_gives_the_same_bytes(night: Night) -> None:
    before = night.numbers()
    assert night.night(force=True) == everybody(FORCED)
    assert night.numbers() == before


# --- a run's numbers do not depend on its company ------------------------------------------------------


def alone_and_together(night: Night, run_id: str, **options: Any) -> tuple[str, str]:
    """A run's bytes, scored by itself and with all others. Nothing is stored."""
    found = [
        score_runs(night.db, night.golden, runs, ScoreOptions(**options)).aggregates[run_id].to_json()
        for runs in ([run_id], None)
    ]
    return found[0], found[1]


JUDGED = {"hits_top_k": hits("c1"), "elapsed_ms": 7, "latency": {"total_ms": 900}, "groundedness": {"score": 4}}
# The configuration of a run of another system, and metrics of one's own about what such runs have.
COMPANY: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"kbeval": {"system": "anchors"}}, {"slow": "MAX(elapsed_ms)", "judged": "MAX(judge_groundedness)"}),
    ({"kbeval": {"system": "grounded"}}, {"held": "MAX(CASE WHEN claim_holds THEN 1 ELSE 0 END)"}),
    ({"kbeval": {"system": "anchors"}, "k": 20}, {"deep_at_k": "CASE WHEN MAX(rank) > :k - 10 THEN 1 END"}),
]


def test_imported_runs_in_the_same_database_change_no_number(night: Night) -> None:
    night.add_golden({"id": "q1", "expected_chunk_ids": ["c1"], "gold_claim_substr": ["the claim"]})
    night.edit(set_row("r1", "q1", {**JUDGED, "answer": answer("the claim")}))
    metrics = metrics_in_config(dict(metric for _, own_ones in COMPANY for metric in own_ones.items()), "kbeval.toml")
    for run_id, (config, _) in zip(("r2", "r3", "r4"), COMPANY, strict=True):
        night.edit(set_config(run_id, config), set_row(run_id, "q1", {"hits_top_k": hits("c1", "c2")}))
    alone, together = alone_and_together(night, "r1", configured_metrics=metrics)
    assert alone == together


SPAN: dict[str, Any] = {"match": "span"}
HERE, THERE = [{"kind": "line", "start": 1, "end": 4}], [{"kind": "line", "start": 50, "end": 60}]


def hit(chunk: str, **more: Any) -> dict[str, Any]:
    return {"hits_top_k": [{"chunk_id": chunk, **more}]}


@pytest.fixture
def unindexed(night: Night) -> Night:
    """No table contains the chunks: only hits have their positions."""
    for table in ("kbeval_chunk_spans", "chunks", "documents"):
        night.execute(f"DELETE FROM {table}")
    return night


def test_what_a_path_means_is_not_learned_from_another_run(unindexed: Night) -> None:
    unindexed.add_golden({"id": "q1", "expected_doc_ids": ["d1"], "expected_spans": [{"doc_id": "d1", **HERE[0]}]})
    unindexed.edit(set_row("r1", "q1", hit("n1", doc_path="d1.md", source_spans=HERE)))
    unindexed.edit(set_row("r2", "q1", hit("n1", doc_id="d1", doc_path="d1.md", source_spans=HERE)))
    alone, together = alone_and_together(unindexed, "r1")
    assert alone == together


def test_a_label_that_names_a_path_finds_hits_that_name_an_id_too(unindexed: Night) -> None:
    unindexed.add_golden({"id": "q1", "expected_spans": [{"path": "d1.md", **HERE[0]}]})
    unindexed.edit(set_row("r1", "q1", hit("n1", doc_id="d1", doc_path="d1.md", source_spans=HERE)))
    unindexed.edit(set_row("r2", "q1", hit("n1", doc_id="d1", doc_path="other.md", source_spans=HERE)))
    unindexed.night()
    found = {run_id: json.loads(text)["mrr"] for run_id, text in unindexed.numbers().items()}
    assert found["r1"] == 1.0
    assert found["r2"] == 0.0


def scored_twice(night: Night, **options: Any) -> tuple[dict[str, str], dict[str, str]]:
    """All bytes after one night and after another, in which nothing changed but what the first one archived."""
    night.night(force=True, **options)
    first = night.numbers()
    assert night.reasons(**options) == {}
    night.night(force=True, **options)
    return first, night.numbers()


def test_hits_that_were_archived_do_not_change_what_a_label_means(unindexed: Night) -> None:
    """Stored hits disagree about the position of c1; the one that was archived first must not win."""
    unindexed.edit(set_row("r1", "q1", hit("c1", doc_id="d1", source_spans=THERE)))
    unindexed.edit(set_row("r2", "q1", hit("c1", doc_id="d1", source_spans=HERE)))
    unindexed.edit(set_row("r3", "q1", hit("n1", doc_id="d1", source_spans=HERE)), set_config("r1", {}))
    unindexed.night_of("r1")
    archived = unindexed.copy(unindexed.db.parent / "copy")
    unindexed.execute("DELETE FROM kbeval_chunk_spans")
    unindexed.night(force=True, **SPAN)
    archived.night(force=True, **SPAN)
    assert archived.numbers() == unindexed.numbers()


def test_a_hit_that_says_nothing_is_not_placed_by_another_run(unindexed: Night) -> None:
    unindexed.edit(set_row("r1", "q1", hit("c1", doc_id="d1", source_spans=HERE)))
    unindexed.edit(
        set_row("r2", "q1", hit("n1", doc_id="d1")), set_row("r3", "q1", hit("n1", doc_id="d1", source_spans=THERE))
    )
    first, second = scored_twice(unindexed, **SPAN)
    assert first == second


def test_an_id_that_is_used_again_means_the_same_before_and_after_it_is_archived(unindexed: Night) -> None:
    """The table knows c1 of a@2, an old run's hits another of a@1."""
    unindexed.edit(set_chunk("c1", "d1", "a@2", HERE), set_config("r1", {"chunker_version": "a@1"}))
    unindexed.edit(set_row("r1", "q1", hit("c1", doc_id="d1", source_spans=THERE)))
    unindexed.edit(set_row("r2", "q1", hit("n1", doc_id="d1", source_spans=HERE)))
    first, second = scored_twice(unindexed, **SPAN)
    assert first == second
    assert json.loads(first["r2"])["mrr"] == 1.0


@pytest.mark.parametrize("where", ["chunks", "hits"])
def test_a_place_that_the_table_lost_is_still_known_the_night_after(unindexed: Night, where: str) -> None:
    known = (
        set_chunk("c1", "d1", "md@1", HERE)
        if where == "chunks"
        else set_row("r1", "q1", hit("c1", doc_id="d1", source_spans=HERE))
    )
    unindexed.edit(known, set_row("r2", "q1", hit("n1", doc_id="d1", source_spans=HERE)))
    unindexed.night(force=True, **SPAN)
    unindexed.edit(set_chunk("c1", "d1", "md@1", []))
    first, second = scored_twice(unindexed, **SPAN)
    assert first == second
    assert json.loads(first["r2"])["mrr"] == 1.0


def test_a_label_that_another_runs_hits_have_moved_makes_all_due(unindexed: Night) -> None:
    unindexed.edit(set_row("r1", "q1", hit("c1", doc_id="d1", source_spans=THERE)))
    unindexed.night(**SPAN)
    assert unindexed.reasons(**SPAN) == {}
    unindexed.edit(set_row("r1", "q1", hit("c1", doc_id="d1", source_spans=HERE)))
    assert unindexed.reasons(**SPAN) == {"r1": [DATA, PLACES], "r2": [PLACES], "r3": [PLACES]}
    assert unindexed.reasons() != {}
    unindexed.night(**SPAN)
    assert unindexed.reasons(**SPAN) == {}


def test_duplicate_chunks_in_a_table_without_a_key_are_not_overlooked(night: Night) -> None:
    """Two equal rows cancel each other out in an exclusive or."""
    night.execute_script(
        "CREATE TABLE copy AS SELECT * FROM chunks; DROP TABLE chunks; ALTER TABLE copy RENAME TO chunks"
    )
    for _ in range(2):
        night.edit(set_chunk("c7", "d1", "md@1", LINES))
    night.night()
    night.execute("UPDATE chunks SET chunk_id = 'c8' WHERE chunk_id = 'c7'")
    assert night.reasons() == everybody(KNOWLEDGE_BASE)


# --- steps --------------------------------------------------------------------------------------------


def stopping_after(night: Night, steps: int) -> Callable[[Scored], None]:
    """Stores this many steps, and is interrupted at the next."""
    done: list[Scored] = []

    def store(scored: Scored) -> None:
        if len(done) == steps:
            raise KeyboardInterrupt
        night.store(scored)
        done.append(scored)

    return store


def test_a_history_that_is_interrupted_goes_on_with_the_rest(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = night.copy(night.db.parent / "copy")
    monkeypatch.setattr(rescoring, "STEP_ROWS", 2)
    for each in (night, undisturbed):
        each.execute("UPDATE eval_query_results SET result_json = '{}' WHERE query_id = 'q1'")
    with pytest.raises(KeyboardInterrupt):
        rescoring.rescore(night.db, night.due(), ScoreOptions(), stopping_after(night, 1))
    assert night.reasons() == {"r2": [DATA], "r3": [DATA]}
    assert list(night.due().steps()) == [["r2"], ["r3"]]
    night.night()
    monkeypatch.undo()
    undisturbed.night()
    assert night.numbers() == undisturbed.numbers()


def test_steps_hold_as_many_rows_as_they_may(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes(**more: Any) -> list[int]:
        return [len(step) for step in night.due(**more).steps()]

    night.execute("UPDATE eval_query_results SET result_json = '{}'")
    for rows, expected in ((1, [1, 1, 1]), (4, [2, 1]), (6, [3])):
        monkeypatch.setattr(rescoring, "STEP_ROWS", rows)
        assert sizes() == expected
    # Rows that are parsed already weigh less.
    monkeypatch.setattr(rescoring, "STEP_ROWS", 1)
    night.night()
    assert sizes(extra_ks=(2,)) == [3]
