"""Files of other tools: their own numbers are reproduced, nothing is lost, and faults are reported with their place."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kbeval
from kbeval.cli import run
from kbeval.errors import KbevalError
from kbeval.systems import zip_files
from kbeval.systems.deepeval import read_deepeval
from kbeval.systems.inspect_log import read_inspect
from kbeval.systems.promptfoo import read_promptfoo
from kbeval.systems.ragas import read_ragas
from kbeval.systems.tables import parse_map, read_table
from kbeval.systems.tool_rows import ToolRun
from kbeval.systems.zip_files import ZipReader

FIXTURES = Path(__file__).parents[2] / "fixtures"
TOOLS = FIXTURES / "tools"
FILES: dict[str, tuple[Callable[..., list[ToolRun]], str]] = {
    "ragas": (read_ragas, "ragas/result.jsonl"),
    "promptfoo": (read_promptfoo, "promptfoo/results.json"),
    "deepeval": (read_deepeval, "deepeval/test_run.json"),
    "inspect": (read_inspect, "inspect/help-desk.eval"),
}


def read_json(name: str) -> Any:
    return json.loads((TOOLS / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a run of every tool, imported by the commands, and scored."""
    folder = tmp_path_factory.mktemp("imported")
    db = str(folder / "kb.db")
    for tool, (_, file) in FILES.items():
        golden = ["--golden-out", str(folder / f"{tool}.yaml")]
        assert run(["import", tool, str(TOOLS / file), "--run-id", tool, *golden, "--db", db]) == 0
    entries: dict[str, dict[str, Any]] = {}
    for tool in FILES:
        for entry in kbeval.load_golden(folder / f"{tool}.yaml").entries:
            entries[entry["id"]] = {**entry, **entries.get(entry["id"], {})}
    (folder / "golden.json").write_text(json.dumps(list(entries.values())))
    assert run(["score", "--all", "--db", db, "--golden", str(folder / "golden.json")]) == 0
    return folder


def aggregates(folder: Path) -> dict[str, kbeval.AggregateMetrics]:
    with closing(sqlite3.connect(folder / "kb.db")) as connection:
        found = connection.execute("SELECT run_id, aggregate_json FROM eval_runs").fetchall()
    return {run_id: kbeval.AggregateMetrics.from_json(text) for run_id, text in found}


def test_the_numbers_are_those_that_the_tools_computed(imported: Path) -> None:
    found = aggregates(imported)
    # What each tool itself says about its file.
    for score in read_json("inspect/help-desk.json")["results"]["scores"]:
        name = "includes" if score["name"] == "includes" else f"style_{score['name']}"
        theirs = score["metrics"]["accuracy" if name == "includes" else "mean"]["value"]
        assert found["inspect"].value(f"inspect.{name}") == round(theirs, 4), name
    for metric in read_json("deepeval/test_run.json")["metricsScores"]:
        name = f"deepeval.{metric['metric'].lower().replace(' ', '_')}"
        assert found["deepeval"].value(name) == sum(metric["scores"]) / len(metric["scores"]), name
    for prompt in read_json("promptfoo/results.json")["results"]["prompts"]:
        ours = found[f"promptfoo-{prompt['provider']}"]
        metrics = prompt["metrics"]
        n = metrics["testPassCount"] + metrics["testFailCount"]
        assert ours.value("promptfoo.score") == round(metrics["score"] / n, 4)
        assert ours.value("promptfoo.pass") == metrics["testPassCount"] / n
        for name, total in metrics["namedScores"].items():
            assert ours.value(f"promptfoo.{name}") == total / metrics["namedScoresCount"][name], name
    # Printed by ragas: {'exact_match': 0.5000, 'id_based_context_recall': 1.0000, 'faithfulness': 0.7500}.
    assert found["ragas"].value("ragas.exact_match") == 0.5
    assert found["ragas"].value("ragas.id_based_context_recall") == 1.0
    assert found["ragas"].value("ragas.faithfulness") == 0.75
    assert found["ragas"].counts("ragas.faithfulness") == {"scored": 1, "not_applicable": 1}, "NaN is not 0"
    # The labels of the file, scored here: ragas' recall by ids is ours.
    assert found["ragas"].recall_at_k_doc is not None
    assert found["ragas"].mrr == 1.0
    assert found["deepeval"].mrr == 1.0, "the expected context is the first retrieved one"


