"""Each view again in plain Python, over invented histories; `compare` against the command."""

from __future__ import annotations

import csv
import io
import itertools
import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kbeval.explore.explorer import Explorer, open_explorer
from kbeval.scoring.options import ScoreOptions
from tests.cli.test_cli import call
from tests.support.examples import scorings
from tests.support.workspace import Workspace

QUERIES: dict[str, dict[str, list[str]]] = {
    "by-chunk": {"expected_chunk_ids": ["c0"]},
    "by-chunks": {"expected_chunk_ids": ["c1", "c2"], "expected_doc_ids": ["d1"]},
    "by-doc": {"expected_doc_ids": ["d0"]},
    "refuse": {"expected_doc_ids": []},
}
CHUNKS = ["c0", "c1", "c2", "c3"]
# The content of the table `chunks`; a run of another version found unknown chunks.
KNOWN = {"c0": "md@1", "c1": "md@1", "c3": "md@2"}


def document(chunk: str) -> str:
    return f"d{int(chunk[1:]) // 2}"


@dataclass(frozen=True)
class Asked:
    """One row: hits in order, or an error."""

    chunks: Sequence[str]
    failed: bool
    elapsed: int | None

    def row(self) -> dict[str, Any]:
        hits = [
            {"rank": rank, "chunk_id": chunk, "doc_id": document(chunk)} for rank, chunk in enumerate(self.chunks, 1)
        ]
        said = {"error": "timeout"} if self.failed else {}
        return {"hits_top_k": hits, "elapsed_ms": self.elapsed, **said}


@dataclass(frozen=True)
class Made:
    """One run."""

    run_id: str
    suite: str
    day: str
    chunker: str
    rows: Mapping[str, Asked]
    mrr: float | None


ASKED = st.builds(
    Asked,
    st.lists(st.sampled_from(CHUNKS), max_size=5),
    st.sampled_from([False, False, False, True]),
    st.none() | st.integers(0, 50),
)
RUNS = st.lists(
    st.tuples(
        st.sampled_from(["nightly", "nightly", "weekly"]),
        st.sampled_from(["2026-01-01", "2026-01-02", "2026-01-02T00:00:00Z"]),
        st.sampled_from(["md@1", "md@1", "md@2"]),
        st.dictionaries(st.sampled_from([*QUERIES, "stray"]), ASKED, min_size=1, max_size=5),
        st.none() | st.integers(0, 10_000).map(lambda number: number / 10_000),
    ),
    max_size=14,
).map(lambda found: [Made(f"run-{place}", *one) for place, one in enumerate(found)])


def store(workspace: Workspace, runs: Sequence[Made]) -> None:
    workspace.add_golden(*({"id": name, **labels} for name, labels in QUERIES.items()))
    for doc in ("d0", "d1", "d9"):
        workspace.add_document(doc, f"{doc}.md")
    for chunk, version in KNOWN.items():
        workspace.add_chunk(chunk, document(chunk), [], version)
    for run in reversed(runs):
        rows = {query: asked.row() for query, asked in run.rows.items()}
        workspace.add_run(run.run_id, rows, created_at=run.day, chunker=run.chunker)
        stored = "" if run.mrr is None else json.dumps({"mrr": run.mrr})
        workspace.execute(
            "UPDATE eval_runs SET suite = ?, aggregate_json = ? WHERE run_id = ?", (run.suite, stored, run.run_id)
        )


# --- the views, in plain Python ------------------------------------------------------------------------


def rank_of(query: str, asked: Asked | None) -> int | None:
    """Of the first correct hit."""
    if asked is None:
        return None
    labels = QUERIES.get(query, {})
    for rank, chunk in enumerate(asked.chunks, 1):
        chunks, docs = labels.get("expected_chunk_ids", []), labels.get("expected_doc_ids", [])
        if chunk in chunks if chunks else document(chunk) in docs:
            return rank
    return None


def by_id(query: str) -> bool:
    return "expected_chunk_ids" in QUERIES.get(query, {})


def in_suites(runs: Sequence[Made]) -> dict[str, list[Made]]:
    """Oldest first; of one moment, by what is written and by id."""
    found: dict[str, list[Made]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.day[:10], run.day, run.run_id)):
        found[run.suite].append(run)
    return found


def regressions(runs: Sequence[Made]) -> Iterator[tuple[Any, ...]]:
    for suite, members in in_suites(runs).items():
        for before, after in itertools.pairwise(members):
            for query in before.rows.keys() | after.rows.keys():
                old, new = (rank_of(query, run.rows.get(query)) for run in (before, after))
                if old is None or (new is not None and new <= old):
                    continue
                row = after.rows.get(query)
                comparable = not by_id(query) or before.chunker == after.chunker
                kind = "regression" if new is None else "loss"
                failed = row is not None and row.failed
                yield suite, after.run_id, before.run_id, query, kind, old, new, row is not None, failed, comparable


