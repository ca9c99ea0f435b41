"""`kbeval.evaluate` and trec_eval (as pytrec_eval), ir_measures and cwl_eval agree on every query and in the mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kbeval
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
# ir_measures orders ties of Judged by document id ascending, trec_eval descending; so without ties for these.
UNTIED = ("Judged@1", "Judged@3", "Judged@10", "RBP(p=0.8)", "RR@10", "RR@3")
IRM = [ir_measures.parse_measure(name) for name in (*UNTIED[:3], "RBP(rel=1,p=0.8)", *UNTIED[4:])]

DOCS = st.sampled_from([f"d{number}" for number in range(14)] + ["Ünï", "z'\"", "0"])
# Some equal, some equal only in single precision, both zeros.
SCORES = st.sampled_from([0.0, -0.0, 1.0, 0.5, 0.123456789, 0.123456788, -3.5, 1e30, 1e-30, 7.0, 2.0])
GRADES = st.sampled_from([0, 0, 1, 1, 2, 3, 7, -1, -2])
QUERIES = st.sampled_from([f"q{number}" for number in range(9)])
RUNS = st.dictionaries(QUERIES, st.dictionaries(DOCS, SCORES, max_size=14), min_size=1, max_size=9)
QRELS = st.dictionaries(QUERIES, st.dictionaries(DOCS, GRADES, min_size=1, max_size=10), min_size=1, max_size=9)

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


@scorings(25, deadline=None)
@given(qrels=QRELS, run=RUNS, level=st.sampled_from([None, 1, 2]))
def test_every_measure_of_trec_eval_agrees(qrels: Qrels, run: Run, level: int | None) -> None:
    check(qrels, run, level)


def test_a_large_run_agrees_too() -> None:
    import random

    source = random.Random(5)
    qrels = {f"q{n}": {f"d{source.randrange(400)}": source.choice((0, 0, 1, 2)) for _ in range(40)} for n in range(60)}
    run = {f"q{n}": {f"d{source.randrange(400)}": source.randrange(60) / 7 for _ in range(300)} for n in range(5, 70)}
    check(qrels, run, None)


@scorings(20, deadline=None)
@given(
    qrels=QRELS,
    run=st.dictionaries(
        QUERIES,
        st.lists(DOCS, unique=True, min_size=1).map(lambda docs: {doc: -1.0 * n for n, doc in enumerate(docs)}),
        min_size=1,
    ),
)
def test_what_only_ir_measures_has_agrees(qrels: Qrels, run: Run) -> None:
    # For ir_measures a negative grade is a judgement too.
    qrels = {query: {doc: max(grade, 0) for doc, grade in docs.items()} for query, docs in qrels.items()}
    result = kbeval.evaluate(run, qrels, UNTIED)
    found = by_query(result)
    names = dict(zip(map(str, IRM), UNTIED, strict=True))
    seen = 0
    for one in ir_measures.iter_calc(IRM, qrels, run):
        if one.query_id in found:
            assert found[one.query_id][names[str(one.measure)]] == pytest.approx(one.value, abs=1e-9), one
            seen += 1
    assert seen == len(found) * len(UNTIED)


def test_complete_counts_missing_queries_as_zero() -> None:
    qrels = {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"b": 0}}
    run = {"q1": {"a": 1.0}, "q9": {"a": 1.0}}
    assert kbeval.evaluate(run, qrels, "AP")["AP"] == 1
    result = kbeval.evaluate(run, qrels, "AP", complete=True)
    assert result["AP"] == pytest.approx(1 / 3)
    assert result.queries == 3
