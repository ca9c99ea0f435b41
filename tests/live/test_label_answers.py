"""People score answers by a rubric without seeing the judge's scores, and judges are compared with them."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from kbeval.cli import run
from kbeval.live.labelling.actions import AnswerActions
from kbeval.live.labelling.answers import AnswerScoring, people_and_judge
from kbeval.live.labelling.score_terminal import ScoreApp
from kbeval.live.labelling.session import Chosen, Labelling
from kbeval.live.rubrics import load_rubrics
from kbeval.scoring.options import ScoreOptions
from tests.support.labelled import make
from tests.support.workspace import Workspace

JUDGE = (4, 2, 5, 0, 3, 4, 1, 5)
ANN = (5, 2, 4, 0, 3, 4, 2, 5)
BOB = (4, 1, 5, 1, 3, 5, 1, 4)


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A run with eight answers and a judging of them, as `kbeval judge` stores it."""
    workspace = Workspace(tmp_path_factory.mktemp("answers"))
    workspace.add_golden(*({"id": f"q{n}"} for n in range(8)))
    hit = {"chunk_id": "c", "doc_id": "d", "text": "The context."}
    rows = {
        f"q{n}": {
            "query": f"Question {n}?",
            "hits_top_k": [hit],
            "answer": {"answer": f"Answer {n}.", "grounded": True},
        }
        for n in range(8)
    }
    workspace.add_run("run", rows)
    return workspace


def scoring_of(workspace: Workspace, who: str) -> AnswerScoring:
    return AnswerScoring(workspace.db, "run", None, load_rubrics(["correctness"]), who, ScoreOptions())


def add_judging(workspace: Workspace) -> None:
    from kbeval.storage.judgements import Asked, Judged, JudgementStore, NewJudging, Said

    with scoring_of(workspace, "nobody") as session:
        marks = {query_id: session.view(query_id).answer.row_mark for query_id in session.queue}
    rubrics = json.dumps([rubric.as_json() for rubric in load_rubrics(["correctness"])])
    with JudgementStore(workspace.db) as store:
        store.make_tables()
        new = NewJudging("run", "i", "j", "local", "judge-1", "http://x", "{}", rubrics, "{}", 8)
        judging = store.begin(new)
        for n, score in enumerate(JUDGE):
            asked = Asked(f"k{n}", "local", "judge-1", "http://x", "correctness", "h", "{}", f"in{n}", 0)
            judged = Judged(f"q{n}", "correctness", f"k{n}", marks[f"q{n}"], is_cached=False)
            store.add(asked, Said("scored", 1, float(score)), "{}", judging.judging_id, [judged])


