"""The share of hits that a person or a label judged, shown next to the numbers once people label."""

from __future__ import annotations

import csv
import json

import pytest

from kbeval.cli import run
from kbeval.live.labelling.session import Chosen, Labelling
from tests.support.workspace import Workspace


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Two runs: q1 with four hits, of which the file names one; q2 with two hits; q3 with none."""
    workspace = Workspace(tmp_path_factory.mktemp("judged"))
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["a"]}, {"id": "q2"}, {"id": "q3"})

    def hits(*names: str) -> dict[str, object]:
        return {"hits_top_k": [{"chunk_id": name, "text": f"The text of {name}."} for name in names]}

    workspace.add_run("one", {"q1": hits("a", "b", "c", "d"), "q2": hits("e", "f"), "q3": hits()})
    workspace.add_run("two", {"q1": hits("x", "y"), "q2": hits("e")}, created_at="2026-01-02")
    return workspace


def test_what_is_judged_is_counted_next_to_the_numbers(labelled: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--db", str(labelled.db), "--golden", str(labelled.golden)]
    assert run(["score", "--all", *where]) == 0
    assert "judged" not in capsys.readouterr().out, "no decisions of people yet"
    with Labelling(labelled.db, labelled.golden, Chosen("ann")) as session:
        for query_id, text, value in (("q1", "of b.", "no"), ("q1", "of c.", "skip"), ("q2", "of e.", "no")):
            key = next(one.key for one in session.view(query_id).candidates if text in one.text)
            session.decide(query_id, key, value)
        session.save()
    # one: q1 a (label) and b of four, q2 e of two; q3 has no hits. two: q1 none of two, q2 all of one.
    wanted = {"one": ((2, 4), (1, 2)), "two": ((0, 2), (1, 1))}
    assert run(["score", "--all", "--force", "--format", "json", *where]) == 0
    for found in json.loads(capsys.readouterr().out):
        pairs = wanted[found["run_id"]]
        assert found["judged_hits"] == {
            "k": 10,
            "hits": sum(n for _, n in pairs),
            "judged": sum(j for j, _ in pairs),
            "share": sum(j / n for j, n in pairs) / 2,
        }
    assert run(["score", "--all", "--force", "--format", "csv", *where]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {row["run_id"]: float(row["judged_at_k.10"]) for row in rows} == {"one": 0.5, "two": 0.5}
    assert run(["score", "one", *where]) == 0
    assert "judged@10" in capsys.readouterr().out
    assert run(["show", "one", *where]) == 0
    assert "judged: 3 of 6 hits in the top 10; the others count as wrong" in capsys.readouterr().out
    assert run(["compare", "one", "two", *where]) == 0
    said = capsys.readouterr().err
    assert "hits in the top 10 that are judged: one 3 of 6, two 1 of 3; the others count as wrong" in said
    run(["check", *where])
    said = capsys.readouterr().out
    assert "one: 3 of 6" in said
    assert "two: 2 of 3" in said
