"""Cases for the ways in: files of other tools, tables, TREC and BEIR files, each a little or very odd, and imported."""

from __future__ import annotations

import csv
import functools
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.cases import Case, of_bytes
from tests.fuzz.mutation import NUMBERS, TEXTS, Source, dumped

FIXTURES = Path(__file__).parents[2] / "fixtures"
RUN = [
    [query, "Q0", f"d{number * 7 % 10}", str(number), str(10 - number / 3), "tag"]
    for query in ("q1", "q2")
    for number in range(6)
]
QRELS = [[query, "0", f"d{number}", str(number % 3)] for query in ("q1", "q2") for number in range(5)]
HITS = [
    {
        "query_id": row[0],
        "chunk_id": row[2],
        "rank": int(row[3]) + 1,
        "score": float(row[4]),
        "answer": "yes",
        "tone": 3,
    }
    for row in RUN
]
QUERIES = [
    {"query_id": "q1", "query": "Why?", "hits": ["c1", "c2"], "answer": "x", "elapsed_ms": 3, "grounded": True},
    {
        "query_id": "q2",
        "hits": [{"chunk_id": "c", "score": 0.5, "source_spans": [{"kind": "line", "start": 1, "end": 2}]}],
    },
    {"query_id": "q3", "error": "timed out", "tokens": {"total": 3}, "abstained": False, "cost_usd": 0.1},
]
_NAMES = ("query_id=qid", "chunk_id=id,rank=pos", "answer=reply", "score=tone", "x", "=", "chunk_id=chunk_id")
_DB = "out.db"
_GOLDEN = "out.jsonl"


