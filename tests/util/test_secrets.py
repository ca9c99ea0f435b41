"""Secrets in configurations: hidden in every output, and ordinary settings shown."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kbeval.cli import cli, run
from kbeval.errors import UsageError
from kbeval.scoring.provenance import of_run
from kbeval.storage.archive_writer import archive_runs
from kbeval.storage.run_config import config_diff, kept_config
from kbeval.systems import ImportedRun
from kbeval.util.hiding import Hider, hide_known, without_secrets
from kbeval.util.secrets import secret_parts
from tests.support.once import computed_once
from tests.support.secret_corpus import CANARY, ORDINARY, SECRETS, TRACES
from tests.support.workspace import Workspace, hits


def shows(text: str) -> bool:
    return any(trace in text for trace in TRACES) or "712233445566" in text.replace(",", "")


@pytest.mark.parametrize("config", SECRETS, ids=lambda config: json.dumps(config)[:60])
def test_a_secret_is_hidden(config: dict[str, Any]) -> None:
    found = without_secrets({"settings": config})
    assert not shows(json.dumps(found, ensure_ascii=False))
    assert "(hidden 1)" in json.dumps(found)
    # Within a list, and as text of a program that wrote JSON into JSON.
    assert not shows(json.dumps(without_secrets({"list": [config]})))
    # Hiding twice is hiding once.
    assert without_secrets(found) == found


def test_the_corpus_is_large_enough() -> None:
    assert len(SECRETS) >= 60
    assert len(ORDINARY) >= 60


def test_ordinary_settings_are_shown() -> None:
    false_alarms = [config for config in ORDINARY if without_secrets(config) != config]
    assert false_alarms == []


def test_two_secrets_are_distinguished_without_showing_either() -> None:
    a = {"api_key": f"a{CANARY}", "same": {"token": CANARY}, "url": f"https://me:{CANARY}@host"}
    b = {"api_key": f"b{CANARY}", "same": {"token": CANARY}, "url": f"https://me:x{CANARY}@host"}
    found = config_diff(a, b)
    assert [one.key for one in found] == ["api_key", "url"]
    assert all(one.a != one.b for one in found)
    assert not shows(str(found))


def test_numbers_are_the_same_within_one_output() -> None:
    hider = Hider()
    first, second, third = (hider.hide({"token": text}) for text in ("one-secret", "another-secret", "one-secret"))
    assert (first, second, third) == ({"token": "(hidden 1)"}, {"token": "(hidden 2)"}, {"token": "(hidden 1)"})


def test_digests_do_not_depend_on_secrets_so_that_guesses_cannot_be_tested() -> None:
    texts = [json.dumps({"llm": {"api_key": secret}, "k": 5}) for secret in ("hunter2", "hunter3")]
    assert of_run("rows", texts[0]) == of_run("rows", texts[1])
    assert of_run("rows", texts[0]) != of_run("rows", json.dumps({"llm": {"api_key": "hunter2"}, "k": 6}))
    imported = [ImportedRun("r", "s", "anchors", json.loads(text), [], "") for text in texts]
    assert imported[0].hash == imported[1].hash


def test_a_configuration_without_secrets_is_kept_unchanged() -> None:
    text = '{"k":5,  "note" : "1e400"}'
    assert kept_config(text) == text


@pytest.mark.parametrize(
    "text",
    [
        f'{{"api_key": "{CANARY}", ',
        f"OPENAI_API_KEY={CANARY}",
        f'["https://me:{CANARY}@host"]',
        # Cut off within the value.
        *(f'{{"api_key": "{CANARY}{end}' for end in ("", "\n", "\\", ", and more")),
        f"{{'api_key': '{CANARY}",
        f'API_KEY="{CANARY}',
        f'{{"api_key": {{"first": "{CANARY}',
        f'{{"api_key": ["{CANARY}", "{CANARY}"',
        f'{{"api_key": {{"a": [["{CANARY}"], "{CANARY}"], "b": "{CANARY}"}}, ',
    ],
)
def test_a_configuration_that_cannot_be_read_is_kept_without_secrets_too(text: str) -> None:
    kept = kept_config(text)
    assert not shows(kept)
    assert kept_config(kept) == kept


@pytest.mark.parametrize(
    "text", ['{"note": "the api_key is', '{"temperature": "warm', '{"tokens": [1, 2', '{"a": {"b": "c']
)
def test_a_configuration_that_was_cut_off_elsewhere_is_kept_unchanged(text: str) -> None:
    assert kept_config(text) == text


@pytest.mark.parametrize(
    "piece",
    [
        "a://a:",
        "a=' ",
        'a="',
        "Bearer ",
        "k:  ",
        " " * 9 + "x",
        "eyJ.eyJ",
        '"key": [',
        '"key": {[',
        '"key": [[]',
        "-----BEGIN PRIVATE KEY-----",
        "?a=&",
    ],
)
def test_no_text_takes_long_to_look_through(piece: str) -> None:
    started = time.process_time()
    secret_parts((piece * 1_000_000)[:1_000_000])
    assert time.process_time() - started < 10


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(["(hidden 7)", f"sk-test-{CANARY}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=8) | st.sampled_from(["token", "auth", "name", "value", "key"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(_JSON)
def test_hiding_keeps_the_shape_and_is_settled_at_once(value: Any) -> None:
    found = Hider().hide(value)
    assert Hider().hide(found) == found
    assert CANARY not in json.dumps(found)
    assert json.dumps(value).count("[") == json.dumps(found).count("[") or isinstance(value, str) or "[" in str(value)


def test_messages_quote_no_credentials(tmp_path: Path) -> None:
    error = UsageError(f"there is no database postgres://me:{CANARY}@host/db, or ghp_{CANARY}{CANARY}")
    assert not shows(str(error))
    assert hide_known("run token: 3 rows, password=x") == "run token: 3 rows, password=x"


# --- every output ------------------------------------------------------------------------------------


def everything() -> dict[str, Any]:
    """One configuration with all secrets of the corpus in it."""
    return {f"setting {place}": config for place, config in enumerate(SECRETS)} | {
        "chunker_version": "md@1",
        "llm": {"model_id": {"name": "m", "api_key": CANARY}},
        "judge_model": f"sk-test-{CANARY}",
    }


def fill(workspace: Workspace) -> Workspace:
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["c1"]})
    for number in (1, 2):
        workspace.add_run(
            f"run-{number}", {"q1": {"query_id": "q1", "hits_top_k": hits("c1")}}, created_at=f"2026-01-0{number}"
        )
        text = json.dumps(everything(), ensure_ascii=False)
        # The secrets of the second run are others.
        text = text.replace(CANARY, f"{CANARY}x") if number == 2 else text
        workspace.execute("UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = ?", (text, f"run-{number}"))
    rows = ({"query_id": "q1", "hits_top_k": hits("c1"), "config": {"api_key": CANARY, "k": 5}},)
    workspace.add_run("anchored", {"q1": rows[0]}, created_at="2026-01-03")
    config = {**everything(), "kbeval": {"system": "anchors", "hash": "sha256:0"}}
    workspace.execute(
        "UPDATE eval_runs SET config_snapshot_json = ?, suite = 'other' WHERE run_id = 'anchored'",
        (json.dumps(config),),
    )
    return workspace


def calls(db: str, golden: str) -> Iterator[list[str]]:
    both = ["--db", db, "--golden", golden]
    for form in ("table", "json", "csv", "md"):
        yield ["runs", "--db", db, "--format", form]
        yield ["show", "run-2", *both, "--format", form]
        yield ["compare", "run-1", "run-2", "--ignore-invariants", *both, "--format", form]
        yield ["history", "mrr", "--db", db, "--format", form]
        yield ["sql", "SELECT * FROM runs", *both, "--format", form, "--limit", "0"]
        yield ["sql", "SELECT * FROM configurations", *both, "--format", form, "--limit", "0"]
        yield ["sql", "FROM stored_runs", *both, "--format", form]
        yield ["sql", "SELECT * FROM compare('run-1', 'run-2')", *both, "--format", form]
    yield ["compare", "run-1", "run-2", *both]
    yield ["compare", "run-1", "run-2", "--ignore-invariants", *both, "--report", "out/report.md"]
    yield ["history", "mrr", "--by", "judge_model", "--db", db]
    yield ["history", "mrr", "--plot", "out/plot.html", "--db", db]
    yield ["gate", "run-2", "--baseline", "run-1", "--not-worse", *both, "--format", "junit"]
    yield ["gate", "run-2", "--baseline", "run-1", "--not-worse", "--ignore-invariants", *both, "--format", "github"]
    yield ["check", *both]
    yield ["recompute", "--explain", *both]
    yield ["sql", "SELECT config FROM runs", "-o", "out/runs.csv", *both]
    yield ["sql", "SELECT config FROM runs", "-o", "out/runs.jsonl", *both]
    yield ["sql", "FROM configurations", "-o", "out/runs.md", *both]
    yield ["export", "duckdb", "out/all.duckdb", *both]
    yield ["export", "anchors", "anchored", "out/anchors", *both]


@pytest.mark.slow
def test_no_output_shows_a_secret(workspace: Workspace, tmp_path: Path) -> None:
    fill(workspace)
    archive_runs(workspace.db, tmp_path / "archive")
    runner = CliRunner()

    def is_done(call: list[str]) -> bool:
        result = runner.invoke(cli, [*call, *(["--replace"] if call[0] == "export" else [])])
        assert not shows(result.output), call
        assert not shows(str(result.exception)), call
        return result.exit_code == 0

    for db in (str(workspace.db), str(tmp_path / "archive")):
        assert is_done(["score", "--all", "--db", db, "--golden", str(workspace.golden)])
        with computed_once():
            done = [is_done(call) for call in calls(db, str(workspace.golden))]
        # The others are to be refused, or are gates that fail.
        assert (done.count(True), done.count(False)) == (38, 7), db
    for path in (*(tmp_path / "out").rglob("*"), *(tmp_path / "archive").rglob("*")):
        if path.suffix not in (".parquet", ".duckdb") and path.is_file():
            assert not shows(path.read_text(encoding="utf-8")), path
    with closing(duckdb.connect(str(tmp_path / "out" / "all.duckdb"), read_only=True)) as file:
        tables = [row[0] for row in file.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        # Rows are data and stay as they are; configurations are not.
        whole = {name: str(file.execute(f'SELECT * FROM "{name}"').fetchall()) for name in tables}
    assert {name for name, text in whole.items() if shows(text)} <= {"stored_results", "parsed"}
    for path in (tmp_path / "archive").glob("eval_runs-*.parquet"):
        assert not shows(str(duckdb.execute(f"FROM '{path}'").fetchall()))


# --- archives ----------------------------------------------------------------------------------------


def archived(folder: Path) -> dict[str, str]:
    """The configurations that the newest table has."""
    name = json.loads((folder / "manifest.json").read_text())["tables"]["eval_runs"]["name"]
    return dict(duckdb.execute(f"SELECT run_id, config_snapshot_json FROM '{folder / name}'").fetchall())


def output(*call: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, call)
    return result.exit_code, result.stdout


def test_an_archive_compares_as_the_database_does(workspace: Workspace, tmp_path: Path) -> None:
    fill(workspace)
    golden = ["--golden", str(workspace.golden)]
    assert run(["score", "--all", "--db", str(workspace.db), *golden]) == 0
    archive_runs(workspace.db, tmp_path / "archive")
    for call in (
        ["compare", "run-1", "run-2", "--ignore-invariants", *golden, "--format", "json"],
        ["history", "mrr", "--format", "json"],
        ["show", "run-2", *golden, "--format", "json"],
        ["sql", "SELECT run_id, config FROM runs ORDER BY 1", "--format", "json"],
        ["sql", "FROM configurations ORDER BY ALL", "--format", "json"],
    ):
        here, there = (output(*call, "--db", str(db)) for db in (workspace.db, tmp_path / "archive"))
        assert here[0] == 0
        assert here == there
    # The scores of the database are those that scoring the archive would give: nothing is due.
    result = CliRunner().invoke(cli, ["score", "--all", "--db", str(tmp_path / "archive"), *golden])
    assert "nothing to do: 3 runs unchanged" in result.stderr


def test_numbers_in_an_archive_stay_when_runs_come_and_go(workspace: Workspace, folder: Path) -> None:
    def add(run_id: str, secret: str, day: int) -> None:
        workspace.add_run(run_id, {}, created_at=f"2026-01-{day:02}")
        config = json.dumps({"token": secret})
        workspace.execute("UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = ?", (config, run_id))

    add("b", "first", 2)
    add("c", "second", 3)
    archive_runs(workspace.db, folder)
    assert archived(folder) == {"b": '{"token": "(hidden 1)"}', "c": '{"token": "(hidden 2)"}'}
    # One that is older, one with a secret that is known, and one that is deleted.
    add("a", "third", 1)
    add("d", "second", 4)
    workspace.execute("DELETE FROM eval_runs WHERE run_id = 'b'")
    archive_runs(workspace.db, folder)
    found = {run_id: re.sub(r"\D", "", text) for run_id, text in archived(folder).items()}
    assert found == {"a": "3", "b": "1", "c": "2", "d": "2"}
    # The first secret comes back, but nothing records that any more: it is treated as a new one.
    add("e", "first", 5)
    archive_runs(workspace.db, folder)
    found = {run_id: re.sub(r"\D", "", text) for run_id, text in archived(folder).items()}
    assert found == {"a": "3", "b": "1", "c": "2", "d": "2", "e": "4"}


def test_an_archive_of_an_earlier_version_loses_its_secrets(workspace: Workspace, folder: Path) -> None:
    from kbeval.storage import kept_configs
    from kbeval.storage.runs import Run

    def made(run_id: str, config: dict[str, Any]) -> Run:
        return Run(run_id, "s", "2026", None, json.dumps(config), "", 0)

    now = [made("now", {"token": "shared", "k": "(hidden 9)"})]
    gone = [made("gone", {"token": "shared", "password": "own", "old": "(hidden 4)"})]
    found = kept_configs.without_secrets_of(now, [], gone)
    texts = [json.loads(one.config_json) for one in found]
    assert texts[0]["token"] == texts[1]["token"]
    assert texts[1]["old"] == "(hidden 4)"
    assert len({*texts[0].values(), *texts[1].values()}) == 4
