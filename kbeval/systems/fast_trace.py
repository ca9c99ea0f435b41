"""A trace of grounded question answering as a data source: read by the engine, without a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kbeval.engine.relations import read_sql, relations
from kbeval.golden import Golden, load_golden
from kbeval.metrics.catalogue import PER_QUERY
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import Scoring
from kbeval.storage.runs import KeyFault, Run
from kbeval.systems import ImportedRun
from kbeval.systems.fast_golden import read_quickly
from kbeval.systems.fast_lines import (
    all_lines_match,
    build,
    file_size,
    has_any,
    is_list_of_text,
    is_openable,
    may_be_non_text,
    scan_values,
    show_lines,
    try_create,
)
from kbeval.systems.fast_trace_session import TwoThreadedSession, run_both

if TYPE_CHECKING:
    from kbeval.engine.session import Loader, Session

Result = TypeVar("Result")
RUN_ID = "trace"
# Relations of sql/traces/ that replace those of the same name, and what each reads in addition to the traces.
_MADE_FROM = {
    "runs": (),
    "results": (),
    "claims_found": ("claim_rules",),
    "id_matches": ("wanted_chunks",),
    "seen_citations": (),
    "known_chunks": (),
    "documents": (),
    "citation_matches": (),
    "rule_matches": (),
}
# Not needed by any metric of a trace, whatever the labels are, and therefore empty here.
_UNASKED = ("anchor_checks", "judge_checks", "reading_cost")
_IDS = ("retrieved", "cited")
_READ_ONCE = ("queries", "id_matches", "seen_citations", "claim_checks", PER_QUERY)
# Above this, gold and trace are read one after the other, and intermediate relations are materialised.
_SMALL_BYTES = 250_000_000


class TraceSource:
    """A trace in a session as the data of one run, without a knowledge base."""

    def __init__(self, *, is_small: bool) -> None:
        """`is_small`: relations that are read only once are views, because computing them again is fast."""
        self._is_small = is_small
        config = ImportedRun(RUN_ID, "grounded", "grounded", {}, (), "").config_json
        self.run = Run(RUN_ID, "grounded", "", None, config, "", 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to close: the data is in the session."""

    def runs(self) -> list[Run]:
        """The one run that the trace is of."""
        return [self.run]

    def rubrics(self) -> list[str]:
        """A trace is not judged."""
        return []

    def repeated_rows(self, run_ids: Sequence[str]) -> list[KeyFault]:  # noqa: ARG002  (as Source)
        """None: `open_trace` reads no trace in which a question is repeated."""
        return []

    def feed(self, session: Session, run_ids: Sequence[str]) -> None:  # noqa: ARG002  (as Source)
        """Register with the session how it makes the relations, including those that are empty."""
        session.add_loaders(self._loaders())

    def settled_digests(self, session: Session) -> dict[str, str]:  # noqa: ARG002  (as Source)
        """Nothing of it is ever stored, so no digest is needed."""
        return {RUN_ID: ""}

    def result_json(self, run_id: str, query_id: str) -> str | None:  # noqa: ARG002  (as Source)
        """There are no stored rows."""
        return None

    def chunk_details(
        self,
        chunk_ids: Sequence[str],  # noqa: ARG002  (as Source)
    ) -> list[tuple[str, str, str | None, str | None]]:
        """There is no knowledge base."""
        return []

    def _loaders(self) -> dict[str, Loader]:
        is_small = self._is_small
        found = {name: _made(name, "view" if is_small and name in _READ_ONCE else None) for name in _MADE_FROM}
        found |= {name: _none_of(name) for name in _UNASKED}
        return found | ({name: _viewed(name) for name in _READ_ONCE if name not in found} if is_small else {})


class _TraceScoring(Scoring):
    """A scoring whose numbers are read only once."""

    def build_query_scores(self) -> None:
        self.session.need(PER_QUERY)
        self.session.execute(f"CREATE VIEW query_scores AS {self.scoring_sql()}")


def _made(name: str, kind: str | None) -> Loader:
    """From its file in sql/traces/."""

    def load(session: Session) -> None:
        session.need(*_MADE_FROM[name])
        build(session, name, kind)

    return load


def _viewed(name: str) -> Loader:
    """From the file of the relation, but as a view."""

    def load(session: Session) -> None:
        relation = relations()[name]
        session.need(*sorted(relation.reads & (relations().keys() | session.handed_in)))
        session.execute(f"CREATE VIEW {name} AS {relation.sql}")

    return load


def _none_of(name: str) -> Loader:
    def load(session: Session) -> None:
        session.execute(f"CREATE VIEW {name} AS {relations()[f'{name}@none'].sql}")

    return load


