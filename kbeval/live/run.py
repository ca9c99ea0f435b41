"""Makes runs: asks a target every chosen golden query, commits each attempt, and stores the run when it is complete."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbeval.errors import KbevalError, UsageError
from kbeval.golden import Golden
from kbeval.live.asking import Asking, Query, Row, Target
from kbeval.live.errors_allowed import ErrorsAllowed
from kbeval.live.journal import Journal, StoredAttempt, only_one
from kbeval.live.limits import Limit
from kbeval.live.passages import Bm25
from kbeval.live.progress import Progress
from kbeval.live.rows import failed_row, is_abstention, with_cut_texts
from kbeval.live.run_options import Exchange, Finished, RunOptions, Say
from kbeval.live.sending import Attempt
from kbeval.live.snapshot import Asked, git, make_snapshot
from kbeval.live.targets import ANCHORS, BM25, DEFAULT_K, TargetConfig, open_target
from kbeval.live.templates import TemplateError
from kbeval.live.working import Crew, Interrupted, Stopped, handling_interrupts, run_async
from kbeval.storage.runs import is_reserved
from kbeval.storage.unfinished import Unfinished, find_unfinished
from kbeval.systems.json_lines import id_of, written
from kbeval.util.hiding import Hider
from kbeval.util.text import as_argument, counted

ALL_ABSTAINED = (
    "every answer is a refusal with nothing retrieved; the system's index may have been down: its numbers say nothing"
    " about the quality of its answers"
)


def queries_of(golden: Golden, ids: Sequence[str], asked: Asked) -> list[Query]:
    """The golden queries as they are asked."""
    entries = {str(entry["id"]): {**golden.own.get(str(entry["id"]), {}), **entry} for entry in golden.entries}
    return [
        Query(
            query_id,
            str(entries[query_id]["query"]),
            {name: _as_in_file(value) for name, value in entries[query_id].items()},
            asked.k,
            asked.mode,
            asked.retrieval_only,
        )
        for query_id in ids
    ]


def _as_in_file(value: Any) -> Any:  # noqa: ANN401  (any JSON value)
    """Whole numbers as such: checked labels have floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _as_in_file(one) for name, one in value.items()}
    return [_as_in_file(one) for one in value] if isinstance(value, list | tuple) else value


def asked_of(target: TargetConfig, options: RunOptions) -> Asked:
    """What the run asks for, from the options and the target."""
    k = options.k if options.k is not None else int(target.table.get("k", DEFAULT_K))
    mode = options.mode or target.table.get("mode") or ("lexical" if target.type == BM25 else None)
    return Asked(
        k,
        mode,
        options.retrieval_only,
        options.store_full_text,
        options.description,
        options.choice.described(),
    )


def first_request(target: TargetConfig, golden: Golden, database: Path | None, options: RunOptions) -> str:
    """The first request as it would be sent. Nothing is sent; every request is rendered, to find faults."""
    return next(iter(rendered_requests(target, golden, database, options).values()))


def rendered_requests(
    target: TargetConfig, golden: Golden, database: Path | None, options: RunOptions
) -> dict[str, str]:
    """Every request as it would be sent, by query id."""
    asked = asked_of(target, options)
    queries = queries_of(golden, options.choice.choose(golden), asked)

    async def main() -> dict[str, str]:
        asking = Asking(Crew(Limit(1)), target.environment())
        return _rendered(open_target(target, asking, database), queries, target.where)

    return run_async(main())


def check_health(target: TargetConfig, database: Path) -> str | None:
    """What is wrong with the system under test; None if nothing is."""

    async def main() -> str | None:
        async with open_target(target, Asking(Crew(Limit(1)), target.environment()), database) as opened:
            return await opened.check_health()

    return run_async(main())


def _rendered(target: Target, queries: Sequence[Query], where: str) -> dict[str, str]:
    if not queries:
        msg = "no golden query is selected; check --only, --sample and --limit"
        raise UsageError(msg)
    found = {}
    for query in queries:
        try:
            found[query.id] = target.request_text(query)
        except TemplateError as error:
            msg = f"{where}: query {query.id!r}: {error}"
            raise UsageError(msg) from error
    return found


