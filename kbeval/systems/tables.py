"""Tables: CSV, Parquet or JSON lines with one row per hit, or one row per query. Columns may have other names."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from kbeval.errors import KbevalError, UsageError
from kbeval.frames.ranking import BY_RANK, BY_SCORE
from kbeval.systems.json_lines import id_of
from kbeval.systems.ranked_hits import by_score
from kbeval.systems.row_values import answer_of, hits_of
from kbeval.systems.tool_files import Placed, Record, read_records, written_at
from kbeval.systems.tool_rows import ToolRun, hits_in, row_from, safe_part
from kbeval.util.text import cut, did_you_mean

# Our names of columns, and other common names, in lower case without spaces, _ and -.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "query_id": ("qid", "questionid", "topic", "topicid", "caseid", "testcaseid", "exampleid", "sampleid", "id"),
    "query": ("question", "querytext", "input", "userinput", "prompt", "text"),
    "chunk_id": ("chunk", "chunkuid", "passageid", "pid", "nodeid", "contextid", "segmentid", "id"),
    "doc_id": ("docid", "documentid", "docno", "document", "doc", "fileid", "source", "url", "path", "corpusid"),
    "rank": ("position", "pos", "place", "order", "index", "ranking"),
    "score": ("similarity", "distance", "relevance", "sim", "scorefinal", "cosine"),
    "text": ("content", "passage", "chunktext", "snippet", "context", "pagecontent"),
    "hits": ("hitstopk", "results", "retrieved", "chunkids", "docids", "retrievedids", "contexts", "retrievedcontexts"),
    "answer": ("response", "output", "prediction", "generated", "completion", "answertext", "actualoutput"),
    "run_id": ("run", "runname", "system", "experiment"),
    "elapsed_ms": ("latencyms", "latency", "ms", "durationms", "time"),
    "tokens": ("tokencount", "totaltokens", "numtokens"),
    "cost_usd": ("cost", "usd", "price"),
    "error": ("exception", "failure"),
    "abstained": ("refused", "refusal"),
    "grounded": ("isgrounded",),
}
# In a table with one row per hit, these columns belong to the query.
_OF_QUERY = ("query", "answer", "elapsed_ms", "tokens", "cost_usd", "error", "abstained", "grounded")
_NUMBERS = ("score", "elapsed_ms", "tokens", "cost_usd")
_TRUTHS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_SIMILAR = 0.7


def parse_map(given: Sequence[str]) -> dict[str, str]:
    """`--map chunk_id=id,query_id=qid` as our names by theirs."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for text in given for part in text.split(","))):
        ours, equals, theirs = (side.strip() for side in part.partition("="))
        if not equals or not theirs:
            msg = f"--map {cut(part, 60)!r} must be OURS=THEIRS, for example chunk_id=id"
            raise UsageError(msg)
        if ours not in COLUMNS:
            hint = did_you_mean(ours, COLUMNS) or f"; use one of {', '.join(COLUMNS)}"
            msg = f"--map {cut(part, 60)!r}: unknown column {cut(ours, 40)!r}{hint}"
            raise UsageError(msg)
        if theirs in found:
            msg = f"--map: the column {cut(theirs, 40)!r} is mapped to {found[theirs]} and to {ours}; map it once"
            raise UsageError(msg)
        found[theirs] = ours
    return found


def read_table(  # noqa: PLR0913, PLR0917  (a file, and how to read it)
    path: Path,
    run_id: str | None = None,
    suite: str = "table",
    names: Mapping[str, str] | None = None,
    scores: Sequence[str] = (),
    order: str = BY_RANK,
    *,
    as_text: bool = False,
) -> list[ToolRun]:
    """Read a table as a run or, if it has a column run_id, as one run per value. `names`: our columns by theirs.

    `scores`: columns whose numbers become metrics. `order`: what decides a ranking, the column rank (without one the
    order in the file), or the scores, as in trec_eval. `as_text`: the hits of rows may be JSON already, which takes
    a tenth of the time for large tables.
    """
    table = _Table(path, run_id, suite, names or {}, scores, order)
    return (table.read_fast() if as_text else None) or table.read()


