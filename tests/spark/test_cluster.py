"""`score --engine` on a real cluster: a master, two workers and a Connect server. `make test-spark` runs it."""

from __future__ import annotations

import os
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
from tests.support.spark_cluster import Cluster, running_cluster

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


def test_stored_numbers_are_exact(cluster: Cluster, tmp_path: Path) -> None:
    with connected(cluster.address, tmp_path) as engine:
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


def test_a_worker_is_killed_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    """20 runs × 2,000 queries × 10 hits. The last test: afterwards there is one worker."""
    archive, golden = large_archive(tmp_path)
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
