"""Memory, time and interruption."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.attacks.places import BIN, Place, is_internal, kbeval
from tests.support.busy import wait_until_busy


def peak_of(place: Place, *arguments: str, address_space: int | None = None) -> tuple[int, str, int]:
    """Exit code, standard error, and the maximum resident size in megabytes."""
    code = (
        "import os, resource, subprocess, sys\n"
        "most = int(sys.argv[1])\n"
        "limit = (lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most))) if most else None\n"
        "done = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, preexec_fn=limit)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, file=sys.stderr)\n"
        "sys.exit(done.returncode & 255)\n"
    )
    command = [sys.executable, "-c", code, str(address_space or 0), BIN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=place.folder, check=False)
    *lines, peak = done.stderr.splitlines()
    return done.returncode, "\n".join(lines), int(peak)


@pytest.mark.parametrize(
    "question",
    ["SELECT length(repeat('x', 1000000000))", "SELECT " + "(" * 5_000, "SELECT * FROM " + "(" * 3_000],
    ids=["one function", "nested text", "nested tables"],
)
def test_a_question_keeps_to_the_memory_limit(one_run: Place, question: str) -> None:
    code, errors, peak = peak_of(
        one_run, "sql", question, "--db", str(one_run.db), "--memory-limit", "100MB", address_space=4_500_000_000
    )
    assert peak < 500, f"{peak} MB; exit code {code}: {errors[:300]}"
    assert code == 2
    assert not is_internal(errors)
    assert "memory" in errors
    assert "--memory-limit" in errors


def test_running_out_of_memory_in_python_is_not_an_internal_error(one_run: Place) -> None:
    code, errors, _ = peak_of(
        one_run,
        "sql",
        "SELECT repeat('x', 10000000) AS t FROM range(60)",
        "--db",
        str(one_run.db),
        address_space=2_600_000_000,
    )
    assert code == 2
    assert not is_internal(errors), errors
    assert "memory" in errors


def many_rows(place: Place, runs: int, queries: int) -> None:
    """Rows of nine kilobytes each."""
    words = random.Random(16)
    text = ["".join(words.choices("abcdefghij ", k=700)) for _ in range(50)]
    place.label(*({"id": f"q{n:04}", "expected_chunk_ids": [f"c{n % 997}"]} for n in range(queries)))
    rows = {
        f"q{n:04}": json.dumps(
            {
                "hits_top_k": [
                    {
                        "rank": rank,
                        "chunk_id": f"c{(n * 31 + rank * 7) % 997}",
                        "doc_id": f"d{(n + rank) % 200}",
                        "snippet": words.choice(text),
                        "source_spans": [{"kind": "line", "start": rank, "end": rank + 9}],
                    }
                    for rank in range(1, 11)
                ]
            }
        )
        for n in range(queries)
    }
    for run in range(runs):
        place.run(f"run{run}", rows)


@pytest.mark.parametrize("threads", ["64"])
def test_many_threads_do_not_need_more_memory(place: Place, threads: str) -> None:
    many_rows(place, runs=8, queries=1000)
    assert place.db.stat().st_size > 68_000_000
    found = place("score", "--all", "--threads", threads, "--cache", "off")
    assert found.returncode == 0, found.stderr
    assert place.stored("run7") is not None


def large_row(size: int) -> str:
    text = "x" * (size // 10)
    return json.dumps(
        {"hits_top_k": [{"rank": n, "chunk_id": f"c{n}", "doc_id": "d", "text": text} for n in range(1, 11)]}
    )


def test_rows_of_300_kilobytes(place: Place) -> None:
    place.label(*({"id": f"q{n}", "expected_chunk_ids": ["c3"]} for n in range(300)))
    place.run("run", {f"q{n}": large_row(300_000) for n in range(300)})
    found = place("score", "--all", "--cache", "off")
    assert found.returncode == 0, found.stderr
    assert place.stored()["mrr"] == 0.3333


def test_a_row_of_50_megabytes_costs_its_own_run_only(place: Place) -> None:
    place.label({"id": "q1", "expected_chunk_ids": ["c2"]}, {"id": "q2", "expected_chunk_ids": ["c2"]})
    place.run("good", {"q1": large_row(1000), "q2": large_row(1000)})
    place.run("huge", {"q1": large_row(1000), "q2": large_row(50_000_000)})
    found = place("score", "--all")
    assert place.stored("good") is not None, found.stderr
    assert place.stored("good")["mrr"] == 0.5
    assert found.returncode == 2
    assert "run huge, query q2" in found.stderr


def test_three_thousand_regions_in_one_hit(place: Place) -> None:
    """Lines of text, one below the other, as on a page."""
    chance = random.Random(18)
    spans = [
        {"kind": "region", "x": chance.uniform(0, 5), "y": 12 * n, "w": chance.uniform(50, 90), "h": 10}
        for n in range(3000)
    ]
    label = {"doc_id": "d", "kind": "region", "x": 0, "y": 0, "w": 40000, "h": 40000}
    place.label({"id": "q", "expected_spans": [label], "expected_doc_ids": ["d"]})
    place.run("run", {"q": {"hits_top_k": [{"rank": 1, "chunk_id": "c", "doc_id": "d", "source_spans": spans}]}})
    found = place("score", "run", "--overlap-of", "hit", "--match", "span")
    assert found.returncode == 0, found.stderr
    assert place.stored()["mrr"] == 1.0


@pytest.mark.parametrize(
    "command",
    [["sql", "SELECT 1 FROM runs"], ["export", "duckdb", "x.duckdb"]],
    ids=lambda command: " ".join(command[:2])[:12],
)
def test_a_fifo_as_database_is_refused_at_once(one_run: Place, command: list[str]) -> None:
    os.mkfifo(one_run.folder / "pipe")
    try:
        found = kbeval(*command, "--db", "pipe", "--golden", str(one_run.golden), cwd=one_run.folder, timeout=40)
    except subprocess.TimeoutExpired:
        pytest.fail("it hangs", pytrace=False)
    assert found.returncode == 2
    assert "not a regular file" in found.stderr


LONG_FUNCTION = "SELECT levenshtein(repeat('ab', 200000), repeat('ba', 200000))"


def test_ctrl_c_stops_one_long_function(one_run: Place) -> None:
    command = [BIN, "sql", LONG_FUNCTION, "--db", str(one_run.db)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        wait_until_busy(process.pid, 2.5, 1.5)
        assert process.poll() is None
        try:
            for _ in range(3):
                process.send_signal(signal.SIGINT)
                time.sleep(0.7)
            _, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            pytest.fail("still running 10 s after three interruptions")
        finally:
            process.kill()
    assert process.returncode == 130
    assert "interrupted" in errors


INTERRUPTING = """
import os, signal, sys
count, seen = [0], [0]