@functools.cache
def _kept(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def _loaded(name: str) -> Any:
    return json.loads(_kept(name))


def _lines(name: str) -> list[Any]:
    return [json.loads(line) for line in _kept(name).decode().splitlines()]


def ways_in(seed: str) -> Case:
    """A file in one of the formats that are imported."""
    source = Source(seed)
    return source.choice(FORMATS)(source)


def _imported(source: Source, command: list[str], files: dict[str, Any], golden: str | None = _GOLDEN) -> Case:
    """Import, sometimes twice; then score and export what is there."""
    command = [*command, "--db", _DB]
    if source.chance(0.1):
        command += [
            "--run-id",
            source.choice([text for text in TEXTS if not text.startswith("-") and "\0" not in text]),
        ]
    if source.chance(0.1):
        command += ["--drop", source.choice(("answer", "scores", "events", "chunk_id", "query_id", "nothing"))]
    calls = [command, command] if source.chance(0.3) else [command]
    if golden is not None:
        calls = [[*call, "--golden-out", golden] for call in calls]
        calls.append(["score", "--all", "--db", _DB, "--golden", golden, "--format", "json", "--skip-bad-rows"])
    if source.chance(0.3):
        calls.append(["export", "trec", "latest", "--db", _DB, "-o", "out.run"])
    return Case(calls, files)


# --- contents --------------------------------------------------------------------------------------


def _content(source: Source, text: str | bytes, spoilt: float = 0.15) -> Any:
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return of_bytes(source.spoilt_bytes(content, source.choice((1, 1, 3))) if source.chance(spoilt) else content)


def _changed(source: Source, value: Any, spare: Any = None) -> Any:
    return source.changed(value, source.choice((0, 1, 1, 2, 5)), spare)


def _json_lines(source: Source, rows: list[Any], spare: Any = None) -> str:
    found = [_changed(source, row, spare) if source.chance(0.5) else row for row in rows]
    return source.choice(("\n", "\n", "\r\n", "\n\n")).join(source.spelt(row, 0.05) for row in found)


def _cells(source: Source, rows: list[list[str]], between: str) -> str:
    """Lines of cells, some of them odd: another value, one too many or too few."""
    lines = []
    for row in rows:
        cells = list(row)
        if source.chance(0.12):
            odd = str(source.choice((*NUMBERS[:20], *TEXTS, "nan", "1e999", "-0.0", "#")))
            cells[source.randrange(len(cells))] = odd[:60]
        if source.chance(0.03):
            cells = source.choice((cells[:-1], [*cells, "more"], [], ["#", *cells]))
        lines.append(between.join(cells))
        if source.chance(0.05):
            lines.append(source.choice((lines[-1], "", "# x", " ")))
    return source.choice(("\n", "\n", "\r\n")).join(lines)


def _csv(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    for row in rows:
        writer.writerow(
            [
                dumped(value) if isinstance(value, list | dict) else "" if value is None else value
                for value in map(row.get, names)
            ]
        )
    return text.getvalue()


def _parquet(rows: list[Any]) -> bytes:
    """Parquet of the rows; as text where their types do not fit together."""
    file = io.BytesIO()
    try:
        found = pa.Table.from_pylist(rows)
        pq.write_table(found, file)
    except (pa.ArrowException, OverflowError, TypeError, ValueError, UnicodeEncodeError, AttributeError):
        file = io.BytesIO()
        plain = [{"query_id": "q1", "chunk_id": dumped(row)[:200], "rank": None} for row in rows]
        pq.write_table(pa.Table.from_pylist(plain), file)
    return file.getvalue()


def _rows(rows: list[Any]) -> list[dict[str, Any]]:
    return [row for row in rows if isinstance(row, dict)]


def _table_file(source: Source, rows: list[Any]) -> tuple[str, Any]:
    ending = source.choice(("csv", "csv", "csv", "tsv", "jsonl", "json", "parquet"))
    found = [_changed(source, row, rows) if source.chance(0.3) else row for row in rows]
    if ending in ("csv", "tsv"):
        text = _csv(_rows(found)).replace(",", "," if ending == "csv" else "\t")
        return ending, _content(source, text)
    if ending == "parquet":
        return ending, _content(source, _parquet(_rows(found)))
    text = source.spelt(found, 0.1) if ending == "json" else _json_lines(source, found)
    return ending, _content(source, text)


# --- formats ---------------------------------------------------------------------------------------


def _order(source: Source) -> list[str]:
    return ["--order", source.choice(("score", "rank"))] if source.chance(0.5) else []


def trec(source: Source) -> Case:
    """Run files, and what `kbeval trec` says about them."""
    files = {
        "a.run": _content(source, _cells(source, RUN, source.choice((" ", " ", "\t", "  ")))),
        "a.qrels": _content(source, _cells(source, QRELS, source.choice((" ", "\t")))),
    }
    measures = [
        word
        for name in source.sample(("map", "nDCG@10", "P.5", "all_trec", "Judged@3", "R@5", "x", "RR"), 2)
        for word in ("-m", name)
    ]
    calls = [
        ["trec", "a.qrels", "a.run", *measures, *_order(source), *(["-q"] if source.chance(0.5) else [])],
        ["import", "trec", "a.run", "--db", _DB, *_order(source)],
        ["import", "qrels", "a.qrels", "-o", _GOLDEN],
        ["score", "--all", "--db", _DB, "--golden", _GOLDEN, "--format", "json"],
        ["export", "trec", "latest", "--db", _DB],
    ]
    return Case(calls[: source.choice((1, 2, 5))], files)


def qrels(source: Source) -> Case:
    """Judgements, with the texts of their queries."""
    topics = _cells(source, [["q1", "what is one?"], ["q2", "two?"]], "\t")
    files = {"a.qrels": _content(source, _cells(source, QRELS, " ")), "topics.tsv": _content(source, topics)}
    form = source.choice(("jsonl", "json", "yaml"))
    calls = [
        ["import", "qrels", "a.qrels", "--queries", "topics.tsv", "-o", f"out.{form}"],
        ["import", "qrels", "a.qrels"],
    ]
    return Case(calls, files)


def beir(source: Source) -> Case:
    """A folder of BEIR, with rankings in both forms."""
    texts: dict[str, str] = {
        "corpus.jsonl": _json_lines(source, _lines("beir/corpus.jsonl")),
        "queries.jsonl": _json_lines(source, _lines("beir/queries.jsonl")),
        "qrels/test.tsv": _cells(
            source, [line.split("\t") for line in _kept("beir/qrels/test.tsv").decode().splitlines()], "\t"
        ),
        "run.json": source.spelt(_changed(source, _loaded("beir/run.json")), 0.1),
        "a.run": _cells(source, [["1", "Q0", "p1", "1", "0.5", "t"], ["1", "Q0", "p2", "2", "0.5", "t"]], " "),
    }
    # One of them is odd.
    chosen = source.choice(list(texts))
    plain = {"run.json": _kept("beir/run.json").decode(), "a.run": "1 Q0 p1 1 0.5 t\n"}
    files = {
        f"beir/{name}": _content(source, text) if name == chosen or source.chance(0.1)
        else plain.get(name) or _kept(f"beir/{name}").decode()
        for name, text in texts.items()
    }  # fmt: skip
    runs = ["--run", f"beir/{source.choice(('run.json', 'a.run'))}"] if source.chance(0.7) else []
    command = ["import", "beir", "beir", "--db", _DB, "--golden-out", _GOLDEN, *runs, *_order(source)]
    score = ["score", "--all", "--db", _DB, "--golden", _GOLDEN, "--format", "json"]
    return Case([command, command, score] if source.chance(0.3) else [command, score], files)


def table(source: Source) -> Case:
    """Tables of hits and of queries, in every format."""
    rows = source.choice((HITS, HITS, QUERIES))
    ending, content = _table_file(source, rows)
    command = ["import", "table", f"a.{ending}", *_order(source)]
    command += ["--map", source.choice(_NAMES)] if source.chance(0.15) else []
    command += ["--scores", source.choice(("tone", "score", "answer", "x"))] if source.chance(0.3) else []
    return _imported(source, command, {f"a.{ending}": content}, _GOLDEN if source.chance(0.3) else None)


def ragas(source: Source) -> Case:
    """Datasets and results, in every format."""
    ending, content = _table_file(source, _lines("tools/ragas/result.jsonl"))
    return _imported(source, ["import", "ragas", f"a.{ending}"], {f"a.{ending}": content})


def promptfoo(source: Source) -> Case:
    """Results as one object, and as lines."""
    if source.chance(0.3):
        lines = _json_lines(source, _lines("tools/promptfoo/results.jsonl"))
        return _imported(source, ["import", "promptfoo", "a.jsonl"], {"a.jsonl": _content(source, lines)})
    return _whole(source, "promptfoo", "tools/promptfoo/results.json")


def deepeval(source: Source) -> Case:
    """Test runs."""
    return _whole(
        source, "deepeval", source.choice(("tools/deepeval/test_run.json", "tools/deepeval/latest_test_run.json"))
    )


def _whole(source: Source, tool: str, name: str) -> Case:
    found = _loaded(name)
    text = source.spelt(source.changed(found, source.choice((1, 2, 8, 20)), found), 0.1)
    return _imported(source, ["import", tool, "a.json"], {"a.json": _content(source, text)})


def inspect_log(source: Source) -> Case:
    """Logs as JSON, and as zip files with odd samples, names or bytes."""
    if source.chance(0.3):
        return _whole(source, "inspect", "tools/inspect/help-desk.json")
    if source.chance(0.2):
        content = source.spoilt_bytes(_kept("tools/inspect/twice.eval"), source.choice((1, 3)))
    else:
        content = _zipped(source, _loaded("tools/inspect/help-desk.json"))
    return _imported(source, ["import", "inspect", "a.eval"], {"a.eval": _content(source, content, 0.05)})


def _zipped(source: Source, log: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    header = {name: value for name, value in log.items() if name != "samples"}
    with zipfile.ZipFile(file, "w") as packed:
        names: set[str] = set()
        for place, part in enumerate([header, *log["samples"]]):
            name = "header.json" if place == 0 else f"samples/{place}_epoch_1.json"
            if source.chance(0.05):
                name = source.choice(
                    ("samples/../../x.json", "/etc/x.json", "samples/.json", "header", "samples/é\\x.json")
                )
            if name in names:
                continue
            names.add(name)
            # A fixed time, so that the bytes are the same each time.
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.compress_type = source.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
            packed.writestr(entry, source.spelt(_changed(source, part, log), 0.1).encode("utf-8", "surrogatepass"))
    return file.getvalue()


# Tables have the most ways to be odd.
FORMATS: tuple[Callable[[Source], Case], ...] = (
    *(trec, trec, qrels, beir, table, table, table, ragas, promptfoo, deepeval, inspect_log, inspect_log),
)
