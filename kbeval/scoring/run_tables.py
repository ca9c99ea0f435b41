"""Tables built from the runs themselves: stored numbers, configurations, and pairs of consecutive runs.

They are small, and are built in Python by the code that parses this data elsewhere. The views of `sql/views/` read
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbeval.engine.relations import read_sql, relations, without_comments
from kbeval.metrics.names import Name
from kbeval.storage.run_config import CAUSES, config_of, eval_k, settings_of
from kbeval.storage.runs import Run

if TYPE_CHECKING:
    from kbeval.engine.session import Loader, Session

# Their inputs, in addition to the runs themselves.
MADE_FROM = {"step_pairs": ("run_order", "sides")}
# The relations that the macro `compare` reads; they must be built before it is called.
COMPARE_READS = ("configurations", "found_places", "queries", "run_details", "sides")
_LARGEST_COUNT = 2**63 - 1


def loaders(runs: Sequence[Run]) -> dict[str, Loader]:
    """The relations that views read and that are not files; `compare` is the macro with everything that it reads."""
    return {
        "aggregates": _table(
            "aggregates",
            {
                "run_id": "VARCHAR",
                "slice": "VARCHAR",
                "metric": "VARCHAR",
                "k": "BIGINT",
                "value": "DOUBLE",
                "scored": "BIGINT",
                "not_applicable": "BIGINT",
            },
            lambda: [row for run in runs for row in _numbers(run)],
        ),
        "configurations": _table(
            "configurations",
            {"run_id": "VARCHAR", "field": "VARCHAR", "value": "VARCHAR", "value_no": "BIGINT", "part": "VARCHAR"},
            lambda: [(one.run_id, one.field, one.value, one.value_no, one.part) for one in settings_of(runs)],
        ),
        "run_details": _table(
            "run_details",
            {
                "run_id": "VARCHAR",
                "place": "BIGINT",
                "is_dated": "BOOLEAN",
                "k": "BIGINT",
                "definitions": "VARCHAR",
                "labels": "VARCHAR",
                "matching": "VARCHAR",
            },
            # Several spellings of a time are accepted, which SQL would not parse.
            lambda: [_details(run, place) for place, run in enumerate(sorted(runs, key=Run.order), start=1)],
        ),
        "step_pairs": _load_step_pairs,
        "compare": macros,
    }


def macros(session: Session) -> None:
    """Create `compare(a, b)`, which returns the rows of `kbeval compare`, and build what it reads."""
    session.need(*COMPARE_READS)
    session.execute(compare_macro())


def compare_macro() -> str:
    """The statement that creates `compare(a, b)`."""
    causes = ", ".join(f"MAX(CASE WHEN part = '{part}' THEN '{part} changed' END)" for part in CAUSES)
    steps = {name: relation_sql(name) for name in ("pairs", "moved_places", "compared")}
    sql = without_comments(read_sql("compare/compare_macro.sql"))
    for name, part in {"causes": causes, **steps}.items():
        sql = sql.replace("{" + name + "}", part)
    return sql


def relation_sql(name: str) -> str:
    """The statement of a relation, for use inside another."""
    return relations()[name].select


def _load_step_pairs(session: Session) -> None:
    session.need(*MADE_FROM["step_pairs"])
    session.execute(
        "CREATE VIEW step_pairs AS WITH comparison AS (SELECT previous_run_id AS run_a, run_id AS run_b FROM run_order"
        f" WHERE previous_run_id IS NOT NULL), pairs AS ({relation_sql('pairs')}) SELECT * FROM pairs"
    )


def _table(name: str, columns: Mapping[str, str], rows: Callable[[], Iterable[tuple[Any, ...]]]) -> Loader:
    """A small table that is built when it is needed."""
    unnested = ", ".join(
        f"UNNEST(CAST(${place} AS {kind}[])) AS {column}"
        for place, (column, kind) in enumerate(columns.items(), start=1)
    )

    def load(session: Session) -> None:
        found = list(rows())
        values = [[_stored(row[place]) for row in found] for place in range(len(columns))]
        session.execute(f"CREATE TABLE {name} AS SELECT {unnested}", values)

    return load


def _stored(value: Any) -> Any:  # noqa: ANN401  (a cell)
    """JSON may contain an unpaired surrogate, which no database accepts."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _numbers(run: Run) -> Iterator[tuple[Any, ...]]:
    """The rows of `Scored.frame()`, from the stored numbers; empty if there are none."""
    aggregate = run.aggregate()
    numbers = aggregate.numbers() if aggregate is not None else {}
    if aggregate is None or all(number is None for number in numbers.values()):
        return
    for long_name, number in numbers.items():
        name = Name.parse(long_name)
        counts = aggregate.counts(long_name)
        scored, not_applicable = (_count(counts.get(what)) for what in ("scored", "not_applicable"))
        yield (
            run.run_id,
            None,
            name.without_k,
            name.k,
            None if number is None else float(number),
            scored,
            not_applicable,
        )


def _count(value: Any) -> int | None:  # noqa: ANN401  (whatever is stored)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT
    return value if is_count else None


def _details(run: Run, place: int) -> tuple[Any, ...]:
    made_with = (run.scored_with(what) for what in ("metrics", "golden", "matching"))
    return run.run_id, place, run.is_dated, eval_k(config_of(run)), *made_with
