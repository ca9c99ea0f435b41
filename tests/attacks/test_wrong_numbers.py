"""Attacks that gave wrong numbers or lost data: torn reads, locks of the host, keys, places, ranks."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.places import LOOSE, PYTHON, Place, answer, hits, python, several
from tests.support.examples import sized

QUERIES = [f"q{number}" for number in range(40)]
VERSIONS = """
    SELECT COUNT(DISTINCT v) FROM (
        SELECT elapsed_ms AS v FROM results UNION ALL
        SELECT CAST(config ->> '$.version' AS DOUBLE) FROM runs)
"""
WRITER = """
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)
connection.execute("PRAGMA journal_mode = " + sys.argv[2])
connection.execute("PRAGMA cache_size = 4")
print("ready", flush=True)
for line in sys.stdin:
    version, checkpoint = line.split()
    version = int(version)
    try:
        connection.execute("BEGIN IMMEDIATE")
        row = json.dumps({"elapsed_ms": version, "hits_top_k": [{"rank": 1, "chunk_id": "c0", "snippet": "y" * 300}]})
        connection.execute("UPDATE eval_query_results SET result_json = ?", [row])
        connection.execute("UPDATE eval_runs SET config_snapshot_json = ?", [json.dumps({"version": version})])
        connection.execute("COMMIT")
        if checkpoint == "yes":
            # If no reader holds it, the log starts over: what is read from it must be held.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        said = "written"
    except sqlite3.OperationalError as error:
        said = str(error)
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    print(said, flush=True)
"""
# Asks as the prompt does: releases the database after a question and reopens it for the next; another process writes.
ASKING = """
    import json, subprocess, sys
    import kbeval
    db, golden, mode, versions, code, tries = sys.argv[1:]
    pipe = subprocess.PIPE
    writer = subprocess.Popen([sys.executable, "-c", code, db, mode], stdin=pipe, stdout=pipe, text=True)
    writer.stdout.readline()
    def write(version, checkpoint):
        writer.stdin.write(f"{version} {checkpoint}\\n"); writer.stdin.flush()
        return writer.stdout.readline().strip()
    found = []
    for version in range(1, int(tries) + 1):
        with kbeval.open_explorer(db, golden, kbeval.ScoreOptions(threads=1)) as explorer:
            explorer.query("SELECT COUNT(*) FROM runs").rows()
            explorer.release()
            # The next question begins: the snapshot is taken, and then another program writes.
            assert explorer.session is not None
            write(version, 'yes')
            try:
                count = explorer.query(versions).rows()[0][0]
                found.append("one version" if count == 1 else "a mixture of versions")
            except kbeval.KbevalError as error:
                found.append("torn pages: " + str(error).split(": ", 1)[1])
        assert write(version, "no") == "written"
    writer.stdin.close()
    torn = [one for one in found if one != "one version"]
    print(len(torn), "of", len(found), "answers:", sorted(set(torn)))
    sys.exit(bool(torn))
"""


@pytest.fixture
def moving(place: Place) -> Place:
    place.label(*({"id": query, "expected_chunk_ids": ["c0"]} for query in QUERIES))
    for run in "ab":
        place.run(
            run,
            {query: {"hits_top_k": hits("c0"), "elapsed_ms": 0} for query in QUERIES},
            config={"chunker_version": "md@1", "version": 0},
        )
    return place


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_torn_reads_at_the_prompt(moving: Place, mode: str) -> None:
    found = python(
        ASKING, str(moving.db), str(moving.golden), mode, VERSIONS, WRITER, str(sized(6, 12)), cwd=moving.folder
    )
    assert found.returncode == 0, found.stdout + found.stderr


KEEP_WRITING = """
    import json, sqlite3, sys, time
    connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = 4")
    version = 0
    while True:
        version += 1
        try:
            connection.execute("BEGIN IMMEDIATE")
            hit = {"rank": 1, "chunk_id": f"c{version % 2}", "snippet": "y" * 300}
            row = {"elapsed_ms": version, "hits_top_k": [hit]}
            connection.execute("UPDATE eval_query_results SET result_json = ?", [json.dumps(row)])
            config = json.dumps({"chunker_version": "md@1", "version": version})
            connection.execute("UPDATE eval_runs SET config_snapshot_json = ?", [config])
            connection.execute("COMMIT")
        except sqlite3.OperationalError:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if version == 1:
            print("ready", flush=True)
        time.sleep(0.002)
