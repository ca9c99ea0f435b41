"""TREC files: `kbeval trec` prints what trec_eval does; run files and judgements are imported, and runs exported."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import kbeval
from kbeval.frames import trec_files
from kbeval.golden import load_golden
from kbeval.systems import trec
from kbeval.systems.trec import read_run_file
from tests.cli.test_cli import call, refused

pytrec_eval = pytest.importorskip("pytrec_eval")

RUN = """\
q1 Q0 d3 1 0.5 bm25
q1 Q0 d1 2 0.9 bm25
q1 Q0 d2 3 0.5 bm25
# a comment
q2  Q0\td9 1 3 bm25
"""
QRELS = "q1 0 d1 2\nq1 0 d2 1\nq1 0 d4 0\nq2 0 d5 1\nq3 0 d1 -1\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bm25.run").write_text(RUN)
    (tmp_path / "my.qrels").write_text(QRELS)
    return tmp_path


def test_trec_prints_what_trec_eval_prints(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = random.Random(1)
    qrels = {f"q{n}": {f"d{source.randrange(60)}": source.choice((0, 0, 1, 2)) for _ in range(20)} for n in range(12)}
    run = {f"q{n}": {f"d{source.randrange(60)}": source.randrange(9) / 3 for _ in range(30)} for n in range(2, 15)}
    Path("r.run").write_text("".join(f"{q} Q0 {d} 0 {s!r} t\n" for q, docs in run.items() for d, s in docs.items()))
    Path("r.qrels").write_text("".join(f"{q} 0 {d} {g}\n" for q, docs in qrels.items() for d, g in docs.items()))
    measures = {"num_ret", "num_rel", "num_rel_ret", "map", "Rprec", "bpref", "recip_rank", "P", "recall", "ndcg"}
    measures |= {"ndcg_cut", "map_cut", "success"}
    values = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    code, out, err = call(capsys, "trec", "r.qrels", "r.run", "-q", "-m", "all_trec")
    assert code == 0
    assert "not computed: gm_map, iprec_at_recall" in err
    printed = [line.split("\t") for line in out.splitlines()]
    assert all(len(name) == 22 for name, _, _ in printed)
    found = {(query, name.strip()): value for name, query, value in printed}
    for query, numbers in values.items():
        for name, value in numbers.items():
            assert found[query, name] == (f"{value:.0f}" if name.startswith("num_") else f"{value:6.4f}")
    assert found["all", "num_q"] == str(len(values))
    assert found["all", "runid"] == "t"
    for name in next(iter(values.values())):
        total = sum(numbers[name] for numbers in values.values())
        text = f"{total:.0f}" if name.startswith("num_") else f"{total / len(values):6.4f}"
        assert found["all", name] == text, name
    # Queries in the order of their ids, then the averages.
    assert list(dict.fromkeys(query for _, query, _ in printed)) == [*sorted(values), "all"]


def test_measures_options_and_several_runs(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del files
    _, out, _ = call(capsys, "trec", "my.qrels", "bm25.run", "-m", "ndcg_cut.10,1", "-m", "P_5", "-m", "nDCG@3")
    assert [line.split()[0] for line in out.splitlines()] == ["P_5", "ndcg_cut_1", "ndcg_cut_10", "nDCG@3"]
    _, out, _ = call(capsys, "trec", "my.qrels", "bm25.run", "-c", "-m", "num_q", "-m", "map")
    assert out == "num_q                 \tall\t3\nmap                   \tall\t0.2778\n"
    _, out, _ = call(capsys, "trec", "my.qrels", "bm25.run", "-l", "2", "-q", "-n", "-m", "num_rel")
    assert out == "num_rel               \tq1\t1\nnum_rel               \tq2\t0\n"
    Path("other.run").write_text("q1 Q0 d1 1 1 other\n")
    _, out, _ = call(capsys, "trec", "my.qrels", "bm25.run", "other.run", "-m", "map")
    assert [line.split("\t")[0] for line in out.splitlines()] == ["bm25.run", "other.run"]


@pytest.mark.parametrize(
    ("arguments", "text", "complaint"),
    [
        (["-m", "gm_map"], RUN, "gm_map is not computed"),
        (["-m", "mapp"], RUN, "did you mean 'map'"),
        (["-m", "map.5"], RUN, "map has no cutoffs"),
        (["-m", "P.0"], RUN, "a cutoff must be 1 or more"),
        ([], "q1 Q0 d1 1 high tag\n", "bad.run, line 1: the score 'high' is not a number"),
        ([], RUN + "q1 Q0 d1\n", "bad.run, line 6: has 3 columns"),
        ([], RUN + "q1 Q0 d1 9 9 bm25\n", "document 'd1' 2 times for query 'q1'"),
        ([], "zz Q0 d1 9 9 bm25\n", "no query of bad.run has judgements in my.qrels"),
        ([], "", "no query of bad.run has judgements"),
    ],
)
def test_wrong_files_are_named(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str, complaint: str
) -> None:
    (files / "bad.run").write_text(text)
    assert complaint in refused(capsys, "trec", "my.qrels", "bad.run", *arguments)


def test_ids_that_do_not_match_are_reported_next_to_the_zeros(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, complaint in (
        ("q1 Q0 D1 1 9 t\n", "1 judged document not found: the ids in odd.run and my.qrels differ only in case"),
        ("q1 Q0 x 1 9 t\n", "no document of odd.run is judged in my.qrels"),
        ("q1 Q0 d1 1 9 t\nQ2 Q0 d5 1 9 t\n", "1 query left out: the ids in odd.run and my.qrels differ only in case"),
    ):
        (files / "odd.run").write_text(text)
        code, out, err = call(capsys, "trec", "my.qrels", "odd.run", "-m", "map")
        assert (code, out.count("\n")) == (0, 1)
        assert complaint in err
        assert err.startswith("kbeval: warning: ")
    (files / "odd.run").write_text("Q1 Q0 d1 1 9 t\n")
    assert "('Q1' and 'q1')" in refused(capsys, "trec", "my.qrels", "odd.run")
    assert call(capsys, "trec", "my.qrels", "bm25.run", "-m", "map")[2] == ""


def test_import_score_and_export(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "import", "trec", "bm25.run", "--db", "w.db")
    assert (code, "imported bm25: 2 rows" in err) == (0, True)
    assert "unchanged bm25" in call(capsys, "import", "trec", "bm25.run", "--db", "w.db")[2]
    code, _, err = call(capsys, "import", "qrels", "my.qrels", "-o", "golden.jsonl")
    assert (code, "1 judgement with a negative grade left out" in err) == (0, True)
    assert "unchanged golden.jsonl" in call(capsys, "import", "qrels", "my.qrels", "-o", "golden.jsonl")[2]
    code, out, _ = call(capsys, "score", "--all", "--db", "w.db", "--golden", "golden.jsonl", "--format", "json")
    assert code == 0
    _, printed, _ = call(capsys, "trec", "my.qrels", "bm25.run", "-m", "nDCG@10", "-m", "map_cut.10", "-m", "Rprec")
    theirs = [float(line.split()[-1]) for line in printed.splitlines()]
    (stored,) = json.loads(out) if out.startswith("[") else [json.loads(out)]
    text = json.dumps(stored)
    for number in theirs:
        assert f": {number}" in text, (number, text)
    # By score, then by document, both descending; the rank column is ignored but kept.
    _, out, _ = call(capsys, "export", "trec", "bm25", "--db", "w.db", "--tag", "x")
    assert out.splitlines() == ["q1 Q0 d1 1 0.9 x", "q1 Q0 d3 2 0.5 x", "q1 Q0 d2 3 0.5 x", "q2 Q0 d9 1 3.0 x"]
    Path("again.run").write_text(out)
    assert call(capsys, "import", "trec", "again.run", "--db", "w.db")[0] == 0
    _, again, _ = call(capsys, "export", "trec", "again", "--db", "w.db", "--tag", "x")
    assert again == out
    Path("bm25.run").write_text(RUN.replace("0.9", "0.8"))
    assert "use --replace" in refused(capsys, "import", "trec", "bm25.run", "--db", "w.db")
    assert "replaced bm25" in call(capsys, "import", "trec", "bm25.run", "--db", "w.db", "--replace")[2]


def test_a_run_file_is_stored_the_same_whichever_way_it_is_read(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once as columns, or line by line with an object for each hit: the same bytes."""
    source = random.Random(5)
    scores = ("0.5", "1e-5", "1e22", "-0.0", "3", "0.30000000000000004", "1e-320", "+.5E0", "123456.789")
    docs = ["d1", "d2", 'a"b', "back\\slash", "ü", "😀", "007", "{}", "\x7f", "\x01"]
    fast = 0
    for number in range(40):
        between = source.choice((" ", " ", "\t", "  "))
        rows = []
        for query in ("q1", "q2", 'q"3'):
            for place, doc in enumerate(
                source.sample(docs if number % 2 else docs[:8], 6), start=source.choice((0, 1))
            ):
                tag, second = source.choice(("t", "t", "u")), source.choice(("Q0", "Q0", "0"))
                rows.append([query, second, doc, str(place), source.choice(scores), tag])
        if number % 3 == 0:
            source.shuffle(rows)
        (files / "x.run").write_text("\n".join(map(between.join, rows)))
        for order in ("score", "rank"):
            if order == "rank" and len({row[3] for row in rows}) > 6:
                continue
            found = read_run_file(files / "x.run", order=order)
            fast += trec._texts(*trec._ranked(files / "x.run", order)) is not None
            with monkeypatch.context() as slowly:
                slowly.setattr(trec, "_texts", lambda *_: None)
                slowly.setattr(trec_files, "_texts_fast", lambda _: None)
                assert read_run_file(files / "x.run", order=order) == found, (number, order)
    assert fast > 20