def test_their_scores_have_history_comparison_and_gates(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--db", str(imported / "kb.db"), "--golden", str(imported / "golden.json")]
    assert run(["gate", "ragas", "--min", "ragas.exact_match=0.5", *where]) == 0
    assert run(["gate", "ragas", "--min", "ragas.exact_match=0.51", *where]) == 1
    assert (
        run(["gate", "promptfoo-second", "--baseline", "promptfoo-parrot", "--max-drop", "promptfoo.facts=0.1", *where])
        == 0
    )
    assert run(["history", "deepeval.hallucination", *where[:2]]) == 0
    capsys.readouterr()
    assert (
        run(
            ["compare", "promptfoo-parrot", "promptfoo-second", "--only", "promptfoo.score", "--format", "json", *where]
        )
        == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert report["deltas"]["promptfoo.score"] == 0
    assert "promptfoo.score" in report["significance"]
    assert run(["explain", "inspect.includes", *where]) == 0
    assert "sql/totals/row_score.sql" in capsys.readouterr().out
    assert run(["explain", "inspect.includes", "--run", "inspect", "--query", "refund", *where]) == 0
    assert "inspect.includes = 0" in capsys.readouterr().out
    # Less of it is better, as its thresholds show.
    assert run(["gate", "deepeval", "--baseline", "deepeval", "--max-drop", "deepeval.hallucination=0", *where]) == 0
    # Not between 0 and 1: it is not known which is better.
    assert run(["gate", "inspect", "--baseline", "inspect", "--max-drop", "inspect.style_length=1", *where]) == 2
    assert "neither better nor worse" in capsys.readouterr().err


def test_the_same_file_again_changes_nothing(
    imported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = tmp_path / "kb.db"
    shutil.copy(imported / "kb.db", db)
    before = db.read_bytes()
    for tool, (_, file) in FILES.items():
        golden = ["--golden-out", str(imported / f"{tool}.yaml")]
        assert run(["import", tool, str(TOOLS / file), "--run-id", tool, *golden, "--db", str(db)]) == 0
    said = capsys.readouterr().err
    assert "imported " not in said
    assert said.count("unchanged") == 9
    assert db.read_bytes() == before
    # The same name with other rows is refused, and nothing of the import stays.
    other = tmp_path / "other.yaml"
    arguments = ["import", "ragas", str(TOOLS / "ragas/dataset.csv"), "--run-id", "ragas", "--db", str(db)]
    assert run([*arguments, "--golden-out", str(other)]) == 2
    assert "already exists and has other rows" in capsys.readouterr().err
    assert not other.exists()
    assert run([*arguments, "--golden-out", str(imported / "inspect.yaml")]) == 2
    assert "already exists with other queries" in capsys.readouterr().err
    assert db.read_bytes() == before


# --- nothing is lost -----------------------------------------------------------------------------------------


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    elif value is not None:
        yield json.dumps(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)


def records(tool: str) -> list[dict[str, Any]]:
    if tool == "ragas":
        return [json.loads(line) for line in (TOOLS / "ragas/result.jsonl").read_text().splitlines()]
    if tool == "promptfoo":
        found: list[dict[str, Any]] = read_json("promptfoo/results.json")["results"]["results"]
    elif tool == "deepeval":
        found = read_json("deepeval/test_run.json")["testCases"]
    else:
        found = read_json("inspect/help-desk.json")["samples"]
    return found


@pytest.mark.parametrize("tool", FILES)
def test_every_value_of_a_record_is_in_its_row(tool: str) -> None:
    reader, file = FILES[tool]
    runs = reader(TOOLS / ("inspect/help-desk.json" if tool == "inspect" else file), "r", "s")
    rows = [json.loads(text) for one in runs for _, text in one.finished(TOOLS / file).rows]
    theirs = sorted((Counter(leaves(record)) for record in records(tool)), key=str)
    assert len(rows) == len(theirs)
    for record in theirs:
        # Milliseconds may have been seconds, and grades numbers: they are kept as they were, too.
        assert any(set(record) <= set(leaves(row)) for row in rows), tool


def test_every_value_of_tables_run_files_and_folders_is_stored(tmp_path: Path) -> None:
    """Of formats that tools do not write: a table of hits, one of queries, run files and judgements, and BEIR."""
    db = tmp_path / "kb.db"
    hits = [
        {
            "qid": f"q{n % 2}",
            "id": f"c{n}",
            "rank": n // 2 + 1,
            "score": n / 7,
            "note": f"note {n}",
            "page": n,
            "ok": n > 1,
        }
        for n in range(4)
    ]
    queries = [
        {"query_id": "q1", "hits": ["c1", "c2"], "answer": "yes", "model": {"name": "m", "sizes": [1, 2]}, "tag": "x"},
        {"query_id": "q2", "hits": [{"chunk_id": "c3", "vector": [0.5], "score": 2.5}], "tokens": 12, "error": "late"},
    ]
    lines = ["q1 Q0 d1 7 0.5 one", "q1 X d2 3 0.25 two"]
    pl.DataFrame(hits).write_parquet(tmp_path / "hits.parquet")
    (tmp_path / "queries.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in queries))
    (tmp_path / "lines.run").write_text("\n".join(lines))
    at = ["--db", str(db)]
    stored = []
    for _ in range(2):
        command = ["import", "table", str(tmp_path / "hits.parquet"), "--map", "query_id=qid,chunk_id=id", *at]
        assert run(command) == 0
        assert run(["import", "table", str(tmp_path / "queries.jsonl"), *at]) == 0
        assert run(["import", "trec", str(tmp_path / "lines.run"), *at]) == 0
        assert run(["import", "beir", str(FIXTURES / "beir"), "--golden-out", str(tmp_path / "g.jsonl"), *at]) == 0
        stored.append(db.read_bytes())
    assert stored[0] == stored[1], "the same files again change nothing"
    with closing(sqlite3.connect(db)) as connection:
        rows: dict[str, set[str]] = {}
        for run_id, query_id, text in connection.execute(
            "SELECT run_id, query_id, result_json FROM eval_query_results"
        ):
            rows.setdefault(run_id, set()).update([json.dumps(query_id), *leaves(json.loads(text))])
        config = [text for (text,) in connection.execute("SELECT config_snapshot_json FROM eval_runs")]
        passages = [
            *connection.execute("SELECT d.doc_id, d.title, c.text FROM documents AS d JOIN chunks AS c USING (doc_id)")
        ]
        more = [text for (text,) in connection.execute("SELECT fields_json FROM kbeval_document_fields")]
    assert {leaf for hit in hits for leaf in leaves(hit)} <= rows["hits"]
    assert {leaf for row in queries for leaf in leaves(row)} <= rows["queries"]
    for word in ["q1", "d1", "7", "X", "d2", "3", "two"]:
        assert json.dumps(word) in rows["lines"]
    assert {"0.5", "0.25"} <= rows["lines"]
    assert any('"one"' in text for text in config)
    for line in (FIXTURES / "beir/corpus.jsonl").read_text().splitlines():
        passage = json.loads(line)
        name, title, text = next(found for found in passages if found[0] == passage["_id"])
        assert (title or "") == passage.get("title", "")
        assert passage["text"] in text
        assert not passage.get("metadata") or any(json.dumps(passage["metadata"]) in one for one in more), name
    judged = {entry["id"]: entry for entry in kbeval.load_golden(tmp_path / "g.jsonl").entries}
    for line in (FIXTURES / "beir/qrels/test.tsv").read_text().splitlines()[1:]:
        query, passage, grade = line.split("\t")
        relevance = judged[query].get("relevance") or dict.fromkeys(judged[query]["expected_chunk_ids"], 1)
        assert relevance[passage] == int(grade)


def test_a_log_of_either_kind_says_the_same() -> None:
    (one,), (other,) = read_inspect(TOOLS / "inspect/help-desk.eval"), read_inspect(TOOLS / "inspect/help-desk.json")
    assert list(one.rows) == list(other.rows) == ["locked", "refund", "lisbon"]
    assert (
        one.scores
        == other.scores
        == {
            "locked": {"includes": 1.0, "style_tone": 1.0, "style_length": 20.0},
            "refund": {"includes": 0.0, "style_tone": 0.5, "style_length": 18.0},
            "lisbon": {"includes": 1.0, "style_tone": 1.0, "style_length": 14.0},
        }
    )
    assert [hit["chunk_id"] for hit in one.rows["locked"]["hits_top_k"]] == ["c1", "c2"]
    assert one.rows["locked"]["tokens"] == {"total": 26.0}
    first, second = read_inspect(TOOLS / "inspect/twice.eval", "twice")
    assert (first.run_id, second.run_id) == ("twice-epoch1", "twice-epoch2")


def test_tables_of_ragas_say_the_same_in_every_format() -> None:
    found = {
        ending: read_ragas(TOOLS / f"ragas/result.{ending}", "r")[0] for ending in ("jsonl", "json", "csv", "parquet")
    }
    expected = found["jsonl"]
    for ending, one in found.items():
        assert one.rows == expected.rows, ending
        # What was not scored is null in JSON, and an empty cell elsewhere.
        for query_id, scores in one.scores.items():
            given = {name: score for name, score in expected.scores[query_id].items() if score is not None}
            assert {name: score for name, score in scores.items() if score is not None} == given, ending
    assert read_ragas(TOOLS / "ragas/dataset.csv")[0].rows == read_ragas(TOOLS / "ragas/dataset.jsonl")[0].rows


def test_a_question_that_is_asked_again_is_in_the_golden_file_again(tmp_path: Path) -> None:
    """In a group with the first if it has the same labels, so that both count as one question."""
    path = tmp_path / "r.jsonl"
    asked = [("a", "x", 1.0), ("a", "x", 0.0), ("b", "x", 1.0), ("b", "y", 1.0)]
    path.write_text(
        "".join(
            json.dumps({"user_input": question, "reference_contexts": [right], "response": "r", "faithfulness": score})
            + "\n"
            for question, right, score in asked
        )
    )
    (found,) = read_ragas(path, "r")
    assert list(found.golden) == list(found.rows)
    assert len(found.golden) == 4
    groups = [entry.get("group") for entry in found.golden.values()]
    first = next(iter(found.golden))
    assert groups == [first, first, None, None]


def test_promptfoo_and_deepeval_say_the_same_in_both_of_their_files() -> None:
    lines = read_promptfoo(TOOLS / "promptfoo/results.jsonl", "r")
    assert [one.rows for one in lines] == [one.rows for one in read_promptfoo(TOOLS / "promptfoo/results.json", "r")]
    (kept,), (latest,) = (read_deepeval(TOOLS / f"deepeval/{name}.json") for name in ("test_run", "latest_test_run"))
    assert kept.rows == latest.rows


def test_other_shapes_that_tools_write(tmp_path: Path) -> None:
    """Shapes that the fixtures do not have."""
    conversation = {"turns": [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Ho."}]}
    case = {**conversation, "name": "test_case_0", "metricsData": [{"name": "Role", "score": None, "error": "no key"}]}
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"conversationalTestCases": [case], "testCases": []}))
    (found,) = read_deepeval(path)
    ((query_id, row),) = found.rows.items()
    assert query_id.startswith("q-")
    assert (row["query"], row["answer"]) == ("Hi?", {"answer": "Ho."})
    assert found.scores == {query_id: {"Role": None}}
    assert "no key" in found.warnings[0]
    sample = {
        "id": 7,
        "epoch": 1,
        "input": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "Q?"}]}],
        "error": {"message": "it broke", "traceback": "…"},
        "scores": {
            "a": {"value": "N"},
            "b": {"value": "a poem"},
            "c": {"value": [True, "0.5"]},
            "d": {"value": float("nan")},
        },
    }
    path.write_text(json.dumps({"eval": {"model": "m"}, "status": "error", "samples": [sample]}))
    (log,) = read_inspect(path)
    assert log.rows["7"]["query"] == "Q?"
    assert log.rows["7"]["error"] == "it broke"
    assert log.scores == {"7": {"a": 0.0, "c_1": 1.0, "c_2": 0.5, "d": None}}
    assert log.rows["7"]["kbeval_source"]["scores"]["b"] == {"value": "a poem"}
    assert "did not finish" in log.warnings[0]
    lines = [
        {
            "testCase": {"vars": {"topic": "tea"}},
            "provider": "p",
            "prompt": {"raw": "On tea", "label": "l"},
            "success": True,
        },
        {"testCase": {}, "provider": {"id": "p"}, "response": {"error": "429", "output": {"a": 1}}, "error": "429"},
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    one, other = read_promptfoo(path)
    assert next(iter(one.rows.values()))["query"] == "tea"
    assert next(iter(other.rows.values()))["error"] == "429"
    path.write_text('{"question": "Q?", "answer": "A.", "contexts": ["c"], "ground_truth": "G", "faithfulness": 1}\n')
    (older,) = read_ragas(path)
    ((_, row),) = older.rows.items()
    assert (row["query"], row["answer"], row["reference"]) == ("Q?", {"answer": "A."}, "G")
    assert row["hits_top_k"][0]["text"] == "c"


# --- broken files -----------------------------------------------------------------------------------------------


BROKEN: Sequence[tuple[Callable[[Path], object], str, str | bytes, str]] = (
    (read_ragas, "a.jsonl", '{"user_input": "q"}\n{"user_input": ', "line 2: is not valid JSON"),
    (read_ragas, "a.jsonl", '{"user_input": "q"}\n[1]\n', "line 2: is not a JSON object"),
    (read_ragas, "a.jsonl", '{"user_input": "q", "response": "a"}\n{"response": "a"}\n', "line 2: has no user_input"),
    (read_ragas, "a.jsonl", '{"x": 1}\n', "not a file of Ragas"),
    (read_ragas, "a.txt", "x", "unknown extension '.txt'"),
    (read_ragas, "a.csv", "user_input,response\nq\n", "line 2: has 1 cells, but the header has 2"),
    (read_ragas, "a.csv", "", "has no header line"),
    (read_ragas, "a.csv", b"\xff\xfe", "is not UTF-8"),
    (read_ragas, "a.parquet", "PAR1 or not", "cannot be read as Parquet"),
    (read_ragas, "a.json", '{"a": 1}', "is not a list of objects"),
    (read_promptfoo, "a.json", '{"results": 3}', "has no results.results"),
    (read_promptfoo, "a.json", '{\n"results": }', "line 2: is not valid JSON"),
    (read_promptfoo, "a.jsonl", '{"x": 1}\n', "line 1: not a result of promptfoo"),
    (read_deepeval, "a.json", "[]", "not a test run of DeepEval"),
    (read_deepeval, "a.json", '{"testCases": [3]}', r"testCases\[0\] is not an object"),
    (read_deepeval, "a.json", "[" * 100_000, "nested too deeply|not valid JSON"),
    (read_inspect, "a.json", "{}", "not a log of Inspect"),
    (read_inspect, "a.json", '{"eval": {}, "samples": [3]}', "sample 1: not a sample"),
    (read_inspect, "a.eval", "not a zip file", "cannot be read as a zip file"),
    (read_inspect, "a.eval", b"", "cannot be read as a zip file"),
)


def test_a_broken_file_is_named_with_place_and_reason(tmp_path: Path) -> None:
    for reader, name, content, message in BROKEN:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(KbevalError, match=message):
            reader(path)
    assert (
        run(["import", "ragas", str(TOOLS / "ragas/result.csv"), "--run-id", " ", "--db", str(tmp_path / "kb.db")]) == 2
    )
    for reader, _ in FILES.values():
        for path in (tmp_path / "missing.json", tmp_path):
            with pytest.raises(KbevalError, match=r"does not exist|is a directory|not a file|unknown extension"):
                reader(path)


def test_zip_files_are_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("../header.json", "{}")
        file.writestr("samples/../../etc/x.json", '{"input": "q", "id": "q"}')
        file.writestr("header.json", '{"eval": {}}')
    (found,) = read_inspect(path)
    assert list(found.rows) == ["q"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.eval"], "names in the file are not paths"
    bomb = tmp_path / "bomb.eval"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", b" " * 3_000_000)
    monkeypatch.setattr(zip_files, "LARGEST_ENTRY", 1_000_000)
    with monkeypatch.context() as nothing_unpacked:
        nothing_unpacked.setattr(ZipReader, "_stream", lambda *_: pytest.fail("it was unpacked"))
        with pytest.raises(KbevalError, match=r"header\.json: is too large"):
            read_inspect(bomb)
    # A size that is not true does not help.
    lies = bomb.read_bytes().replace((3_000_000).to_bytes(4, "little"), (9).to_bytes(4, "little"))
    bomb.write_bytes(lies)
    with pytest.raises(KbevalError, match=r"is too large|cannot be read"):
        read_inspect(bomb)
    monkeypatch.undo()
    monkeypatch.setattr(zip_files, "LARGEST_SUM", 10_000)
    with pytest.raises(KbevalError, match="is too large: it unpacks to"):
        read_inspect(TOOLS / "inspect/help-desk.eval")
    monkeypatch.undo()
    # The same, compressed with Zstandard, and with a size in the file that is not true.
    data = (TOOLS / "inspect/help-desk.eval").read_bytes()
    monkeypatch.setattr(zip_files, "LARGEST_ENTRY", 1000)
    with pytest.raises(KbevalError, match="is too large"):
        read_inspect(TOOLS / "inspect/help-desk.eval")
    monkeypatch.undo()
    for cut in (len(data) // 2, len(data) - 10):
        path.write_bytes(data[:cut])
        with pytest.raises(KbevalError, match="cannot be read"):
            read_inspect(path)
    with ZipReader(TOOLS / "inspect/help-desk.eval") as whole:
        place = whole._infos["header.json"].header_offset + 80
    path.write_bytes(data[:place] + b"\0" * 40 + data[place + 40 :])
    with pytest.raises(KbevalError, match=r"cannot be read|not valid JSON|no 'eval'"):
        read_inspect(path)
    monkeypatch.setattr(zip_files, "MOST_ENTRIES", 2)
    with pytest.raises(KbevalError, match="at most 2 are read"):
        read_inspect(TOOLS / "inspect/help-desk.eval")


# --- tables -------------------------------------------------------------------------------------------------------


HITS = "qid,id,pos,sim,reply,tone\nq1,c1,1,0.5,yes,3\nq1,c2,2,0.25,yes,3\nq2,c3,1,0.75,no,\n"
NAMES = "query_id=qid, chunk_id=id,rank=pos,score=sim,answer=reply"


def test_a_table_of_hits_is_the_same_in_every_format(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HITS)
    frame = pl.read_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_ndjson(tmp_path / "a.jsonl")
    frame.write_csv(tmp_path / "a.tsv", separator="\t")
    (tmp_path / "a.json").write_text(json.dumps(frame.to_dicts()))
    for ending in ("csv", "tsv", "parquet", "jsonl", "json"):
        (found,) = read_table(tmp_path / f"a.{ending}", "r", "s", parse_map([NAMES]), ["tone"])
        assert found.rows["q1"] == {
            "query_id": "q1",
            "hits_top_k": [
                {"chunk_id": "c1", "rank": 1, "score": 0.5},
                {"chunk_id": "c2", "rank": 2, "score": 0.25},
            ],
            "answer": {"answer": "yes"},
        }, ending
        assert found.scores == {"q1": {"tone": 3.0}, "q2": {"tone": None}}, ending


def test_a_table_of_queries(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [
        {"query_id": 1, "hits": ["c1", "c2"], "answer": "x", "lang": "de", "run_id": "a"},
        {
            "query_id": 2,
            "hits": [{"chunk_id": "c", "source_spans": [{"kind": "line", "start": 1, "end": 2}]}],
            "run_id": "a",
        },
        {"query_id": 1, "hits": ["some longer text"], "abstained": True, "run_id": "b"},
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    a, b = read_table(path)
    assert (a.run_id, b.run_id) == ("a", "b")
    assert [hit["chunk_id"] for hit in a.rows["1"]["hits_top_k"]] == ["c1", "c2"]
    assert a.rows["1"]["lang"] == "de", "other columns are kept"
    assert b.rows["1"]["hits_top_k"][0]["text"] == "some longer text"
    assert b.rows["1"]["abstained"] is True
    path.write_text('{"query_id": "q", "answer": "x", "query": "Why?", "big": 1' + "0" * 400 + "}")
    (found,) = read_table(path)
    assert found.golden == {"q": {"id": "q", "query": "Why?"}}
    assert found.rows["q"]["big"] == "1" + "0" * 400, "no float is that large"
    path = tmp_path / "a.csv"
    path.write_text('query_id,hits\nq1,c1|c2\nq2,"[""c3"", ""c4""]"\nq3,\n')
    (found,) = read_table(path)
    assert [[hit["chunk_id"] for hit in row.get("hits_top_k", ())] for row in found.rows.values()] == [
        ["c1", "c2"],
        ["c3", "c4"],
        [],
    ]


TABLE_FAULTS: Sequence[tuple[str, str, str]] = (
    ("qid,chunk_id\nq,c\n", "", "no column query_id; try --map query_id=qid"),
    ("query_id,passage_id\nq,c\nq,d\n", "", "try --map chunk_id=passage_id"),
    ("query_id,chunkid\nq,c\n", "", "try --map chunk_id=chunkid"),
    ("query_id,chnk_id\nq,c\n", "", "try --map chunk_id=chnk_id"),
    ("query_id,colour\nq,red\n", "", "map it with --map chunk_id=COLUMN"),
    ("query_id,chunk_id\n,c\n", "", "line 2: query_id is empty"),
    ("query_id,chunk_id,rank\nq,c,first\n", "", "line 2: rank is 'first'"),
    ("query_id,chunk_id,rank\nq,c,1\nq,d,\n", "", "1 of 2 hits have a rank"),
    ("query_id,chunk_id,score\nq,c,high\n", "", "line 2: score is 'high'"),
    ("query_id,chunk_id,answer\nq,c,a\nq,d,b\n", "", "line 3: answer differs"),
    ("query_id,chunk_id\nq,c\nq,\n", "", "line 3: has neither chunk_id nor doc_id"),
    ("query_id,hits\nq,c\nq,d\n", "", "line 3: query 'q' has an earlier row"),
    ("query_id,query_id\nq,c\n", "", "line 1: duplicate column 'query_id'"),
    ("query_id,answer,grounded\nq,a,perhaps\n", "", "grounded is 'perhaps'"),
    ("query_id,chunk_id\nq,c\n", "chunk_id=idd", "has no column 'idd', which --map names"),
    ("query_id,chunk_id,id\nq,c,d\n", "chunk_id=id", "already has a column 'chunk_id'"),
    ("query_id,chunk_id\nq,c\n", "chunkid=id", "did you mean 'chunk_id'"),
    ("query_id,chunk_id\nq,c\n", "chunk_id", "must be OURS=THEIRS"),
    ("query_id,chunk_id\nq,c\n", "chunk_id=a,doc_id=a", "map it once"),
)


def test_faults_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for text, names, message in TABLE_FAULTS:
        path.write_text(text)
        with pytest.raises(KbevalError) as caught:
            read_table(path, None, "s", parse_map([names]))
        assert message in str(caught.value), text
    path.write_text("query_id,chunk_id,similarity,score\nq,c,1,0.1\nq,d,1,0.9\nq,e,1,0.5\n")
    (found,) = read_table(path)
    assert "not sorted by score" in found.warnings[0]
    path.write_text("query_id,chunk_id,pos\nq,c,1\n")
    (found,) = read_table(path)
    assert "--map rank=pos" in found.warnings[0]


# --- BEIR ---------------------------------------------------------------------------------------------------------


def test_a_beir_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db, golden = str(tmp_path / "kb.db"), tmp_path / "golden.jsonl"
    folder = FIXTURES / "beir"
    trec = tmp_path / "trec.run"
    trec.write_text("# comment\n1 Q0 p1 1 0.4 x\n1 Q0 p2 9 0.9 x\n2 Q0 p2 1 1.5 x\n2 Q0 p3 2 1.5 x\n")
    command = ["import", "beir", str(folder), "--db", db, "--golden-out", str(golden)]
    command += ["--run", str(folder / "run.json"), "--run", str(trec)]
    assert run(command) == 0
    before = Path(db).read_bytes()
    assert run(command) == 0
    assert Path(db).read_bytes() == before
    said = capsys.readouterr().err
    assert "left out: 1 query without judgements" in said
    entries = kbeval.load_golden(golden).entries
    assert [entry["expected_chunk_ids"] for entry in entries] == [["p1"], ["p2"]]
    assert entries[0]["relevance"] == {"p1": 2, "p3": 0}
    scored = kbeval.score_runs(db, golden)
    # By hand: p1 is second of query 1; of equal scores the higher id is first, so p2 is second of query 2.
    assert {run_id: one.mrr for run_id, one in scored.aggregates.items()} == {"run": 0.5, "trec": 0.5}
    with closing(sqlite3.connect(db)) as connection:
        texts = dict(connection.execute("SELECT chunk_id, text FROM chunks"))
        assert connection.execute("SELECT COUNT(*) FROM documents").fetchone() == (3,)
        more = dict(connection.execute("SELECT doc_id, fields_json FROM kbeval_document_fields"))
    assert {name: json.loads(text) for name, text in more.items()} == {
        "p1": {"metadata": {"url": "https://example.com/sign-in"}}
    }
    assert texts["p1"].startswith("Signing in\nAfter five")


def test_faults_of_a_beir_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content, message in (
        ("corpus.jsonl", '{"_id": "p1", "text": "a"}\n{"_id": "p1", "text": "a"}\n', "line 2: duplicate _id 'p1'"),
        ("corpus.jsonl", '{"_id": "p1"}\n', "line 1: has no text"),
        ("queries.jsonl", '{"_id": "1", "text": "q"}\nnot json\n', "line 2: is not valid JSON"),
        ("queries.jsonl", '{"_id": "1", "text": "q"}\n', "does not contain 1 of the judged queries, first '2'"),
        (
            "qrels/test.tsv",
            "query-id\tcorpus-id\tscore\n1\tp1\thigh\n",
            "line 2: must be query, passage and an integer",
        ),
        ("qrels/test.tsv", "1\tp1\t1\n1\tp1\t2\n", "line 2: 'p1' is judged twice"),
    ):
        folder = tmp_path / "beir"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(FIXTURES / "beir", folder)
        (folder / name).write_text(content)
        golden = ["--golden-out", str(tmp_path / "g.jsonl")]
        assert run(["import", "beir", str(folder), "--db", str(tmp_path / "kb.db"), *golden]) == 2, name
        assert message in capsys.readouterr().err
        assert not (tmp_path / "kb.db").exists()
        assert not (tmp_path / "g.jsonl").exists()
    (folder / "qrels/dev.tsv").write_text("1\tp1\t1\n")
    assert run(["import", "beir", str(folder), "--split", "train", "--db", str(tmp_path / "kb.db"), *golden]) == 2
    assert "contains dev, test" in capsys.readouterr().err
    assert run(["import", "beir", str(tmp_path / "nothing"), "--db", str(tmp_path / "kb.db")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_tables_that_are_separated_otherwise_and_tables_of_nothing(tmp_path: Path) -> None:
    for name, text in (("a.csv", "query_id;score;chunk_id\nq1;0,5;c1\n"), ("b.csv", "query_id\tchunk_id\nq1\tc1\n")):
        path = tmp_path / name
        path.write_text(text.replace("0,5", "1"), encoding="utf-8")
        (found,) = read_table(path)
        assert [hit["chunk_id"] for row in found.rows.values() for hit in row["hits_top_k"]] == ["c1"]
    empty = tmp_path / "empty.csv"
    empty.write_text("query_id,chunk_id\n", encoding="utf-8")
    for path, fault in ((empty, "contains no rows"), (tmp_path, "is a directory")):
        with pytest.raises(KbevalError, match=fault):
            read_table(path)


def test_implausible_values_are_rejected_and_named(tmp_path: Path) -> None:
    for name, text, fault in (
        ("inf.csv", "query_id,chunk_id,score\nq1,a,inf\n", "line 2: score is 'inf', which is too large"),
        (
            "large.jsonl",
            '{"query_id": "q1", "chunk_id": "a", "score": 1e999}\n',
            "line 1: contains a number that is too large",
        ),
        (
            "infinity.jsonl",
            '{"query_id": "q1", "chunk_id": "a", "score": Infinity}\n',
            "line 1: contains a number that is",
        ),
        ("twice.jsonl", '{"query_id": "q1", "chunk_id": "a", "query_id": "q2"}\n', "line 1: has a duplicate key"),
    ):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        with pytest.raises(KbevalError, match=fault):
            read_table(path)
    damaged = tmp_path / "damaged.eval"
    with zipfile.ZipFile(damaged, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", json.dumps({"status": "success", "text": "x" * 999}))
    content = bytearray(damaged.read_bytes())
    content[45] ^= 0xFF
    damaged.write_bytes(content)
    with pytest.raises(KbevalError, match=r"damaged\.eval, header\.json"):
        read_inspect(damaged)
    with zipfile.ZipFile(tmp_path / "same.eval", "w") as file:
        file.writestr("header.json", "{}")
        with pytest.warns(UserWarning, match="Duplicate name"):
            file.writestr("header.json", "{}")
    with pytest.raises(KbevalError, match="two entries with the same name"):
        read_inspect(tmp_path / "same.eval")
