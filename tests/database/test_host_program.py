"""A program that has the database open itself and calls the Python API keeps its locks and its data.

Closing any descriptor of a file drops all POSIX locks that the process holds on it. Therefore kbeval must never open
the database in the process of the host.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.archives import fill
from tests.support.workspace import Workspace

# Everything that the API does with a database.
USE_KBEVAL = """
    import kbeval
    from kbeval.compare.gates import check_gates
    from kbeval.scoring.attribution import recompute
    from kbeval.storage.source import stored_runs

    def use_kbeval(db, golden, *, cache="off", store=False):
        options = kbeval.ScoreOptions(cache=cache)
        runs = [run.run_id for run in stored_runs(db)]
        scored = kbeval.score_runs(db, golden, None, options)
        kbeval.compute_aggregate(runs[0], db=db, golden=golden, options=options)
        kbeval.compare_runs(runs[0], runs[1], db=db, golden=golden)
        kbeval.metric_history("mrr", db=db)
        recompute(db, golden, options, explain=True)
        check_gates(runs[1], {"min": {"mrr": 0.0}, "baseline": runs[0]}, db=db, golden=golden)
        with kbeval.open_explorer(db, golden, options) as explorer:
            explorer.query("SELECT COUNT(*) FROM scores")
            explorer.release()
            explorer.query(f"SELECT COUNT(*) FROM compare('{runs[0]}', '{runs[1]}')")
        if store:
            kbeval.store_scored(scored, db=db)
"""

OTHER = """
    import sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
    try:
        print(*connection.execute(sys.argv[2]).fetchall())
    except sqlite3.OperationalError as error:
        print(error)
    connection.close()
"""

IN_A_TRANSACTION = """
    import sqlite3, subprocess, sys
    db, golden, other = sys.argv[1:]
    host = sqlite3.connect(db, isolation_level=None)
    host.execute("PRAGMA journal_mode = DELETE")
    host.execute("CREATE TABLE own (n INTEGER PRIMARY KEY, text TEXT)")
    host.execute("PRAGMA cache_size = 5")
    host.execute("BEGIN IMMEDIATE")
    host.executemany("INSERT INTO own (text) VALUES (?)", [("x" * 500,)] * 3)
    use_kbeval(db, golden)
    write = "INSERT INTO own (text) SELECT hex(randomblob(900)) FROM eval_query_results, eval_runs"
    tried = subprocess.run([sys.executable, "-c", other, db, write], capture_output=True, text=True).stdout.strip()
    host.executemany("INSERT INTO own (text) VALUES (?)", [("y" * 500,)] * 300)
    host.execute("COMMIT")
    print(tried)
    print(host.execute("SELECT COUNT(*) FROM own").fetchone()[0])
    host.close()
    print(sqlite3.connect(db).execute("PRAGMA integrity_check").fetchone()[0])
"""

IDLE_IN_WAL = """
    import sqlite3, subprocess, sys
    db, golden, other = sys.argv[1:]
    host = sqlite3.connect(db, isolation_level=None)
    host.execute("PRAGMA journal_mode = WAL")
    host.execute("CREATE TABLE own (n INTEGER PRIMARY KEY, text TEXT)")
    host.execute("INSERT INTO own (text) VALUES ('before')")
    use_kbeval(db, golden, store=True)
    count = [sys.executable, "-c", other, db, "SELECT COUNT(*) FROM own"]
    # Where this one takes itself for the last, it removes the log: what the host writes then is seen nowhere.
    subprocess.run(count, check=True, capture_output=True)
    for number in range(20):
        host.execute("INSERT INTO own (text) VALUES ('after')")
    print(subprocess.run(count, check=True, capture_output=True, text=True).stdout.strip())
    print(host.execute("SELECT COUNT(*) FROM own").fetchone()[0])
    host.close()
    print(sqlite3.connect(db).execute("SELECT COUNT(*) FROM own").fetchone()[0])
    print(sqlite3.connect(db).execute("PRAGMA integrity_check").fetchone()[0])
"""


@pytest.fixture
def filled(tmp_path: Path) -> Workspace:
    found = fill(Workspace(tmp_path))
    found.execute("UPDATE eval_query_results SET result_json = '{}' WHERE query_id = 'q3'")
    return found


def as_host(code: str, workspace: Workspace) -> list[str]:
    """The output of a separate program."""
    whole = textwrap.dedent(USE_KBEVAL) + textwrap.dedent(code)
    arguments = [str(workspace.db), str(workspace.golden), textwrap.dedent(OTHER)]
    found = subprocess.run([sys.executable, "-c", whole, *arguments], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


@pytest.mark.slow
def test_a_host_in_the_middle_of_a_transaction_keeps_its_lock_and_its_rows(filled: Workspace) -> None:
    assert as_host(IN_A_TRANSACTION, filled) == ["database is locked", "303", "ok"]


@pytest.mark.slow
def test_a_host_with_an_idle_connection_keeps_its_write_ahead_log(filled: Workspace) -> None:
    assert as_host(IDLE_IN_WAL, filled) == ["(21,)", "21", "21", "ok"]
    assert json.loads(filled.stored("one"))["total_queries"] == 3
