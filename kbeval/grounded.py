"""Grounded question answering in one go: a gold file and a trace in, numbers and gates out, no database kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from kbeval.aggregates import MISSING_TRACES, bad_rows, gap_warnings, numbers_of, run_totals
from kbeval.engine import Session
from kbeval.errors import BadRowsError, UsageError
from kbeval.golden import Golden, load_golden
from kbeval.golden.quick import read_quickly
from kbeval.jsonlines import file_size, is_openable
from kbeval.limits import as_written, limit_text, side, telling
from kbeval.scoring import ScoreOptions, Scoring, open_scoring
from kbeval.sources.traces import RUN_ID, is_right, open_trace
from kbeval.text import did_you_mean

# What each gate is about, and whether it is a least or a most.
GATES = {
    "precision": ("answer_precision", "min"),
    "chr": ("citation_hit_rate", "min"),
    "under": ("under_refusal_rate", "max"),
    "over": ("over_refusal_rate", "max"),
}
# What the number of each gate is called in the output.
NAMES = {"precision": "precision", "chr": "chr", "under": "under_refusal", "over": "over_refusal"}
DEFAULT_GATES = {"precision": 0.80, "chr": 0.75, "under": 0.05, "over": 0.10}
DEFAULT_K = 5
# Above this, gold and trace are read one after the other.
_SMALL_BYTES = 250_000_000
COUNTS = ("answered", "refused", "answerable", "unanswerable")


def parse_gates(text: str) -> dict[str, float]:
    """`precision=0.80,chr=0.75` as a table."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        try:
            limit = float(value)
        except ValueError:
            limit = -1
        if name not in GATES:
            msg = f"there is no gate {name!r}{did_you_mean(name, GATES) or '; there are ' + ', '.join(GATES)}"
            raise UsageError(msg)
        if not equals or not 0 <= limit <= 1:
            msg = f"gate {part!r} is not a number from 0 to 1; write it like precision=0.80"
            raise UsageError(msg)
        found[name] = limit
    if not found:
        msg = "--gates names no gate; write it like precision=0.80,under=0.05, or leave it out for the usual ones"
        raise UsageError(msg)
    return found


class TraceScores(NamedTuple):
    """The numbers of a trace as they are printed, what to know about them, and what to say of each gate that fails."""

    found: dict[str, Any]
    warnings: list[str]
    failed: list[str]


def score_trace(
    gold: str, trace: str, *, k: int = DEFAULT_K, gates: Mapping[str, float] | None = None, options: ScoreOptions
) -> TraceScores:
    """Score a trace, and hold it against its gates."""
    gates = DEFAULT_GATES if gates is None else gates
    metrics = [*COUNTS, *(metric for metric, _ in GATES.values()), "citation_recall_at_k"]
    options = replace(options, extra_ks=(*options.extra_ks, k), only=metrics, cache="off", match="exact")
    read = _read_quickly(Path(gold), Path(trace), options) or _read_exactly(gold, Path(trace), options)
    numbers = read.numbers
    failed = _failed_gates(numbers, gates, read.exact)
    found = {
        **{name: numbers[name] for name in COUNTS},
        **{NAMES[gate]: numbers[metric] for gate, (metric, _) in GATES.items()},
        "recall@k": numbers["citation_recall_at_k"][k],
        "k": k,
        "gates": dict(gates),
        "pass": not failed,
    }
    return TraceScores(found, read.warnings, failed)


def _failed_gates(numbers: Mapping[str, Any], gates: Mapping[str, float], exact: Mapping[str, Fraction]) -> list[str]:
    """What to say of each gate that the numbers do not keep, before they are rounded."""
    failed = []
    for gate, (metric, kind) in GATES.items():
        stored, limit = numbers[metric], gates.get(gate)
        if limit is None:
            continue
        value = exact.get(metric, as_written(stored))
        place = side(value, as_written(limit))
        if place < 0 if kind == "min" else place > 0:
            where = "below" if kind == "min" else "above"
            failed.append(f"{gate} is {telling(value, stored, limit)}, {where} {limit_text(limit)}")
    return failed


class _Read(NamedTuple):
    """What was read: the numbers, what to know about them, and the same numbers before rounding."""

    numbers: dict[str, Any]
    warnings: list[str]
    exact: dict[str, Fraction]


def _read_quickly(gold: Path, trace: Path, options: ScoreOptions) -> _Read | None:
    """Where the trace is as it should be, the engine reads it itself; None where something in it is odd."""
    if not is_openable(gold) or not is_openable(trace):
        return None
    # Two hands need memory for both.
    is_small = file_size(gold) + file_size(trace) <= _SMALL_BYTES
    with options.session(trace, [gold, trace], is_shared=is_small) as session:
        if is_small:
            # Nobody reads all of them, and what is read is quickly found again.
            session.read_once("queries", "id_matches", "seen_citations", "claim_checks", "answered", "query_scores")
        return session.waiting(lambda: _score_quickly(session, gold, trace, options))


def _score_quickly(session: Session, gold: Path, trace: Path, options: ScoreOptions) -> _Read | None:
    """Most steps keep one processor busy, so two of them go on at a time."""
    beside = session.beside()
    source, golden = session.both(lambda: open_trace(session, trace), lambda: _open_gold(beside, gold))
    if source is None:
        return None
    session.add_loaders(source.loaders())
    scoring = Scoring(session, source, golden, [source.run], options)
    # What both sides read is there before they begin.
    session.need("results", "queries", "runs", "settings")
    is_usable, _ = session.both(lambda: _is_right(session), lambda: beside.need("wanted_chunks", "claims_found"))
    session.all_for_one()
    return _numbers(scoring, str(trace)) if is_usable else None


def _open_gold(session: Session, path: Path) -> Golden:
    golden = read_quickly(session, path) or load_golden(path)
    golden.prepare()
    session.add_loaders({"golden_entries": golden.loader()})
    session.need("claim_rules")
    return golden


def _is_right(session: Session) -> bool:
    if not is_right(session):
        return False
    session.need("missing_queries")
    return True


def _read_exactly(gold: str, trace: Path, options: ScoreOptions) -> _Read:
    """Through the importer, which names what is wrong with which line, and a database that is thrown away."""
    import tempfile

    from kbeval.importers.grounded import read_trace
    from kbeval.importers.writing import write_runs

    golden = load_golden(gold)
    run = read_trace(trace, RUN_ID)
    with tempfile.TemporaryDirectory(prefix="kbeval-") as folder:
        database = Path(folder) / "trace.db"
        write_runs(database, [run])
        with open_scoring(database, golden, [RUN_ID], options) as scoring:
            found = _numbers(scoring, str(trace))
            if bad := bad_rows(scoring):
                raise BadRowsError([str(row) for row in bad], f"correct them in {trace}:")
    return found._replace(warnings=[*run.warnings, *found.warnings])


def _numbers(scoring: Scoring, trace: str) -> _Read:
    scoring.build_query_scores()
    (run,) = scoring.runs
    totals = next((found for _, _, found in run_totals(scoring)), {})
    numbers, _, exact = numbers_of(scoring, totals, run)
    ((rows, missing),) = scoring.session.rows(
        "SELECT (SELECT COUNT(*) FROM results), (SELECT COUNT(*) FROM missing_queries)"
    )
    unknown = rows - (len(scoring.golden) - missing)
    gaps = gap_warnings(trace, scoring.golden, (rows, unknown), MISSING_TRACES, "left out")
    return _Read(numbers, [*scoring.golden.warnings, *gaps], exact)
