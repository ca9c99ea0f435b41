"""The README and the pages of docs/: every example is run, every link leads somewhere, everything is documented."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click
import pytest

import kbeval
from kbeval.cli.overview import COMMANDS
from kbeval.engine.relations import FOLDERS, relations
from kbeval.explore.findings import CODES
from kbeval.explore.tables import read_by
from kbeval.explore.views import SHOWN, examples
from kbeval.golden.labels import FIELDS, SPELLINGS
from kbeval.golden.spans import KINDS
from kbeval.metrics.catalogue import CONFIG_FIELDS, catalogue
from kbeval.metrics.names import SHORT_NAMES
from kbeval.scoring.scorer import open_scoring
from kbeval.settings import KEYS
from kbeval.storage.tables import OPTIONAL, REQUIRED
from tests.support.command_reference import all_commands, with_reference
from tests.support.judge_server import JudgeServer
from tests.support.live_server import LiveServer
from tests.support.once import computed_once
from tests.support.pages import PAGES, ROOT, anchors, blocks_in, follow, links, section, without_blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = {path.stem: path.read_text(encoding="utf-8") for path in PAGES if path.parent != ROOT}
MOST_LINES = 150


def test_the_first_screen_is_what_the_demo_really_prints() -> None:
    command = [sys.executable, "-m", "kbeval", "demo"]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert blocks_in(README)[0].text == f"$ kbeval demo\n{result.stdout}"


def test_the_readme_stays_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def test_your_own_data_is_scored_in_five_minutes(tmp_path: Path) -> None:
    assert follow(section(README, "Your data in five minutes"), tmp_path) >= 3


# --- the examples of docs/ -------------------------------------------------------------------------------


@pytest.fixture
def workspace_db(tmp_path: Path, made_demo: Path) -> Path:
    """The pages speak of workspace.db and golden.yaml; here they are the demo's."""
    shutil.copy(made_demo / "kb.db", tmp_path / "workspace.db")
    shutil.copy(made_demo / "golden.yaml", tmp_path / "golden.yaml")
    (tmp_path / "kbeval.toml").write_text('db = "workspace.db"\ngolden = "golden.yaml"\n')
    return tmp_path


def _write_again(folder: Path, query_ids: str) -> None:
    """The rows of these queries again, without their first hits."""
    with closing(sqlite3.connect(folder / "workspace.db")) as connection, connection:
        connection.execute(
            "UPDATE eval_query_results SET result_json = json_remove(result_json, '$.hits_top_k[0]')"
            " WHERE run_id = '2026-03-03-bm25' AND query_id IN (SELECT value FROM json_each(?))",
            [json.dumps(query_ids.split())],
        )


def _next_night(folder: Path) -> None:
    """Rows of one run are written again, and a run is added."""
    _write_again(folder, "g003 g005 g009")
    with closing(sqlite3.connect(folder / "workspace.db")) as connection, connection:
        connection.execute(
            "INSERT INTO eval_runs SELECT '2026-03-05-hybrid', suite, config_snapshot_json, '', NULL,"
            " '2026-03-05T02:10:00Z' FROM eval_runs WHERE run_id = '2026-03-03-bm25'"
        )
        connection.execute(
            "INSERT INTO eval_query_results SELECT '2026-03-05-hybrid', query_id, result_json"
            " FROM eval_query_results WHERE run_id = '2026-03-03-bm25'"
        )


def _correct_a_label(folder: Path) -> None:
    """A label is corrected, and rows of one run are written again."""
    golden = folder / "golden.yaml"
    golden.write_text(golden.read_text().replace("expected_chunk_ids: [l1-d1-03]", "expected_chunk_ids: [l1-d1-02]"))
    _write_again(folder, "g010 g011 g012 g013")


def _add_an_unscored_run(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "workspace.db")) as connection, connection:
        connection.execute("INSERT INTO eval_runs VALUES ('nightly-42', 's', '{}', '', NULL, '2026-01-01')")


# What happens before a reader comes to a section.
BEFORE: dict[tuple[str, str], Callable[[Path], None]] = {
    ("nightly", "Scoring what changed"): _next_night,
    ("nightly", "What would change, and why"): _correct_a_label,
    ("python", "A workspace"): _add_an_unscored_run,
}


# Pages speak of servers of the reader's, at these addresses.
SERVERS: dict[str, tuple[type[LiveServer], str]] = {
    "judging": (JudgeServer, "http://localhost:11434"),
    "targets": (LiveServer, "http://localhost:9000"),
}


# Pages whose commands store nothing: many of them ask about the same runs.
ONLY_ASKING = ("compare", "internals", "sql")


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCS)
def test_every_example_of_a_page_works(name: str, workspace_db: Path) -> None:
    if name in ONLY_ASKING:
        before = (workspace_db / "workspace.db").read_bytes()
        with computed_once():
            _follow_page(name, DOCS[name], workspace_db)
        assert (workspace_db / "workspace.db").read_bytes() == before
        return
    if name not in SERVERS:
        _follow_page(name, DOCS[name], workspace_db)
        return
    kind, address = SERVERS[name]
    with kind() as server:
        _follow_page(name, DOCS[name].replace(address, server.url), workspace_db)