def flaky(runs: Sequence[Made]) -> Iterator[tuple[Any, ...]]:
    for suite, members in in_suites(runs).items():
        for query in {query for run in members for query in run.rows}:
            asking = [run for run in members if query in run.rows]
            found = [rank_of(query, run.rows[query]) is not None for run in asking]
            steps = [
                (old, new)
                for (old, new), (a, b) in zip(itertools.pairwise(found), itertools.pairwise(asking), strict=True)
                if not by_id(query) or a.chunker == b.chunker
            ]
            lost, won = steps.count((True, False)), steps.count((False, True))
            if lost and won:
                failed = sum(run.rows[query].failed for run in asking)
                yield suite, query, len(asking), sum(found), failed, lost + won, lost, won


def never_hit(runs: Sequence[Made]) -> Iterator[tuple[Any, ...]]:
    for query, labels in QUERIES.items():
        rows = [run.rows[query] for run in runs if query in run.rows]
        if any(labels.values()) and all(rank_of(query, row) is None for row in rows):
            yield query, len(rows), sum(row.failed for row in rows)


def slowest(runs: Sequence[Made]) -> Iterator[tuple[Any, ...]]:
    for query in {query for run in runs for query in run.rows}:
        rows = [run.rows[query] for run in runs if query in run.rows and run.rows[query].elapsed is not None]
        times = sorted(float(row.elapsed or 0) for row in rows)
        if times:
            place = 0.95 * (len(times) - 1)
            low = times[int(place)]
            high = times[min(int(place) + 1, len(times) - 1)]
            p95 = round(low + (high - low) * (place - int(place)), 4)
            failed = sum(row.failed for row in rows)
            yield query, len(times), round(statistics.fmean(times), 4), p95, times[-1], failed


def coverage(runs: Sequence[Made]) -> Iterator[tuple[Any, ...]]:
    seen: dict[tuple[str, str], list[tuple[str, str, int]]] = defaultdict(list)
    docs: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for run in runs:
        for query, asked in run.rows.items():
            for rank, chunk in enumerate(asked.chunks, 1):
                seen[chunk, run.chunker].append((run.run_id, query, rank))
                docs[document(chunk)].append((run.run_id, query, rank))
    for chunk, version in seen.keys() | set(KNOWN.items()):
        known = "now" if KNOWN.get(chunk) == version else "never"
        yield "chunk", document(chunk), chunk, version, known, *counts(seen[chunk, version])
    for doc in docs.keys() | {"d0", "d1", "d9"}:
        yield "document", doc, None, None, "now", *counts(docs[doc])


def counts(seen: Sequence[tuple[str, str, int]]) -> tuple[int, int, int | None]:
    results, runs = {(run, query) for run, query, _ in seen}, {run for run, _, _ in seen}
    return len(results), len(runs), min((rank for _, _, rank in seen), default=None)


def trend(runs: Sequence[Made]) -> Iterator[tuple[Any, ...]]:
    for suite, members in in_suites(runs).items():
        before: Made | None = None
        for run in members:
            if run.mrr is None:
                continue
            change = None if before is None else round(run.mrr - (before.mrr or 0), 4) + 0.0
            yield suite, run.run_id, run.mrr, before and before.run_id, before and before.mrr, change
            before = run


VIEWS = {
    "regressions": (
        regressions,
        "suite, run_id, previous_run_id, query_id, kind, previous_rank, hit_rank, in_run, failed, comparable",
    ),
    "flaky_queries": (flaky, "suite, query_id, n_runs, n_hits, n_failed, n_flips, n_lost, n_won"),
    "never_hit": (never_hit, "query_id, n_runs, n_failed"),
    "slowest_queries": (slowest, "query_id, n, mean_ms, p95_ms, max_ms, n_failed"),
    "coverage": (coverage, "what, doc_id, chunk_id, chunker_version, known, n_results, n_runs, best_rank"),
    "metric_trend": (trend, "suite, run_id, value, previous_run_id, previous_value, change"),
}


def asked(explorer: Explorer, view: str) -> list[tuple[Any, ...]]:
    where = " WHERE metric = 'mrr' AND value IS NOT NULL" if view == "metric_trend" else ""
    return explorer.query(f"SELECT {VIEWS[view][1]} FROM {view}{where}").rows()


