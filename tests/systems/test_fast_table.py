"""Large tables are read as columns: what is stored is what the slow way stores, byte for byte."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kbeval.errors import KbevalError
from kbeval.systems import fast_table, tables
from kbeval.systems.tables import read_table
from kbeval.systems.tool_rows import ToolRun
from tests.support.examples import sized

TEXTS = (
    "plain",
    "",
    'quoted "text"',
    "a, b; c",
    "two\nlines",
    "tab\there",
    "back\\slash",
    "ü 漢字 😀",
    "\x7f",
    "\x01",
    "[]",
    " ",
    "007",
)
SCORES = (0.5, 0.25, 1.0, -3.0, 1e-5, 1e-7, 1e16, 123456.789, 0.0, -0.0, 0.1 + 0.2, 1e22, 3.4e38, 1e-320)
ODD = ("nan", "inf", "1e999", "high", "1_0", " 1", "0", "-1", "1.5", '{"a": 1}', "")


def everything(runs: list[ToolRun]) -> list[Any]:
    found = [(run, run.finished(Path("t"))) for run in runs]
    return [(one.run_id, list(one.rows), one.warnings, one.scores, run.golden) for run, one in found]


def either(path: Path, **options: Any) -> tuple[Any, Any]:
    """What both ways store, or the message that they refuse the table with."""
    results: list[Any] = []
    for as_text in (False, True):
        try:
            results.append(
                everything(read_table(path, None, "s", None, options["scores"], options["order"], as_text=as_text))
            )
        except KbevalError as error:
            results.append(str(error))
    return results[0], results[1]


def invented(source: random.Random) -> list[dict[str, Any]]:
    """A table of hits, now and then with something odd in it."""
    odd = 0.01 if source.random() < 0.3 else 0
    has = {
        name: source.random() < 0.6
        for name in ("rank", "score", "text", "page", "answer", "run_id", "doc_id", "tone", "query", "elapsed_ms")
    }
    rows = []
    for query in range(source.randrange(1, 6)):
        answer, tone = source.choice(TEXTS[:9]), source.choice((1, 2.5, None))
        for place in range(source.choice((1, 1, 3, 8))):
            row: dict[str, Any] = {"query_id": f"q{query}", "chunk_id": f"c{source.randrange(30)}"}
            row |= {"rank": place + 1} if has["rank"] else {}
            row |= {"score": source.choice(SCORES)} if has["score"] else {}
            row |= {"text": source.choice(TEXTS)} if has["text"] else {}
            row |= {"page": source.choice((1, 2, None))} if has["page"] else {}
            row |= {"answer": answer} if has["answer"] else {}
            row |= {"query": f"Why {query}?"} if has["query"] and place == 0 else {}
            row |= {"elapsed_ms": 12.5 * query} if has["elapsed_ms"] else {}
            row |= {"run_id": source.choice(("a", "b")) if query == 0 else "a"} if has["run_id"] else {}
            row |= {"doc_id": source.choice(("d1", "d2", None))} if has["doc_id"] else {}
            row |= {"tone": tone}
            if source.random() < odd:
                row[source.choice(list(row))] = source.choice(ODD)
            if source.random() < odd:
                row["chunk_id"] = None
            rows.append(row)
    if source.random() < 0.3:
        source.shuffle(rows)
    return rows


def write(path: Path, rows: list[dict[str, Any]], source: random.Random) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    if path.suffix == ".parquet":
        frame = pl.DataFrame(
            [{name: row.get(name) for name in names} for row in rows], strict=False, infer_schema_length=None
        )
        frame.write_parquet(path)
        return
    text = io.StringIO()
    writer = csv.writer(
        text,
        delimiter="\t" if path.suffix == ".tsv" else source.choice(",;"),
        lineterminator=source.choice(("\n", "\r\n")),
    )
    writer.writerow(names)
    writer.writerows([["" if row.get(name) is None else row[name] for name in names] for row in rows])
    path.write_bytes(source.choice((b"", b"", b"\xef\xbb\xbf")) + text.getvalue().encode())


def test_both_ways_store_the_same_bytes(tmp_path: Path) -> None:
    fast = 0
    number = sized(150, 3000)
    for seed in range(number):
        source = random.Random(seed)
        path = tmp_path / f"t.{source.choice(('csv', 'csv', 'tsv', 'parquet'))}"
        write(path, invented(source), source)
        options: dict[str, Any] = {
            "scores": source.choice(([], ["tone"])),
            "order": source.choice(("rank", "rank", "score")),
        }
        slow, quick = either(path, **options)
        assert slow == quick, (seed, path.suffix, options)
        table = tables._Table(path, None, "s", {}, options["scores"], options["order"])
        fast += not isinstance(slow, str) and table.read_fast() is not None
    assert fast > number / 3, "most sound tables are read the fast way"


def test_ambiguous_csv_is_left_to_the_slow_path(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for text in (
        'query_id,chunk_id\nq1,a"b\n',
        'query_id,chunk_id\nq1,"a"b\n',
        'query_id,chunk_id\nq1,"a\n',
        'query_id,chunk_id\nq1,""a""\n',
        "query_id,chunk_id\nq1,a,more\n",
        "query_id,chunk_id\nq1\n",
        "query_id,chunk_id\nq1,a\rq2,b\n",
        "query_id,chunk_id\nq1,a\n\n\nq2,b\n",
        "query_id,chunk_id\nq1,a\0\n",
        'query_id,chunk_id\nq1,"[""a""]"\n',
        "query_id,query_id\nq1,a\n",
        'query_id,"chunk_id"\nq1,a\n',
        "query_id,chunk_id\n",
        "query_id,chunk_id,rank\nq1,a,01\nq1,b,2.0\n",
        "query_id,chunk_id,rank\nq1,a,1\nq1,b,\n",
        "query_id,chunk_id,token_count\nq1,a,12\n",
        "query_id,chunk_id\nq1,\nq1,b\n",
        "query_id,chunk_id\nq1,\nq2,b\n",
        'query_id,chunk_id,text\nq1,a,"x ""y"" z"\nq1,b,""""\nq1,c,"\r\n"\n',
    ):
        path.write_bytes(text.encode())
        for order in ("rank", "score"):
            slow, quick = either(path, scores=[], order=order)
            assert slow == quick, text
    path.write_bytes(b"query_id,chunk_id\nq1,\xff\n")
    slow, quick = either(path, scores=[], order="rank")
    assert slow == quick
    assert "is not UTF-8" in slow


def test_the_command_uses_it_and_other_formats_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kbeval.cli import run

    rows = [{"query_id": "q1", "chunk_id": f"c{number}", "note": "x"} for number in range(3)]
    write(tmp_path / "t.csv", rows, random.Random(1))
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert fast_table.read_columns(tmp_path / "t.jsonl") is None
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as only_fast:
        only_fast.setattr(tables._Table, "read", lambda _: pytest.fail("the slow way"))
        assert run(["import", "table", "t.csv", "--db", "fast.db"]) == 0
    # The same file the slow way is the same run; another format of the same rows, too.
    with monkeypatch.context() as only_slow:
        only_slow.setattr(tables._Table, "read_fast", lambda _: None)
        before = (tmp_path / "fast.db").read_bytes()
        assert run(["import", "table", "t.csv", "--db", "fast.db"]) == 0
    assert run(["import", "table", "t.jsonl", "--db", "fast.db"]) == 0
    assert (tmp_path / "fast.db").read_bytes() == before
    # A field that is to be left out is left out of the hits.
    assert run(["import", "table", "t.csv", "--db", "dropped.db", "--drop", "note"]) == 0
    assert b"note" not in (tmp_path / "dropped.db").read_bytes()
