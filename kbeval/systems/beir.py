"""BEIR: a folder with `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`. A passage is a document with one chunk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbeval.errors import KbevalError, UsageError
from kbeval.frames.ranking import BY_RANK, BY_SCORE
from kbeval.systems.json_lines import ImportFaultError, id_of, objects, read_text
from kbeval.systems.knowledge import Knowledge
from kbeval.systems.ranked_hits import by_score
from kbeval.systems.tool_files import read_json, written_at
from kbeval.systems.tool_rows import LARGEST, ToolRun, safe_part
from kbeval.systems.trec import read_rows

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
CHUNKER = "beir"
_HEADS = ("query-id", "query_id", "qid")


@dataclass(frozen=True)
class Beir:
    """The contents of a folder."""

    golden: list[dict[str, Any]]
    knowledge: Knowledge
    n_passages: int
    n_unjudged: int


def read_beir(folder: Path, split: str | None = None) -> Beir:
    """Read a folder. `split`: the name of a file in qrels/; by default test, or the only one."""
    if not folder.is_dir():
        msg = f"{folder} is not a folder with {CORPUS}, {QUERIES} and {QRELS}/"
        raise UsageError(msg)
    judged = _qrels(_qrels_file(folder, split))
    questions = dict(_questions(folder / QUERIES))
    golden = []
    if unknown := [query_id for query_id in judged if query_id not in questions]:
        msg = f"{folder / QUERIES} does not contain {len(unknown):,} of the judged queries, first {unknown[0]!r}"
        raise KbevalError(msg)
    for query_id, grades in judged.items():
        relevant = [passage for passage, grade in grades.items() if grade > 0]
        entry: dict[str, Any] = {"id": query_id, "query": questions[query_id]["text"], "expected_chunk_ids": relevant}
        entry |= {"expected_doc_ids": relevant} if relevant else {}
        if metadata := questions[query_id].get("metadata"):
            entry["metadata"] = metadata
        # Grades are needed only for passages judged as not relevant, or for more than one degree of relevance.
        if any(grade != 1 for grade in grades.values()):
            entry["relevance"] = grades
        golden.append(entry)
    n_passages = sum(1 for _ in _passages(folder / CORPUS))
    created = written_at(folder / CORPUS)
    knowledge = Knowledge(
        ((name, name, title or None) for name, title, _ in _passages(folder / CORPUS)),
        (
            (name, name, text, _headings(title), _whole(text), max(1, len(text) // 4), CHUNKER, "", "[]", created)
            for name, title, text in _passages(folder / CORPUS)
        ),
        _more(folder / CORPUS),
    )
    return Beir(golden, knowledge, n_passages, len(questions) - len(judged))


def _headings(title: str) -> str:
    return json.dumps([title] if title else [], ensure_ascii=False)


def _whole(text: str) -> str:
    return json.dumps([{"kind": "char", "start": 0, "end": len(text)}]) if text else "[]"


def _qrels_file(folder: Path, split: str | None) -> Path:
    files = {path.stem: path for path in sorted((folder / QRELS).glob("*.tsv"))}
    if not files:
        msg = f"{folder / QRELS} contains no judgements (*.tsv)"
        raise UsageError(msg)
    wanted = split or ("test" if "test" in files else next(iter(files)) if len(files) == 1 else "")
    if wanted not in files:
        msg = f"{folder / QRELS} contains {', '.join(files)}; choose one of them with --split"
        raise UsageError(msg)
    return files[wanted]


def _qrels(path: Path) -> dict[str, dict[str, int]]:
    """Query → passage → grade: three columns with a header, or four as in TREC."""
    faults: list[str] = []
    found: dict[str, dict[str, int]] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        cells = line.rstrip("\r").split("\t")
        if cells == [""] or (number == 1 and cells[0].lower() in _HEADS):
            continue
        if len(cells) == 4:
            del cells[1]
        try:
            query_id, passage, grade = cells
            grades = found.setdefault(query_id, {})
            if not query_id or not passage:
                faults.append(f"line {number}: an id is empty")
            elif passage in grades:
                faults.append(f"line {number}: {passage!r} is judged twice for query {query_id!r}")
            else:
                grades[passage] = int(grade)
        except ValueError:
            faults.append(f"line {number}: must be query, passage and an integer, separated by tabs")
    if faults:
        raise ImportFaultError(path, faults, has_rows=bool(found))
    return found


def _questions(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for _, found in _checked(path, ("text",)):
        yield str(id_of(found["_id"])), found


def _passages(path: Path) -> Iterator[tuple[str, str, str]]:
    """Id, title and text of each passage; the text begins with the title, as BEIR's retrievers see it."""
    for _, found in _checked(path, ("text",)):
        title, text = str(found.get("title") or ""), str(found["text"])
        yield str(id_of(found["_id"])), title, f"{title}\n{text}" if title else text


