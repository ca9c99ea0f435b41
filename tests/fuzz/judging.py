"""Runs the commands of a case and checks the promises: no traceback, no hang, nothing changed or left behind."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import resource
import shutil
import signal
import sqlite3
import tempfile
import traceback
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kbeval.cli.entry
from kbeval.metrics.catalogue import shipped_metrics
from tests.fuzz.cases import DB, Case

# Seconds of processor time for one command; a question may take longer, but must stop when it is told to.
PATIENCE = 20
QUESTION_PATIENCE = 4
# More memory than this, in bytes, no case should take.
MOST_MEMORY = 1_500_000_000
_ENDINGS = (".kbeval-cache",)
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
_DATABASE_CHANGES = ("import",)


class Hang(BaseException):
    """A command took too long."""


@dataclass(frozen=True)
class Fault:
    """What went wrong: `kind` is stable and short, `detail` is for people."""

    kind: str
    detail: str
    call: Sequence[str] = ()

    def __str__(self) -> str:
        return f"{self.kind}\n  kbeval {' '.join(map(repr, self.call))}\n{self.detail}"


@dataclass
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str
    error: BaseException | None
    interrupted: bool


def judge(case: Case, folder: Path) -> Fault | None:
    """Build a case in an empty folder, run its commands, and say what was wrong first."""
    shutil.rmtree(folder, ignore_errors=True)
    work, spare = folder / "work", folder / "temporary"
    work.mkdir(parents=True)
    spare.mkdir()
    case.build(work)
    before = _rows(work / DB)
    stored = _stored(work / DB)
    files = {path: path.read_bytes() for path in work.rglob("*") if path.is_file() and path.name != DB}
    with contextlib.chdir(work), _temporary_files_in(spare):
        for call in case.calls:
            memory = _memory()
            outcome = perform(call)
            fault = _wrong_with(call, outcome) or _took_memory(call, memory)
            fault = fault or _changed(call, before, work / DB) or _left_behind(call, case, work, spare)
            if fault is not None:
                return fault
    for path, content in files.items():
        if path.is_file() and path.read_bytes() != content and not path.name.startswith("out"):
            return Fault("input changed", str(path.relative_to(work)), case.calls[-1])
    return _bad_numbers_stored(case.calls[-1], work / DB, stored)


# --- one command -----------------------------------------------------------------------------------


def perform(call: Sequence[str]) -> Outcome:
    """Run a command in this process as the program does, with what it prints kept."""
    caught: list[BaseException] = []
    explain = kbeval.cli.entry._explain

    def explained(error: BaseException) -> int:
        caught.append(error)
        return explain(error)

    kept_out, kept_err = io.BytesIO(), io.BytesIO()
    out, err = (
        io.TextIOWrapper(kept, "utf-8", "backslashreplace", write_through=True) for kept in (kept_out, kept_err)
    )
    kbeval.cli.entry._explain = explained
    timer = _Timer(question=call[:1] == ["sql"])
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), timer:
            code = kbeval.cli.entry.run(list(call))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and not timer.interrupted:
            raise
        caught.append(error)
        code = -1
    finally:
        kbeval.cli.entry._explain = explain
    return Outcome(
        code,
        kept_out.getvalue().decode(),
        kept_err.getvalue().decode(),
        caught[-1] if caught else None,
        timer.interrupted,
    )


class _Timer:
    """Interrupts a question as Ctrl-C does; whatever goes on after that, and any other command, hangs."""

    def __init__(self, *, question: bool) -> None:
        self._is_question = question
        self.interrupted = False

    def _ring(self, *_: object) -> None:
        if self._is_question and not self.interrupted:
            self.interrupted = True
            signal.setitimer(signal.ITIMER_PROF, PATIENCE)
            raise KeyboardInterrupt
        raise Hang

    def __enter__(self) -> None:
        self._old = signal.signal(signal.SIGPROF, self._ring)
        signal.setitimer(signal.ITIMER_PROF, QUESTION_PATIENCE if self._is_question else PATIENCE)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._old)


# --- the rules -------------------------------------------------------------------------------------


def _wrong_with(call: Sequence[str], outcome: Outcome) -> Fault | None:  # noqa: PLR0911  (a rule after the other)
    """What the exit code and the output show."""

    def fault(kind: str, detail: str) -> Fault:
        return Fault(kind, detail[:3000], call)

    if isinstance(outcome.error, Hang):
        return fault("hang", _where(outcome.error))
    if outcome.code == -1 or "internal error" in outcome.err:
        return fault(f"internal error: {_place(outcome.error)}", f"{outcome.err}\n{_where(outcome.error)}")
    if outcome.code not in (0, 1, 2) and not (outcome.interrupted and outcome.code == 130):
        return fault(f"exit code {outcome.code}", outcome.err)
    if "Traceback (most recent call last)" in outcome.out + outcome.err:
        return fault("traceback", outcome.out + outcome.err)
    if outcome.code == 2 and not any(line.startswith("kbeval: ") for line in outcome.err.splitlines()):
        return fault("no message", outcome.err)
    for name, text in (("stdout", outcome.out), ("stderr", outcome.err)):
        # trec_eval separates what it prints by tabs.
        meant = "\n\t" if call[0] == "trec" and name == "stdout" else "\n"
        if [*call[:2], name] == ["export", "trec", "stdout"]:
            # For other programs, which need the ids as they are.
            continue
        hidden = {
            character for character in text if character not in meant and unicodedata.category(character) in _HIDDEN
        }
        if hidden:
            return fault(f"{name} has hidden characters", f"{sorted(hidden)!r} in {text!r}")
    if "--format" in call and call[list(call).index("--format") + 1] == "json" and outcome.out and call[0] != "sql":
        return _bad_json(call, outcome.out, computed=call[0] in ("score", "compare"))
    return None


def _place(error: BaseException | None) -> str:
    """The kind of an exception, and where in kbeval it was raised."""
    if error is None:
        return "?"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/kbeval/" in frame.filename]
    inner = [
        frame
        for frame in frames
        if frame.name not in ("run", "run_interruptible", "result", "waiting", "_run", "<lambda>")
    ]
    last = (inner or frames)[-1] if frames else None
    where = f" in {last.filename.partition('/kbeval/')[2]}:{last.name}" if last else ""
    return f"{type(error).__name__}{where}"


def _where(error: BaseException | None) -> str:
    return "" if error is None else "".join(traceback.format_exception(error))[-2500:]


def _bad_json(call: Sequence[str], text: str, *, computed: bool) -> Fault | None:
    """JSON that other programs cannot read, or with numbers that cannot be."""
    strange: list[str] = []
    try:
        found = json.loads(text, parse_constant=strange.append)
    except ValueError as error:
        return Fault("output is not JSON", f"{error}: {text[:2000]}", call)
    # Other commands show numbers as they find them stored.
    strange += impossible(found) if computed else []
    return Fault(f"impossible number: {strange[0]}", text[:2000], call) if strange else None


def impossible(found: Any) -> list[str]:
    """The names of a run's numbers that are shares and not between 0 and 1, at any level."""
    if isinstance(found, list):
        return [fault for value in found for fault in impossible(value)]
    if not isinstance(found, dict):
        return []
    # A ledger has the same names, and counts queries; differences may be below 0.
    faults = [fault for name, value in found.items() if name not in ("ledger", "deltas") for fault in impossible(value)]
    for name in sorted(shares() & found.keys()) if "total_queries" in found else ():
        values = found[name].values() if isinstance(found[name], dict) else [found[name]]
        faults += [name for value in values if isinstance(value, int | float) and not 0 <= value <= 1]
    return faults


