"""What decides a ranking: `--order score` as in trec_eval, `--order rank` as in the file."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kbeval
from kbeval.cli import run
from kbeval.errors import KbevalError
from kbeval.systems.tables import read_table
from tests.cli.test_cli import call, refused

pytrec_eval = pytest.importorskip("pytrec_eval")

FIXTURES = Path(__file__).parents[2] / "fixtures"
# The ranks say d3, d1, d2; the scores d1, then the later id of equal ones.
RUN = "q1 Q0 d3 1 0.5 t\nq1 Q0 d1 2 0.9 t\nq1 Q0 d2 3 0.5 t\n"
BY_SCORE, BY_RANK = ["d1", "d3", "d2"], ["d3", "d1", "d2"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stored(db: str, run_id: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(db)) as connection:
        found = connection.execute("SELECT result_json FROM eval_query_results WHERE run_id = ?", [run_id])
        return [hit for (text,) in found for hit in json.loads(text)["hits_top_k"]]


def test_every_way_in_has_both_orders(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run file, the same as a table, and the same as rankings of a BEIR folder."""
    (folder / "r.run").write_text(RUN)
    rows = [line.split() for line in RUN.splitlines()]
    names = ["query_id", "Q0", "doc_id", "rank", "score", "tag"]
    (folder / "r.csv").write_text("\n".join(",".join(row) for row in [names, *rows]))
    hits = [{"doc_id": doc, "rank": int(rank), "score": float(score)} for _, _, doc, rank, score, _ in rows]
    (folder / "q.jsonl").write_text(json.dumps({"query_id": "q1", "hits": hits}) + "\n")
    (folder / "r.json").write_text(json.dumps({"q1": {hit["doc_id"]: hit["score"] for hit in hits}}))
    beir = ["import", "beir", str(FIXTURES / "beir"), "--golden-out", "golden.jsonl", "--run"]
    ways = {
        "trec": ["import", "trec", "r.run"],
        "hits": ["import", "table", "r.csv", "--run-id", "r"],
        "queries": ["import", "table", "q.jsonl", "--run-id", "r"],
        "beir": [*beir, "r.run"],
        "json": [*beir, "r.json"],
    }
    usual = {"trec": BY_SCORE, "hits": BY_RANK, "queries": BY_RANK, "beir": BY_SCORE, "json": BY_SCORE}
    for way, command in ways.items():
        for order, expected in (("score", BY_SCORE), ("rank", BY_RANK), (None, usual[way])):
            db = f"{way}-{order}.db"
            options = [] if order is None else ["--order", order]
            capsys.readouterr()
            if (way, order) == ("json", "rank"):
                assert "has scores and no ranks" in refused(capsys, *command, *options, "--db", db)
                continue
            assert run([*command, *options, "--db", db]) == 0, way
            found = stored(db, "r")
            assert [hit["doc_id"] for hit in found] == expected, (way, order)
            assert [hit["rank"] for hit in found] == [1, 2, 3]
            assert sorted(hit["score"] for hit in found) == [0.5, 0.5, 0.9]
            # The ranks of the file are not lost.
            given = {hit["doc_id"]: int(hit.get("trec_rank", hit.get("table_rank", hit["rank"]))) for hit in found}
            assert way == "json" or given == {"d3": 1, "d1": 2, "d2": 3}, way
            before = Path(db).read_bytes()
            assert run([*command, *options, "--db", db]) == 0
            assert Path(db).read_bytes() == before, "the same again changes nothing"


def test_without_a_database_the_order_is_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "r.run").write_text(RUN)
    (folder / "qrels").write_text("q1 0 d3 1\n")
    for order, value in (("score", 0.5), ("rank", 1.0)):
        code, out, _ = call(capsys, "trec", "qrels", "r.run", "-m", "recip_rank", "--order", order)
        assert (code, float(out.split()[-1])) == (0, value)
        assert kbeval.evaluate("r.run", "qrels", "RR", order=order)["RR"] == value
        frame = pl.read_csv(
            "r.run", separator=" ", has_header=False, new_columns=["qid", "q0", "docno", "rank", "score", "tag"]
        )
        assert kbeval.evaluate(frame, {"q1": {"d3": 1}}, "RR", order=order)["RR"] == value
        assert kbeval.evaluate({"a": frame, "b": "r.run"}, "qrels", "RR", order=order)["b"]["RR"] == value
    # Ranks may begin with 0, and may be in any order and have gaps.
    (folder / "zero.run").write_text("q1 Q0 d3 4 9 t\nq1 Q0 d1 0 1 t\n")
    assert kbeval.evaluate("zero.run", "qrels", ["RR", "P@4"], order="rank")["RR"] == 1 / 5
    assert run(["import", "trec", "zero.run", "--order", "rank", "--db", "zero.db"]) == 0
    assert [(hit["rank"], hit.get("trec_rank")) for hit in stored("zero.db", "zero")] == [(1, "0"), (5, "4")]


