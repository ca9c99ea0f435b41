"""An archive in place of a database: every command that reads prints the same bytes, and nothing of it is changed."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pexpect
import pytest

from kbeval.cli import run
from kbeval.cli.prompt import FIRST
from kbeval.explore.explorer import open_explorer
from kbeval.explore.tables import tables
from kbeval.golden import load_golden
from kbeval.scoring.options import ScoreOptions
from kbeval.storage.archive_writer import archive_runs
from kbeval.storage.source import open_source
from tests.support.archives import FIXTURES, Pair, Said, contents, rewrite_parts, said
from tests.support.examples import THOROUGH
from tests.support.workspace import without_privileges

WORDS, BM25, RECHUNKED, NEW = "2026-03-02-words", "2026-03-03-bm25", "2026-03-04-rechunked", "2026-03-05-new"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, made_demo: Path) -> Pair:
    """Three scored runs of two chunkers, and one that is new and has a row that cannot be read."""
    folder = shutil.copytree(made_demo, tmp_path_factory.mktemp("demo") / "demo")
    (folder / "kbeval.toml").unlink()
    (folder / "metrics").mkdir()
    (folder / "metrics" / "deepest.sql").write_text("-- deepest: the deepest hit\nMAX(rank)\n", encoding="utf-8")
    duplicate_run(folder / "kb.db", BM25, NEW)
    return Pair(folder / "kb.db", folder / "golden.yaml")


def duplicate_run(database: Path, old: str, new: str) -> None:
    """The rows of a run once more, one of them broken; it has not been scored."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "INSERT INTO eval_runs SELECT ?, suite, config_snapshot_json, '', commit_hash, '2026-03-05T02:10:00Z'"
            " FROM eval_runs WHERE run_id = ?",
            (new, old),
        )
        connection.execute(
            "INSERT INTO eval_query_results SELECT ?, query_id, CASE query_id WHEN 'g003' THEN '[' ELSE result_json END"
            " FROM eval_query_results WHERE run_id = ?",
            (new, old),
        )


@pytest.fixture(scope="module")
def known() -> dict[str, Said]:
    """What was asked of the database of `demo`, which nothing changes, is not asked again."""
    return {}


def of_the_database(known: dict[str, Said], demo: Pair, capfd: pytest.CaptureFixture[str], command: str) -> Said:
    if command not in known:
        known[command] = said(capfd, demo.database, *filled(demo, command))
    return known[command]


@pytest.fixture
def own(demo: Pair, tmp_path: Path) -> Pair:
    """A copy, for tests that write."""
    shutil.copytree(demo.database.parent, tmp_path / "own")
    found = Pair.__new__(Pair)
    found.database, found.golden, found.archive = (tmp_path / "own" / n for n in ("kb.db", "golden.yaml", "history"))
    return found


SCORE = "score --all --dry-run --force"
COMMANDS = [
    f"{SCORE} --golden GOLDEN --format json --skip-bad-rows --by category --missing zero",
    f"{SCORE} --golden GOLDEN --format csv --match span --min-overlap 0.3 --overlap-of union",
    f"{SCORE} --golden GOLDEN --format json --match span --k 2,7 --metrics METRICS",
    f"score {NEW} --dry-run --golden GOLDEN",
    "score --all --dry-run --golden GOLDEN --skip-bad-rows --format md",
    f"compare {WORDS} {BM25} --golden GOLDEN --format csv",
    f"compare {BM25} {RECHUNKED} --golden GOLDEN --format json --slices category",
    f"compare {BM25} {RECHUNKED} --golden GOLDEN --strict-chunker-version",
    f"compare {WORDS} {NEW} --golden GOLDEN",
    "runs",
    "runs --format json",
    f"show {BM25}",
    f"show {NEW} --golden GOLDEN --format json",
    f"show {BM25} --golden GOLDEN --worst 5 --metric mrr",
    f"show {BM25} --golden GOLDEN --query g001 --format json",
    f"show {NEW} --golden GOLDEN --query g003",
    "show nothing-like-it",
    "check --golden GOLDEN",
    f"check {RECHUNKED} --golden GOLDEN --format json",
    f"gate {BM25} --golden GOLDEN --min hit@5=0.8 --max empty_result_rate=0.01",
    f"gate {RECHUNKED} --golden GOLDEN --baseline {BM25} --max-drop mrr=0.02 --no-regressions --format junit",
    "history mrr hit@5",
    "history mrr --by retriever --format json",
    "recompute --golden RELABELLED --explain --match span",
    "sql --golden GOLDEN --format json -f COMPARE",
]
# What they add is another form of what the commands above say, or fewer steps of the same scoring.
COMMANDS += (
    [
        f"{SCORE} --golden GOLDEN",
        f"compare {WORDS} {BM25} --golden GOLDEN",
        f"compare {BM25} {RECHUNKED} --golden GOLDEN --format md",
        "recompute --golden GOLDEN --explain",
        "recompute --golden RELABELLED --explain --format json",
    ]
    if THOROUGH
    else []
)
QUESTIONS = {
    "COMPARE": f"SELECT query_id, kind, note FROM compare('{BM25}', '{RECHUNKED}') ORDER BY 1",
}


