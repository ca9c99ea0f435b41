"""`kbeval.evaluate` and trec_eval (as pytrec_eval), ir_measures and cwl_eval agree on every query and in the mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import kbeval
from kbeval.metrics.names import CLASSICS
from tests.support.examples import scorings

pytrec_eval = pytest.importorskip("pytrec_eval")
ir_measures = pytest.importorskip("ir_measures")
pytest.importorskip("cwl")

KS = (1, 3, 5, 10, 100)
# What people write, and what trec_eval calls it.
TREC = {
    **{f"nDCG@{k}": f"ndcg_cut_{k}" for k in KS},
    **{f"AP@{k}": f"map_cut_{k}" for k in KS},
    **{f"P@{k}": f"P_{k}" for k in KS},
    **{f"R@{k}": f"recall_{k}" for k in KS},
    **{f"Success@{k}": f"success_{k}" for k in KS},
    "nDCG": "ndcg",
    "AP": "map",
    "RR": "recip_rank",
    "Rprec": "Rprec",
    "Bpref": "bpref",
}
CUTS = ",".join(map(str, KS))
PEER_NAMES = {f"{name}.{CUTS}" for name in ("ndcg_cut", "map_cut", "P", "recall", "success")} | {
    "ndcg", "map", "recip_rank", "Rprec", "bpref",
}  # fmt: skip
# By our names: those that ir_measures computes with trec_eval, and so orders ties as it does.
TIED = {name: ir_measures.parse_measure(name) for name in TREC}
# Ties of these it leaves in the order of the run (RBP), or puts in that of ascending ids.
UNTIED = {
    name: ir_measures.parse_measure(name.replace("(p", "(rel=1,p"))
    for name in ("RBP(p=0.8)", *(f"{head}@{k}" for head in ("Judged", "RR") for k in KS))
}

DOCS = st.sampled_from([f"d{number}" for number in range(14)] + ["Ünï", "z'\"", "0"])
# Some equal, some equal only in single precision, both zeros.
SCORES = st.sampled_from([0.0, -0.0, 1.0, 0.5, 0.123456789, 0.123456788, -3.5, 1e30, 1e-30, 7.0, 2.0])
GRADES = st.sampled_from([0, 0, 1, 1, 2, 3, 7, -1, -2])
QUERIES = st.sampled_from([f"q{number}" for number in range(30)])
RUNS = st.dictionaries(QUERIES, st.dictionaries(DOCS, SCORES, max_size=14), min_size=1, max_size=30)
QRELS = st.dictionaries(QUERIES, st.dictionaries(DOCS, GRADES, min_size=1, max_size=10), min_size=1, max_size=30)

Run = dict[str, dict[str, float]]
Qrels = dict[str, dict[str, int]]


def peer(qrels: Qrels, run: Run, level: int = 1) -> dict[str, dict[str, float]]:
    """What trec_eval says. An empty ranking crashes pytrec_eval: there every number is 0."""
    found: dict[str, dict[str, float]] = pytrec_eval.RelevanceEvaluator(
        qrels, PEER_NAMES, relevance_level=level
    ).evaluate({query: docs for query, docs in run.items() if docs})
    return found | {query: dict.fromkeys(TREC.values(), 0.0) for query in run.keys() & qrels.keys() if not run[query]}


def by_query(result: Any) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for query, metric, value in result.per_query().iter_rows():
        found.setdefault(query, {})[metric] = value
    return found


def check(qrels: Qrels, run: Run, level: int | None) -> None:
    # A query all of whose grades are negative crashes pytrec_eval.
    qrels = {query: {"judged": 0, **docs} for query, docs in qrels.items()}
    expected = peer(qrels, run, level or 1)
    result = kbeval.evaluate(run, qrels, list(TREC), level=level)
    found = by_query(result)
    assert found.keys() == expected.keys()
    for asked, theirs in TREC.items():
        for query, values in found.items():
            assert values[asked] == pytest.approx(expected[query][theirs], abs=1e-9), (query, asked)
        if expected:
            mean = sum(values[theirs] for values in expected.values()) / len(expected)
            assert result[asked] == pytest.approx(mean, abs=1e-9), asked
        else:
            assert result[asked] is None


@example({"q": {"a": 0, "b": 1, "c": 0}}, {"q": {"a": 2.0, "b": 1.0}}, 2)  # gain where nothing is relevant
@scorings(8, deadline=None)
@given(qrels=QRELS, run=RUNS, level=st.sampled_from([None, 1, 2]))
def test_every_measure_of_trec_eval_agrees(qrels: Qrels, run: Run, level: int | None) -> None:
    check(qrels, run, level)


def test_a_large_run_agrees_too() -> None:
    import random

    source = random.Random(5)
    qrels = {f"q{n}": {f"d{source.randrange(400)}": source.choice((0, 0, 1, 2)) for _ in range(40)} for n in range(60)}
    run = {f"q{n}": {f"d{source.randrange(400)}": source.randrange(60) / 7 for _ in range(300)} for n in range(5, 70)}
    check(qrels, run, None)


def in_order(run: Run) -> Run:
    """The same rankings without ties: trec_eval compares scores in single precision, then ids, both descending."""
    found: Run = {}
    for query, docs in run.items():
        ranking = sorted(docs, key=lambda doc: (np.float32(docs[doc]) + 0, doc.encode()), reverse=True)
        found[query] = {doc: float(-place) for place, doc in enumerate(ranking)}
    return found


@scorings(8, deadline=None)
@given(qrels=QRELS, run=RUNS)
def test_every_measure_of_ir_measures_agrees(qrels: Qrels, run: Run) -> None:
    # A query all of whose grades are negative crashes the library below ir_measures, as an empty ranking does.
    qrels = {query: {"judged": 0, **docs} for query, docs in qrels.items()}
    # For its Judged a negative grade is a judgement.
    judged = {query: {doc: grade for doc, grade in docs.items() if grade >= 0} for query, docs in qrels.items()}
    result = kbeval.evaluate(run, qrels, [*TIED, *UNTIED])
    found = by_query(result)
    assert found.keys() == run.keys() & qrels.keys()
    both = {query: docs for query, docs in run.items() if query in found}
    filled = {query: docs for query, docs in both.items() if docs}
    for measures, labels, ranking in ((TIED, qrels, filled), (UNTIED, judged, in_order(filled))):
        names = {str(measure): ours for ours, measure in measures.items()}
        theirs: dict[str, list[float]] = {name: [] for name in measures}
        for one in ir_measures.iter_calc(list(measures.values()), labels, ranking):
            if one.query_id in filled:
                name = names[str(one.measure)]
                assert found[one.query_id][name] == pytest.approx(one.value, abs=1e-9), one
                theirs[name].append(one.value)
        for name, values in theirs.items():
            assert len(values) == len(filled)
            # An empty ranking counts as 0, in every mean; of nothing, no share is judged.
            n = len(filled) if name.startswith("Judged") and found else len(both)
            assert result[name] == (pytest.approx(sum(values) / n, abs=1e-9) if n else None), name
    for query in both.keys() - filled.keys():
        assert {value for name, value in found[query].items() if not name.startswith("Judged")} == {0.0}


def test_every_measure_that_can_be_asked_for_is_compared_with_a_peer() -> None:
    heads = {name.partition("@")[0] for name in (*TREC, *TIED, *UNTIED)}
    # Unjudged is what Judged leaves of 1.
    assert heads == set(CLASSICS.values()) - {"Unjudged"}
    run, qrels = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, {"q": {"b": 0, "c": 1}}
    result = kbeval.evaluate(run, qrels, ["Judged@2", "Unjudged@2", "Judged@9", "Unjudged@9"])
    assert (result["Judged@2"], result["Unjudged@2"]) == (0.5, 0.5)
    assert result["Judged@9"] == pytest.approx(2 / 3)
    assert result["Unjudged@9"] == pytest.approx(1 / 3)


def test_complete_counts_missing_queries_as_zero() -> None:
    qrels = {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"b": 0}}
    run = {"q1": {"a": 1.0}, "q9": {"a": 1.0}}
    assert kbeval.evaluate(run, qrels, "AP")["AP"] == 1
    result = kbeval.evaluate(run, qrels, "AP", complete=True)
    assert result["AP"] == pytest.approx(1 / 3)
    assert result.queries == 3