"""


def test_torn_reads_with_compare_in_sql(moving: Place) -> None:
    """Rollback journal. Both runs are alike in every version, so an answer with two versions is a mixture."""
    question = (
        f"SELECT ({VERSIONS}) AS versions, (SELECT COUNT(*) FROM compare('a', 'b') WHERE kind <> 'draw') AS moved"
    )
    question += ", (SELECT MIN(b_hit_rank) IS NULL FROM compare('a', 'b')) AS c, (SELECT MIN(chunk_id) FROM hits) AS h"
    answers = []
    tries = sized(4, 8)
    with subprocess.Popen(
        [PYTHON, "-c", textwrap.dedent(KEEP_WRITING), str(moving.db)], stdout=subprocess.PIPE, text=True
    ) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            for _ in range(tries):
                found = moving("sql", question, "--format", "json", "--threads", "1")
                answers.append((found.returncode, found.stdout.strip(), found.stderr.strip()[-200:]))
        finally:
            writer.kill()
    rows = [json.loads(out)[0] for code, out, _ in answers if code == 0]
    assert len(rows) == tries, answers
    # c0 is the expected chunk: where the hits are c1, the comparison must have found nothing.
    mixed = [row for row in rows if row["versions"] != 1 or row["moved"] or row["c"] != (row["h"] == "c1")]
    assert mixed == []


HOST = """
    import sqlite3, subprocess, sys
    import kbeval
    db, golden, other, what = sys.argv[1:]

    def use_kbeval(store):
        scored = kbeval.score_runs(db, golden)
        kbeval.compare_runs("one", "two", db=db, golden=golden)
        kbeval.metric_history("mrr", db=db)
        with kbeval.open_explorer(db, golden) as explorer:
            explorer.query("SELECT COUNT(*) FROM scores")
        if store:
            kbeval.store_scored(scored, db=db)

    def elsewhere(sql):
        return subprocess.run([sys.executable, "-c", other, db, sql], capture_output=True, text=True).stdout.strip()

    host = sqlite3.connect(db, isolation_level=None)
    host.execute("PRAGMA journal_mode = " + ("DELETE" if what == "transaction" else "WAL"))
    host.execute("CREATE TABLE own (n INTEGER PRIMARY KEY, text TEXT)")
    if what == "transaction":
        host.execute("PRAGMA cache_size = 5")
        host.execute("BEGIN IMMEDIATE")
        host.executemany("INSERT INTO own (text) VALUES (?)", [("x" * 500,)] * 3)
        use_kbeval(store=False)
        print(elsewhere("INSERT INTO own (text) SELECT hex(randomblob(900)) FROM eval_query_results, eval_runs"))
        try:
            host.executemany("INSERT INTO own (text) VALUES (?)", [("y" * 500,)] * 300)
            host.execute("COMMIT")
        except sqlite3.Error as error:
            print("host:", error)
        wanted = 303
    else:
        host.execute("INSERT INTO own (text) VALUES ('before')")
        use_kbeval(store=True)
        elsewhere("SELECT COUNT(*) FROM own")
        for number in range(20):
            host.execute("INSERT INTO own (text) VALUES ('after')")
        print(elsewhere("SELECT COUNT(*) FROM own"))
        wanted = 21
    host.close()
    after = sqlite3.connect(db)
    print(after.execute("SELECT COUNT(*) FROM own").fetchone()[0], "of", wanted)
    print(after.execute("PRAGMA integrity_check").fetchone()[0])
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