def test_compare_of_evaluate_is_kbeval_compare(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs as files, and the same two in a database: the same differences, intervals, p and verdict."""
    source = random.Random(4)
    docs = [f"d{number}" for number in range(30)]
    qrels = {
        f"q{n}": {"d0": 2, **{doc: source.choice((0, 1)) for doc in source.sample(docs[1:], 6)}} for n in range(40)
    }
    for name, shift in (("a", 0.1), ("b", 0.7)):
        lines = [
            f"{query} Q0 {doc} 0 {source.randrange(20) / 20 + (shift if labels.get(doc, 0) else 0)} t\n"
            for query, labels in qrels.items()
            for doc in source.sample(docs, 20)
        ]
        (files / f"{name}.run").write_text("".join(lines))
    (files / "qrels").write_text("".join(f"{q} 0 {d} {g}\n" for q, of in qrels.items() for d, g in of.items()))
    names = {
        "nDCG@10": "ndcg_at_k.10",
        "AP@10": "map_at_k.10",
        "P@5": "precision_at_k_chunk.5",
        "R@5": "recall_at_k_chunk.5",
    }
    a, b = (kbeval.evaluate(f"{name}.run", "qrels", list(names)) for name in "ab")
    found = a.compare(b)
    call(capsys, "import", "trec", "a.run", "b.run", "--db", "w.db")
    call(capsys, "import", "qrels", "qrels", "-o", "golden.jsonl")
    where = ["--db", "w.db", "--golden", "golden.jsonl"]
    code, out, _ = call(capsys, "compare", "a", "b", "--only", ",".join(names), "--format", "json", *where)
    assert code == 0
    report = json.loads(out)
    assert set(report["significance"]) == set(names.values())
    for ours, stored in names.items():
        assert found.significance[ours].to_dict() == report["significance"][stored], ours
        delta = found.significance[ours].mean_delta
        assert delta == round(b[ours] - a[ours], 4)
    assert found.verdict.answer == report["verdict"] == "better"
    # A document is a chunk here, so recall of documents and of chunks are one number.
    numbers = kbeval.score_runs("w.db", "golden.jsonl", ["a"]).aggregates["a"].numbers()
    assert numbers["recall_at_k_doc.5"] == numbers["recall_at_k_chunk.5"] == round(a["R@5"], 4)


def test_an_export_says_what_a_run_file_cannot_hold(
    files: Path, capsys: pytest.CaptureFixture[str], workspace: object
) -> None:
    from tests.support.workspace import Workspace

    assert isinstance(workspace, Workspace)
    rows: dict[str, Any] = {
        "q1": {"hits_top_k": [{"chunk_id": "a", "score": 0.1}, {"chunk_id": "b", "score": 0.9}]},
        "q2": {"hits_top_k": [{"chunk_id": "a"}, {"chunk_id": "a"}, {"doc_id": "d"}]},
        "q3": {"hits_top_k": []},
    }
    workspace.add_run("run", rows)
    workspace.add_run("odd", {"q 1": {"hits_top_k": [{"chunk_id": "a"}]}})
    code, _, err = call(capsys, "export", "trec", "run", "--db", str(workspace.db), "-o", "out.run")
    assert code == 0
    assert (files / "out.run").read_text() == "q1 Q0 a 1 2.0 run\nq1 Q0 b 2 1.0 run\nq2 Q0 a 1 1.0 run\n"
    for said in (
        "1 repeated hit left out",
        "1 hit without a chunk_id",
        "scores of 2 queries replaced",
        "1 query without",
    ):
        assert said in err
    assert "contains white space" in refused(capsys, "export", "trec", "odd", "--db", str(workspace.db))


def test_queries_have_their_texts(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "topics.tsv").write_text("q1\twhat is one?\nq9\tunused\n")
    call(capsys, "import", "qrels", "my.qrels", "--queries", "topics.tsv", "-o", "golden.yaml")
    golden = load_golden("golden.yaml")
    assert [(entry["id"], entry["query"]) for entry in golden.entries] == [("q1", "what is one?"), ("q2", "q2")]
    assert golden.entries[0]["relevance"] == {"d1": 2.0, "d2": 1.0, "d4": 0.0}
    _, out, err = call(capsys, "import", "qrels", "my.qrels", "--queries", "topics.tsv")
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["q1", "q2"]
    assert "1 query without a text" in err
    (files / "topics.tsv").write_text("q1 no tab\n")
    assert "line 1: must be an id, a tab" in refused(capsys, "import", "qrels", "my.qrels", "--queries", "topics.tsv")
    (files / "golden.yaml").write_text("mine\n")
    assert "already exists" in refused(capsys, "import", "qrels", "my.qrels", "-o", "golden.yaml")
