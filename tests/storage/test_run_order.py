"""One order of runs everywhere: views, history, `latest` and the list of runs agree on which came before which."""

from __future__ import annotations

import random

import pytest

from kbeval.errors import UsageError
from kbeval.explore.explorer import open_explorer
from kbeval.explore.history import metric_history
from kbeval.storage.runs import find_run
from kbeval.storage.source import stored_runs
from tests.cli.test_cli import call
from tests.support.workspace import Workspace

# Sorted as text, the order would be different.
MOMENTS = {
    "undated": "yesterday",
    "epoch": "1772000000",
    "plain": "2026-03-01 10:00:00",
    "offset": "2026-03-01T13:00:00+02:00",
    "zulu": "2026-03-01T12:00:00Z",
    "zulu-again": "20260301T120000Z",
    "west": "2026-03-01T07:30-05:00",
}


def test_runs_have_one_order_everywhere(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    names = list(MOMENTS)
    random.Random(4).shuffle(names)
    for name in names:
        workspace.add_run(name, {}, created_at=MOMENTS[name])
        workspace.execute("UPDATE eval_runs SET aggregate_json = '{\"mrr\": 0.5}' WHERE run_id = ?", (name,))
    # For two runs of the same time, the text decides.
    expected = ["undated", "epoch", "plain", "offset", "zulu", "zulu-again", "west"]
    expected[4:6] = sorted(expected[4:6], key=lambda name: MOMENTS[name])
    assert [run.run_id for run in stored_runs(workspace.db)] == expected
    with pytest.raises(UsageError, match="created_at of run undated"):
        find_run(stored_runs(workspace.db), "latest", "kb.db")
    (series,) = metric_history("mrr", db=workspace.db).series
    assert [point.run_id for point in series.points] == expected
    with open_explorer(workspace.db) as explorer:
        assert [row[0] for row in explorer.query("SELECT run_id FROM run_order ORDER BY run_no").rows()] == expected
        before = dict(explorer.query("SELECT run_id, previous_run_id FROM metric_trend WHERE metric = 'mrr'").rows())
    assert before == dict(zip(expected, [None, *expected], strict=False))
    assert call(capsys, "archive", "old", "--db", str(workspace.db))[0] == 0
    assert [run.run_id for run in stored_runs("old")] == expected