@pytest.mark.parametrize(
    ("what", "wanted"),
    [("transaction", ["database is locked", "303 of 303", "ok"]), ("idle in WAL", ["(21,)", "21 of 21", "ok"])],
)
def test_a_host_program_keeps_its_locks_and_its_data(place: Place, what: str, wanted: list[str]) -> None:
    place.label(*({"id": query, "expected_chunk_ids": ["c0"]} for query in QUERIES))
    for run in ("one", "two"):
        place.run(run, {query: {"hits_top_k": hits("c0")} for query in QUERIES})
    found = python(HOST, str(place.db), str(place.golden), OTHER, what, cwd=place.folder)
    assert found.stdout.splitlines() == wanted, found.stdout + found.stderr


def test_a_duplicate_run_id(place: Place) -> None:
    place.script(LOOSE.format(collate=""))
    place.label(*({"id": query, "expected_chunk_ids": ["c"], "expected_doc_ids": ["d1"]} for query in QUERIES[:7]))
    place.run("run", {query: {"hits_top_k": hits("c")} for query in QUERIES[:7]})
    place.run("other", {query: {"hits_top_k": hits(None)} for query in QUERIES[:7]})
    place.sql("INSERT INTO eval_runs SELECT * FROM eval_runs WHERE run_id = 'run'")
    checked, found, compared = place.several(["check"], ["score", "--all"], ["compare", "other", "run"])
    stored = [json.loads(text) for (text,) in place.sql("SELECT aggregate_json FROM eval_runs") if text]
    for numbers in stored:
        assert max(numbers["recall_at_k_doc"].values()) <= 1.0, numbers
        assert numbers["ledger"].get("missing", 0) >= 0
    assert (checked.returncode, found.returncode) == (1, 2), (checked.stdout, found.stderr)
    assert "run: 2 rows" in checked.stdout
    assert "run run: 2 rows" in found.stderr
    assert len(stored) == 1
    assert compared.returncode == 2


COLLATIONS = {"NOCASE": ("run", "RUN"), "RTRIM": ("run", "run  ")}


def test_ids_that_a_collation_takes_for_equal(tmp_path: Path) -> None:
    places = {collation: Place(tmp_path, f"{collation}.db") for collation in COLLATIONS}
    for collation, (one, other) in COLLATIONS.items():
        places[collation].script(LOOSE.format(collate=f"COLLATE {collation}"))
        places[collation].label({"id": "q", "expected_chunk_ids": ["c"]})
        places[collation].run(one, {"q": {"hits_top_k": hits("c")}})
        places[collation].run(other, {"q": {"hits_top_k": hits(None, "c")}})
    for found in several(*(place.completed("score", "--all") for place in places.values()), cwd=tmp_path):
        assert found.returncode == 0, found
    for collation, (one, other) in COLLATIONS.items():
        found_there = {run: (places[collation].stored(run) or {}).get("mrr") for run in (one, other)}
        assert found_there == {one: 1.0, other: 0.5}, collation


CITATIONS: dict[str, Any] = {
    "reversed": {"kind": "line", "start": 9, "end": 1},
    "no end": {"kind": "line", "start": 1},
    "no start": {"kind": "line", "end": 9},
    "neither": {"kind": "line"},
    "text": {"kind": "line", "start": "one", "end": "nine"},
    "unknown kind": {"kind": "lines", "start": 1, "end": 9},
    "kind that is no text": {"kind": 5, "start": 1, "end": 9},
    "no kind": {"start": 1, "end": 9},
    "empty bytes": {"kind": "byte", "start": 5, "end": 5},
    "lists": {"kind": "line", "start": [1], "end": [9]},
    "reversed time": {"kind": "time", "start_ms": 9, "end_ms": 1},
    "flat region": {"kind": "region", "x": 0, "y": 0, "w": 0, "h": 5},
    "page without a number": {"kind": "page"},
    "null ends": {"kind": "line", "start": None, "end": None},
}


