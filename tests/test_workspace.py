"""`open_workspace`: the commands as functions, with the settings of the folder's config file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kbeval
from kbeval.cli import run

FIXTURES = Path(__file__).parents[1] / "fixtures"


def printed(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> object:
    """What a command prints as JSON, run in that folder."""
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run([*arguments, "--format", "json"])
    return json.loads(capsys.readouterr().out)


def test_it_does_what_the_commands_do(own_demo: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    workspace = kbeval.open_workspace(own_demo)
    report = workspace.compare("latest~1", "latest")
    assert report.to_dict() == printed(capsys, own_demo, "compare", "latest~1", "latest")
    gates = {"min": {"hit_at_k.5": 0.95}, "max_drop": {"mrr": 0.01}, "baseline": "previous"}
    gated = workspace.gate("latest", gates)
    options = ("--min", "hit_at_k.5=0.95", "--max-drop", "mrr=0.01", "--baseline", "previous")
    assert gated.to_dict() == printed(capsys, own_demo, "gate", "latest", *options)
    checked = printed(capsys, own_demo, "check")
    assert isinstance(checked, list)
    assert [finding.code for finding in workspace.check()] == [finding["code"] for finding in checked]
    names = ["2026-03-01-baseline", "2026-03-02-words", "2026-03-03-bm25", "2026-03-04-rechunked"]
    assert [one.run_id for one in workspace.runs()] == names
    assert workspace.history("mrr", last=2).to_dict() == printed(capsys, own_demo, "history", "mrr", "--last", "2")
    assert workspace.recompute().movements == []
    assert workspace.archive(tmp_path / "archive").written == [one.run_id for one in workspace.runs()]
    with workspace.explore() as explorer:
        assert explorer.query("SELECT COUNT(*) FROM runs").rows() == [(4,)]


def test_scoring_stores_what_changed_and_nothing_else(own_demo: Path) -> None:
    workspace = kbeval.open_workspace(own_demo)
    before = [one.aggregate_json for one in workspace.runs()]
    by_span = kbeval.open_workspace(own_demo, match="span")
    by_span.score(store=False)
    workspace.score()
    assert [one.aggregate_json for one in workspace.runs()] == before
    by_span.score("latest")
    assert [one.scored_with("match") for one in workspace.runs()] == ["auto", "auto", "auto", "span"]
    workspace.score()
    assert [one.aggregate_json for one in workspace.runs()] == before


def test_the_config_file_says_how(own_demo: Path) -> None:
    with (own_demo / "kbeval.toml").open("a") as file:
        file.write('\n[metrics]\nwords = "MAX(rank)"\n[gates]\nmin = { mrr = 0.99 }\n')
    workspace = kbeval.open_workspace(own_demo)
    assert "words" in {metric.name for metric in workspace.options.metrics()}
    assert not workspace.gate("latest").passed
    assert kbeval.open_workspace(own_demo, cache="off").options.cache == "off"


def test_runs_of_other_systems_are_imported(tmp_path: Path) -> None:
    workspace = kbeval.open_workspace(
        tmp_path, db=tmp_path / "new.db", golden=FIXTURES / "anchors" / "golden.yaml", match="auto"
    )
    folder = FIXTURES / "anchors" / "2026-03-05-hybrid"
    assert workspace.import_anchors(folder) == {"2026-03-05-hybrid": "imported"}
    assert workspace.import_anchors(folder) == {"2026-03-05-hybrid": "unchanged"}
    assert workspace.import_traces(FIXTURES / "grounded" / "trace.jsonl", "traces") == {"traces": "imported"}
    scored = workspace.score("2026-03-05-hybrid")
    assert scored.aggregates["2026-03-05-hybrid"].value("support_mrr") is not None


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(kbeval.KbevalError, match="no database given: pass db="):
        kbeval.open_workspace(tmp_path)
    with pytest.raises(kbeval.KbevalError, match="no golden file given: pass golden="):
        kbeval.open_workspace(tmp_path, db="some.db").compare("a", "b")


@pytest.mark.parametrize("ks", [[0], [-1], [2.5], ["x"], 5, "5"])
def test_a_k_is_a_whole_number_from_1_on(ks: object) -> None:
    with pytest.raises(kbeval.KbevalError, match=r"extra_ks is .*; it must be a list of integers"):
        kbeval.ScoreOptions(extra_ks=ks)  # type: ignore[arg-type]


def test_one_name_is_one_run_and_no_secret_is_shown(own_demo: Path) -> None:
    scored = kbeval.score_runs(own_demo / "kb.db", own_demo / "golden.yaml", "latest")
    assert list(scored.aggregates) == ["2026-03-04-rechunked"]
    assert "config_json" not in repr(scored)


def test_an_explorer_that_was_closed_says_so(own_demo: Path) -> None:
    with kbeval.open_explorer(own_demo / "kb.db") as explorer:
        pass
    with pytest.raises(kbeval.KbevalError, match="this explorer is closed"):
        explorer.query("SELECT 1")