def _more(path: Path) -> Iterator[tuple[str, str]]:
    """The other fields of passages, mostly metadata."""
    for _, found in _checked(path, ("text",)):
        more = {name: value for name, value in found.items() if name not in ("_id", "title", "text")}
        if any(more.values()):
            yield str(id_of(found["_id"])), json.dumps(more, ensure_ascii=False)


def _checked(path: Path, needs: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    faults: list[str] = []
    seen: set[str] = set()
    for number, found in objects(path, faults):
        name = id_of(found.get("_id"))
        missing = [need for need in needs if not isinstance(found.get(need), str)]
        if name is None or missing:
            faults.append(f"line {number}: has no {'_id' if name is None else missing[0]}")
        elif name in seen:
            faults.append(f"line {number}: duplicate _id {name!r}")
        else:
            seen.add(name)
            yield number, found
    if faults:
        raise ImportFaultError(path, faults, has_rows=bool(seen))


# --- runs --------------------------------------------------------------------------------------------------


def read_run(path: Path, run_id: str | None = None, suite: str = "beir", order: str = BY_SCORE) -> ToolRun:
    """A ranking per query: `{query: {passage: score}}` in JSON, or a run file of TREC, by score or by rank."""
    run = ToolRun("beir", run_id or safe_part(path.stem), suite, written_at(path), {"chunker_version": CHUNKER})
    if path.suffix.lower() != ".json":
        found = read_rows(path, order)
        run.config |= {} if found.tag is None else {"trec_tag": found.tag}
        rows = found.rows
    elif order == BY_RANK:
        msg = f"{path} has scores and no ranks; a JSON object is ordered by score"
        raise UsageError(msg)
    else:
        rows = _json_run(path)
    for query_id, hits in rows.items():
        run.add(query_id, {"hits_top_k": hits, "answer": None})
    return run


def _json_run(path: Path) -> dict[str, list[dict[str, Any]]]:
    found = read_json(path)
    if not isinstance(found, dict) or not all(isinstance(of_query, dict) for of_query in found.values()):
        msg = f"{path}: is not an object of the form {{query: {{passage: score}}}}"
        raise KbevalError(msg)
    rows = {}
    for query_id, of_query in found.items():
        if id_of(query_id) is None:
            msg = f"{path}: {query_id!r:.60} is not the id of a query"
            raise KbevalError(msg)
        for passage, score in of_query.items():
            if isinstance(score, bool) or not isinstance(score, int | float) or abs(score) >= LARGEST:
                msg = f"{path}: the score of passage {passage!r:.60} for query {query_id!r:.60} is not a number"
                raise KbevalError(msg)
            if id_of(passage) is None:
                msg = f"{path}: {passage!r:.60} of query {query_id!r:.60} is not the id of a passage"
                raise KbevalError(msg)
        hits = [{"chunk_id": passage, "doc_id": passage, "score": score} for passage, score in of_query.items()]
        rows[query_id] = by_score(hits, None, [])
    return rows
