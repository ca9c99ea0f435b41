"""Anchor labels and grounded question answering: imported, scored as the oracles say, exported as they came."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.cli import run
from kbeval.errors import KbevalError, UsageError
from kbeval.golden import load_golden
from kbeval.render.comparison import delta_table, legend
from kbeval.scoring.aggregate import score_runs
from kbeval.scoring.options import ScoreOptions
from kbeval.storage.archive_writer import archive_runs
from kbeval.systems.anchors import from_row, read_folder, to_row
from kbeval.systems.trace_import import read_trace
from kbeval.systems.writing import write_runs
from tests.oracles import system_oracles
from tests.support.examples import scorings
from tests.support.workspace import Workspace

FIXTURES = Path(__file__).parents[2] / "fixtures"
HYBRID = FIXTURES / "anchors" / "2026-03-05-hybrid"


def write_results(folder: Path, rows: Sequence[Any], config: Any = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    (folder / "results.jsonl").write_text("\n".join(lines), encoding="utf-8")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def score_anchors(tmp_path: Path, rows: Sequence[Any], golden: Sequence[Any], config: Any = None) -> dict[str, Any]:
    database, labels = tmp_path / "a.db", tmp_path / "golden.json"
    labels.write_text(json.dumps([{"query": "?", **entry} for entry in golden]))
    write_runs(database, [read_folder(write_results(tmp_path / "run", rows, config or {}))])
    return score_runs(database, labels).aggregates["run"].to_dict()


def score_each(
    tmp_path: Path,
    cases: Sequence[tuple[dict[str, Any], dict[str, Any], Any]],
    others: Sequence[Sequence[dict[str, Any]]] | None = None,
) -> list[dict[str, Any]]:
    """What each row comes to, given its labels and the configuration of its run: a run and a query of its own for each
    of them, all in one scoring. `others`: further rows of each run.
    """
    database, labels = tmp_path / "a.db", tmp_path / "golden.json"
    labels.write_text(json.dumps([{"query": "?", **label, "id": f"t{n}"} for n, (_, label, _) in enumerate(cases)]))
    folders = [
        write_results(
            tmp_path / f"run{n}", [{**row, "test_case_id": f"t{n}"}, *(others[n] if others else ())], config or {}
        )
        for n, (row, _, config) in enumerate(cases)
    ]
    write_runs(database, [read_folder(folder) for folder in folders])
    scored = score_runs(database, labels).aggregates
    return [scored[folder.name].to_dict() for folder in folders]


def chunk(path: str, heading: Any, text: str | None = "text", rank: int = 1, chunk_id: str = "c") -> dict[str, Any]:
    return {"chunk_id": chunk_id, "rel_path": path, "heading_path": heading, "text": text, "rank": rank}


# --- headings, snippets, groups ----------------------------------------------------------------------


HEADINGS_FOUND: list[tuple[Any, Any, bool]] = [
    ("# A", "# A", True),
    ("# A", "# A > ## B", True),
    ("# A > ## B", "# A", False),
    ("Step 1", "Step 10", False),
    ("Step 1", "Step 1 > More", True),
    ("### A", "#   A  ", True),
    ("A > B  c", "# A > ## B c", True),
    (["A", "B"], "# A > ## B > ### C", True),
    ("", "# Anything", True),
    ("# A", "", False),
    ("# a", "# A", False),
    ("# C#", "# C#", True),
    ("# C", "# C#", False),
    ("A b", "  ##  A\t b  ##  ", True),
    ("A b", "#\u00a0A\u2003b", True),
    (["  A ", "", "## B"], "# A > ## B", True),
    ("# A #", ["A"], True),
]


def test_a_heading_begins_with_the_supports_heading_by_heading(tmp_path: Path) -> None:
    cases = [
        (
            {"retrieved_chunks": [chunk("p.md", found)]},
            {"gold_supports": [{"rel_path": "p.md", "heading_path": support}]},
            None,
        )
        for support, found, _ in HEADINGS_FOUND
    ]
    for scored, case in zip(score_each(tmp_path, cases), HEADINGS_FOUND, strict=True):
        assert scored["support_mrr"] == float(case[2]), case


TEXTS: list[tuple[str | None, bool, int]] = [
    ("it holds the Needle here", True, 0),
    ("it does not", False, 0),
    ("x" * 200 + "...", True, 1),
    ("x" * 197 + "...", True, 1),
    ("x" * 150 + "...", False, 0),
    (None, True, 1),
    ("", True, 1),
    (" \n", True, 1),
    ("[redacted]", True, 1),
    ("[REDACTED: names]", True, 1),
    ("Redacted", True, 1),
    ("***", True, 1),
    ("█" * 300, True, 1),
    ("...", True, 1),
    ("[redacted] before the needle", True, 0),
    ("[redacted] and hay", False, 0),
    ("redacted hay", False, 0),
    ("[hay]", False, 0),
    ("-", False, 0),
]


def test_a_snippet_must_be_in_the_text_unless_the_text_was_not_kept_whole(tmp_path: Path) -> None:
    label = {"gold_supports": [{"rel_path": "p.md", "heading_path": "A", "snippets": ["nope", "needle"]}]}
    cases = [({"retrieved_chunks": [chunk("p.md", "# A", text)]}, label, None) for text, _, _ in TEXTS]
    for scored, (text, is_match, unverified) in zip(score_each(tmp_path, cases), TEXTS, strict=True):
        assert scored["support_mrr"] == float(is_match), text
        assert scored["ledger"].get("unverified_supports", 0) == unverified, text


def test_all_of_one_group_are_needed_and_any_group_will_do(tmp_path: Path) -> None:
    supports = [{"rel_path": f"{n}.md", "heading_path": ""} for n in range(3)]
    labels = [{"id": "t", "gold_supports": supports, "required_support_groups": [[0, 1], [2]], "category": "any"}]
    rows = [
        {
            "test_case_id": "t",
            "retrieved_chunks": [
                chunk("0.md", "", rank=1, chunk_id="a"),
                chunk("1.md", "", rank=4, chunk_id="b"),
                chunk("2.md", "", rank=7, chunk_id="c"),
            ],
        }
    ]
    found = score_anchors(tmp_path, rows, labels, {"k": 4})
    assert found["support_recall_all_at_k"] == {"1": 0.0, "3": 0.0, "4": 1.0, "5": 1.0, "10": 1.0}
    assert found["support_recall_any_at_k"]["1"] == 1.0


def test_a_runs_own_k_does_not_depend_on_its_company(tmp_path: Path) -> None:
    labels = tmp_path / "golden.json"
    labels.write_text(json.dumps([{"id": "t", "query": "?", "gold_supports": [{"rel_path": "p", "heading_path": ""}]}]))
    rows = [{"test_case_id": "t", "retrieved_chunks": [chunk("p", "")]}]
    runs = [read_folder(write_results(tmp_path / f"k{k}", rows, {"k": k})) for k in (4, 7)]
    write_runs(tmp_path / "a.db", runs)
    both, alone = score_runs(tmp_path / "a.db", labels), score_runs(tmp_path / "a.db", labels, ["k4"])
    assert both.aggregates["k4"].to_json() == alone.aggregates["k4"].to_json()
    assert "4" in both.aggregates["k4"].to_dict()["support_precision_at_k"]
    assert "7" not in both.aggregates["k4"].to_dict()["support_precision_at_k"]


# --- folders, abstention, references ---------------------------------------------------------------

GO = {"rel_path": "Software/Go.md", "heading_path": ""}
AWAY = {"rel_path": "Health/Sleep.md", "heading_path": ""}


def referring(vault: str, path: str = "Health/Sleep.md", name: str = "other") -> dict[str, Any]:
    return {"test_case_id": name, "references": [{"vault": vault, "rel_path": path, "heading_path": ""}]}


FOLDERS_WITH_VAULTS: list[tuple[list[str], str, dict[str, Any], float]] = [
    (["Software"], "Software/Go.md", {}, 0),
    (["./Software/"], "Software/Go.md", {}, 0),
    (["Soft"], "Software/Go.md", {}, 1),
    (["/"], "Software/Go.md", {}, 0),
    # With its vault, whether anything calls it one or not.
    (["personal/Software"], "Software/Go.md", {}, 0),
    (["personal/Software"], "Software/Go.md", {"rows": [referring("personal")]}, 0),
    (["personal/Software"], "Software/Go.md", {"entry": {"vaults": ["personal"]}}, 0),
    (["personal/Software"], "Software/deep/Go.md", {}, 0),
    (["personal/Health"], "Software/Go.md", {"rows": [referring("personal")]}, 1),
    # The labels ask for another vault.
    (["work/Software"], "Software/Go.md", {"entry": {"vaults": ["personal"]}}, 1),
    (["work/Software"], "Software/Go.md", {"entry": {"vaults": ["personal"]}, "rows": [referring("work")]}, 1),
    # A path begins with it: it is a folder, and what is in the folder below it is elsewhere.
    (["archive/Software"], "Software/Go.md", {"rows": [referring("", "archive/Old.md")]}, 1),
    (["archive/Software"], "Software/Go.md", {"row": {"retrieved_chunks": [chunk("archive/Old.md", "")]}}, 1),
    # Other folders of the run are named as paths are.
    (["archive/Software", "Health"], "Software/Go.md", {"rows": [referring("", "Health/Sleep.md")]}, 1),
    # Unless it is called a vault, although a folder has the same name.
    (["archive/Software"], "Software/Go.md", {"rows": [referring("archive", "archive/Old.md")]}, 0),
    # A vault as a whole.
    (["personal"], "Software/Go.md", {"rows": [referring("personal")]}, 0),
    (["personal"], "Software/Go.md", {}, 1),
    (["personal"], "Software/Go.md", {"rows": [referring("personal", "personal/Diary.md")]}, 1),
    # Paths with a vault, and folders without.
    (["Software"], "personal/Software/Go.md", {"rows": [referring("personal")]}, 0),
    (["Software"], "personal/Software/Go.md", {"entry": {"vaults": ["personal"]}}, 0),
    (["Software"], "projects/Software/Go.md", {}, 1),
    (
        ["work/Software"],
        "personal/Software/Go.md",
        {"rows": [referring("personal"), referring("work", name="w")]},
        1,
    ),
]


def test_a_folder_may_be_named_with_its_vault(tmp_path: Path) -> None:
    """Is a support out of the chosen folders? A run for each case, with what else its row, its entry and it say.

    What the labels say of paths and vaults counts for all runs, so those that say different things are scored apart.
    """
    apart: dict[tuple[str, bool], list[tuple[list[str], str, dict[str, Any], float]]] = {}
    for case in FOLDERS_WITH_VAULTS:
        apart.setdefault((case[1].partition("/")[0], "entry" in case[2]), []).append(case)
    for number, together in enumerate(apart.values()):
        cases = [
            (
                {"folder_selection": folders, **more.get("row", {})},
                {"gold_supports": [{"rel_path": path, "heading_path": ""}], **more.get("entry", {})},
                None,
            )
            for folders, path, more, _ in together
        ]
        (tmp_path / str(number)).mkdir()
        found = score_each(tmp_path / str(number), cases, [more.get("rows", ()) for _, _, more, _ in together])
        for scored, case in zip(found, together, strict=True):
            assert scored.get("scope_miss_rate") == case[3], case


MODES_OF_FOLDERS: list[tuple[dict[str, Any], dict[str, Any], float | None]] = [
    ({}, {}, 1.0),
    ({"config": {"folder_mode": "on"}}, {}, 1.0),
    ({"config": {"folder_mode": "off"}}, {}, None),
    ({}, {"folder_mode": "off"}, None),
    ({}, {"folder_mode": False}, None),
    ({"config": {"k": 3}}, {"folder_mode": "Off"}, None),
    ({"config": {"folder_mode": "on_with_fallback"}}, {"folder_mode": "off"}, 1.0),
    ({"config": {"folder_mode": "off"}}, {"folder_mode": "on"}, None),
]


def test_without_a_choice_of_folders_none_is_missed(tmp_path: Path) -> None:
    cases = [
        ({"folder_selection": ["Health"], **row}, {"gold_supports": [GO]}, config)
        for row, config, _ in MODES_OF_FOLDERS
    ]
    for scored, case in zip(score_each(tmp_path, cases), MODES_OF_FOLDERS, strict=True):
        assert scored.get("scope_miss_rate") == case[2], case


CHOSEN: list[tuple[dict[str, Any], float | None]] = [
    ({"folder_selection": ["Software"]}, 0.0),
    ({"folder_selection": {"selected_folders": ["Software"]}}, 0.0),
    ({"debug": {"folder_selection": ["Software"]}}, 0.0),
    ({"debug": {"folder_selection": {"selected_folders": ["Software"]}}}, 0.0),
    ({"folder_selection": ["Software"], "debug": {"folder_selection": ["Health"]}}, 0.0),
    ({"folder_selection": {}, "debug": {"folder_selection": ["Health"]}}, 1.0),
    ({"folder_selection": None, "debug": None}, None),
    ({"folder_selection": {"available_folders": ["Software"]}}, None),
    ({"folder_selection": [None]}, None),
]


def test_the_chosen_folders_stand_at_the_top_or_under_debug(tmp_path: Path) -> None:
    cases = [(row, {"gold_supports": [GO]}, None) for row, _ in CHOSEN]
    for scored, (row, miss) in zip(score_each(tmp_path, cases), CHOSEN, strict=True):
        assert scored.get("scope_miss_rate") == miss, row


ABSTAINED: list[tuple[dict[str, Any], float | None]] = [
    ({"abstention": {"abstained": True, "hallucinated": False}, "answer": "I cannot say."}, 1.0),
    ({"abstention": {"abstained": False, "hallucinated": True}, "answer": ""}, 0.0),
    ({"abstention": {"abstained": True}, "abstained": False, "answer": "x"}, 1.0),
    ({"abstention": {"abstained": False}, "abstained": True, "answer": "x"}, 0.0),
    ({"abstention": {"abstained": None}, "abstained": True, "answer": "x"}, 1.0),
    ({"abstention": {"hallucinated": False}, "abstained": True, "answer": "x"}, 1.0),
    ({"abstention": None, "answer": "x"}, 0.0),
    ({"abstention": {"abstained": True}}, 1.0),
    ({"abstained": True}, 1.0),
    ({}, None),
]


def test_the_harness_and_the_live_system_say_differently_that_they_abstained(tmp_path: Path) -> None:
    cases = [(row, {"answerable": False}, None) for row, _ in ABSTAINED]
    for found, (row, refused) in zip(score_each(tmp_path, cases), ABSTAINED, strict=True):
        assert found.get("abstention_accuracy") == refused, row
        assert found.get("hallucination_rate_unanswerable") == (None if refused is None else 1 - refused), row


EMPTY: list[tuple[dict[str, Any], float]] = [
    ({"answer": ""}, 1.0),
    ({"answer": " \n", "abstained": False}, 1.0),
    ({"answer": "", "abstained": True}, 0.0),
    ({"answer": "", "abstention": {"abstained": True}}, 0.0),
    ({"answer": "", "abstention": {"abstained": False}, "abstained": True}, 1.0),
    ({"answer": "", "error": "boom"}, 0.0),
]


def test_an_answer_that_abstained_is_not_an_empty_response(tmp_path: Path) -> None:
    for found, (row, empty) in zip(score_each(tmp_path, [(row, {}, None) for row, _ in EMPTY]), EMPTY, strict=True):
        assert found["empty_response_rate"] == empty, row


REFERRED: list[tuple[dict[str, Any], float | None]] = [
    ({"answer": "", "references": []}, 0.0),
    ({"answer": "x"}, 0.0),
    ({"references": [GO]}, 1.0),
    ({"answer": None, "references": [AWAY]}, 0.0),
    ({"answer": "", "references": [AWAY, GO]}, 1.0),
    ({"answer": None, "references": []}, None),
    ({}, None),
]


def test_attribution_is_asked_of_rows_that_carry_an_answer_or_references(tmp_path: Path) -> None:
    cases = [(row, {"answerable": True, "gold_supports": [GO]}, None) for row, _ in REFERRED]
    for found, (row, rate) in zip(score_each(tmp_path, cases), REFERRED, strict=True):
        assert found.get("attribution_hit_rate") == rate, row


EVERYTHING: list[dict[str, Any]] = [
    {
        "test_case_id": "t0",
        "answer": "",
        "abstention": {"abstained": True, "hallucinated": False},
        "abstained": None,
        "references": [{"vault": "personal", "rel_path": "Software/Go.md", "heading_path": ["A "], "chunk_index": 3}],
        "retrieved_chunks": [
            {**chunk("Software/Go.md", " ##  A # ", "[redacted]", chunk_id="c1"), "vault": "personal"},
            {**chunk("Software/Go.md", "A", None, 2, "c2"), "token_count": 120},
            chunk("Health/Sleep.md", "", "", 3, "c3"),
        ],
        "config": {"k": 3, "folder_mode": "on_with_fallback"},
        "debug": {"folder_selection": {"selected_folders": ["personal/Software"], "available_folders": []}},
    },
    {"test_case_id": "t1", "answer": "x", "folder_selection": ["personal/Health"], "config": {"folder_mode": "off"}},
    {"test_case_id": "t2", "answer": "x", "folder_selection": ["personal/Health"], "debug": {"folder_selection": None}},
]


def test_database_copy_and_archive_give_the_same_numbers_of_such_rows(tmp_path: Path) -> None:
    labels = tmp_path / "golden.json"
    supports = [{"rel_path": "Software/Go.md", "heading_path": "# A", "snippets": ["needle"]}]
    labels.write_text(
        json.dumps([{"id": f"t{n}", "query": "?", "answerable": n > 0, "gold_supports": supports} for n in range(3)])
    )
    run_id = "night"
    write_runs(tmp_path / "a.db", [read_folder(write_results(tmp_path / run_id, EVERYTHING, {"k": 3}))])
    plain = score_runs(tmp_path / "a.db", labels, options=ScoreOptions(cache="off")).aggregates[run_id].to_json()
    found = json.loads(plain)
    assert (found["scope_miss_rate"], found["abstention_accuracy"], found["empty_response_rate"]) == (0.5, 1.0, 0.0)
    assert (found["support_mrr"], found["ledger"]["unverified_supports"]) == (0.3333, 2)
    for _ in range(2):
        cached = score_runs(tmp_path / "a.db", labels, options=ScoreOptions(cache="on"))
        assert cached.aggregates[run_id].to_json() == plain
    archive_runs(tmp_path / "a.db", tmp_path / "history", load_golden(labels))
    assert score_runs(tmp_path / "history", labels).aggregates[run_id].to_json() == plain


def test_such_rows_come_back_as_they_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"k": 3, "folder_mode": False}
    folder = write_results(tmp_path / "one" / "night", EVERYTHING, config)
    assert imported(capsys, "anchors", str(folder), "--db", "a.db")[0] == 0
    assert run(["export", "anchors", "night", "two/night", "--db", "a.db"]) == 0
    out = tmp_path / "two" / "night"
    assert [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()] == EVERYTHING
    assert json.loads((out / "config.json").read_text()) == config


# --- oracles -----------------------------------------------------------------------------------------

PATHS = st.sampled_from(["a.md", "area/b.md", "area/deep/c.md", "deep/d.md", "v/area/e.md"])
HEADINGS = st.sampled_from(
    [
        "",
        "# A",
        "# A > ## B",
        "A > B",
        "# Step 1",
        "# Step 10",
        "A",
        " ##  A ## ",
        "#A > B\u00a0#",
        ["A", "## B"],
        [" A"],
    ]
)
KEPT = st.sampled_from(["the needle", "NEEDLE", "hay", "x" * 200 + "...", "redacted needle", "[redacted] hay", "[hay]"])
NOT_KEPT = st.sampled_from(
    [None, "", " \n", "[redacted]", "***", "[REDACTED: names]", "Redacted", "**<redacted>**", "…"]
)
VAULTS = st.sampled_from(["v", "w"])
FOLDERS = st.lists(
    st.sampled_from(
        [
            "area",
            "area/",
            "./area",
            "other",
            "v/area",
            "v/area/deep",
            "v",
            "w/deep",
            "w",
            "/",
            ".",
            "deep",
            "area/deep",
            "x/y",
        ]
    ),
    max_size=2,
)
SELECTIONS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    FOLDERS,
    FOLDERS.map(lambda folders: {"selected_folders": folders, "available_folders": ["area"]}),
    st.just({}),
)
MODES = st.sampled_from(["on", "on_with_fallback", "off", "OFF", False, "", None])
FLAGS = st.none() | st.booleans()
SUPPORTS = st.lists(
    st.fixed_dictionaries(
        {"rel_path": PATHS, "heading_path": HEADINGS, "snippets": st.lists(st.just("Needle"), max_size=1)}
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def anchor_labels(draw: st.DrawFn, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": name}
    if draw(st.integers(0, 3)):
        entry["gold_supports"] = draw(SUPPORTS)
        if draw(st.booleans()):
            numbers = st.integers(0, len(entry["gold_supports"]) - 1)
            entry["required_support_groups"] = draw(st.lists(st.lists(numbers, max_size=2, unique=True), max_size=2))
    if draw(st.booleans()):
        entry["answerable"] = draw(st.booleans())
    if draw(st.integers(0, 3)) == 0:
        entry["vaults"] = draw(st.lists(VAULTS, max_size=1))
    return entry


REFERENCES = st.fixed_dictionaries(
    {"rel_path": PATHS, "heading_path": HEADINGS}, optional={"vault": VAULTS | st.just("")}
)


@st.composite
def anchor_rows(draw: st.DrawFn, name: str) -> dict[str, Any]:
    ranks = draw(st.lists(st.integers(1, 12), max_size=5, unique=True))
    row: dict[str, Any] = {
        "test_case_id": name,
        "retrieved_chunks": [
            chunk(draw(PATHS), draw(HEADINGS), draw(KEPT | NOT_KEPT), rank, draw(st.sampled_from("cde")))
            for rank in sorted(ranks)
        ],
    }
    row |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "answer": st.sampled_from(["", " ", "yes", None]),
                "abstained": FLAGS,
                "abstention": st.none() | st.fixed_dictionaries({"hallucinated": FLAGS}, optional={"abstained": FLAGS}),
                "references": st.lists(REFERENCES, max_size=1),
                "folder_selection": SELECTIONS,
                "debug": st.none() | st.fixed_dictionaries({}, optional={"folder_selection": SELECTIONS}),
                "config": st.none() | st.fixed_dictionaries({"k": st.just(4)}, optional={"folder_mode": MODES}),
                "groundedness": st.fixed_dictionaries({"score": st.integers(0, 5)}),
            },
        )
    )
    if draw(st.integers(0, 5)) == 0:
        row["error"] = draw(st.sampled_from(["Timeout after 30 s", "boom"]))
    return row


@scorings(5)
@given(st.data())
def test_anchor_metrics_agree_with_the_oracle(data: st.DataObject) -> None:
    names = [f"t{n}" for n in range(data.draw(st.integers(1, 4)))]
    golden = [data.draw(anchor_labels(name)) for name in names]
    runs = {f"run{n}": [data.draw(anchor_rows(name)) for name in [*names, "unknown"]] for n in range(8)}
    configs = {name: {"k": 4, **data.draw(st.fixed_dictionaries({}, optional={"folder_mode": MODES}))} for name in runs}
    with TemporaryDirectory() as name:
        folder = Path(name)
        labels = folder / "golden.json"
        labels.write_text(json.dumps([{"query": "?", **entry} for entry in golden]))
        folders = [write_results(folder / run_id, rows, configs[run_id]) for run_id, rows in runs.items()]
        write_runs(folder / "a.db", [read_folder(each) for each in folders])
        scored = score_runs(folder / "a.db", labels).aggregates
    for run_id, rows in runs.items():
        found = scored[run_id].to_dict()
        wanted = system_oracles.anchors(rows, golden, configs[run_id])
        about = ("support_", "scope", "attribution")
        assert {key: found[key] for key in found if key in wanted or key.startswith(about)} == wanted
        assert found["ledger"].get("unverified_supports", 0) == system_oracles.unverified(rows, golden)


GOLD = st.fixed_dictionaries(
    {
        "answerable": st.booleans(),
        "gold_claim_substr": st.lists(st.sampled_from(["Nine euros", "abc", "fifteen"]), max_size=2),
        "gold_citations": st.lists(st.sampled_from(["c1", "c2"]), max_size=2, unique=True),
    }
)
QIDS = st.sampled_from(["t0", "t1", "t2", "t3", "other"])
TRACES = st.fixed_dictionaries(
    {
        "retrieved_ids": st.lists(st.sampled_from(["c1", "c2", "c3", "c4", "c5", "c6", "c7"]), max_size=7),
        "answer_json": st.none()
        | st.fixed_dictionaries(
            {
                "claim": st.sampled_from(["", "nine EUROS", " NOT in Context ", "not in context.", "abc fifteen"]),
                "citations": st.lists(st.sampled_from(["c1", "c2", "c9"]), max_size=2),
            }
        ),
    }
)


NAMED_TRACES = st.builds(
    lambda named, said: {**named, **said},
    st.fixed_dictionaries({"qid": QIDS}, optional={"q_id": QIDS})
    | st.fixed_dictionaries({"q_id": QIDS}, optional={"qid": st.none() | st.just("")}),
    TRACES,
)


@scorings(5)
@given(
    st.lists(GOLD, min_size=1, max_size=4),
    st.lists(st.lists(NAMED_TRACES, max_size=6), min_size=3, max_size=9),
)
def test_grounded_metrics_agree_with_the_oracle(gold: list[dict[str, Any]], runs: list[list[dict[str, Any]]]) -> None:
    items = [{"qid": f"t{number}", "question": "?", **item} for number, item in enumerate(gold)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "gold.jsonl").write_text("\n".join(map(json.dumps, items)))
        for number, traces in enumerate(runs):
            (folder / f"{number}.jsonl").write_text("\n".join(map(json.dumps, traces)))
        write_runs(
            folder / "g.db", [read_trace(folder / f"{number}.jsonl", f"run{number}") for number in range(len(runs))]
        )
        scored = score_runs(folder / "g.db", folder / "gold.jsonl").aggregates
    for number, traces in enumerate(runs):
        found = scored[f"run{number}"].extra
        found.pop("recall_at_k_chunk", None)  # of any system; the oracle of matching has it
        wanted = system_oracles.grounded(traces, items)
        assert {**found, "citation_recall_at_k": found["citation_recall_at_k"][5]} == wanted


# --- grounded in one go ------------------------------------------------------------------------------


def one_go(capsys: pytest.CaptureFixture[str], gold: Path, trace: Path, *more: str) -> tuple[int, Any, str]:
    code = run(["grounded", "--gold", str(gold), "--trace", str(trace), *more])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def test_the_worked_example_is_all_right(capsys: pytest.CaptureFixture[str]) -> None:
    code, found, err = one_go(capsys, FIXTURES / "grounded" / "gold.jsonl", FIXTURES / "grounded" / "trace.jsonl")
    assert (code, err) == (0, "")
    assert found == {
        "answered": 2,
        "refused": 1,
        "answerable": 2,
        "unanswerable": 1,
        "precision": 1.0,
        "chr": 1.0,
        "under_refusal": 0.0,
        "over_refusal": 0.0,
        "recall@k": 1.0,
        "k": 5,
        "gates": {"precision": 0.8, "chr": 0.75, "under": 0.05, "over": 0.1},
        "pass": True,
    }


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    gold, trace = tmp_path / "gold.jsonl", tmp_path / "trace.jsonl"
    gold.write_text((FIXTURES / "grounded" / "gold.jsonl").read_text())
    trace.write_text((FIXTURES / "grounded" / "trace.jsonl").read_text())
    return gold, trace


def test_no_answers_at_all_are_precise_but_over_cautious(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    gold, trace = pair
    refusal = {"claim": "  NOT IN CONTEXT ", "citations": []}
    trace.write_text("\n".join(json.dumps({"qid": f"t00{n}", "answer_json": refusal}) for n in (1, 2, 3)))
    code, found, _ = one_go(capsys, gold, trace)
    assert (found["precision"], found["chr"], found["over_refusal"], found["recall@k"]) == (1.0, 1.0, 1.0, 0.0)
    assert (code, found["pass"]) == (1, False)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        # Nothing here is unanswerable, so nothing was answered that should not have been.
        ({"claim": "it costs nine euros", "citations": ["c1"]}, {"precision": 1.0, "chr": 1.0, "under_refusal": 0.0}),
        ({"claim": "  NOT in Context \n", "citations": []}, {"refused": 1, "precision": 1.0, "over_refusal": 1.0}),
        ({"claim": "it costs nine euros", "citations": ["c1", "c9"]}, {"precision": 0.0, "chr": 0.0, "recall@k": 1.0}),
        # `nine` is a gold claim too, and too short to prove anything.
        ({"claim": "nine", "citations": ["c1"]}, {"precision": 0.0, "chr": 1.0}),
    ],
)
def test_one_question_is_judged_as_it_should_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: dict[str, Any], expected: dict[str, float]
) -> None:
    labels = {"answerable": True, "gold_claim_substr": ["nine", "Nine Euros"], "gold_citations": ["c1"]}
    gold, trace = tmp_path / "gold.jsonl", tmp_path / "trace.jsonl"
    gold.write_text(json.dumps({"qid": "t", "question": "?", **labels}))
    trace.write_text(json.dumps({"qid": "t", "q": "?", "retrieved_ids": ["c0", "c1"], "answer_json": answer}))
    _, found, _ = one_go(capsys, gold, trace)
    assert {name: found[name] for name in expected} == expected


def test_marks_empty_lines_repeats_and_other_line_ends_do_no_harm(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    gold, trace = pair
    lines = trace.read_text().splitlines()
    wrong = json.dumps({"qid": "t001", "answer_json": {"claim": "not in context"}})
    trace.write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n".join([wrong, *lines, ""]).encode())
    code, found, err = one_go(capsys, gold, trace)
    assert (code, found["precision"]) == (0, 1.0)
    assert "1 duplicate trace; for each question the last one counts" in err


def test_a_question_without_a_trace_counts_as_answered_with_nothing(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    gold, trace = pair
    trace.write_text("\n".join(trace.read_text().splitlines()[:1]))
    code, found, _ = one_go(capsys, gold, trace)
    assert (found["answered"], found["precision"], found["under_refusal"]) == (3, 0.3333, 1.0)
    assert code == 1


def test_failed_gates_are_reported(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    gold, trace = pair
    trace.write_text("\n".join(trace.read_text().splitlines()[:1]))
    _, _, err = one_go(capsys, gold, trace, "--gates", "precision=0.5,under=0.25,over=0.1")
    assert err == (
        f"kbeval: warning: {trace}: no row for 2 golden queries, counted as answered, with an empty answer\n"
        "failed: precision is 0.3333, below 0.5; under is 1, above 0.25\n"
    )


@pytest.mark.parametrize(("unanswerable", "code", "said"), [(1999, 1, "under is 0.050025, above 0.05"), (2000, 0, "")])
@pytest.mark.parametrize("is_odd", [False, True])
def test_a_gate_of_a_trace_is_compared_with_the_exact_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], unanswerable: int, code: int, said: str, is_odd: bool
) -> None:
    """100 of this many unanswerable questions were answered: 0.05, or slightly more."""
    gold, trace = tmp_path / "gold.jsonl", tmp_path / "trace.jsonl"
    questions = [{"qid": f"u{n}", "question": "?", "answerable": False} for n in range(unanswerable)]
    traces = [
        {"qid": f"u{n}", "answer_json": {"claim": "yes" if n < 100 else "not in context", "citations": []}}
        for n in range(unanswerable)
    ]
    # A question that is traced again is read by the importer, which counts the last line.
    traces += traces[-1:] if is_odd else []
    gold.write_text("\n".join(map(json.dumps, questions)))
    trace.write_text("\n".join(map(json.dumps, traces)))
    found_code, found, err = one_go(capsys, gold, trace, "--gates", "under=0.05")
    assert (found_code, found["pass"], found["under_refusal"]) == (code, code == 0, 0.05)
    assert said in err
    assert run(["import", "grounded", str(trace), "--run-id", "r", "--db", str(tmp_path / "g.db")]) == 0
    where = ("--db", str(tmp_path / "g.db"), "--golden", str(gold))
    assert run(["gate", "r", "--max", "under=0.05", *where]) == code


@pytest.mark.parametrize(("gates", "code"), [("precision=1,under=0", 0), ("over=0", 0), ("chr=1", 0)])
def test_gates_can_be_chosen(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str], gates: str, code: int
) -> None:
    assert one_go(capsys, *pair, "--gates", gates)[0] == code


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        ("precison=1", "did you mean 'precision'?"),
        ("chr=2", "a value from 0 to 1"),
        ("chr", "expects NAME=VALUE"),
        ("", "--gates is empty"),
        (" , ", "--gates is empty"),
    ],
)
def test_wrong_gates_are_usage_errors(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str], gates: str, said: str
) -> None:
    code, _, err = one_go(capsys, *pair, "--gates", gates)
    assert (code, said in err) == (2, True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 4: is not valid JSON"),
        ("[]", "line 4: is not a JSON object"),
        ("{}", "line 4: has no qid"),
        ('{"qid": "x", "retrieved_ids": "c"}', "line 4: retrieved_ids is not a list of ids"),
        ('{"qid": "x", "answer_json": "y"}', "line 4: answer_json is not an object"),
        ('{"qid": "x", "answer_json": {"claim": 3}}', "line 4: answer_json.claim is not text"),
        ('{"qid": "x", "answer_json": {"citations": [[]]}}', "line 4: answer_json.citations is not a list of ids"),
    ],
)
def test_a_broken_trace_names_its_line(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    gold, trace = pair
    trace.write_text(trace.read_text() + line)
    code, found, err = one_go(capsys, gold, trace)
    assert (code, found) == (2, None)
    assert said in err


def test_files_that_are_not_there_are_named(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = one_go(capsys, pair[0], Path("gone.jsonl"))
    assert (code, err) == (2, "kbeval: gone.jsonl does not exist; check the path\n")
    code, _, err = one_go(capsys, Path("gone.jsonl"), pair[1])
    assert (code, err) == (2, "kbeval: gone.jsonl: there is no such golden file; check its name\n")


def test_a_file_that_is_not_a_trace_is_reported_in_one_line(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    gold, trace = pair
    trace.write_text("# Notes\n\nAnything\n" * 20)
    code, _, err = one_go(capsys, gold, trace)
    assert code == 2
    assert err.endswith(
        "trace.jsonl: none of its 40 lines can be read; is it the right file?"
        " (line 1: is not valid JSON: Expecting value)\n"
    )


def test_a_gold_file_in_place_of_a_trace_is_noticed(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    gold, _ = pair
    code, found, err = one_go(capsys, gold, gold)
    assert (code, found) == (2, None)
    assert "no line has retrieved_ids or answer_json" in err
    assert "is it the gold file?" in err


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"retrieved_chunks": [{"rank": 0}]}, "a rank in retrieved_chunks is 0, not a positive integer"),
        ({"retrieved_chunks": [{"rank": "2"}]}, "not a positive integer"),
        ({"retrieved_chunks": [{"chunk_id": {}}]}, "a chunk_id in retrieved_chunks is not text"),
        ({"retrieved_chunks": {}}, "retrieved_chunks is not a list of objects"),
        ({"references": ["x"]}, "references is not a list of objects"),
        ({"answer": 3}, "answer is not text"),
        ({"abstained": "no"}, "abstained is not true or false"),
        ({"abstention": {"abstained": "no"}}, "abstained is not true or false"),
        ({"abstention": {"abstained": True}, "abstained": 1}, "abstained is not true or false"),
        ({"abstention": True}, "abstention is not an object"),
        ('{"test_case_id": "t", "x": NaN}', "is not valid JSON: NaN is not a number"),
        ('{"test_case_id": "t", "x": 1e999}', "contains a number that is too large"),
        ('{"test_case_id": "t", "answer": "\\ud800"}', "half a character"),
        ('{"test_case_id": "t", "x": ' + "[" * 100_000, "is nested too deeply"),
    ],
)
def test_a_row_that_could_not_be_scored_is_not_imported(tmp_path: Path, row: Any, said: str) -> None:
    folder = write_results(tmp_path / "run", [row if isinstance(row, str) else {"test_case_id": "t", **row}], {})
    with pytest.raises(KbevalError, match=f"results.jsonl, line 1: .*{re.escape(said)}"):
        read_folder(folder)


# --- import ------------------------------------------------------------------------------------------


def imported(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run(["import", *arguments])
    return code, capsys.readouterr().err


def test_importing_again_changes_nothing_and_a_changed_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_results(tmp_path / "r1", [{"test_case_id": "t", "answer": "x"}], {"k": 3})
    database = str(tmp_path / "new.db")
    assert imported(capsys, "anchors", str(folder), "--db", database) == (0, f"imported r1: 1 row in {database}\n")
    before = (tmp_path / "new.db").read_bytes()
    assert imported(capsys, "anchors", str(folder), "--db", database) == (0, f"unchanged r1: 1 row in {database}\n")
    assert (tmp_path / "new.db").read_bytes() == before
    write_results(folder, [{"test_case_id": "t", "answer": "y"}])
    code, err = imported(capsys, "anchors", str(folder), "--db", database)
    assert code == 2
    assert "run 'r1' already exists and has other rows; use --replace to overwrite it" in err
    assert (tmp_path / "new.db").read_bytes() == before
    assert imported(capsys, "anchors", str(folder), "--replace", "--db", database)[1].startswith("replaced r1")


def test_many_folders_are_imported_together_or_not_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_results(tmp_path / "good", [{"test_case_id": "t"}], {})
    bad = write_results(tmp_path / "bad", [{"test_case_id": "t"}, "{", {"test_case_id": "t"}, {"answer": 3}], {})
    database = tmp_path / "new.db"
    code, err = imported(capsys, "anchors", str(good), str(bad), "--db", str(database))
    assert code == 2
    assert "3 broken lines; fix them" in err
    assert "line 2: is not valid JSON" in err
    assert "line 3: duplicate test_case_id 't', first used in line 1" in err
    assert "line 4: has no test_case_id" in err
    assert not database.exists()


def test_a_missing_configuration_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_results(tmp_path / "bare", [{"test_case_id": "t"}])
    code, err = imported(capsys, "anchors", str(folder), "--db", str(tmp_path / "new.db"))
    assert code == 0
    assert "has no config.json; the run is imported without its configuration" in err


@pytest.mark.parametrize("name", ["gone", "file.txt"])
def test_what_is_not_a_folder_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / "file.txt").write_text("x")
    code, err = imported(capsys, "anchors", name, "--db", "new.db")
    assert (code, "is not a folder with results.jsonl" in err, err.count("\n")) == (2, True, 1)


def test_a_file_that_is_not_a_database_is_never_written_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("precious")
    code, err = imported(capsys, "anchors", str(HYBRID), "--db", "notes.txt")
    assert (code, "is not a SQLite database" in err) == (2, True)
    assert (tmp_path / "notes.txt").read_text() == "precious"


def test_a_run_of_the_knowledge_base_is_not_overwritten(workspace: Workspace) -> None:
    workspace.add_run("2026-03-05-hybrid", {})
    with pytest.raises(UsageError, match="already exists and was not imported"):
        write_runs(workspace.db, [read_folder(HYBRID)])


def test_a_chunk_that_only_its_path_names_is_a_hit_at_its_place(tmp_path: Path) -> None:
    bare = [{"rel_path": path, "heading_path": "# A", "text": "text"} for path in ("b.md", "a.md")]
    golden = [{"id": "t", "gold_supports": [{"rel_path": "a.md", "heading_path": "# A"}]}]
    found = score_anchors(tmp_path, [{"test_case_id": "t", "answer": "x", "retrieved_chunks": bare}], golden)
    assert found["support_mrr"] == 0.5


@pytest.mark.parametrize("name", ["latest", "latest~2"])
def test_names_that_mean_a_position_are_not_allowed_as_ids(tmp_path: Path, name: str) -> None:
    folder = write_results(tmp_path / name, [{"test_case_id": "t"}], {})
    with pytest.raises(UsageError, match="is reserved"):
        write_runs(tmp_path / "new.db", [read_folder(folder)])
    assert not (tmp_path / "new.db").exists()


def test_files_with_nothing_in_them_are_imported_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_results(tmp_path / "run", [], {})
    assert (
        "results.jsonl contains no results\n"
        in imported(capsys, "anchors", str(folder), "--db", str(tmp_path / "d"))[1]
    )
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n\n")
    arguments = ("grounded", str(trace), "--run-id", "none", "--db", str(tmp_path / "d"))
    assert "trace.jsonl contains no traces\n" in imported(capsys, *arguments)[1]


def test_no_part_of_a_row_is_lost() -> None:
    rows: list[dict[str, Any]] = [
        {
            "test_case_id": "t",
            "question": None,
            "answer": None,
            "retrieved_chunks": [{"odd": [1]}, {"rank": None, "rel_path": "a.md"}, {"chunk_id": "c", "rank": None}],
            "new_field": {"x": 1},
        },
        {"test_case_id": 7, "query_id": "theirs", "hits_top_k": "theirs too", "query": 3, "kbeval_source": 1},
        {"test_case_id": "t", "answer": "", "abstained": None},
    ]
    assert [from_row(json.loads(json.dumps(to_row(row)))) for row in rows] == rows


def contents(database: Path) -> list[Any]:
    """Everything in a database."""
    with closing(sqlite3.connect(database)) as connection:
        return list(connection.iterdump())


# --- export ------------------------------------------------------------------------------------------


def test_import_export_import_gives_the_same_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = {"test_case_id": "long", "retrieved_chunks": [chunk("p", "# A", "words " * 200)], "unknown": ["kept", 1.5]}
    lines = [*(json.loads(line) for line in (HYBRID / "results.jsonl").read_text().splitlines()), long]
    config = {**json.loads((HYBRID / "config.json").read_text()), "kbeval": {"theirs": "too"}}
    folder = write_results(tmp_path / "one" / "night", lines, config)
    os.utime(folder / "results.jsonl", ns=(10**18 + 123_456_789, 10**18 + 123_456_789))
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    assert imported(capsys, "anchors", str(folder), "--db", str(first))[0] == 0
    out = tmp_path / "two" / "night"
    golden = str(FIXTURES / "anchors" / "golden.yaml")
    assert run(["export", "anchors", "night", str(out), "--full-text", "--db", str(first), "--golden", golden]) == 0
    assert {path.name for path in out.iterdir()} == {"results.jsonl", "config.json", "metrics.json", "summary.md"}
    assert imported(capsys, "anchors", str(out), "--db", str(second))[0] == 0
    stored = [contents(database) for database in (first, second)]
    assert stored[0] == stored[1]
    summary = (out / "summary.md").read_text()
    assert all(f"## {title}" in summary for title in ("Configuration", "What the numbers mean", "Results"))
    assert json.loads((out / "metrics.json").read_text())["support_mrr"] == 0.75


def test_texts_are_cut_unless_asked_for_whole_and_cutting_twice_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"test_case_id": "t", "retrieved_chunks": [chunk("p", "# A", "y" * 500)]}
    folder = write_results(tmp_path / "run", [row], {})
    assert imported(capsys, "anchors", str(folder), "--db", "a.db")[0] == 0
    assert run(["export", "anchors", "run", "cut/run", "--db", "a.db"]) == 0
    cut = (tmp_path / "cut" / "run" / "results.jsonl").read_text()
    assert json.loads(cut)["retrieved_chunks"][0]["text"] == "y" * 200 + "..."
    assert imported(capsys, "anchors", "cut/run", "--db", "b.db")[0] == 0
    assert run(["export", "anchors", "run", "again/run", "--db", "b.db"]) == 0
    assert (tmp_path / "again" / "run" / "results.jsonl").read_text() == cut


def test_a_folder_that_is_not_empty_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_results(
        tmp_path / "run", [{"test_case_id": "t", "retrieved_chunks": [chunk("p", "", "z" * 500)]}], {}
    )
    before = (folder / "results.jsonl").read_text()
    assert imported(capsys, "anchors", "run", "--db", "a.db")[0] == 0
    assert run(["export", "anchors", "run", "run", "--db", "a.db"]) == 2
    assert "run is not empty; use --replace" in capsys.readouterr().err
    assert (folder / "results.jsonl").read_text() == before
    (folder / "summary.md").write_text("mine")
    assert run(["export", "anchors", "gone", "run", "--replace", "--db", "a.db"]) == 2
    assert (folder / "summary.md").read_text() == "mine"
    assert run(["export", "anchors", "run", "", "--db", "a.db"]) == 2
    other = write_results(tmp_path / "other", [{"test_case_id": "t"}], {})
    assert run(["export", "anchors", "run", "other", "--replace", "--db", "a.db"]) == 0
    assert "zzz..." in (other / "results.jsonl").read_text()
    assert not (other / "summary.md").exists()


def test_an_empty_file_becomes_a_database_and_an_interrupted_import_leaves_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.db").touch()
    assert imported(capsys, "anchors", str(HYBRID), "--db", "empty.db")[0] == 0

    def interrupt(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("kbeval.systems.writing._write", interrupt)
    assert imported(capsys, "anchors", str(HYBRID), "--db", "new.db")[0] == 130
    assert not (tmp_path / "new.db").exists()


def test_a_run_of_another_kind_cannot_be_exported_as_anchors(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.add_run("mine", {})
    assert run(["export", "anchors", "mine", "out", "--db", str(workspace.db)]) == 2
    assert "was not imported from a results folder" in capsys.readouterr().err


def test_the_summary_compares_with_the_run_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, text in ((1, "no"), (2, "the needle")):
        rows = [{"test_case_id": "t", "retrieved_chunks": [chunk("p", "# A", text)]}]
        folder = write_results(tmp_path / f"run{number}", rows, {"k": 5})
        os.utime(folder / "results.jsonl", (number * 1000, number * 1000))
    (tmp_path / "g.json").write_text(
        json.dumps(
            [
                {
                    "id": "t",
                    "query": "?",
                    "gold_supports": [{"rel_path": "p", "heading_path": "", "snippets": ["needle"]}],
                }
            ]
        )
    )
    assert imported(capsys, "anchors", "run1", "run2", "--db", "a.db")[0] == 0
    assert run(["export", "anchors", "run2", "out", "--db", "a.db", "--golden", "g.json"]) == 0
    assert "## Compared with run1" in (tmp_path / "out" / "summary.md").read_text()


# --- abstention and gates ----------------------------------------------------------------------------


def test_abstention_is_seen_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    support = [{"rel_path": "p", "heading_path": ""}]
    labels = [{"id": f"t{n}", "answerable": n < 4, **({"gold_supports": support} if n < 4 else {})} for n in range(6)]
    there, nowhere = [chunk("p", "")], [chunk("q", "")]
    rows = [
        {
            "test_case_id": f"t{n}",
            "answer": "x",
            "abstained": n in (2, 3, 5),
            "retrieved_chunks": there if n in (0, 2) else nowhere,
        }
        for n in range(6)
    ]
    found = score_anchors(tmp_path, rows, labels, {"k": 5})["abstention"]
    assert found == {
        "k": 5,
        "answerable_answered": 2,
        "answerable_refused": 2,
        "unanswerable_answered": 1,
        "unanswerable_refused": 1,
        "answered_with_evidence": 1,
        "answered_without_evidence": 1,
        "refused_with_evidence": 1,
        "refused_without_evidence": 1,
        "unsupported_rate": 0.5,
        "over_cautious_rate": 0.5,
    }
    where = ["--db", str(tmp_path / "a.db"), "--golden", str(tmp_path / "golden.json")]
    assert run(["gate", "run", "--max", "abstention.unsupported_rate=0.4", *where]) == 1
    assert run(["gate", "run", "--max", "abstention.unsupported_rate=0.5", *where]) == 0
    capsys.readouterr()
    assert run(["show", "run", *where]) == 0
    assert "with evidence in the top 5" in capsys.readouterr().out


def test_gates_know_the_short_names_and_percentiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, gold = FIXTURES / "grounded" / "trace.jsonl", FIXTURES / "grounded" / "gold.jsonl"
    assert imported(capsys, "grounded", str(trace), "--run-id", "g", "--db", "g.db")[0] == 0
    limits = [
        "--min",
        "precision=0.8",
        "--min",
        "chr=0.75",
        "--max",
        "under=0.05",
        "--max",
        "over=0.1",
        "--max",
        "refused=1",
    ]
    assert run(["gate", "g", *limits, "--db", "g.db", "--golden", str(gold)]) == 0
    write_runs(tmp_path / "a.db", [read_folder(HYBRID)])
    where = ["--db", "a.db", "--golden", str(FIXTURES / "anchors" / "golden.yaml")]
    assert run(["gate", "latest", "--max", "latency_ms.p95=2389.5", *where]) == 0
    assert run(["gate", "latest", "--max", "latency_ms=1", *where]) == 2


def test_sums_and_percentiles_are_exact(tmp_path: Path) -> None:
    rows = [
        {"test_case_id": f"t{n}", "latency": {"total_ms": ms}, "cost": {"judge_tokens": 10, "judge_cost_usd": 0.1}}
        for n, ms in enumerate((100, 200, 300, 400))
    ]
    found = score_anchors(tmp_path, [*rows, {"test_case_id": "t9"}], [{"id": "t0"}])
    assert found["latency_ms"] == {"p50": 250.0, "p95": 385.0, "total": 1000.0}
    assert (found["judge_tokens"], found["judge_cost_usd"]) == (40.0, 0.4)


def test_imported_runs_are_compared_like_any_other(tmp_path: Path) -> None:
    import kbeval

    labels = tmp_path / "golden.json"
    supports = [{"rel_path": "p", "heading_path": "", "snippets": ["needle"]}]
    labels.write_text(json.dumps([{"id": f"t{n}", "query": "?", "gold_supports": supports} for n in range(20)]))
    for name, text in (("worse", "hay"), ("better", "needle")):
        rows = [{"test_case_id": f"t{n}", "retrieved_chunks": [chunk("p", "", text)]} for n in range(20)]
        write_runs(tmp_path / "a.db", [read_folder(write_results(tmp_path / name, rows, {"k": 5}))])
    report = kbeval.compare_runs("worse", "better", db=tmp_path / "a.db", golden=labels)
    assert report.verdict.answer == "better"
    assert "support_mrr" in report.verdict.better
    # Where nothing but supports is expected, they say what a hit is.
    assert report.whole.counts["win"] == 20
    assert report.matching == {"exact": 0, "span": 0, "doc": 0, "none": 0, "support": 20}
    back = ["gate", "worse", "--baseline", "better", "--no-regressions"]
    assert run([*back, "--db", str(tmp_path / "a.db"), "--golden", str(labels)]) == 1


def test_two_anchors_runs_are_distinguished_by_their_supports(tmp_path: Path) -> None:
    import kbeval

    labels = tmp_path / "golden.json"
    supports = [{"rel_path": "p", "heading_path": "", "snippets": []}]
    asked = [{"id": f"t{n:02}", "query": "?", "gold_supports": supports} for n in range(30)]
    refused = [{"id": f"u{n:02}", "query": "?", "answerable": False} for n in range(15)]
    labels.write_text(json.dumps([*asked, *refused]))
    for name, hit, kept in (("first", 15, 3), ("second", 12, 10)):
        rows: list[dict[str, Any]] = [
            {"test_case_id": f"t{n:02}", "answer": "yes", "abstained": False, "retrieved_chunks": [chunk(path, "")]}
            for n in range(30)
            for path in ["p" if (n + (name == "second")) % 30 < hit else "q"]
        ]
        rows += [
            {"test_case_id": f"u{n:02}", "answer": "?", "abstained": n < kept, "retrieved_chunks": []}
            for n in range(15)
        ]
        write_runs(tmp_path / "a.db", [read_folder(write_results(tmp_path / name, rows, {"k": 5}))])
    report = kbeval.compare_runs("first", "second", db=tmp_path / "a.db", golden=labels)
    assert (report.verdict.metric, report.verdict.n) == ("support_mrr", 30)
    # One number under three names, corrected for once.
    tested = report.whole.significance
    names = ("refusal_correctness", "abstention_accuracy", "hallucination_rate_unanswerable")
    assert {(tested[name].p, tested[name].p_holm) for name in names} == {(tested[names[0]].p, tested[names[0]].p_holm)}
    paid = [name for name, one in tested.items() if one.decides and one.same_as is None]
    assert [name for name in names if name in paid] == ["refusal_correctness"]
    assert tested[names[0]].p_holm == pytest.approx(tested[names[0]].p * len(paid), abs=2e-3)
    # Numbers that anchors do not have are not among the rows.
    assert not {"mrr", "hit@5", "recall@5"} & {str(row[0]) for row in delta_table(report.whole)[1]}


def test_traces_are_tested_over_the_questions_that_both_have(tmp_path: Path) -> None:
    import kbeval

    gold, trace = FIXTURES / "grounded" / "gold.jsonl", FIXTURES / "grounded" / "trace.jsonl"
    (tmp_path / "less.jsonl").write_text("\n".join(trace.read_text().splitlines()[:2]))
    write_runs(tmp_path / "g.db", [read_trace(trace, "all"), read_trace(tmp_path / "less.jsonl", "less")])
    report = kbeval.compare_runs("all", "less", db=tmp_path / "g.db", golden=gold)
    assert report.whole.significance["answer_precision"].n == 2
    assert any("1 query in one run only" in warning for warning in report.warnings)
    # The numbers of each run are over all that it answered, so the words below the table say why they differ.
    assert report.whole.aggregate_b.value("answer_precision") == 0.6667
    assert report.whole.significance["answer_precision"].mean_delta == 0
    assert "have a value in both runs" in legend(report.whole)
    same = kbeval.compare_runs("all", "all", db=tmp_path / "g.db", golden=gold)
    assert "in both runs" not in legend(same.whole)
    names = [row[0] for row in delta_table(same.whole)[1]]
    assert "refused" in names
    assert "refused_ok" in names
    assert len(set(names)) == len(names)


def test_runs_with_latencies_are_compared_exported_and_framed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.loads(line) for line in (HYBRID / "results.jsonl").read_text().splitlines()]
    config = json.loads((HYBRID / "config.json").read_text())
    for number in (1, 2):
        folder = write_results(tmp_path / f"run{number}", lines, config)
        os.utime(folder / "results.jsonl", (number * 1000, number * 1000))
    golden = str(FIXTURES / "anchors" / "golden.yaml")
    assert imported(capsys, "anchors", "run1", "run2", "--db", "a.db")[0] == 0
    for form in ("table", "json", "md", "csv"):
        assert run(["compare", "run1", "run2", "--format", form, "--db", "a.db", "--golden", golden]) == 0
    assert run(["export", "anchors", "run2", "out", "--db", "a.db", "--golden", golden]) == 0
    assert "| latency_ms.p50 |" in (tmp_path / "out" / "summary.md").read_text()
    frame = score_runs("a.db", golden).frame()
    assert set(frame["metric"]) >= {"latency_ms.p50", "support_mrr", "hit_at_k"}
    capsys.readouterr()
    assert run(["show", "run2", "--query", "a001", "--db", "a.db", "--golden", golden]) == 0
    head, first, *_ = capsys.readouterr().out.partition("rank ")[2].splitlines()
    assert "counts as" in head
    assert "support " in first
    assert run(["show", "run2", "--worst", "1", "--db", "a.db", "--golden", golden]) == 0
    assert "support_mrr" in capsys.readouterr().out
    assert (
        run(["show", "run2", "--worst", "1", "--metric", "support_recall_any@1", "--db", "a.db", "--golden", golden])
        == 0
    )


def scored_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """A database with the run of the fixtures, and the lines that scoring it prints."""
    database = str(tmp_path / "runs.db")
    imported(capsys, "anchors", str(HYBRID), "--db", database)
    assert run(["score", "--all", "--db", database, "--golden", str(FIXTURES / "anchors" / "golden.yaml")]) == 0
    return database, capsys.readouterr().out.splitlines()


def test_the_table_of_scores_shows_what_each_system_is_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database, (head, row) = scored_table(tmp_path, capsys)
    assert head.split()[1:4] == ["match", "queries", "failed"]
    assert dict(zip(head.split()[4:], row.split()[4:], strict=True)) == {
        "support_any@5": "1.0000",
        "support_all@5": "1.0000",
        "support_mrr": "0.7500",
        "attributed": "1.0000",
        "abstention_accuracy": "1.0000",
        "latency_ms.p95": "2389.5000",
    }

    imported(capsys, "grounded", str(FIXTURES / "grounded" / "trace.jsonl"), "--run-id", "asked", "--db", database)
    golden = str(FIXTURES / "grounded" / "gold.jsonl")
    assert run(["score", "asked", "--db", database, "--golden", golden]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[4:] == ["precision", "chr", "under", "over", "citation_recall@5"]
    assert row.split()[4:] == ["1.0000", "1.0000", "0.0000", "0.0000", "1.0000"]


def test_numbers_that_nothing_was_scored_on_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database, _ = scored_table(tmp_path, capsys)
    assert run(["runs", "--db", database]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[-4:] == ["rows", "match", "support_any@5", "support_mrr"]
    assert row.split()[-4:] == ["3", "id", "1.0000", "0.7500"]
    assert run(["runs", "--db", database, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["mrr"] is None
    assert run(["show", "latest", "--db", database]) == 0
    assert re.search(r"^mrr +– +0 +3$", capsys.readouterr().out, re.MULTILINE)