class _Table:
    def __init__(  # noqa: PLR0913, PLR0917  (as read_table)
        self, path: Path, run_id: str | None, suite: str, names: Mapping[str, str], scores: Sequence[str], order: str
    ) -> None:
        self._order = order
        self._path, self._suite, self._names, self._scores = path, suite, names, scores
        self._run_id = run_id or safe_part(path.stem)
        self._given_id = run_id

    def _records(self) -> list[Placed]:
        if not (found := read_records(self._path)):
            is_text = self._path.suffix.lower() in (".csv", ".tsv")
            why = ": its first line is read as the names of the columns" if is_text else ""
            msg = f"{self._path} contains no rows to import{why}"
            raise KbevalError(msg)
        return found

    def read_fast(self) -> list[ToolRun] | None:
        """A regular table with one row per hit; None for any other."""
        from kbeval.systems.fast_table import read_columns, read_queries

        if (frame := read_columns(self._path)) is None:
            return None
        columns = frame.columns
        self._check_columns(columns)
        frame = frame.rename({theirs: ours for theirs, ours in self._names.items() if theirs in columns})
        ours = set(frame.columns)
        if "query_id" not in ours or "hits" in ours or not ours & {"chunk_id", "doc_id"}:
            return None
        queries = read_queries(
            frame,
            run_id=self._given_id,
            usual_id=self._run_id,
            of_query=[*_OF_QUERY, *(name for name in self._scores if name not in _OF_QUERY)],
            by_score=self._order == BY_SCORE,
        )
        if queries is None:
            return None
        runs: dict[str, ToolRun] = {}
        try:
            for query in queries:
                run = runs.setdefault(query.run_id, ToolRun("table", query.run_id, self._suite, written_at(self._path)))
                if query.is_unordered and not run.warnings:
                    run.warnings.append(_unordered(query.query_id))
                self._add_row(run, query.query_id, Placed("", {}), query.fields, [])
                run.hit_texts[query.query_id] = query.hits
        except KbevalError:
            # The slow way reports where it is.
            return None
        return self._with_warnings(runs, columns, ours, per_hit=True)

    def read(self) -> list[ToolRun]:
        records = self._records()
        columns = list(dict.fromkeys(name for record in records for name in record.fields))
        self._check_columns(columns)
        ours = {self._names.get(name, name) for name in columns}
        if "query_id" not in ours:
            self._missing("query_id", columns)
        per_hit = "hits" not in ours and bool(ours & {"chunk_id", "doc_id"})
        if not ours & {"hits", "chunk_id", "doc_id", "answer", "error"}:
            self._missing("chunk_id", columns)
        groups: dict[tuple[str, str], list[Placed]] = {}
        for record in records:
            fields = {self._names.get(name, name): value for name, value in record.fields.items()}
            placed = Placed(record.where, fields)
            query_id = id_of(fields.get("query_id"))
            if query_id is None:
                self._fault(record, "query_id is empty")
            run = self._run_id if self._given_id else id_of(fields.get("run_id")) or self._run_id
            key = (run, query_id)
            if key in groups and not per_hit and "hits" not in ours:
                # Several rows per query: these are hits under another name.
                self._missing("chunk_id", columns)
            if key in groups and not per_hit:
                self._fault(
                    record, f"query {query_id!r} has an earlier row, but a row must contain all hits of its query"
                )
            groups.setdefault(key, []).append(placed)
        runs: dict[str, ToolRun] = {}
        for (run, query_id), some in groups.items():
            if run not in runs:
                runs[run] = ToolRun("table", run, self._suite, written_at(self._path))
            self._add(runs[run], query_id, some, per_hit=per_hit)
        return self._with_warnings(runs, columns, ours, per_hit=per_hit)

    def _with_warnings(
        self, runs: Mapping[str, ToolRun], columns: Sequence[str], ours: set[str], *, per_hit: bool
    ) -> list[ToolRun]:
        for found in runs.values():
            found.warnings += self._unnoticed(columns, ours, per_hit=per_hit)
        return list(runs.values())

    def _unnoticed(self, columns: Sequence[str], ours: set[str], *, per_hit: bool) -> Iterator[str]:
        """Columns that look like misnamed columns of ours."""
        for wanted in ("rank", "score", "answer") if per_hit else ("answer",):
            named = [name for name in columns if _plain(name) in COLUMNS[wanted] and name not in self._names]
            if wanted not in ours and named:
                yield f"column {named[0]!r} is kept unchanged; if it is the {wanted}, use --map {wanted}={named[0]}"

    def _check_columns(self, columns: Sequence[str]) -> None:
        for wanted, option in [(theirs, "--map") for theirs in self._names] + [
            (name, "--scores") for name in self._scores
        ]:
            if columns and wanted not in columns:
                hint = did_you_mean(wanted, columns)
                has = ", ".join(cut(name, 30) for name in columns[:20])
                msg = (
                    f"{self._path} has no column {cut(wanted, 60)!r}, which {option} names{hint or f' (it has {has})'}"
                )
                raise UsageError(msg)
        for theirs, ours in self._names.items():
            if ours in columns and theirs != ours and ours not in self._names:
                msg = f"{self._path} already has a column {ours!r}; --map {ours}={theirs} would hide it"
                raise UsageError(msg)

    def _missing(self, wanted: str, columns: Sequence[str]) -> NoReturn:
        what = "no column query_id" if wanted == "query_id" else "neither chunk_id nor doc_id, hits or answer"
        proposal = proposed(wanted, columns)
        hint = f"; try --map {wanted}={proposal}" if proposal else f"; map it with --map {wanted}=COLUMN"
        has = ", ".join(cut(name, 30) for name in columns[:20])
        msg = f"{self._path} has {what}{hint} (it has {has})"
        raise UsageError(msg)

    def _fault(self, record: Placed, what: str) -> NoReturn:
        msg = f"{self._path}, {record.where}: {what}; fix it and try again"
        raise KbevalError(msg)

    def _add(self, run: ToolRun, query_id: str, records: Sequence[Placed], *, per_hit: bool) -> None:
        first = records[0]
        given = {name: value for name, value in first.fields.items() if value is not None}
        of_query = self._of_query(records) if per_hit else given
        faults: list[str] = []
        if per_hit:
            hits: Any = [*self._hits(records)]
            if self._order == BY_RANK:
                self._warn_about_order(run, query_id, hits)
        else:
            hits = _as_list(given.get("hits"))
        if hits is not None:
            found = hits_of(hits, faults) if per_hit or not _are_texts(hits) else hits_in(hits)
        else:
            found = None
        if found and self._order == BY_SCORE and not faults:
            # Without ranks in the table, those in the hits are their places.
            is_ranked = any(isinstance(hit, Mapping) and "rank" in hit for hit in hits)
            found = by_score(found, "table_rank" if is_ranked else None, faults)
        self._add_row(run, query_id, first, of_query, found, faults)

    def _add_row(  # noqa: PLR0913, PLR0917  (what a row is made of)
        self,
        run: ToolRun,
        query_id: str,
        first: Placed,
        of_query: Mapping[str, Any],
        hits: list[Record] | None,
        faults: Sequence[str] = (),
    ) -> None:
        faults = list(faults)
        values = {name: self._value(name, value, first, faults) for name, value in of_query.items() if name != "hits"}
        answer = answer_of(values.get("answer"), faults, grounded=values.get("grounded"))
        if faults:
            self._fault(first, f"query {query_id!r}: {faults[0]}")
        scores = {name: self._number(name, of_query.get(name), first) for name in self._scores}
        ours = {"query": values.get("query"), "hits_top_k": hits, "answer": answer}
        ours |= {
            name: values[name] for name in ("elapsed_ms", "tokens", "cost_usd", "error", "abstained") if name in values
        }
        read = ("query_id", "run_id", "hits", *_OF_QUERY, *self._scores)
        question = values.get("query")
        golden = {"id": query_id, "query": question} if isinstance(question, str) else None
        run.add(query_id, row_from(of_query, read, ours), scores, golden)

    def _of_query(self, records: Sequence[Placed]) -> Record:
        """The fields of a query, which must not differ between its rows."""
        found: Record = {}
        for record in records:
            for name in (*_OF_QUERY, *self._scores):
                value = record.fields.get(name)
                if value is not None and found.setdefault(name, value) != value:
                    self._fault(record, f"{name} differs from an earlier row of the same query")
        return found

    def _hits(self, records: Sequence[Placed]) -> Iterator[Record]:
        left_out = {"query_id", "run_id", *_OF_QUERY, *self._scores}
        ranked = 0
        for record in records:
            hit = {name: value for name, value in record.fields.items() if name not in left_out and value is not None}
            if "chunk_id" not in hit and "doc_id" not in hit:
                # A query without results may have a row without a hit.
                if len(records) == 1:
                    return
                self._fault(record, "has neither chunk_id nor doc_id")
            ranked += "rank" in hit
            faults: list[str] = []
            hit = {name: self._value(name, value, record, faults) for name, value in hit.items()}
            if "rank" in hit:
                hit["rank"] = self._whole(hit["rank"], record)
            if faults:
                self._fault(record, faults[0])
            yield hit
        if ranked not in (0, len(records)):
            self._fault(records[0], f"{ranked:,} of {len(records):,} hits have a rank; give a rank to all, or to none")

    @staticmethod
    def _warn_about_order(run: ToolRun, query_id: str, hits: Sequence[Record]) -> None:
        scores = [hit.get("score") for hit in hits]
        if any("rank" in hit for hit in hits) or not all(isinstance(score, int | float) for score in scores):
            return
        if scores not in (sorted(scores, reverse=True), sorted(scores)) and not run.warnings:  # type: ignore[type-var]
            run.warnings.append(_unordered(query_id))

    def _value(self, name: str, value: Any, record: Placed, faults: list[str]) -> Any:  # noqa: ANN401  (any cell)
        if name in _NUMBERS and isinstance(value, str):
            return self._number(name, value, record)
        if name in ("chunk_id", "doc_id") and isinstance(value, float) and value == int(value):
            return str(int(value))
        if name in ("abstained", "grounded") and not isinstance(value, bool | None):
            found = _TRUTHS.get(str(value).strip().lower())
            if found is None:
                faults.append(f"{name} is {cut(str(value), 40)!r}, not true or false")
            return found
        return value

    def _number(self, name: str, value: Any, record: Placed) -> float | None:  # noqa: ANN401  (any cell)
        if value is None:
            return None
        try:
            found = float(value)
        except (TypeError, ValueError):
            self._fault(record, f"{name} is {cut(str(value), 40)!r}, not a number")
        if abs(found) >= 1e300:
            self._fault(record, f"{name} is {cut(str(value), 40)!r}, which is too large")
        # NaN: it could not be computed.
        return None if math.isnan(found) else found

    def _whole(self, value: Any, record: Placed) -> int:  # noqa: ANN401  (any cell)
        found = self._number("rank", value, record)
        if found is None or found != int(found) or found < 1:
            self._fault(record, f"rank is {cut(str(value), 40)!r}, not an integer of 1 or more")
        return int(found)