def test_people_score_blind_and_judges_are_compared_with_them(
    answered: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    add_judging(answered)
    with scoring_of(answered, "ann") as session:
        assert session.left() == (8, 8)
        shown = json.dumps(AnswerActions(session).call("GET", f"query/{session.queue[0]}", {}))
        assert "judge-1" not in shown
        for n, score in enumerate(ANN):
            session.score(f"q{n}", "correctness", score, 0)
        session.score("q0", "correctness", 0)
        assert session.undo() == "q0"
        assert session.view("q0").scores == {"correctness": 5}
        assert session.left() == (0, 0)

    async def in_terminal() -> None:
        with scoring_of(answered, "bob") as session:
            app = ScoreApp(session)
            async with app.run_test() as pilot:
                await pilot.pause()
                for place, query_id in enumerate(session.queue):
                    assert app._query == query_id
                    await pilot.press(str(BOB[int(query_id[1:])]))
                    await pilot.press("9")
                    assert "from 0 to 5" in app._said
                    await pilot.press("r", "r", "tab")
                    if place + 1 < len(session.queue):
                        await pilot.press("n")
                    await pilot.pause()
            assert session.left() == (0, 0)

    asyncio.run(in_terminal())
    # Here, since it takes as long as all other imports together, in each process that collects tests.
    from sklearn.metrics import cohen_kappa_score

    found = people_and_judge(answered.db, "run", ScoreOptions())
    by = {row.person: row.agreement for row in found.rows}
    for name, scores in (("ann", ANN), ("bob", BOB)):
        expected = cohen_kappa_score(scores, JUDGE, weights="quadratic")
        assert by[name].kappa == pytest.approx(expected, abs=1e-6)
        assert by[name].pairs == 8
    assert set(by) == {"ann", "bob", "people"}
    assert found.people["correctness"][0] == 2
    assert run(["judge", "run", "--agreement", "--db", str(answered.db)]) == 0
    said = capsys.readouterr()
    assert "judge-1" in said.out
    assert "Krippendorff's alpha (ordinal) is 0." in said.err


def test_the_command_says_what_people_agree_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace = make(tmp_path)
    for who, values in (("ann", "yes yes no yes"), ("bob", "yes no no yes")):
        with Labelling(workspace.db, workspace.golden, Chosen(who)) as session:
            for n, value in zip((1, 2, 4, 7), values.split(), strict=True):
                key = next(one.key for one in session.view(f"q{n}").candidates if "The answer" in one.text)
                session.decide(f"q{n}", key, value)
            session.save()
    where = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    assert run(["label", "--agreement", "--format", "json", *where]) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = found["agreement"]
    assert (row["units"], row["people"], row["exact"], row["kappa"]) == (4, 2, 0.75, 0.5)
    assert [one["said"] for one in found["disagreements"]] == [{"ann": "yes", "bob": "no"}]
    assert run(["label", "--agreement", *where]) == 0
    assert "1 disagreement to settle" in capsys.readouterr().err
    # Hits that were not judged count as wrong: `check` notes how many there are, and does not fail.
    run(["check", *where])
    said = capsys.readouterr().out
    assert "note: recent runs with hits in the top 10 that are not judged: 3  [unjudged-hits]" in said
    # Of twenty hits, four texts were decided on, and two are named by labels of the file.
    assert "first: 14 of 20" in said or "again: 14 of 20" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "needs a terminal"),
        (["--agreement", "--settle"], "cannot be combined"),
        (["--by", "category"], "--by requires --agreement"),
        (["--rubric", "x"], "--rubric requires --as-judge"),
        (["--target", "x"], "--target requires --fresh"),
        (["--web", "--only", "q99"], "has no query 'q99'"),
        (["--web", "--annotator", " "], "--annotator must be a name"),
        (["--web", "--since-run", "nothing"], "there is no run 'nothing'"),
        (["--web", "--as-judge", "nothing"], "there is no run 'nothing'"),
        (["--web", "--fresh"], "no target given"),
        (["--web", "--golden", "missing.yaml"], "there is no such golden file"),
        (["--web", "--db", "missing.db"], "there is no database"),
    ],
)
def test_invalid_requests_are_one_line_errors(
    made: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--db", str(made / "kb.db"), "--golden", str(made / "golden.yaml")]
    given = [part for name in ("--db", "--golden") if name not in arguments for part in where[where.index(name) :][:2]]
    assert run(["label", *arguments, *given]) == 2
    found = capsys.readouterr().err
    assert said in found
    assert found.count("\n") == 1


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make(folder)
    return folder


def test_fresh_answers_of_a_live_system_are_pooled(made: Path, tmp_path: Path) -> None:
    from kbeval.golden import load_golden
    from kbeval.live.labelling.fresh import ask_target
    from kbeval.live.targets import choose_target
    from kbeval.settings import Config

    folder = tmp_path / "own"
    shutil.copytree(made, folder)
    golden = load_golden(folder / "golden.yaml")
    target = choose_target(Config(None, {}), "bm25", {})
    found, failed = ask_target(target, golden, ["q1", "q2"], folder / "kb.db", 20)
    assert failed == []
    assert set(found) == {"q1", "q2"}
    with Labelling(folder / "kb.db", folder / "golden.yaml", Chosen("ann", only=["q1"]), found) as session:
        view = session.view("q1")
        assert len(view.candidates) > 2
        chunks = [chunk for one in view.candidates for chunk in one.chunk_ids]
        assert len(chunks) == len(set(chunks))
