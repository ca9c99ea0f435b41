"""No text from data is a command to a CI runner, and JUnit files are valid XML for every code point."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbeval.cli import cli
from kbeval.compare.gates import Gate, GateReport, GateResult
from kbeval.render.gates import github, junit
from kbeval.util.text import csv_cell, json_shown, json_text, markdown, shown, without_runner_commands
from tests.support.once import computed_once
from tests.support.workspace import Workspace, answer, hits

COMMANDS = (
    "::set-output name=x::y",
    "  ::error::no",
    "\u00a0\u2003::warning::no",
    "\t::add-mask::no",
    "n##[set-output name=x]y",
    "##[error]no",
    "###[error]no",
    "##vso[task.setvariable variable=x]y",
    "##teamcity[message text='x']",
    "line\n::stop-commands::x",
    "line\r::error::x",
    "line\x85::error::x\u2028::error::y\x0b::error::z",
)


def runner_commands_in(text: str) -> list[str]:
    """The lines that GitHub's runner, Azure Pipelines or TeamCity would execute, as their parsers find them."""
    found = []
    for line in re.split(r"[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", text):
        is_new_form = line.lstrip().startswith("::") and "::" in line.lstrip()[2:]
        if is_new_form or re.search(r"##(?:vso|teamcity)?\[", line):
            found.append(line)
    return found


@pytest.mark.parametrize("text", COMMANDS)
def test_text_is_not_a_runner_command_in_any_format(text: str) -> None:
    assert runner_commands_in(text)
    for safe in (shown(text), markdown(text), csv_cell(text), shown(shown(text))):
        assert runner_commands_in(safe) == []
    for written in (json_text({text: [text]}), json_shown(json.dumps([text], ensure_ascii=False))):
        assert runner_commands_in(written) == []
        assert text in str(json.loads(written)) or json.loads(written) in ([text], {text: [text]})
    assert shown(shown(text)) == shown(text)


def test_other_text_is_not_changed() -> None:
    for text in ("a::b", "std::vector", "## Title", "C##", "see [1]", "x = [::2]", "##", "::", "# [a]"):
        assert without_runner_commands(text) in (text, text.replace("::", ":\\:", 1) if text.startswith("::") else text)


def test_long_texts_take_no_time() -> None:
    for piece in (" ", ":", "#", "\n", "##a", "\n ", ": :"):
        without_runner_commands(piece * 300_000)


@pytest.fixture
def hostile(workspace: Workspace) -> Workspace:
    """Runner commands wherever data may occur: ids, suites, versions, configurations, errors, answers, labels."""
    golden = [
        {"id": f"q{n} {text}", "query": text, "category": text, "expected_chunk_ids": [text]}
        for n, text in enumerate(COMMANDS)
    ]
    golden += [{"id": text, "query": text, "expected_chunk_ids": [text]} for text in COMMANDS]
    workspace.add_golden(*golden)
    for number, order in enumerate(COMMANDS[:6]):
        rows = {}
        for entry in golden:
            found = hits(str(entry["query"]), None, doc=order)
            row = {
                "query_id": entry["id"],
                "query": entry["query"],
                "hits_top_k": found[number % 2 :],
                "answer": answer(order),
            }
            rows[str(entry["id"])] = row | ({"error": order} if number == 3 else {})
        workspace.add_run(order, rows, created_at=f"2026-01-0{number + 1}", chunker=order)
        config = {"chunker_version": "md@1", order: order, "llm": {"model_id": order}, "judge_model": order}
        workspace.execute(
            "UPDATE eval_runs SET config_snapshot_json = ?, suite = ?, commit_hash = ? WHERE run_id = ?",
            (json.dumps(config), COMMANDS[4], order, order),
        )
    workspace.add_run("broken", {COMMANDS[0]: COMMANDS[4]}, created_at=COMMANDS[0])
    return workspace


def calls(db: str, golden: str) -> Iterator[list[str]]:
    a, b = COMMANDS[0], COMMANDS[4]
    both = ["--db", db, "--golden", golden]
    yield ["score", "broken", *both]
    yield ["show", "nothing ##[error]", *both]
    yield ["show", "::error::x", "--suite", "::error::x", *both]
    for form in ("table", "json", "csv", "md"):
        yield ["runs", "--db", db, "--format", form]
        yield ["score", a, *both, "--by", "category", "--dry-run", "--format", form]
        yield ["show", b, *both, "--format", form]
        yield ["show", b, *both, "--worst", "20", "--format", form]
        yield ["show", b, *both, "--query", COMMANDS[5], "--format", form]
        yield ["compare", a, b, "--ignore-invariants", "--slices", "category", *both, "--format", form]
        yield ["history", "mrr", "--db", db, "--format", form]
        yield ["history", "mrr", "--by", "llm.model_id", "--db", db, "--format", form]
        yield ["check", *both, "--format", form]
        yield ["sql", "SELECT * FROM runs", *both, "--format", form]
        yield ["sql", "SELECT '' AS a, '::error::x' AS b, 'x##[error]' AS \"c##[error]\"", *both, "--format", form]
        yield ["sql", "SELECT 'a' || chr(10) || '::error::x' AS b", *both, "--format", form]
        yield ["sql", 'SELECT 1 AS "::error::x"', *both, "--format", form]
    yield ["sql", "SELECT {'a': '##[error]'} AS s, ['::error::x'] AS l", *both]
    yield ["sql", "SELECT * FROM results", *both, "--format", "jsonl"]
    yield ["sql", "SELECT '##[error]' FROM nothing", *both]
    yield ["sql", "EXPLAIN SELECT '##[error]x' AS a FROM runs WHERE run_id = '::error::x'", *both]
    yield ["compare", a, b, *both]
    for form in ("junit", "table", "json", "md", "csv"):
        yield [
            "gate",
            b,
            "--baseline",
            a,
            "--ignore-invariants",
            "--not-worse",
            "--no-regressions",
            *both,
            "--format",
            form,
        ]
    yield ["recompute", "--explain", *both]
    yield ["compare", a, b, "--ignore-invariants", "--report", "report.md", *both]


