"""A real Spark cluster on loopback: a master, two workers and a Connect server, each a process of its own.

From the package pyspark alone, in a folder of its own (`make test-spark` installs it there): next to its thin client it
cannot be installed. Java is the system's.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(os.environ.get("KBEVAL_SPARK_HOME") or ROOT / ".venv" / "spark" / "pyspark")
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass
class Cluster:
    """The running processes, by name."""

    folder: Path
    address: str
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def launched(self) -> set[str]:
        """The workers on which the master has started executors."""
        return set(re.findall(r"Launching executor \S+ on worker (\S+)", self.log("master")))

    def tasks(self, worker: str) -> int:
        """How many tasks the executors of a worker have finished."""
        logs = (self.folder / worker).glob("app-*/*/stderr")
        return sum(path.read_text(errors="replace").count("Finished task") for path in logs)

    def kill(self, name: str) -> None:
        """Kill a process and all that it has started, at once."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def running_cluster(folder: Path, *, memory: str = "1g", driver_memory: str = "2g") -> Iterator[Cluster]:
    """The cluster for as long as the block. `memory`: of each worker."""
    ports = dict(zip(("master", "master-ui", "a-ui", "b-ui", "connect"), _free_ports(5), strict=True))
    cluster = Cluster(folder, f"sc://127.0.0.1:{ports['connect']}")
    run = str(SPARK_HOME / "bin" / "spark-class")
    master = f"spark://127.0.0.1:{ports['master']}"
    loopback = ("--host", "127.0.0.1")
    try:
        doors = ("--port", str(ports["master"]), "--webui-port", str(ports["master-ui"]))
        _start(cluster, "master", "256m", run, MASTER, *loopback, *doors)
        _wait_for(cluster, "master", ports["master"])
        for worker in ("a", "b"):
            own = ("--cores", "1", "--memory", memory, "--webui-port", str(ports[f"{worker}-ui"]))
            _start(cluster, worker, "256m", run, WORKER, master, *loopback, *own, "--work-dir", str(folder / worker))
        executors = {"spark.executor.memory": "700m", "spark.executor.cores": "1"}
        _start_connect(cluster, ports["connect"], master, driver_memory, executors)
        yield cluster
    finally:
        for name in list(cluster.processes):
            cluster.kill(name)


@contextlib.contextmanager
def running_server(folder: Path, *, memory: str, settings: Mapping[str, str]) -> Iterator[Cluster]:
    """A Connect server alone, which does all the work in its own process, for as long as the block."""
    (port,) = _free_ports(1)
    server = Cluster(folder, f"sc://127.0.0.1:{port}")
    try:
        _start_connect(server, port, "local[2]", memory, settings)
        yield server
    finally:
        for name in list(server.processes):
            server.kill(name)


def _start(cluster: Cluster, name: str, heap: str, *command: str) -> None:
    folder = cluster.folder
    (folder / "log4j2.properties").write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.stdout.ref = console\nappender.console.type = Console\n"
        "appender.console.name = console\nappender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\nappender.console.layout.pattern = %d %p %c{1}: %m%n\n"
    )
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(folder),
        "SPARK_DAEMON_MEMORY": heap,
        # A process that is killed is noticed at once. One that a busy machine holds up is not to be given up.
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.worker.timeout=600",
    }
    with (folder / f"{name}.log").open("wb") as log:
        cluster.processes[name] = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, start_new_session=True, env=environment
        )


def _start_connect(cluster: Cluster, port: int, master: str, memory: str, settings: Mapping[str, str]) -> None:
    """Start the Connect server, and wait until it answers."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.shuffle.partitions": "4",
        "spark.network.timeout": "600s",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(cluster.folder / "local"),
        "spark.sql.warehouse.dir": str(cluster.folder / "warehouse"),
        **settings,
    }
    confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    submit = str(SPARK_HOME / "bin" / "spark-submit")
    of_server = ("--class", CONNECT, "--master", master, "--driver-memory", memory, *confs)
    _start(cluster, "connect", memory, submit, *of_server)
    _wait_for(cluster, "connect", port)


def _free_ports(count: int) -> list[int]:
    """Below the range from which the system assigns free ports: Spark's own processes request many."""
    found: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1_000):
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            break
    return found


def _wait_for(cluster: Cluster, name: str, port: int) -> None:
    until = time.monotonic() + 240
    while time.monotonic() < until:
        if cluster.processes[name].poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    msg = f"{name} does not answer: {cluster.log(name)[-3000:]}"
    raise RuntimeError(msg)
