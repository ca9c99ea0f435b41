"""Files, encodings and JSON that are not what they should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.places import Place, hits, is_internal, several


def test_a_query_id_that_is_not_utf8_costs_its_own_run_only(place: Place) -> None:
    place.label({"id": "q", "expected_chunk_ids": ["c"]})
    place.run("good", {"q": {"hits_top_k": hits("c")}})
    place.run("bad", {"q": {"hits_top_k": hits("c")}, "x": {"hits_top_k": hits("c")}})
    place.sql("UPDATE eval_query_results SET query_id = CAST(x'71FF' AS TEXT) WHERE query_id = 'x'")
    found = place("score", "--all")
    assert place.stored("good") is not None, found.stderr
    assert place.stored("good")["mrr"] == 1.0
    assert found.returncode == 2
    assert "run bad" in found.stderr


@pytest.mark.parametrize("column", ["run_id", "suite"])
def test_a_run_id_or_suite_that_is_not_utf8_is_named(place: Place, column: str) -> None:
    place.label({"id": "q", "expected_chunk_ids": ["c"]})
    place.run("good", {"q": {"hits_top_k": hits("c")}})
    place.run("bad", {"q": {"hits_top_k": hits("c")}})
    for table in ("eval_runs", "eval_query_results") if column == "run_id" else ("eval_runs",):
        place.sql(f"UPDATE {table} SET {column} = CAST(x'62FF' AS TEXT) WHERE run_id = 'bad'")
    readers = (place.completed(*command, golden=False) for command in (["runs"], ["show", "good"], ["history", "mrr"]))
    found, *others = several(place.completed("score", "--all"), *readers, cwd=place.folder)
    assert place.stored("good") is not None, found.stderr
    assert found.returncode == 2
    assert "UTF-8" in found.stderr
    for other in others:
        assert other.returncode == 0, other
        assert "good" in other.stdout, other


def test_a_utf16_database(tmp_path: Path) -> None:
    encodings = ("UTF-16le", "UTF-16be")
    places = [Place(tmp_path, f"{name}.db", pragma=f"PRAGMA encoding = '{name}';") for name in encodings]
    question = ("sql", "SELECT query_id, chunk_id FROM hits JOIN results USING (result_no)", "--format", "csv")
    commands = []
    for place, encoding in zip(places, encodings, strict=True):
        assert place.sql("PRAGMA encoding") == [(encoding,)]
        place.label({"id": "größe", "expected_chunk_ids": ["c→1"]})
        place.run("nächtlich", {"größe": {"hits_top_k": hits("c→1"), "query": "日本 😀"}})
        commands += [place.completed("score", "--all"), place.completed(*question)]
    found = several(*commands, cwd=tmp_path)
    for place, scored, asked in zip(places, found[::2], found[1::2], strict=True):
        assert scored.returncode == 0, scored
        assert place.stored("nächtlich")["mrr"] == 1.0, place.db
        assert asked.stdout.split() == ["query_id,chunk_id", "größe,c→1"], place.db


def test_odd_statements_and_intervals_are_not_internal_errors(one_run: Place) -> None:
    questions = ("UPDATE EXTENSIONS", "SELECT to_days(2147483647)")
    for question, found in zip(questions, one_run.several(*(["sql", one] for one in questions)), strict=True):
        assert found.returncode == 2, question
        assert not is_internal(found.stderr), (question, found.stderr)
        assert len(found.stderr.strip().splitlines()) == 1, question


def test_eval_runs_as_a_view_with_a_trigger(one_run: Place) -> None:
    one_run.sql("ALTER TABLE eval_runs RENAME TO runs_before")
    one_run.sql("CREATE VIEW eval_runs AS SELECT * FROM runs_before")
    one_run.sql(
        "CREATE TRIGGER storing INSTEAD OF UPDATE ON eval_runs BEGIN UPDATE runs_before SET aggregate_json ="
        " NEW.aggregate_json WHERE run_id = OLD.run_id; END"
    )
    found = one_run("score", "--all")
    assert found.returncode == 0, found.stderr
    assert one_run.stored()["mrr"] == 1.0


def test_a_symlink_loop(one_run: Place) -> None:
    (one_run.folder / "loop.duckdb").symlink_to("other.duckdb")
    (one_run.folder / "other.duckdb").symlink_to("loop.duckdb")
    found = one_run("export", "duckdb", "loop.duckdb")
    assert found.returncode == 2
    assert not is_internal(found.stderr), found.stderr


def test_a_corrupt_page_is_not_an_internal_error(place: Place) -> None:
    names = [f"q{n}" for n in range(300)]
    place.label(*({"id": name, "expected_chunk_ids": ["c"]} for name in names))
    for run in ("run", "other"):
        place.run(run, {name: {"hits_top_k": hits("c", None, None)} for name in names})
    ((page,),) = place.sql("SELECT rootpage FROM sqlite_master WHERE name = 'eval_query_results'")
    ((size,),) = place.sql("PRAGMA page_size")
    data = bytearray(place.db.read_bytes())
    data[(page - 1) * size : page * size] = bytes(size)
    place.db.write_bytes(data)
    for found in place.several(["sql", "SELECT COUNT(*) FROM hits"], ["compare", "run", "other"], ["check"]):
        assert not is_internal(found.stderr), found
        assert found.returncode == 2, found
        assert "malformed" in found.stderr or "damaged" in found.stderr, found


ODD_JSON = {
    "trailing comma": '{{{first}"extra": [1,], "hits_top_k": []}}',
    "trailing comma of an object": '{{{first}"hits_top_k": [],}}',
    "a key twice": '{{{first}"hits_top_k": [], "extra": {{"a": 1, "a": 2}}}}',
}


def test_odd_json_in_rows_is_named(place: Place) -> None:
    place.label({"id": "q", "expected_chunk_ids": ["c"]})
    for form, text in ODD_JSON.items():
        place.run(form, {"q": text.format(first="")})
    for form, found in zip(ODD_JSON, place.several(*(["score", form] for form in ODD_JSON)), strict=True):
        assert found.returncode == 2, (form, found.stderr)
        assert f"run {form}, query q" in found.stderr


ODD_TRACES = {
    "trailing comma": '{"qid": "q", "retrieved_ids": ["c",], "answer_json": {"claim": "x", "citations": []}}',
    "claim twice": (
        '{"qid": "q", "retrieved_ids": ["c"], "answer_json": {"claim": "x", "claim": "not here", "citations": []}}'
    ),
    "list twice": (
        '{"qid": "q", "retrieved_ids": ["c"], "retrieved_ids": ["d"], "answer_json": {"claim": "x", "citations": []}}'
    ),
}


def test_both_readers_of_a_trace_refuse_it(tmp_path: Path) -> None:
    (tmp_path / "gold.jsonl").write_text(
        '{"qid": "q", "question": "?", "answerable": true, "gold_claim_substr": ["xxxxx"], "gold_citations": ["c"]}\n'
    )
    commands: list[list[str]] = []
    for form, line in ODD_TRACES.items():
        (tmp_path / f"{form}.jsonl").write_text(line + "\n")
        commands += [
            ["grounded", "--gold", "gold.jsonl", "--trace", f"{form}.jsonl"],
            ["import", "grounded", f"{form}.jsonl", "--run-id", "r", "--db", "a.db"],
        ]
    for found in several(*commands, cwd=tmp_path):
        assert found.returncode == 2, found