@pytest.mark.slow
def test_no_output_contains_a_runner_command(hostile: Workspace, tmp_path: Path) -> None:
    runner = CliRunner()

    def is_done(call: list[str]) -> bool:
        result = runner.invoke(cli, call)
        assert runner_commands_in(result.stdout) == [], call
        assert runner_commands_in(result.stderr) == [], call
        assert runner_commands_in(str(result.exception)) == [], call
        return result.exit_code in (0, 1) and result.exception is None

    both = ["--db", str(hostile.db), "--golden", str(hostile.golden)]
    is_done(["score", "--all", *both])
    with computed_once():
        done = [is_done(call) for call in calls(str(hostile.db), str(hostile.golden))]
    # Five are to be refused.
    assert (done.count(True), done.count(False)) == (62, 5)
    assert runner_commands_in((tmp_path / "report.md").read_text()) == []


def test_annotations_are_the_only_runner_commands(hostile: Workspace) -> None:
    call = ["gate", COMMANDS[4], "--baseline", COMMANDS[0], "--ignore-invariants", "--not-worse", "--no-regressions"]
    result = CliRunner().invoke(
        cli, [*call, "--format", "github", "--db", str(hostile.db), "--golden", str(hostile.golden)]
    )
    lines = result.stdout.splitlines()
    assert lines
    assert all(re.match(r"::(error|notice) title=[^:,]*::", line) for line in lines), lines
    assert not re.search(r"##\[", result.stdout)
    assert runner_commands_in(result.stderr) == []


def test_tracebacks_contain_no_runner_commands(hostile: Workspace) -> None:
    """KBEVAL_DEBUG shows where an error came from, in the words of whatever raised it."""
    process = subprocess.run(
        [sys.executable, "-m", "kbeval", "show", "x\n::error::no ##[error]", "--db", str(hostile.db)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KBEVAL_DEBUG": "1", "GITHUB_ACTIONS": "true"},
    )
    assert process.returncode != 0
    assert "Traceback" in process.stderr
    assert runner_commands_in(process.stdout + process.stderr) == []


# --- JUnit -------------------------------------------------------------------------------------------


def report(text: str) -> GateReport:
    result = GateResult(Gate("min", "mrr", 0.5), None, False, text, queries=(text, text))
    return GateReport(text, text, [result])


def test_junit_is_xml_for_every_code_point() -> None:
    """In every field, in blocks of 256; expat is as strict as the standard says."""
    seen = 0
    for start in range(0, 0x110000, 0x100):
        text = "".join(map(chr, range(start, start + 0x100)))
        root = ET.fromstring(junit(report(text)))
        case = root.find("testcase")
        assert case is not None
        failure = case.find("failure")
        assert failure is not None
        # All that can be shown is there.
        kept = [character for character in text if character.isprintable() and not character.isspace()]
        for found in (case.get("classname"), failure.get("message"), failure.text):
            assert set(kept) <= set(found or "")
        seen += len(text)
    assert seen == 0x110000


@pytest.mark.parametrize("code", [0xFFFE, 0xFFFF, 0xFDD0, 0x1FFFE, 0x10FFFF, 0, 0xB, 0xD800])
def test_code_points_that_are_not_characters_are_escaped(code: int) -> None:
    for found in (shown(f"a{chr(code)}b"), markdown(f"a{chr(code)}b"), csv_cell(f"a{chr(code)}b")):
        assert chr(code) not in found
        assert f"{code:x}" in found
    assert json.loads(json_shown(json.dumps(chr(code), ensure_ascii=False))) == chr(code)


def test_annotations_of_every_code_point_are_one_line_each() -> None:
    for start in range(0, 0x110000, 0x1000):
        text = "".join(map(chr, range(start, start + 0x1000)))
        one = report(text)
        made = GateReport(one.run, one.baseline, [*one.results, *one.results])
        assert len(re.split(r"[\r\n]", github(made))) == 3