def make_runs(database: Path, golden: Golden, target: TargetConfig, options: RunOptions) -> list[Finished]:
    """Make a run, or several repetitions of it."""
    asked = asked_of(target, options)
    ids = options.choice.choose(golden)
    requests = rendered_requests(target, golden, database, options)
    hashes = {query_id: _hash(text) for query_id, text in requests.items()}
    if target.type == BM25 and not database.exists():
        # It is not created, because there would be nothing to search.
        msg = f"there is no database {database}; check --db, because a bm25 target searches its table chunks"
        raise UsageError(msg)
    with Journal(database) as journal:
        chunker = _chunker_version(target, database, options.say)
        config = make_snapshot(target, golden, asked, chunker)
        started = datetime.now(UTC)
        names = _names(journal, options, started)
        plan = {
            "queries": ids,
            "golden": Path(golden.path).name,
            "golden_hash": golden.hash,
            "target_hash": target.hash,
            "chosen": Hider().hide(dict(target.chosen)),
            "max_errors": options.max_errors,
        }
        commit = git(Path(golden.path).parent, "rev-parse", "HEAD")
        runs = [
            Unfinished(
                name,
                options.suite,
                _as_repetition(config, names, number),
                plan,
                commit,
                started.strftime("%Y-%m-%dT%H:%M:%S.") + f"{started.microsecond + number - 1:06d}Z",
            )
            for number, name in enumerate(names, start=1)
        ]
        ErrorsAllowed(options.max_errors, len(ids))
        journal.begin(runs)
        try:
            return [_made(journal, run, database, golden, target, options, hashes) for run in runs]
        except KbevalError:
            # If nothing was answered at all, there is nothing to resume.
            left = [run for run in journal.unfinished() if run.run_id in names]
            if len(left) < len(names) and not any(run.answered for run in left) and not _is_stored(journal, names):
                for run in left:
                    journal.forget(run.run_id)
            raise


def _hash(request: str) -> str:
    return hashlib.sha256(request.encode("utf-8", "replace")).hexdigest()


def _is_stored(journal: Journal, names: Sequence[str]) -> bool:
    return any(journal.is_complete(name) for name in names)


def _names(journal: Journal, options: RunOptions, started: datetime) -> list[str]:
    if options.run_id is None:
        first = journal.free_id(started.strftime("%Y%m%d_%H%M%S"))
    else:
        first = options.run_id
        if id_of(first) is None or is_reserved(first):
            msg = f"--run-id {first!r} is empty, reserved or not valid text; choose another one"
            raise UsageError(msg)
    names = [first, *(f"{first}-r{number}" for number in range(2, options.repeat + 1))]
    journal.refuse_taken(names)
    return names


def _as_repetition(config: Mapping[str, Any], names: Sequence[str], number: int) -> dict[str, Any]:
    if len(names) == 1:
        return dict(config)
    return {**config, "repetition": number, "repetitions": len(names), "repetition_of": names[0]}


def _chunker_version(target: TargetConfig, database: Path, say: Say) -> str | None:
    if target.type != BM25:
        return None
    with Bm25(database, target.table.get("chunker_version")) as index:
        if index.note:
            say(index.note)
        return index.chunker_version


def resume_run(
    database: Path, name: str, golden: Golden, choose: Callable[[Mapping[str, Any]], TargetConfig], options: RunOptions
) -> list[Finished]:
    """Continue an unfinished run, and its unfinished repetitions. `choose`: finds the target as chosen at the start."""
    with Journal(database) as journal:
        unfinished = journal.unfinished()
        if journal.is_complete(name):
            msg = f"run {name!r} is complete: there is nothing left to ask"
            raise UsageError(msg)
        run = find_unfinished(unfinished, name, database)
        group = run.config.get("repetition_of")
        runs = [one for one in unfinished if one is run or (group and one.config.get("repetition_of") == group)]
        target = choose(run.plan.get("chosen", {}))
        if golden.hash != run.plan["golden_hash"]:
            then = Path(run.plan.get("golden", golden.path)).name
            if then != Path(golden.path).name:
                msg = f"run {run.run_id!r} was started with the golden file {then}, not {golden.path}; pass --golden"
                raise UsageError(msg)
            msg = (
                f"the golden file {golden.path} has changed since run {run.run_id!r} was started; restore it,"
                f" or start a new run and 'kbeval runs --forget {as_argument(run.run_id)}'"
            )
            raise UsageError(msg)
        if target.hash != run.plan["target_hash"]:
            msg = (
                f"the target ({target.where}) has changed since run {run.run_id!r} was started; restore it,"
                f" or start a new run and 'kbeval runs --forget {as_argument(run.run_id)}'"
            )
            raise UsageError(msg)
        return [_made(journal, one, database, golden, target, options) for one in runs]


