"""Shards of an archive, scored by real processes: the same bytes as in one go, whatever becomes of a process."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from kbeval.cli import run
from kbeval.scoring.shards import Shard
from kbeval.storage.parts import write_sealed
from tests.support.hostile import make_hostile
from tests.support.pages import ROOT, blocks_in
from tests.support.second_engine import running_sail
from tests.support.workspace import Workspace, hits

KBEVAL = [sys.executable, "-m", "kbeval"]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive of odd runs that was never scored, and its labels; only to be copied."""
    workspace = make_hostile(tmp_path_factory.mktemp("hostile"))
    # Chunks that only hits know are kept, too.
    workspace.execute("DELETE FROM chunks WHERE chunk_id LIKE '%7'")
    folder = workspace.db.parent
    labels = ["--golden", str(workspace.golden)]
    assert run(["archive", str(folder / "history"), "--db", str(workspace.db), *labels]) == 0
    return folder


def copied(hostile: Path, folder: Path, name: str) -> Path:
    return shutil.copytree(hostile / "history", folder / name)


def command(archive: Path, *arguments: str) -> list[str]:
    return [*KBEVAL, "score", *arguments, "--db", str(archive), "--threads", "1"]


def scores(archive: Path) -> str:
    """What is stored, without the times at which spans were first seen."""
    return re.sub(r'"20\d\d-[^"]{10,30}Z"', '"now"', (archive / "scores.json").read_text())


def test_shards_of_real_processes_give_the_same_bytes(hostile: Path, tmp_path: Path) -> None:
    """Three shards at once, one of them twice, and one killed and started again."""
    golden = ("--golden", str(hostile / "golden.json"), "--skip-bad-rows")
    whole, parts = copied(hostile, tmp_path, "whole"), copied(hostile, tmp_path, "parts")
    assert run(command(whole, "--all", *golden)[len(KBEVAL) :]) == 0
    victim = subprocess.Popen(command(parts, "--all", "--shard", "2/3", *golden), stdout=subprocess.DEVNULL)
    time.sleep(0.3)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    shards = [
        subprocess.Popen(command(parts, "--all", "--shard", f"{number}/3", *golden), stdout=subprocess.DEVNULL)
        for number in (1, 2, 3, 3)
    ]
    assert [shard.wait(timeout=600) for shard in shards] == [0] * 4
    assert not (parts / "scores.json").exists()
    merge = subprocess.run(command(parts, "--merge"), check=False, capture_output=True, text=True, timeout=600)
    assert (merge.returncode, merge.stdout) == (0, "")
    assert "stored the numbers of 7 runs from 3 shards" in merge.stderr
    are_merged(parts, whole)


def test_shards_with_other_options_give_the_same_bytes(
    hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--golden", str(hostile / "golden.json"), "--skip-bad-rows", "--match", "span", "--missing", "zero")
    whole, parts = copied(hostile, tmp_path, "whole"), copied(hostile, tmp_path, "parts")
    every = [command(whole, "--all", *options)]
    every += [command(parts, "--all", "--shard", f"{number}/3", *options) for number in (3, 1, 2)]
    for each in every:
        assert run(each[len(KBEVAL) :]) == 0
    assert not (parts / "scores.json").exists()
    capsys.readouterr()
    assert run(command(parts, "--merge")[len(KBEVAL) :]) == 0
    assert "stored the numbers of 7 runs from 3 shards" in capsys.readouterr().err
    are_merged(parts, whole)


def are_merged(parts: Path, whole: Path) -> None:
    assert scores(parts) == scores(whole)
    assert '"hits"' in scores(whole)
    assert not (parts / "shards").exists()


@pytest.fixture
def plain(tmp_path: Path) -> Workspace:
    """Eight runs, one of which has an unreadable row, and their archive."""
    workspace = Workspace(tmp_path)
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["c1"]}, {"id": "q2", "expected_chunk_ids": ["c2"]})
    for number in range(8):
        rows = {"q1": {"hits_top_k": hits("c1")}, "q2": {"hits_top_k": hits("c1", "c2")[number % 2 :]}}
        workspace.add_run(f"run-{number}", rows, created_at=f"2026-01-0{number + 1}")
    workspace.add_run("unreadable", {"q1": "{"})
    assert run(["archive", str(tmp_path / "history"), "--db", str(workspace.db)]) == 0
    return workspace