@pytest.mark.slow
# A smaller history that fails as well would take minutes to find.
@scorings(4, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(RUNS)
def test_every_view_says_what_plain_python_says(runs: list[Made]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        store(workspace, runs)
        with open_explorer(workspace.db, workspace.golden, ScoreOptions(match="exact")) as explorer:
            for view, (oracle, _) in VIEWS.items():
                assert sorted(asked(explorer, view), key=str) == sorted(oracle(runs), key=str), view


# --- compare -------------------------------------------------------------------------------------------------


@pytest.fixture
def rechunked(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Three runs; the last one uses another chunker, whose chunks have the positions of the old ones."""
    monkeypatch.setenv("KBEVAL_DB", str(workspace.db))
    monkeypatch.setenv("KBEVAL_GOLDEN", str(workspace.golden))
    names = [f"q{number}" for number in range(6)]
    workspace.add_golden(*({"id": name, "expected_chunk_ids": [f"old{name}"]} for name in names))
    workspace.add_document("d", "d.md")

    def hit(chunk: str, line: int, rank: int) -> dict[str, Any]:
        spans = [{"kind": "line", "start": line, "end": line + 8}]
        return {"rank": rank, "chunk_id": chunk, "doc_id": "d", "source_spans": spans}

    for place, name in enumerate(names):
        workspace.add_chunk(f"old{name}", "d", [{"kind": "line", "start": 10 * place + 1, "end": 10 * place + 9}])
    old = {name: {"hits_top_k": [hit(f"old{name}", 10 * place + 1, 1)]} for place, name in enumerate(names)}
    new = {
        name: {"hits_top_k": [hit("else", 500, 3), hit(f"new{name}", 10 * place + 1, 1 + place % 2)]}
        for place, name in enumerate(names[:5])
    }
    workspace.add_run("a", old)
    workspace.add_run("b", {**old, "q3": {"error": "timeout"}, "q4": "not JSON"}, created_at="2026-01-02")
    workspace.add_run("c", new, created_at="2026-01-03", chunker="md@2")
    return workspace


SHARED = ("query_id", "kind", "a_hit_rank", "b_hit_rank", "note", "matching")


@pytest.mark.parametrize(
    ("a", "b", "match"),
    [("a", "b", ()), ("b", "c", ()), ("c", "a", ()), ("latest~1", "latest", ()), ("a", "b", ("--match", "span"))],
)
def test_compare_gives_the_rows_of_the_command(
    capsys: pytest.CaptureFixture[str], rechunked: Workspace, a: str, b: str, match: tuple[str, ...]
) -> None:
    """Also across chunkers, and whatever the matching of the session."""
    assert rechunked.db.exists()
    options = ("--skip-bad-rows", "--format", "csv", *match)
    rows = list(csv.DictReader(io.StringIO(call(capsys, "compare", a, b, *options)[1])))
    sql = f"SELECT {', '.join(SHARED)} FROM compare('{a}', '{b}') ORDER BY query_id"
    code, out, err = call(capsys, "sql", sql, "--format", "csv", *match)
    assert code == 0, err
    found = list(csv.DictReader(io.StringIO(out)))
    assert found == [{name: row[name] for name in SHARED} for row in rows]
    assert len(found) == 6
    # By ids the new chunks would all be misses.
    if (a, b) == ("b", "c"):
        assert {row["kind"] for row in found} == {"draw", "loss", "win", "regression"}


def test_compare_reads_two_runs_and_nothing_else(rechunked: Workspace) -> None:
    with open_explorer(rechunked.db, rechunked.golden) as explorer:
        assert explorer.query("SELECT DISTINCT matching FROM compare('b', 'c')").rows() == [("span",)]
        assert explorer.session.built == frozenset()
        # Several in one question, one of them repeated, and one joined with a relation.
        both = "SELECT COUNT(*) FROM compare('b', 'c') JOIN compare('a', 'b') USING (query_id) JOIN runs ON true"
        assert explorer.query(both).rows() == [(18,)]
        # After a change, the comparison is made again.
        explorer.release()
        rechunked.add_run("d", {}, created_at="2026-01-04")
        assert explorer.query("SELECT COUNT(*) FROM compare('c', 'latest')").rows() == [(5,)]


def test_invalid_arguments_of_compare_are_one_line_errors(
    capsys: pytest.CaptureFixture[str], rechunked: Workspace
) -> None:
    for arguments in ("'a', NULL", "'a'", "'a', 'b', 'c'", "'a', (SELECT MAX(run_id) FROM runs)", "'a', 'b' || 'c'"):
        code, _, err = call(capsys, "sql", f"FROM compare({arguments})")
        assert (code, err.splitlines()) == (
            2,
            ["kbeval: compare expects the names of two runs as literals: compare('latest~1', 'latest')"],
        )
    assert "there is no run 'nobody'" in call(capsys, "sql", "FROM compare('a', 'nobody')")[2]
    rechunked.execute(
        "UPDATE eval_runs SET config_snapshot_json = json_object('chunker_version', 'md@1', 'judge_model', run_id)"
    )
    code, _, err = call(capsys, "sql", "SELECT COUNT(*) FROM compare('a', 'b')")
    assert (code, err) == (0, "kbeval: warning: compare a b: the runs differ in judge model: a and b\n")