def filled(pair: Pair, command: str) -> list[str]:
    """The command with the names of files in it."""
    folder = pair.database.parent
    relabelled = folder / "relabelled.yaml"
    text = (folder / "golden.yaml").read_text(encoding="utf-8")
    relabelled.write_text(text.replace("l1-d1-01", "l1-d1-02"), encoding="utf-8")
    names = {"GOLDEN": folder / "golden.yaml", "RELABELLED": relabelled, "METRICS": folder / "metrics"}
    for name, question in QUESTIONS.items():
        names[name] = folder / f"{name}.sql"
        names[name].write_text(question, encoding="utf-8")
    return [str(names.get(word, word)) for word in command.split()]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_the_same_of_an_archive(
    demo: Pair, known: dict[str, Said], command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = contents(demo.archive)
    of_database = of_the_database(known, demo, capfd, command)
    of_archive = said(capfd, demo.archive, *filled(demo, command))
    assert of_archive == of_database
    assert of_database[1] or of_database[2]
    assert "internal error" not in of_database[2]
    assert contents(demo.archive) == before


def test_changed_labels_are_distinguished_from_other_causes(demo: Pair, capfd: pytest.CaptureFixture[str]) -> None:
    """Which takes the labels that the numbers were made with: the archive has brought them along."""
    for form in ("json", "table"):
        command = f"recompute --golden RELABELLED --explain --format {form}"
        assert "labels changed" in said(capfd, demo.archive, *filled(demo, command))[1], form


def test_every_relation_holds_the_same_rows(demo: Pair) -> None:
    assert demo.golden is not None
    of_database, of_archive = (relations_of(database, demo.golden) for database in (demo.database, demo.archive))
    assert of_archive == of_database
    assert sum(map(bool, of_database.values())) > 40


def relations_of(database: Path, golden: Path) -> dict[str, list[Any]]:
    # Every reader numbers the rows again.
    sql = "SELECT COLUMNS(lambda c: NOT contains(c, 'result_no')) FROM {} ORDER BY ALL"
    numbered_in_text = {"span_sets", "span_pieces"}
    with open_explorer(database, golden) as explorer:
        return {name: explorer.query(sql.format(name)).rows() for name in sorted(tables().keys() - numbered_in_text)}


def test_without_a_golden_file_the_archives_own_labels_count(
    demo: Pair, known: dict[str, Said], capfd: pytest.CaptureFixture[str]
) -> None:
    asked = [
        f"{SCORE} --golden GOLDEN --format json --skip-bad-rows --by category --missing zero",
        f"compare {BM25} {RECHUNKED} --golden GOLDEN --format json --slices category",
        "check --golden GOLDEN",
        f"show {NEW} --golden GOLDEN --format json",
        "sql --golden GOLDEN --format json -f COMPARE",
    ]
    assert set(asked) <= set(COMMANDS)
    for command in asked:
        labelled = of_the_database(known, demo, capfd, command)
        found = said(capfd, demo.archive, *filled(demo, command.replace(" --golden GOLDEN", "")))
        assert found[:2] == labelled[:2], command


def test_labels_come_back_as_they_were(tmp_path: Path, demo: Pair) -> None:
    for number, golden in enumerate(sorted([*FIXTURES.rglob("golden*.yaml"), FIXTURES / "grounded" / "gold.jsonl"])):
        place = tmp_path / str(number)
        before = load_golden(golden)
        archive_runs(demo.database, place, before)
        (file,) = place.glob("golden-*.parquet")
        after = load_golden(file)
        assert list(after.entries) == list(before.entries)
        assert after.hash == before.hash


def test_a_golden_file_that_is_named_comes_before_the_archives_own(
    demo: Pair, capfd: pytest.CaptureFixture[str]
) -> None:
    own = said(capfd, demo.archive, *filled(demo, f"score {WORDS} --dry-run --format json"))
    other = said(capfd, demo.archive, *filled(demo, f"score {WORDS} --dry-run --format json --golden RELABELLED"))
    assert own[0] == other[0] == 0
    assert own[1] != other[1]


def test_the_prompt_answers_from_an_archive(demo: Pair) -> None:
    arguments = ["-m", "kbeval", "sql", "--db", str(demo.archive)]
    process = pexpect.spawn(sys.executable, arguments, encoding="utf-8", timeout=30, dimensions=(50, 200))
    try:
        process.expect_exact(FIRST)
        process.send("SELECT run_id, COUNT(*) AS n FROM hits JOIN results USING (result_no) GROUP BY 1 ORDER BY 1;\r")
        process.expect_exact(FIRST)
        assert WORDS in process.before
        process.send("\x04")
        process.expect(pexpect.EOF)
    finally:
        process.close(force=True)


# --- what is stored ---------------------------------------------------------------------------------


def test_scores_are_stored_next_to_an_archive_and_nothing_in_it_changes(
    own: Pair, capfd: pytest.CaptureFixture[str]
) -> None:
    before = contents(own.archive)
    score = filled(own, "score --all --force --skip-bad-rows --match span --golden GOLDEN")
    of_database, of_archive = own.ask_both(capfd, *score)
    assert of_archive == of_database
    after = contents(own.archive)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"scores.json"}
    # And everything that reads numbers reads these.
    for command in ("runs --format json", f"show {NEW} --format json", "history mrr", "recompute --golden RELABELLED"):
        of_database, of_archive = own.ask_both(
            capfd, *filled(own, command), *(["--match", "span"] * ("rec" in command))
        )
        assert of_archive == of_database
    stored = "SELECT run_id, aggregate_json FROM runs ORDER BY 1"
    of_database, of_archive = own.ask_both(capfd, "sql", stored, "--format", "json")
    assert of_archive == of_database