def test_ranks_agree_with_trec_eval_on_scores_that_say_the_same(folder: Path) -> None:
    source = random.Random(3)
    docs = [f"d{number}" for number in range(40)]
    qrels = {f"q{n}": {doc: source.choice((0, 1, 2)) for doc in source.sample(docs, 12)} for n in range(20)}
    rankings = {f"q{n}": source.sample(docs, 25) for n in range(20)}
    lines = [f"{query} Q0 {doc} {n} 7 t\n" for query, found in rankings.items() for n, doc in enumerate(found, start=1)]
    source.shuffle(lines)
    (folder / "r.run").write_text("".join(lines))
    expected = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "map", "bpref"}).evaluate(
        {query: {doc: float(-n) for n, doc in enumerate(found)} for query, found in rankings.items()}
    )
    found = kbeval.evaluate("r.run", qrels, ["nDCG@10", "AP", "Bpref"], order="rank").per_query()
    theirs = {"nDCG@10": "ndcg_cut_10", "AP": "map", "Bpref": "bpref"}
    for query, metric, value in found.iter_rows():
        assert value == pytest.approx(expected[query][theirs[metric]], abs=1e-9), (query, metric)


def test_rankings_without_a_defined_order_are_rejected(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "qrels").write_text("q1 0 d3 1\n")
    for text, complaint in (
        ("q1 Q0 d1 1 9 t\nq1 Q0 d2 1 8 t\n", "has rank 1 2 times for query 'q1'"),
        ("q1 Q0 d1 1 9 t\nq1 Q0 d2 first 8 t\n", "line 2: the rank 'first' is not a whole number"),
        ("q1 Q0 d1 1 9 t\nq1 Q0 d2 -3 8 t\n", "line 2: the rank '-3' is not a whole number"),
        ("q1 Q0 d1 1 9 t\nq1 Q0 d2 99999999999999999999 8 t\n", "line 2: the rank '9999"),
        ("q1 Q0 d1 1 9 t\nq1 Q0 d1 2 8 t\n", "document 'd1' 2 times for query 'q1'"),
    ):
        (folder / "r.run").write_text(text)
        assert complaint in refused(capsys, "trec", "qrels", "r.run", "--order", "rank")
        assert complaint in refused(capsys, "import", "trec", "r.run", "--order", "rank", "--db", "x.db")
    for text, complaint in (
        ("query_id,chunk_id,score\nq,a,1\nq,b,\n", "line 2: query 'q': 'b' has no score"),
        ("query_id,chunk_id,score\nq,a,1\nq,a,2\n", "line 2: query 'q': 'a' occurs twice"),
        ("query_id,hits\nq,a|b\n", "line 2: query 'q': 'a' has no score"),
    ):
        (folder / "t.csv").write_text(text)
        with pytest.raises(KbevalError) as caught:
            read_table(folder / "t.csv", order="score")
        assert complaint in str(caught.value)
    frame = pl.DataFrame({"query_id": ["q", "q"], "doc_id": ["a", "b"], "rank": [1, 2]})
    qrels = {"q": {"a": 1}}
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ({"q": {"a": 1.0}}, {"order": "rank"}, "has no ranks"),
        (frame, {}, "order='rank' uses its ranks"),
        (frame, {"order": "ranks"}, "order is 'ranks'"),
        (frame.drop("rank"), {"order": "rank"}, "has no column rank"),
        (frame.with_columns(rank=pl.lit(1)), {"order": "rank"}, "has rank 1 2 times"),
        (frame.with_columns(rank=pl.lit(1.5)), {"order": "rank"}, "a rank is a whole number"),
        (frame.with_columns(rank=pl.lit("1")), {"order": "rank"}, "not numbers"),
        (frame.with_columns(rank=pl.lit(None, pl.Int64)), {"order": "rank"}, "2 rows without a rank"),
    ]
    for table, options, complaint in cases:
        with pytest.raises(KbevalError) as caught:
            kbeval.evaluate(table, qrels, "RR", **options)
        assert complaint in str(caught.value)
