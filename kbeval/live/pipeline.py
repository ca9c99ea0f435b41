"""A whole evaluation: make a run, judge it, score it, compare it with the previous one, check its gates, report on it.

`kbeval pipeline` calls it. The run comes first: without one there is nothing to do. Every later step is tried even if
an earlier one failed, and its failure is part of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbeval.compare.gates import NEED_BASELINE, GateReport, check_gates
from kbeval.compare.options import CompareOptions
from kbeval.compare.report import CompareReport
from kbeval.compare.run import IncomparableError
from kbeval.compare.run_summary import RunSummary, StepResult
from kbeval.errors import BadRowsError, KbevalError
from kbeval.render.comparison import render_report_md, verdict_sentence
from kbeval.render.gates import gate_sentence
from kbeval.render.summary import summary_md
from kbeval.report.one_run import OneRunOptions, one_run_page
from kbeval.report.two_runs import two_runs_page
from kbeval.scoring.aggregate import Scored, score_runs, store_scored
from kbeval.scoring.options import ScoreOptions
from kbeval.storage.run_config import config_fields, config_of
from kbeval.storage.runs import Run, find_run, previous_run
from kbeval.storage.source import stored_runs
from kbeval.util.files import run_file, write_whole
from kbeval.util.hiding import Hider
from kbeval.util.text import counted

HEALTH, RUN, JUDGE, SCORE, COMPARE, GATE, REPORT, SUMMARY = STEPS = (
    *("health", "run", "judge", "score", "compare", "gate", "report", "summary"),
)
INTERRUPTED = 130


@dataclass(frozen=True)
class Plan:
    """What to do. A step that is None, or named in `skip`, is left out."""

    database: Path
    golden: str
    # Without a suite: the runs are named.
    scoring: ScoreOptions
    runs_dir: Path
    # Returns what is wrong with the system, or None. The field is None if the target has no health check.
    check_health: Callable[[], str | None] | None
    # Makes the runs and returns their ids, the first of them being the one that everything else is about.
    make: Callable[[], Sequence[str]]
    # Judges a run and returns the result in one line.
    judge: Callable[[str], str] | None = None
    # The gates of the config file; empty: there are none.
    gates: Mapping[str, Any] = field(default_factory=dict)
    # Why a step is left out.
    skip: Mapping[str, str] = field(default_factory=dict)
    # Files that must not be overwritten.
    never: Sequence[str] = ()
    on_begin: Callable[[str], None] = lambda _: None
    on_step: Callable[[StepResult], None] = lambda _: None


@dataclass
class Evaluation:
    """The results; None where a step produced nothing."""

    runs: Sequence[str]
    steps: list[StepResult] = field(default_factory=list)
    scored: Scored | None = None
    compared: CompareReport | IncomparableError | None = None
    gates: GateReport | None = None
    written: list[Path] = field(default_factory=list)

    @property
    def run_id(self) -> str:
        """The run that was evaluated."""
        return self.runs[0]

    @property
    def code(self) -> int:
        """The exit code of the worst step."""
        return max((step.code or 0 for step in self.steps), default=0)


class UnhealthyError(KbevalError):
    """The system under test is not healthy."""


class _Skip(Exception):  # noqa: N818  (not a mistake)
    """A step has nothing to do; the message says why."""


def evaluate(plan: Plan) -> Evaluation:
    """Make a run and everything that follows from it. Raises the error of a run that could not be made."""
    healthy = _checked(plan)
    plan.on_begin(RUN)
    found = Evaluation(plan.make(), [healthy])
    made = f"run {found.run_id}"
    if len(found.runs) > 1:
        made += f" and {counted(len(found.runs) - 1, 'repetition')}; the steps after scoring are about the first"
    steps = _Steps(plan, found)
    steps.add(StepResult(RUN, 0, made))
    steps.make_all()
    return found


def _checked(plan: Plan) -> StepResult:
    plan.on_begin(HEALTH)
    if plan.check_health is None:
        step = StepResult(HEALTH, None, "this target has no health check")
    else:
        wrong = plan.check_health()
        if wrong is not None:
            msg = f"the target is not healthy: {wrong}; nothing was sent"
            raise UnhealthyError(msg)
        step = StepResult(HEALTH, 0, "the target is healthy")
    plan.on_step(step)
    return step


class _Steps:
    """The steps after the run."""

    def __init__(self, plan: Plan, found: Evaluation) -> None:
        self._plan = plan
        self._found = found
        # The page about the comparison, made while its session was open.
        self._page: str | None = None

    def make_all(self) -> None:
        """Run every step, even if others fail."""
        steps = {JUDGE: self._judge, SCORE: self._score, COMPARE: self._compare, GATE: self._gate}
        for name, task in steps.items():
            self._try(name, task)
        self._try(REPORT, self._report)
        self._try(SUMMARY, self._summarize)

    def add(self, step: StepResult) -> None:
        """Record a step and show it."""
        self._found.steps.append(step)
        self._plan.on_step(step)

    def _try(self, name: str, task: Callable[[], tuple[int, str]]) -> None:
        if name in self._plan.skip:
            self.add(StepResult(name, None, self._plan.skip[name]))
            return
        self._plan.on_begin(name)
        try:
            code, text = task()
        except _Skip as reason:
            self.add(StepResult(name, None, str(reason)))
        except KbevalError as error:
            if error.exit_code == INTERRUPTED:
                raise
            self.add(StepResult(name, error.exit_code, "; ".join([error.headline, *error.details[:3]])))
        else:
            self.add(StepResult(name, code, text))

    def _judge(self) -> tuple[int, str]:
        if self._plan.judge is None:
            msg = "no judge is configured"
            raise _Skip(msg)
        return 0, "; ".join(self._plan.judge(run_id) for run_id in self._found.runs)

    def _score(self) -> tuple[int, str]:
        plan = self._plan
        scored = score_runs(plan.database, plan.golden, self._found.runs, plan.scoring, to_store=True)
        if scored.bad_rows:
            advice = "nothing was stored; repair them, or score the run with --skip-bad-rows:"
            raise BadRowsError([str(row) for row in scored.bad_rows], advice)
        store_scored(scored, db=plan.database)
        self._found.scored = scored
        return 0, f"stored the numbers of {counted(len(scored.aggregates), 'run')}"

    def _before(self) -> Run | None:
        runs = stored_runs(self._plan.database)
        return previous_run(runs, find_run(runs, self._found.run_id, str(self._plan.database)))

    def _options(self) -> CompareOptions:
        return CompareOptions(scoring=self._plan.scoring)

    def _compare(self) -> tuple[int, str]:
        plan, before = self._plan, self._before()
        if before is None:
            msg = "there is no earlier run in the suite"
            raise _Skip(msg)
        try:
            self._page, report = two_runs_page(
                before.run_id, self._found.run_id, db=plan.database, golden=plan.golden, options=self._options()
            )
        except IncomparableError as error:
            self._found.compared = error
            raise
        self._found.compared = report
        self._write("report.md", render_report_md(report))
        return 0, f"{report.run_a} → {report.run_b}: {verdict_sentence(report.whole)}"

    def _gate(self) -> tuple[int, str]:
        plan, table = self._plan, dict(self._plan.gates)
        if not any(table.values()):
            msg = "no gates are configured"
            raise _Skip(msg)
        left_out = ""
        if self._before() is None:
            # The first run has no baseline to compare with.
            relative = [name for name in NEED_BASELINE if table.pop(name, None)]
            table.pop("baseline", None)
            if relative:
                left_out = f"not checked because there is no earlier run: {', '.join(relative)}"
            if not any(table.values()):
                raise _Skip(left_out)
        elif any(table.get(name) for name in NEED_BASELINE):
            table.setdefault("baseline", "previous")
        report = check_gates(self._found.run_id, table, db=plan.database, golden=plan.golden, options=self._options())
        self._found.gates = report
        return 0 if report.passed else 1, "; ".join(filter(None, [gate_sentence(report), left_out]))

    def _report(self) -> tuple[int, str]:
        """Write the comparison as a page or, if there is none, the run alone."""
        plan, page, about = self._plan, self._page, "the comparison"
        if page is None:
            # The step score has already reported rows that cannot be read; here they are failed queries.
            options = OneRunOptions(self._options().scoring, skip_bad_rows=True)
            page, about = (
                one_run_page(self._found.run_id, db=plan.database, golden=plan.golden, options=options),
                "the run",
            )
        self._write("report.html", page)
        return 0, f"wrote {self._found.written[-1]}, about {about}"

    def _summarize(self) -> tuple[int, str]:
        found = self._found
        runs = stored_runs(self._plan.database)
        run = find_run(runs, found.run_id, str(self._plan.database))
        config = config_of(run)
        shown = {
            key: value
            for key, value in sorted(config_fields(config, Hider()).items())
            if not key.startswith("kbeval.") and key != "description"
        }
        scored = found.scored
        description = config.get("description")
        summary = RunSummary(
            run,
            shown,
            None if scored is None else scored.aggregates[found.run_id],
            self._plan.scoring.metrics(),
            before=previous_run(runs, run),
            compared=found.compared,
            gates=found.gates,
            description=description if isinstance(description, str) else None,
            steps=list(found.steps),
            warnings=[] if scored is None else scored.warnings,
        )
        self._write("summary.md", summary_md(summary))
        return 0, f"wrote {', '.join(map(str, found.written))}"

    def _write(self, name: str, text: str) -> None:
        path = run_file(self._plan.runs_dir, self._found.run_id, name, "choose another --run-id")
        write_whole(path, text, never=self._plan.never)
        self._found.written.append(path)