def _unordered(query_id: str) -> str:
    said = f"the rows of query {query_id} are not sorted by score, and there is no column rank"
    return f"{said}: the order in the file counts as the ranking; --order score goes by the scores"


def _as_list(value: Any) -> Any:  # noqa: ANN401  (any cell)
    """A list; in CSV it is JSON, or ids separated by spaces, commas or |."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    for between in ("|", ",", ";"):
        if between in value:
            return [part.strip() for part in value.split(between) if part.strip()]
    return value.split()


def _are_texts(hits: Any) -> bool:  # noqa: ANN401  (any value)
    """Are they passages rather than ids? Ids have no spaces."""
    return isinstance(hits, list) and bool(hits) and all(isinstance(hit, str) and " " in hit.strip() for hit in hits)


def proposed(wanted: str, columns: Sequence[str]) -> str | None:
    """The column that is most likely the wanted one; None if none is similar."""
    plain = {_plain(name): name for name in reversed(columns)}
    for other in (_plain(wanted), *COLUMNS[wanted]):
        if other in plain:
            return plain[other]
    near = [
        (
            max(difflib.SequenceMatcher(None, name, other).ratio() for other in (_plain(wanted), *COLUMNS[wanted])),
            theirs,
        )
        for name, theirs in plain.items()
    ]
    best = max(near, default=(0.0, ""), key=lambda pair: pair[0])
    return best[1] if best[0] >= _SIMILAR else None


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