def at(frame, event, arg):
    count[0] += 1
    if count[0] == int(os.environ["INTERRUPT_AT"]):
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

def watch(event, arguments):
    if event == "import" and arguments[0] == "_duckdb":
        # The first time it is looked for, the second time its library is run.
        seen[0] += 1
        if seen[0] == 2:
            sys.setprofile(at)
    elif event == "import" and arguments[0] == "duckdb._relation":
        sys.setprofile(None)

sys.addaudithook(watch)
"""


@pytest.mark.parametrize("moment", [400, 1600, 2800])
def test_ctrl_c_while_duckdb_is_imported(one_run: Place, moment: int) -> None:
    """The signal arrives while the library creates its enumerations, in Python code that it calls."""
    folder = one_run.folder / "first"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(INTERRUPTING)
    found = one_run("sql", "SELECT 1 AS one FROM runs", env={"PYTHONPATH": str(folder), "INTERRUPT_AT": str(moment)})
    assert found.returncode == 130, (found.returncode, found.stderr[:300])
    assert "interrupted" in found.stderr
    assert found.stderr.strip().count("\n") == 0, found.stderr


@pytest.mark.parametrize(
    "expression", ["MAX(rank) - (SELECT AVG(r.rank) FROM ranked AS r)", "MAX(random())", "MAX(epoch(now()))"]
)
def test_a_metric_that_sees_other_runs_or_the_clock_is_refused(one_run: Place, expression: str) -> None:
    (one_run.folder / "kbeval.toml").write_text(f'[metrics]\nmine = "{expression}"\n')
    found = one_run("score", "run")
    assert found.returncode == 2, found.stdout
    assert "mine" in found.stderr


def test_a_full_temp_folder_is_named(one_run: Place) -> None:
    """The folder for data that does not fit into memory has two megabytes."""
    full = one_run.folder / "full"
    full.mkdir()
    question = (
        "SELECT COUNT(*) FROM (SELECT DISTINCT md5(CAST(range AS VARCHAR)) || repeat('x', 100) FROM range(3000000))"
    )
    script = (
        'mount -t tmpfs -o size=2m none "$1" && cd / && TMPDIR="$1" exec "$2" sql "$3" --db "$4" --memory-limit 60MB'
    )
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(full), BIN, question, str(one_run.db)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "mount" in found.stderr or "unshare" in found.stderr:
        pytest.skip("needs the right to mount a small file system")
    assert found.returncode == 2
    assert "TMPDIR" in found.stderr, found.stderr
