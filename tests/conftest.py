from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from kbeval.cli import run
from kbeval.database.process import SPARE
from tests.support.archives import fill
from tests.support.workspace import Workspace

# For the processes that tests start: with it, each would compile all of kbeval again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same examples each time, so that a failure is caused by the change; `thorough` looks for new ones.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# Modules that score dozens of workspaces, start processes or wait. `make check` leaves them out, as it does all of
# attacks/ and stress/.
LONG = {
    "cli": "demo init cli_compare cli_explain cli_history cli_nightly cli_sql show_query sql_prompt",
    "compare": "compare gates",
    "database": "host_program never_opened process",
    "engine": "second_engine",
    "explore": "checks explain explore pool_against_oracle sql_safety unmet_labels views views_against_oracle",
    "live": "at_a_terminal https_and_proxies judged_hits judging label_answers label_files label_page label_people"
    " label_terminal labelling limits pipeline run secrets targets",
    "metrics": "plain_expressions",
    "frames": "evaluate_against_peers",
    "report": "evidence in_a_browser pages what_is_in_it",
    "scoring": "classics doubts how_runs_are_scored judged_numbers matching_against_oracle numbers_shown own_fields"
    " real_rows"
    " rechunking_experiment recompute rescoring rescoring_any_history shards engine_elsewhere",
    "storage": "archive_damage archive_of_others archive_source archiving columnar_cache columnar_cache_broken"
    " columnar_cache_together kept_chunk_spans keys one_rule_for_json snapshots sources stamps",
    "systems": "importers other_systems traces",
    "tests": "workspace",
    "util": "written_files",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        package, module = item.path.parent.name, item.path.stem.removeprefix("test_")
        if package in ("attacks", "stress") or module in LONG.get(package, "").split():
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="session")
def _one_process_for_all() -> Iterator[None]:
    """As at the command line: the process that opens databases is kept for the next one."""
    SPARE.prepare()
    yield
    SPARE.end()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The developer's own settings do not affect tests."""
    for name in ("KBEVAL_DB", "KBEVAL_GOLDEN", "KBEVAL_THREADS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def made_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `kbeval demo` creates, made once; read-only."""
    folder = tmp_path_factory.mktemp("made") / "demo"
    assert run(["demo", str(folder)]) == 0
    return folder


@pytest.fixture
def own_demo(made_demo: Path, tmp_path: Path) -> Path:
    """A copy of it in the folder of the test."""
    return shutil.copytree(made_demo, tmp_path / "demo")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def stored(workspace: Workspace) -> Workspace:
    """Two runs, labels, and a knowledge base."""
    return fill(workspace)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where an archive goes."""
    return tmp_path / "history"