@functools.cache
def shares() -> frozenset[str]:
    """The metrics that are means of values from 0 to 1."""
    return frozenset(
        metric.name
        for metric in shipped_metrics()
        if metric.aggregation == "mean" and not metric.name.startswith("judge_")
    )


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _took_memory(call: Sequence[str], before: int) -> Fault | None:
    now = _memory()
    return (
        Fault("memory", f"{now / 1e6:.0f} MB, {before / 1e6:.0f} MB before", call)
        if now > max(MOST_MEMORY, before + 10**8)
        else None
    )


# --- what is on the disk ----------------------------------------------------------------------------


def _rows(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row that kbeval may read and must not change."""
    if not path.is_file():
        return {}
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        return {
            "eval_query_results": connection.execute("SELECT * FROM eval_query_results ORDER BY rowid").fetchall(),
            "eval_runs": connection.execute(
                "SELECT run_id, suite, config_snapshot_json, commit_hash, created_at FROM eval_runs ORDER BY rowid"
            ).fetchall(),
            "chunks": connection.execute("SELECT * FROM chunks ORDER BY rowid").fetchall(),
            "documents": connection.execute("SELECT * FROM documents ORDER BY rowid").fetchall(),
        }


def _stored(path: Path) -> dict[bytes, bytes]:
    if not path.is_file():
        return {}
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        return dict(connection.execute("SELECT run_id, aggregate_json FROM eval_runs").fetchall())


def _changed(call: Sequence[str], before: dict[str, list[tuple[Any, ...]]], path: Path) -> Fault | None:
    if not path.is_file():
        return Fault("database is gone", "", call) if before else None
    try:
        with closing(sqlite3.connect(path)) as connection:
            found = str(connection.execute("PRAGMA integrity_check").fetchall())
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "[('ok',)]":
        return Fault("database is damaged", found, call)
    now = _rows(path)
    for table, rows in before.items():
        is_same = set(rows) <= set(now[table]) if call[0] in _DATABASE_CHANGES else rows == now[table]
        if not is_same and "--replace" not in call:
            return Fault(f"{table} changed", "", call)
    return None


def _left_behind(call: Sequence[str], case: Case, work: Path, spare: Path) -> Fault | None:
    known = {name.partition("/")[0] for name in case.files} | {DB, f"{DB}-wal", f"{DB}-shm", "runs"}
    left = [path.name for path in work.iterdir() if path.name not in known and not path.name.startswith(("out", DB))]
    left += [path.name for path in spare.iterdir()]
    return Fault("files left behind", ", ".join(sorted(left)), call) if left else None


def _bad_numbers_stored(call: Sequence[str], path: Path, before: dict[bytes, bytes]) -> Fault | None:
    """Values that were stored by this case and are not numbers."""
    for run_id, text in _stored(path).items():
        if text != before.get(run_id) and (fault := _bad_json(call, text.decode(), computed=True)):
            return fault
    return None


@contextlib.contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    old, before = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = old
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before
