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
# For NumPy's library, which is not loaded yet: its threads would spin while the other tests need the processors.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

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
    "cli": "demo hints init cli_compare cli_explain cli_history cli_nightly cli_sql show_query sql_prompt",
    "compare": "compare gates",
    "database": "host_program never_opened process",
    "engine": "second_engine",
    "explore": "checks explain explore pool_against_oracle sql_safety unmet_labels views views_against_oracle",
    "live": "at_a_terminal https_and_proxies judged_hits judging label_answers label_files label_page label_people"
    " label_terminal labelling limits pipeline run secrets targets",
    "metrics": "plain_expressions",
    "frames": "evaluate_against_peers",
    "report": "evidence in_a_browser pages what_is_in_it",
    "scoring": "classics doubts how_runs_are_scored judged_numbers kinds_of_position matching_against_oracle"
    " matching_by_spans numbers_shown own_fields real_rows rechunking_experiment recompute rescoring"
    " rescoring_any_history shards engine_elsewhere",
    "storage": "archive_damage archive_of_others archive_source archiving columnar_cache columnar_cache_broken"
    " columnar_cache_together kept_chunk_spans keys one_rule_for_json snapshots sources stamps",
    "systems": "importers other_systems traces",
    "tests": "workspace",
    "util": "written_files",
}
# Tests of other modules that take seconds: it leaves them out, too.
LONG_TESTS = {
    "cli.cli": "ctrl_c_exits_with_130_and_stores_nothing no_id_from_the_data_reaches_the_terminal_raw"
    " no_noise_from_the_engine_on_any_error output_that_cannot_be_written_is_reported"
    " show_recomputes_when_labels_or_definitions_are_named check_exits_with_one_when_it_finds_something",
    "frames.evaluate": "every_kind_of_input_gives_the_same_numbers",
    "golden.editing": "yaml_only_the_changed_entry_changes",
    "golden.golden": "ten_thousand_entries_of_yaml_load_in_about_a_second",
    "live.sending": "passing_faults_are_tried_again",
    "metrics.definitions": "it_changes_with_every_file_that_decides_a_number",
    "metrics.names": "the_column_of_refusals_is_one_number_everywhere",
    "render.runner_commands": "junit_is_xml_for_every_code_point annotations_of_every_code_point_are_one_line_each",
    "scoring.exact_sums": "sums_are_those_of_exact_fractions",
    "scoring.regions": "pieces_cover_what_the_regions_cover_and_nothing_twice"
    " regions_that_are_too_tangled_have_no_pieces",
    "scoring.scoring_against_oracle": "kbeval_and_the_oracle_agree_to_the_last_digit"
    " many_rows_give_the_same_bytes_in_any_order_and_with_any_number_of_threads",
    "storage.store": "a_database_in_wal_mode_that_is_being_written_is_read_as_of_one_moment",
    "storage.suites": "gates_compare_a_run_with_the_one_before_in_its_suite a_suite_may_be_named_wherever_runs_are",
    "systems.fast_table": "both_ways_store_the_same_bytes",
    "systems.trec": "compare_of_evaluate_is_kbeval_compare",
    "util.secrets": "an_archive_compares_as_the_database_does numbers_in_an_archive_stay_when_runs_come_and_go",
}
# Quick tests of those modules, which stay: without them it would have nothing of some packages.
QUICK_TESTS = {
    "compare.compare": "the_numbers_of_an_exact_comparison_are_those_that_score_stores"
    " queries_of_one_group_count_as_one",
    "compare.gates": "a_gate_passes_or_fails_and_says_why a_gate_that_makes_no_sense_is_a_usage_error"
    " not_worse_fails_where_the_comparison_says_so",
    "database.process": "rows_arrive_as_they_are a_statement_that_fails_says_why_through_the_engine"
    " no_descriptor_of_the_program_reaches_it any_name_in_any_locale",
    "explore.sql_safety": "a_comparison_without_labels_is_refused a_query_without_an_end_is_refused"
    " nothing_is_written_into_the_columnar_copy_or_over_the_settings values_that_python_cannot_hold_are_one_line"
    " no_control_sequence_is_printed running_out_of_memory_is_one_line",
    "live.run": "a_missing_placeholder_is_found_before_anything_is_sent retrieval_only_stores_no_answers",
    "report.evidence": "texts_are_put_together",
    "scoring.matching_by_spans": "half_of_the_smaller_side_makes_a_match"
    " the_same_place_in_another_document_is_another_place",
    "report.what_is_in_it": "two_runs_say_what_compare_and_show_say differences_of_words"
    " texts_are_held_once_and_marks_stay_where_they_belong invalid_requests_are_one_line_errors",
}


def place_of(path: Path) -> tuple[str, str]:
    """The package and the module of a test."""
    return path.parent.name, path.stem.removeprefix("test_")


def is_long(path: Path) -> bool:
    package, module = place_of(path)
    return package in ("attacks", "stress") or module in LONG.get(package, "").split()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what `make check` leaves out as a whole."""
    is_left_out = is_long(collection_path) and ".".join(place_of(collection_path)) not in QUICK_TESTS
    return True if config.option.markexpr == "not slow" and is_left_out else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        place, name = ".".join(place_of(item.path)), item.name.partition("[")[0].removeprefix("test_")
        is_left_out = name not in QUICK_TESTS.get(place, "").split() if is_long(item.path) else False
        if is_left_out or name in LONG_TESTS.get(place, "").split():
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Some tests wait for servers and deadlines: with half as many workers again no processor is idle."""
    return (os.cpu_count() or 1) * 3 // 2


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
