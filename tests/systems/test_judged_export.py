"""A run that was judged here, exported in the harness's own fields, and imported again: the same numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kbeval
from kbeval.cli import run
from tests.support.judge_server import USAGE, JudgeServer

FIXTURES = Path(__file__).parents[2] / "fixtures" / "anchors"
GOLDEN = FIXTURES / "golden.yaml"
RUN = "2026-03-05-hybrid"
PRICES = "[prices.harsh]\ninput = 1.0\noutput = 1.0\n"


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer() as found:
        yield found


@pytest.fixture
def judged(tmp_path: Path, server: JudgeServer) -> Path:
    """The database of an imported run that was judged here."""
    database = tmp_path / "kb.db"
    (tmp_path / "kbeval.toml").write_text(PRICES)
    assert run(["import", "anchors", str(FIXTURES / RUN), "--db", str(database)]) == 0
    command = ["judge", RUN, "--db", str(database), "--golden", str(GOLDEN), "--allow-cut-context"]
    assert run([*command, "--judge-model", "harsh", "--judge-base-url", f"{server.url}/v1"]) == 0
    return database


def exported(database: Path, folder: Path, *more: str) -> list[dict[str, Any]]:
    assert run(["export", "anchors", RUN, str(folder), "--db", str(database), *more]) == 0
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def judge_numbers(database: Path) -> dict[str, Any]:
    found = kbeval.compute_aggregate(RUN, db=database, golden=GOLDEN).to_dict()
    return {name: value for name, value in found.items() if name.startswith("judge_")}


def test_judgements_are_exported_in_the_fields_of_the_harness(judged: Path, tmp_path: Path) -> None:
    rows = exported(judged, tmp_path / "out" / RUN)
    with_scores = [row for row in rows if "groundedness" in row]
    assert with_scores
    for row in with_scores:
        assert row["groundedness"] == {
            "score": 4.0,
            "reasoning": "Because.",
            "unsupported_claims": ["three"],
            "supported_claims": ["one", "two"],
        }
        assert row["correctness"] == {"score": 4.0, "reasoning": "Because."}
        assert row["cost"] == {"judge_tokens": 2 * sum(USAGE), "judge_cost_usd": pytest.approx(2 * sum(USAGE) / 1e6)}
        assert set(row["judge_input"]) == {"groundedness", "correctness"}
        # The texts of chunks are cut in an export, so the prompts with them are left out, too.
        assert all(set(given) == {"input_hash"} for given in row["judge_input"].values())
    config = json.loads((tmp_path / "out" / RUN / "config.json").read_text())
    assert (config["judge_model"], config["judge_temperature"]) == ("harsh", 0)
    assert "groundedness sha256:" in config["judge_prompt_version"]
    whole = exported(judged, tmp_path / "whole" / RUN, "--full-text")
    prompts = [given["prompt"] for row in whole for given in row.get("judge_input", {}).values()]
    assert len(prompts) == 2 * len(with_scores)


def test_an_export_that_is_imported_again_has_the_same_judged_numbers(judged: Path, tmp_path: Path) -> None:
    numbers = judge_numbers(judged)
    assert numbers.keys() == {"judge_groundedness", "judge_correctness", "judge_tokens", "judge_cost_usd"}
    exported(judged, tmp_path / "out" / RUN)
    for name in ("metrics.json", "summary.md"):
        (tmp_path / "out" / RUN / name).unlink(missing_ok=True)
    other = tmp_path / "other.db"
    assert run(["import", "anchors", str(tmp_path / "out" / RUN), "--db", str(other)]) == 0
    assert judge_numbers(other) == numbers


def test_a_run_that_was_not_judged_here_is_exported_as_it_came(tmp_path: Path) -> None:
    database = tmp_path / "kb.db"
    shutil.copytree(FIXTURES / RUN, tmp_path / "in" / RUN)
    assert run(["import", "anchors", str(tmp_path / "in" / RUN), "--db", str(database)]) == 0
    rows = exported(database, tmp_path / "out" / RUN, "--full-text")
    came = [json.loads(line) for line in (FIXTURES / RUN / "results.jsonl").read_text().splitlines()]
    assert rows == came