def test_errors_are_one_line_and_store_nothing(
    plain: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "history"
    shards = archive / "shards"

    def score(*arguments: str, db: Path = archive) -> tuple[int, list[str]]:
        capsys.readouterr()
        labels = [] if "--merge" in arguments else ["--golden", str(plain.golden)]
        code = run(["score", *arguments, *labels, "--db", str(db)])
        return code, capsys.readouterr().err.splitlines()

    def refused(fragment: str, *arguments: str, db: Path = archive) -> None:
        code, lines = score(*arguments, db=db)
        assert (code, len(lines)) == (2, 1), lines
        assert fragment in lines[0]
        assert not (archive / "scores.json").exists()

    for text in ("0/2", "3/2", "1", "1/2/3", "-1/2", "1/0", "1/99999", "٣/٤", ""):
        refused("--shard is", "--all", "--shard", text)
    refused("--shard requires --all", "run-1", "--shard", "1/2")
    refused("--by prints slices", "--all", "--by", "tags", "--shard", "1/2")
    refused("leave out --all, --shard", "--merge", "--all", "--shard", "1/2")
    refused("leave out RUN", "--merge", "run-1")
    for fragment, db in (("is not an archive", plain.db), ("there is no archive", archive / "elsewhere")):
        refused(fragment, "--all", "--shard", "1/2", db=db)
        refused(fragment, "--merge", db=db)
    refused("contains no shards to merge", "--merge")

    # A dry run writes no part; a run that cannot be scored fails its shard, whose other runs are written.
    assert score("--all", "--shard", "1/2", "--dry-run")[0] in (0, 2)
    assert not shards.exists()
    left_out = next(number for number in (1, 2) if Shard(number, 2).holds("unreadable"))
    for number in (1, 2):
        assert score("--all", "--shard", f"{number}/2")[0] == (2 if number == left_out else 0)
    first = shards / "1-of-2.json"
    text = first.read_text()

    # Cut short, or with a number that was changed by hand.
    for damaged in (text[:-40], re.sub(r'(mrr.":)[0-9]', r"\g<1>7", text)):
        assert damaged != text
        first.write_text(damaged)
        refused("1-of-2.json cannot be read", "--merge")
    first.write_text((shards / "2-of-2.json").read_text())
    refused("contains runs of another shard", "--merge")
    first.unlink()
    refused("of 2 shards 1 is missing", "--merge")
    first.write_text(text)
    content = {name: value for name, value in json.loads(text).items() if name != "sha256"}
    write_sealed(shards / "1-of-3.json", {**content, "shard": [1, 3], "runs": {}})
    refused("shards of 2 and of 3", "--merge")
    (shards / "1-of-3.json").unlink()
    assert score("--all", "--shard", "1/2", "--match", "span")[0] in (0, 2)
    refused("different --match in shards 1/2 and 2/2", "--merge")
    first.write_text(text)

    # The rows of one run are others by now, and there is a new run: neither is stored.
    plain.execute("UPDATE eval_query_results SET result_json = '{}' WHERE run_id = 'run-3' AND query_id = 'q1'")
    plain.add_run("run-9", {"q1": {"hits_top_k": hits("c1")}}, created_at="2026-02-01")
    assert run(["archive", str(archive), "--db", str(plain.db)]) == 0
    code, lines = score("--merge")
    assert code == 2
    assert lines[0].startswith("stored the numbers of 7 runs from 2 shards")
    assert [line.split()[2] for line in lines[1:]] == ["unreadable", "run-3"]
    code, lines = score("--all", "--skip-bad-rows")
    assert code == 0
    assert lines[0].startswith("stored the numbers of 3 runs")


@pytest.mark.filterwarnings("ignore")
def test_the_schedulers_of_the_documentation_give_the_same_bytes(
    plain: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script with xargs, the commands of a CI matrix, and a Spark job, each as the page has it.

    What calls kbeval alone is called in this process.
    """
    monkeypatch.setenv("KBEVAL_GOLDEN", str(plain.golden))
    page = (ROOT / "docs" / "large-histories.md").read_text(encoding="utf-8")
    files = {block.file: block.text for block in blocks_in(page) if block.file}
    plain.execute("DELETE FROM eval_runs WHERE run_id = 'unreadable'")
    plain.execute("DELETE FROM eval_query_results WHERE run_id = 'unreadable'")
    assert run(["archive", "history", "--db", str(plain.db), "--golden", str(plain.golden), "--prune"]) == 0
    archive = tmp_path / "history"
    shutil.copytree(archive, tmp_path / "never scored")
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "KBEVAL_GOLDEN": str(plain.golden)}

    def scored(*commands: list[str], **more: str) -> str:
        shutil.rmtree(archive)
        shutil.copytree(tmp_path / "never scored", archive)
        for each in commands:
            if each[0] == "kbeval":
                assert run(each[1:]) == 0
                continue
            done = subprocess.run(
                each, check=False, capture_output=True, text=True, timeout=600, env=environment | more
            )
            assert done.returncode == 0, done.stderr
        assert not (archive / "shards").exists()
        return scores(archive)

    whole = scored(["kbeval", "score", "--all", "--db", "history"])
    assert scored(["sh", "-c", files["shards.sh"]]) == whole
    jobs = yaml.safe_load(files[".github/workflows/score.yml"])["jobs"]
    shard, merge = (_kbeval_of(jobs[name]["steps"]) for name in ("shard", "merge"))
    numbers = jobs["shard"]["strategy"]["matrix"]["shard"]
    matrix = [shard.replace("${{ matrix.shard }}", str(number)).split() for number in numbers]
    assert scored(*matrix, merge.split()) == whole
    (tmp_path / "spark_shards.py").write_text(files["spark_shards.py"])
    with running_sail(tmp_path) as sail:
        job = [sys.executable, "-W", "ignore", "spark_shards.py", str(archive), str(plain.golden)]
        assert scored(job, SPARK_REMOTE=sail.address) == whole


def _kbeval_of(steps: list[dict[str, str]]) -> str:
    (found,) = (step["run"] for step in steps if step.get("run", "").startswith("kbeval"))
    return found


def test_every_run_is_in_one_shard_and_stays_there() -> None:
    runs = [f"run-{number} ΟΔΟΣ\ud800" for number in range(500)]
    for count in (1, 2, 7, 16):
        shards = [Shard(number, count) for number in range(1, count + 1)]
        members = [[run_id for run_id in runs if shard.holds(run_id)] for shard in shards]
        assert sorted(run_id for found in members for run_id in found) == sorted(runs)
        assert all(len(found) > 300 / count for found in members)
    # By the id alone: a later version must not deal them out in another way, or parts would not fit together.
    assert [Shard(1, 4).holds(f"run-{number}") for number in range(8)] == [
        True,
        False,
        False,
        True,
        False,
        False,
        False,
        True,
    ]