def _made(  # noqa: PLR0913, PLR0917  (called twice, above)
    journal: Journal,
    run: Unfinished,
    database: Path,
    golden: Golden,
    target: TargetConfig,
    options: RunOptions,
    hashes: Mapping[str, str] | None = None,
) -> Finished:
    with only_one(database, run.run_id):
        making = Making(journal, run, database, golden, target, options, hashes or {})
        try:
            return run_async(making.make())
        except (Interrupted, Stopped) as error:
            raise making.explained(error) from error


class Making:
    """Makes one run."""

    def __init__(  # noqa: PLR0913, PLR0917  (called once, above)
        self,
        journal: Journal,
        run: Unfinished,
        database: Path,
        golden: Golden,
        target: TargetConfig,
        options: RunOptions,
        hashes: Mapping[str, str],
    ) -> None:
        """`hashes`: those of the rendered requests, where known."""
        self._journal = journal
        self._hashes = hashes
        self._run = run
        self._database = database
        self._config = target
        self._options = options
        config = run.config
        asked = Asked(config["eval_k"], config["mode"], config["retrieval_only"], config["store_full_text"], None, {})
        self._keeps_texts = asked.store_full_text
        self._queries = queries_of(golden, run.plan["queries"], asked)
        self._environment = target.environment()
        self._before: dict[str, tuple[int, bool, Row]] = {}
        self._results: dict[str, Row] = {}
        self._started = time.monotonic()
        self._warnings: list[str] = []

    async def make(self) -> Finished:
        """Ask everything that has no answer yet, then store the run."""
        self._before = self._journal.results(self._run.run_id)
        self._results = {query_id: row for query_id, (_, answered, row) in self._before.items() if answered}
        left = [query for query in self._queries if query.id not in self._results]
        ceiling = self._options.concurrency or self._config.ceiling
        rate = self._options.rate or self._config.table.get("rate")
        limit = Limit(ceiling, rate)
        crew = Crew(limit)
        done = len(self._queries) - len(left)
        progress = Progress(f"run {self._run.run_id}", len(self._queries), limit, done=done)
        allowed = ErrorsAllowed(self._options.max_errors, len(self._queries), done)
        target = open_target(self._config, Asking(crew, self._environment, progress.retried), self._database)
        with handling_interrupts(crew):
            async with target:
                await self._check_health(target, is_first=True)

                async def job(query: Query) -> None:
                    if (reason := await self._ask(target, query, progress, allowed)) is not None:
                        crew.stop(reason)

                async with progress.shown():
                    await crew.run(left, job)
                await self._check_health(target, is_first=False)
        return self._complete()

    async def _check_health(self, target: Target, *, is_first: bool) -> None:
        wrong = await target.check_health()
        if wrong is None:
            return
        if is_first:
            if not self._before:
                self._journal.forget(self._run.run_id)
            msg = f"the target is not healthy: {wrong}; nothing was sent"
            raise UsageError(msg)
        self._warnings.append(f"the target was not healthy after the last query: {wrong}")

    async def _ask(self, target: Target, query: Query, progress: Progress, allowed: ErrorsAllowed) -> str | None:
        """Ask one query. Returns the reason to stop the run, or None."""
        request_hash = self._hashes.get(query.id) or _hash(target.request_text(query))
        earlier, started = self._before.get(query.id, (0, False, {}))[0], time.monotonic()

        async def store(attempt: Attempt[Row]) -> None:
            row = self._row(query, attempt, earlier, started)
            failure = attempt.failure
            await self._journal.store(
                StoredAttempt(
                    self._run.run_id,
                    query.id,
                    int(self._run.config.get("repetition", 1)),
                    earlier + attempt.number,
                    request_hash,
                    attempt.started_at,
                    attempt.elapsed_ms,
                    attempt.status,
                    None if failure is None else failure.kind,
                    None if failure is None else failure.message,
                    written(row),
                )
            )
            self._results[query.id] = row
            if self._options.on_exchange is not None:
                body = None if attempt.response is None else self._environment.secrets.hide(attempt.response.text())
                self._options.on_exchange(Exchange(query.id, target.request_text(query), attempt, body, row))

        outcome = await target.ask(query, store)
        progress.finished(is_error=outcome.failure is not None)
        return allowed.count(outcome.failure)

    def _row(self, query: Query, attempt: Attempt[Row], earlier: int, started: float) -> Row:
        """The row as it will be stored."""
        if attempt.failure is None:
            row = {**(attempt.value or {}), "elapsed_ms": attempt.elapsed_ms}
        else:
            row = failed_row(query, attempt.failure, attempt.value)
        row |= {"attempts": earlier + attempt.number, "total_ms": round((time.monotonic() - started) * 1000, 3)}
        row = self._environment.secrets.hide_in(row)
        # Ids stay as they are in the golden file, even if they contain a hidden value.
        row |= {"query_id": query.id}
        return row if self._keeps_texts else with_cut_texts(row)

    def _complete(self) -> Finished:
        rows = [self._results[query.id] for query in self._queries]
        config = dict(self._run.config)
        failed = sum(row.get("error") is not None for row in rows)
        answered = [row for row in rows if row.get("error") is None]
        has_answers = any(row.get("answer") is not None or row.get("abstained") is not None for row in answered)
        if answered and has_answers and all(map(is_abstention, answered)):
            self._warnings.append(ALL_ABSTAINED)
            if not all(map(_is_to_be_refused, self._queries)):
                config["kbeval"] = {**config["kbeval"], "outage": True}
        if self._warnings:
            config["kbeval"] = {**config["kbeval"], "warnings": self._warnings}
        if self._config.type == ANCHORS:
            config = with_coverage(config, rows)
        run = dataclasses.replace(self._run, config=config)
        self._journal.complete(run, [(query.id, written(self._results[query.id])) for query in self._queries])
        return Finished(run.run_id, len(rows), failed, time.monotonic() - self._started, self._warnings)

    def explained(self, error: Interrupted | Stopped) -> Interrupted | Stopped:
        """The error with what is stored and how to continue."""
        stored = self._journal.results(self._run.run_id)
        answered = sum(is_answered for _, is_answered, _ in stored.values())
        total = counted(len(self._queries), "query", "queries")
        if not answered:
            self._journal.forget(self._run.run_id)
            kept = "nothing was answered, so nothing is kept"
        else:
            again = f"kbeval {self._options.command} --resume {as_argument(self._run.run_id)}"
            kept = f"{answered:,} of {total} answered and stored; continue with '{again}'"
        return type(error)(f"{error.headline}; {kept}", error.details)


def _is_to_be_refused(query: Query) -> bool:
    """Is a refusal the right answer?"""
    labels = ("expected_doc_ids", "expected_chunk_ids", "expected_spans", "gold_citations")
    answerable = query.entry.get("answerable")
    has_nothing = query.entry.get("expected_doc_ids") == [] and not any(query.entry.get(name) for name in labels)
    return answerable is False or (answerable is None and has_nothing)


def with_coverage(config: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """The configuration, with what the anchors system reports about its index."""
    found = next((row["indexing_coverage"] for row in rows if isinstance(row.get("indexing_coverage"), dict)), None)
    if found is None:
        return config
    versions = dict(config["versions"])
    versions["index"] = json.loads(json.dumps(found))
    chunker = config.get("chunker_version") or found.get("chunker_version")
    return {**config, "chunker_version": chunker, "versions": versions}