def test_what_scoring_sees_of_chunks_and_labels_is_kept_next_to_an_archive_too(
    own: Pair, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(own.database)) as connection, connection:
        connection.executescript("DROP TABLE kbeval_chunk_spans; DROP TABLE kbeval_golden")
    own.bring_up_to_date()
    own.ask_both(capfd, *filled(own, "score --all --force --skip-bad-rows --golden GOLDEN"))
    for command in (
        "sql 'SELECT * EXCLUDE (first_seen) FROM kept_chunks ORDER BY ALL' --format json",
        "recompute --golden RELABELLED --explain --format json",
    ):
        words = command.split("'")
        arguments = [*words[0].split(), words[1], *words[2].split()] if len(words) > 1 else filled(own, command)
        of_database, of_archive = own.ask_both(capfd, *arguments)
        assert of_archive == of_database
        assert len(of_database[1]) > 100
    # The knowledge base is indexed again, and archived: old labels keep their meaning.
    with closing(sqlite3.connect(own.database)) as connection, connection:
        connection.executescript("DELETE FROM chunks; DELETE FROM kbeval_chunk_spans")
    own.bring_up_to_date()
    with closing(sqlite3.connect(own.database)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM kbeval_chunk_spans").fetchone() == (0,)
    ((code, out, _), *_) = [
        said(capfd, own.archive, "sql", "SELECT COUNT(*) AS n FROM kept_chunks", "--format", "json")
    ]
    assert code == 0
    assert json.loads(out)[0]["n"] > 20


def test_numbers_next_to_an_archive_count_until_newer_ones_are_archived(
    own: Pair, capfd: pytest.CaptureFixture[str]
) -> None:
    score = filled(own, f"score {WORDS} --golden RELABELLED")
    assert said(capfd, own.archive, *score)[0] == 0
    relabelled = said(capfd, own.archive, "show", WORDS, "--format", "json")
    own.bring_up_to_date()
    assert said(capfd, own.archive, "show", WORDS, "--format", "json") == relabelled
    assert said(capfd, own.database, *score, "--match", "span")[0] == 0
    own.bring_up_to_date()
    of_database, of_archive = own.ask_both(capfd, "show", WORDS, "--format", "json")
    assert of_archive == of_database != relabelled


def test_two_who_score_an_archive_at_once_do_not_forget_each_other(own: Pair) -> None:
    base = [sys.executable, "-m", "kbeval", "score"]
    ending = ["--db", str(own.archive), "--golden", str(own.golden), "--match", "span"]
    both = [subprocess.Popen([*base, name, *ending], stdout=subprocess.DEVNULL) for name in (WORDS, BM25)]
    assert [process.wait() for process in both] == [0, 0]
    assert {WORDS, BM25} <= json.loads((own.archive / "scores.json").read_text())["runs"].keys()


@pytest.mark.parametrize("text", ["", "[", "[]", '{"runs": {"x": 1}}', '{"runs": {}}'])
def test_broken_scores_are_named_and_not_passed_over(own: Pair, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    (own.archive / "scores.json").write_text(text)
    code, out, err = said(capfd, own.archive, "runs")
    assert (code, out) == (2, "")
    assert "scores.json cannot be read; delete it and score again" in err


def test_a_read_only_archive_can_be_read_and_nothing_is_half_stored(own: Pair) -> None:
    base = [sys.executable, "-m", "kbeval", "score", "--all", "--force", "--skip-bad-rows", "--db", str(own.archive)]
    paths = [own.archive, *own.archive.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        looked, stored = (
            subprocess.run(without_privileges(*base, *more), capture_output=True, text=True, check=False)
            for more in (["--dry-run"], [])
        )
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert looked.returncode == 0
    assert BM25 in looked.stdout
    assert stored.returncode == 2
    assert "scores.json cannot be written: Permission denied" in stored.stderr
    assert len(stored.stderr.splitlines()) == 1
    assert not (own.archive / "scores.json").exists()


def test_a_report_is_written_next_to_an_archive_and_never_into_it(
    own: Pair, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = contents(own.archive)
    reports = {}
    for database, place in ((own.database, own.database.parent), (own.archive, own.archive), (Path(), own.archive)):
        monkeypatch.chdir(place)
        arguments = [*filled(own, f"compare {BM25} {RECHUNKED} --golden GOLDEN"), "--db", str(database), "--report"]
        assert run(arguments) == 0
        report = own.archive.parent / "runs" / RECHUNKED / "report.md"
        reports[str(database)] = report.read_bytes()
        report.unlink()
    assert len(set(reports.values())) == 1
    inside = own.archive / "manifest.json"
    sql = ["sql", "SELECT 1", "--db", str(own.archive), "-o", str(inside), "--format", "json"]
    assert run(sql) == 2
    assert "choose another file" in capfd.readouterr().err
    assert contents(own.archive) == before


def test_nothing_is_imported_into_an_archive(own: Pair, capfd: pytest.CaptureFixture[str]) -> None:
    before = contents(own.archive)
    folder = str(FIXTURES / "anchors" / "2026-03-05-hybrid")
    assert said(capfd, own.archive, "import", "anchors", folder) == (
        2,
        "",
        "kbeval: DB is a read-only archive; use the SQLite database instead\n",
    )
    assert said(capfd, own.archive, "archive", str(own.archive.parent / "again"))[0] == 2
    assert contents(own.archive) == before


def test_export_duckdb_writes_the_same_tables(own: Pair, capfd: pytest.CaptureFixture[str]) -> None:
    files = []
    for name, database in (("a", own.database), ("b", own.archive)):
        files.append(own.archive.parent / f"{name}.duckdb")
        code, _, err = said(capfd, database, "export", "duckdb", str(files[-1]), "--golden", str(own.golden))
        assert (code, "should not" in err) == (0, False)
    of_database, of_archive = (exported(file) for file in files)
    assert of_archive == of_database
    assert len(of_database) > 20


def exported(file: Path) -> dict[str, list[Any]]:
    with duckdb.connect(str(file), read_only=True) as connection:
        names = [name for (name,) in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()]
        sql = "SELECT COLUMNS(lambda c: NOT contains(c, 'result_no')) FROM {} ORDER BY ALL"
        return {name: connection.execute(sql.format(name)).fetchall() for name in sorted(names)}


def test_rows_are_parsed_where_an_older_version_archived_them(
    own: Pair, demo: Pair, known: dict[str, Said], capfd: pytest.CaptureFixture[str]
) -> None:
    """Its facts mean something else, its rows are rows."""
    rewrite_parts(own.archive, lambda part: part.update(definitions="another"))
    steps: list[str] = []
    assert own.golden is not None
    with open_source(own.archive, ScoreOptions(on_step=steps.append)) as (session, source):
        source.feed(session, [run.run_id for run in source.runs()])
        session.need("hits")
    assert "building parsed" in steps
    for command in COMMANDS[:3]:
        assert said(capfd, own.archive, *filled(own, command)) == of_the_database(known, demo, capfd, command)