def test_a_malformed_citation_does_not_resolve(place: Place) -> None:
    place.label({"id": "q", "expected_chunk_ids": ["c"]})
    place.document("c", "d1", "d1.md", {"kind": "line", "start": 1, "end": 9})
    for name, form in CITATIONS.items():
        place.run(name, {"q": {"hits_top_k": hits("c"), "answer": answer({"path": "d1.md", **form})}})
    outside = {"path": "d1.md", "kind": "line", "start": 100, "end": 101}
    place.run("outside", {"q": {"hits_top_k": hits("c"), "answer": answer(outside)}})
    place.run("path alone", {"q": {"hits_top_k": hits("c"), "answer": answer({"path": "d1.md"})}})
    found, checked = place.several(["score", "--all"], ["check"])
    assert found.returncode == 0, found.stderr
    assert place.stored("outside")["citation_coverage"] == 0.0
    assert place.stored("path alone")["citation_coverage"] == 1.0
    resolved = [name for name in CITATIONS if place.stored(name)["citation_coverage"] != 0.0]
    assert resolved == []
    assert checked.returncode == 1, checked.stdout
    assert "citation" in checked.stdout


SPANS: dict[str, Any] = {
    "reversed": {"kind": "line", "start": 59, "end": 51},
    "no end": {"kind": "line", "start": 51},
    "neither": {"kind": "line"},
    "unknown kind": {"kind": "lines", "start": 51, "end": 59},
    "empty bytes": {"kind": "byte", "start": 51, "end": 51},
}


def test_a_malformed_expected_span_is_not_matched_by_document(place: Place) -> None:
    place.document("c", "d1", "d1.md", {"kind": "line", "start": 1, "end": 9})
    hit = {"rank": 1, "chunk_id": "c", "doc_id": "d1", "source_spans": [{"kind": "line", "start": 1, "end": 9}]}
    commands = []
    for form, span in SPANS.items():
        place.run(form, {"q": {"hits_top_k": [hit]}})
        place.golden = place.folder / f"{form}.json"
        place.label({"id": "q", "expected_spans": [{"doc_id": "d1", **span}]})
        commands.append(place.completed("score", form))
    for form, found in zip(SPANS, several(*commands, cwd=place.folder), strict=True):
        stored = place.stored(form)
        assert stored is None or stored["hit_at_k"]["1"] != 1.0, f"{form}: hit@1 is 1.0"
        assert found.returncode == 2, form
        assert "expected_spans" in found.stderr, form
        assert "(q)" in found.stderr, form


def test_hits_with_equal_ranks(place: Place) -> None:
    place.label({"id": "q", "expected_chunk_ids": ["c", "d", "e"]})
    place.run("run", {"q": {"hits_top_k": [{"rank": 1, "chunk_id": chunk, "doc_id": "d"} for chunk in "cde"]}})
    found, checked = place.several(["score", "run"], ["check"])
    assert found.returncode == 0
    assert place.stored()["precision_at_k_chunk"]["1"] == 1.0
    assert "repeated ranks" in found.stderr
    assert checked.returncode == 1
    assert "rank" in checked.stdout


def test_labels_by_lines_and_hits_by_bytes(place: Place) -> None:
    lines, others = {"kind": "line", "start": 1, "end": 9}, {"kind": "byte", "start": 0, "end": 400}
    place.document("c", "d1", "d1.md", lines)
    names = [f"q{number:02}" for number in range(30)]
    place.label(*({"id": name, "expected_spans": [{"doc_id": "d1", **lines}]} for name in names))
    for run, span in (("a", lines), ("b", others)):
        hit = {"rank": 1, "chunk_id": f"c-{run}", "doc_id": "d1", "source_spans": [span]}
        place.run(run, {name: {"hits_top_k": [hit]} for name in names})
    found = place("compare", "a", "b", "--format", "json")
    assert found.returncode == 0, found.stderr
    report = json.loads(found.stdout)
    assert report["verdict"] != "worse", report["verdict"]
    assert {row["kind"] for row in report["per_query"]} == {"draw"}
    assert "byte" in found.stderr
    assert "line" in found.stderr