def score_quickly(gold: Path, trace: Path, options: ScoreOptions, finish: Callable[[Scoring], Result]) -> Result | None:
    """Let the engine read gold and trace, and call `finish` with the scoring; None if a file is irregular."""
    if not is_openable(gold) or not is_openable(trace):
        return None
    # Reading both at the same time needs memory for both.
    is_small = file_size(gold) + file_size(trace) <= _SMALL_BYTES
    with _session(gold, trace, options, is_small=is_small) as session:
        scoring = session.waiting(lambda: _open(session, gold, trace, options, is_small=is_small))
        return None if scoring is None else session.waiting(lambda: finish(scoring))


def _session(gold: Path, trace: Path, options: ScoreOptions, *, is_small: bool) -> Session:
    if not is_small:
        return options.session(trace, [gold, trace])
    return TwoThreadedSession(
        threads=options.threads,
        memory_limit=options.memory_limit,
        expected_bytes=file_size(trace),
        on_step=options.on_step,
        reach=[gold, trace],
        is_sparing=options.sparing,
    )


def _open(session: Session, gold: Path, trace: Path, options: ScoreOptions, *, is_small: bool) -> Scoring | None:
    """Most steps use one processor, so two of them run at a time."""
    source, golden = run_both(
        session, lambda one: open_trace(one, trace, is_small=is_small), lambda other: _open_gold(other, gold)
    )
    if source is None:
        return None
    source.feed(session, [RUN_ID])
    scoring = (_TraceScoring if is_small else Scoring)(session, source, golden, source.runs(), options)
    # Created before both tasks start, because both read them.
    session.need("results", "queries", "runs", "settings")
    is_usable, _ = run_both(session, _is_usable, lambda other: other.need("wanted_chunks", "claims_found"))
    if isinstance(session, TwoThreadedSession):
        session.use_all_threads()
    return scoring if is_usable else None


def _open_gold(session: Session, path: Path) -> Golden:
    golden = read_quickly(session, path) or load_golden(path)
    golden.prepare()
    session.add_loaders({"golden_entries": golden.loader()})
    session.need("claim_rules")
    return golden


def _is_usable(session: Session) -> bool:
    if not is_right(session):
        return False
    session.need("missing_queries")
    return True


def open_trace(session: Session, path: Path, *, is_small: bool = True) -> TraceSource | None:
    """Read a trace file into a session; None if it is irregular and must be read line by line."""
    session.execute(read_sql("traces/macros.sql"))
    if not show_lines(session, path, "trace_lines"):
        return None
    if not try_create(session, "traces") and not try_create(session, "traces", "traces_with_gaps"):
        return None
    ((traces, questions),) = session.rows("SELECT COUNT(*), COUNT(DISTINCT query_id) FROM traces")
    odd = "COALESCE(is_odd, true) OR COALESCE(query_id, '') = ''"
    if not 0 < traces == questions or has_any(session, "traces", odd):
        return None
    # If no line has any of these, it is the wrong file, which the importer reports.
    says = "retrieved IS NOT NULL OR claim IS NOT NULL OR cited IS NOT NULL"
    return TraceSource(is_small=is_small) if has_any(session, "traces", says) else None


def is_right(session: Session) -> bool:
    """Does everything that was read have the right type? If not, the trace must be read line by line."""
    looks = [scan_values(session, "traces", ids) for ids in _IDS]
    if any(has_empty for has_empty, _ in looks):
        return False
    texts = f"{may_be_non_text('query_id')} OR {may_be_non_text('claim')}"
    if not any(is_doubtful for _, is_doubtful in looks) and not has_any(session, "traces", texts):
        return True
    # In a stored row, an id that looks like an object is not an id.
    if any(has_any(session, f"(SELECT UNNEST({ids}) AS t FROM traces)", "is_json_container(t)") for ids in _IDS):
        return False
    return all_lines_match(session, "trace_lines", _is_right)


def _is_right(trace: dict[str, Any]) -> bool:
    """Of a JSON structure: is everything that is read text, or a list of texts?"""
    answer = trace.get("answer_json")
    if not isinstance(answer, dict):
        # json_structure returns no structure for an empty object.
        return False if answer not in (None, "NULL") else _has_text(trace, {})
    return _has_text(trace, answer)


def _has_text(trace: dict[str, Any], answer: dict[str, Any]) -> bool:
    ids = [trace[name] for name in ("qid", "q_id") if trace.get(name, "NULL") != "NULL"]
    return (
        set(ids) == {"VARCHAR"}
        and is_list_of_text(trace.get("retrieved_ids"))
        and answer.get("claim", "VARCHAR") == "VARCHAR"
        and is_list_of_text(answer.get("citations"))
    )