def _follow_page(name: str, page: str, workspace_db: Path) -> None:
    tried = 0
    for (_, title), prepare in ((key, found) for key, found in BEFORE.items() if key[0] == name):
        before, heading, page = page.partition(f"## {title}\n")
        assert heading
        tried += follow(before, workspace_db)
        prepare(workspace_db)
    tried += follow(page, workspace_db)
    assert tried > 0 or name == "glossary"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_block_says_what_it_is(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert all(block.language for block in blocks_in(page))
    assert "```" not in without_blocks(page)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_row_of_a_table_has_all_its_cells(path: Path) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", path.read_text(encoding="utf-8"), re.MULTILINE):
        # A bar within a cell would end it, in code too.
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1, table


def test_the_views_work_as_shown(workspace_db: Path) -> None:
    shown = re.findall(r"^\| `(\w+)` \|.*\| `(SELECT .*)` \|$", section(DOCS["sql"], "Views"), re.MULTILINE)
    assert {name for name, _ in shown} == examples().keys() - {"compare"}
    with open_scoring("workspace.db", "golden.yaml", lazily=True) as scoring:
        for name, sql in shown:
            scoring.session.need(name)
            # The demo finds every label and every chunk at least once, loses nothing, and nothing goes both ways.
            empty = ("coverage", "regressions", "flaky_queries", "never_hit")
            assert bool(scoring.session.rows(sql)) is (name not in empty), sql


def test_the_walk_from_a_row_to_a_number_only_goes_down() -> None:
    steps = re.findall(r"^### \d+\. `(\w+)`$", DOCS["internals"], re.MULTILINE)
    assert len(steps) == 10
    for place, step in enumerate(steps):
        made_from = read_by(step)
        assert not made_from & set(steps[place:]), step
        # The first ones are made from what is stored, and from the golden file.
        if step not in ("results", "hits", "expected_chunks"):
            assert made_from & set(steps[:place]), step


def test_the_layers_are_those_of_the_folders() -> None:
    page = section(DOCS["internals"], "Layers of sql/")
    named = set(re.findall(r"\(\.\./sql/(\w+)\)", page))
    assert named == {path.name for path in (ROOT / "sql").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert set(FOLDERS) <= named
    packages = {path.parent.name for path in (ROOT / "kbeval").glob("*/__init__.py")}
    assert set(re.findall(r"\(\.\./kbeval/(\w+)\)", section(DOCS["internals"], "Layers of the package"))) == packages


# --- links -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PAGES, *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG"))])
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in links(path.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        page = (path.parent / file).resolve() if file else path
        assert page.exists(), target
        if anchor:
            assert anchor in anchors(page.read_text(encoding="utf-8")), target


def test_every_page_is_reached_from_the_readme() -> None:
    assert {f"docs/{name}.md" for name in DOCS} <= {target.partition("#")[0] for target in links(README)}


# --- nothing is left out -----------------------------------------------------------------------------------


def test_the_command_reference_is_up_to_date() -> None:
    assert with_reference(DOCS["commands"]) == DOCS["commands"], "run 'make docs'"


def test_every_command_and_every_option_is_documented() -> None:
    for name in COMMANDS:
        assert f"`kbeval {name}`" in README, name
    for name, command, _ in all_commands():
        shown = section(DOCS["commands"], name)
        for parameter in command.params:
            for option in parameter.opts if isinstance(parameter, click.Option) else ():
                assert option in shown, f"{name} {option}"


def _environment() -> set[str]:
    """The variables that options are read from."""
    return {str(found) for _, command, _ in all_commands() for option in command.params if (found := option.envvar)}


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("data", [*REQUIRED, *(column for columns in REQUIRED.values() for column in columns)]),
        ("data", [*OPTIONAL, *KINDS, *CODES, "kbeval_rows"]),
        ("labels", [*FIELDS, *SPELLINGS]),
        ("metrics", [name for name in CONFIG_FIELDS if name not in ("expression", "summary")]),
        ("sql", [*examples(), *SHOWN]),
        ("commands", [*KEYS, *_environment(), "KBEVAL_DEBUG", "NO_COLOR"]),
        ("python", [name for name in kbeval.__all__ if name != "__version__"]),
    ],
)
def test_every_name_is_documented(page: str, names: list[str]) -> None:
    for name in names:
        assert re.search(rf"`{name}\b", DOCS[page]), name


def test_every_metric_is_documented_with_its_short_name() -> None:
    shown = DOCS["metrics"] + DOCS["other-systems"]
    for metric in catalogue():
        assert f"`{metric.name}`" in shown, metric.name
    for short, long in SHORT_NAMES.items():
        row = next(line for line in shown.splitlines() if line.startswith("|") and f"`{long}`" in line.split(" | ")[0])
        assert f"`{short}" in row, short


def test_every_relation_is_a_link_to_its_own_file() -> None:
    for path in PAGES:
        for target in re.findall(r"\]\([./]*sql/(\w+)/(\w+)\.sql\)", path.read_text(encoding="utf-8")):
            folder, name = target
            assert name in relations() or folder in ("metrics", "schema", "totals", "stored"), target


def test_every_make_target_is_in_its_help() -> None:
    shown = subprocess.run(["make", "-C", ROOT, "help"], check=True, capture_output=True, text=True).stdout
    for target in ("demo", "check", "test", "lint", "format", "type", "bench", "docs", "build", "clean"):
        assert f"make {target} " in shown
