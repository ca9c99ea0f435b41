"""`score --engine` on a real cluster: a master, two workers and a Connect server. `make test-spark` runs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.elsewhere import (
    KBEVAL,
    assert_exact_numbers,
    assert_same_bytes,
    hostile_archive,
    large_archive,
    score,
    scores,
)
from tests.support.second_engine import connected
from tests.support.spark_cluster import Cluster, running_cluster, running_server
from tests.support.statements import assert_same_rows, assert_same_sums

pytestmark = [
    pytest.mark.skipif("KBEVAL_SPARK_HOME" not in os.environ, reason="make test-spark runs it"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return hostile_archive(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return large_archive(tmp_path_factory.mktemp("large"))


def test_every_statement_after_the_facts_has_the_same_rows(made_demo: Path, cluster: Cluster, tmp_path: Path) -> None:
    with connected(cluster.address, tmp_path) as engine:
        # What files must not use does fail or differ there.
        with pytest.raises(Exception, match="VARCHAR"):
            engine.rows("SELECT CAST(1 AS VARCHAR)")
        assert engine.rows("SELECT LENGTH(LOWER('İ'))") == [(2,)]
        assert_same_rows((made_demo / "kb.db", made_demo / "golden.yaml"), tmp_path, engine, all_data=False)


def test_sums_and_stored_numbers_are_exact(cluster: Cluster, tmp_path: Path) -> None:
    with connected(cluster.address, tmp_path) as engine:
        assert_same_sums(engine, tmp_path)
        assert_exact_numbers(engine, tmp_path)


@pytest.mark.parametrize(
    "how",
    [(), ("--match", "exact", "--missing", "zero", "--by", "tags"), ("--match", "span", "--by", "category,tags")],
    ids=["auto", "exact", "span"],
)
def test_odd_runs_have_the_same_bytes(
    hostile: tuple[Path, Path], tmp_path: Path, cluster: Cluster, how: tuple[str, ...]
) -> None:
    assert_same_bytes(*hostile, tmp_path, cluster.address, *how, to_the_last_byte=not how)


@pytest.mark.parametrize(
    ("memory", "settings"),
    [
        # Enough for the server, and nearly nothing for what is sorted, joined and grouped.
        ("512m", {"spark.memory.fraction": "0.002"}),
        # Too little for all of it.
        ("160m", {"spark.testing.reservedMemory": "1000000"}),
    ],
    ids=["pool", "heap"],
)
def test_a_server_that_runs_out_of_memory_is_one_line(
    large: tuple[Path, Path], tmp_path: Path, memory: str, settings: dict[str, str]
) -> None:
    archive, golden = shutil.copytree(large[0], tmp_path / "history"), large[1]
    before = sorted(path.name for path in archive.iterdir())
    with running_server(tmp_path, memory=memory, settings=settings) as server:
        found = score(archive, golden, "--engine", server.address)
    assert (found.returncode, found.stdout) == (2, ""), found.stderr
    (line,) = found.stderr.splitlines()
    said = re.fullmatch(r"kbeval: the engine at sc://\S+ ran out of memory \(at .+\): give it more, or .+", line)
    # A server whose heap is full may say something else, or nothing any more.
    other = re.fullmatch(r"kbeval: the engine at sc://\S+ (?:failed|does not answer) .+", line)
    assert said or (other and memory == "160m"), line
    assert sorted(path.name for path in archive.iterdir()) == before


def test_a_worker_is_killed_in_the_middle(cluster: Cluster, large: tuple[Path, Path], tmp_path: Path) -> None:
    """20 runs × 2,000 queries × 10 hits. The last test: afterwards there is one worker."""
    archive, golden = shutil.copytree(large[0], tmp_path / "there"), large[1]
    here = shutil.copytree(archive, tmp_path / "here")
    assert score(here, golden).returncode == 0
    before = {worker: cluster.tasks(worker) for worker in ("a", "b")}
    command = [*KBEVAL, "score", "--all", "--db", str(archive), "--golden", str(golden), "--engine", cluster.address]
    with (tmp_path / "errors").open("wb") as errors:
        scoring = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
    # In the middle: some tables are written, the numbers are not, and both workers have done some of it.
    until = time.monotonic() + 1200
    while len(list(archive.glob("exchange-*/*/_SUCCESS"))) < 8 or not _both_work(cluster, before):
        assert scoring.poll() is None, (tmp_path / "errors").read_text()
        assert time.monotonic() < until
        time.sleep(0.1)
    cluster.kill("b")
    assert not (archive / "scores.json").exists()
    assert scoring.wait(timeout=2400) == 0, (tmp_path / "errors").read_text()
    assert scores(archive) == scores(here)
    assert not list(archive.glob("exchange-*"))
    assert len(cluster.launched()) == 2
    assert "Removing worker" in cluster.log("master") or "disassociated" in cluster.log("master")


def _both_work(cluster: Cluster, before: dict[str, int]) -> bool:
    return all(cluster.tasks(worker) > count for worker, count in before.items())
