"""`kbeval.evaluate`: what it takes, what it gives, and what it says about wrong input."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import kbeval
from kbeval.compare.stats import Pairs, assess
from kbeval.engine.relations import relations
from kbeval.engine.session import Session
from kbeval.errors import KbevalError
from kbeval.frames.kernel import parse_measure
from kbeval.frames.ranking import judge
from kbeval.metrics.names import CLASSICS, Name

QRELS = {"q1": {"a": 1, "b": 0, "c": 2}, "q2": {"a": 3}, "q3": {"z": 1}}
RUN = {"q1": {"a": 0.5, "x": 0.4, "c": 0.3}, "q2": {"b": 1.0, "a": 0.5}, "q9": {"a": 1.0}}
METRICS = ["nDCG@10", "AP@100", "RR@10", "P@5", "R@20", "Success@5", "Rprec", "Bpref", "RBP(p=0.8)", "Judged@10"]
KEY = ["query_id", "doc_id"]


def table(found: dict[str, dict[str, Any]], number: str) -> pl.DataFrame:
    rows = [(query, doc, value) for query, docs in found.items() for doc, value in docs.items()]
    return pl.DataFrame(rows, schema=[*KEY, number], orient="row")


class OnlyStream:
    """A table that knows the Arrow C stream protocol and nothing else."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


class OnlyInterchange:
    """A table that knows the dataframe interchange protocol and nothing else."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._table = frame.to_arrow().cast(
            pa.schema([(name, self._plain(kind)) for name, kind in frame.schema.items()])
        )

    @staticmethod
    def _plain(kind: pl.DataType) -> pa.DataType:
        return pa.string() if kind == pl.String else pa.float64() if kind.is_float() else pa.int64()

    def __dataframe__(self, *, nan_as_null: bool = False, allow_copy: bool = True) -> object:
        return self._table.__dataframe__(nan_as_null, allow_copy)


def test_every_kind_of_input_gives_the_same_numbers(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    run, qrels = table(RUN, "score"), table(QRELS, "relevance")
    lines = [f"{query} Q0 {doc} 1 {score} tag\n" for query, doc, score in run.iter_rows()]
    (tmp_path / "a.run").write_text("# comment\n" + "".join(lines))
    (tmp_path / "a.qrels").write_text("".join(f"{query}\t0\t{doc}\t{n}\n" for query, doc, n in qrels.iter_rows()))
    expected = kbeval.evaluate(RUN, QRELS, METRICS)
    forms: list[tuple[Any, Any]] = [
        (run, qrels),
        (run.lazy(), qrels.rename({"relevance": "grade"})),
        (run.to_arrow(), qrels.to_arrow()),
        (pa.RecordBatchReader.from_stream(run), OnlyStream(qrels)),
        (OnlyInterchange(run), OnlyInterchange(qrels)),
        (pandas.DataFrame(run.to_dicts()), pandas.DataFrame(qrels.to_dicts())),
        (run.rename({"query_id": "qid", "doc_id": "docno"}), qrels.rename({"query_id": "qid", "doc_id": "docid"})),
        (run.with_columns(pl.col("query_id").cast(pl.Categorical)), qrels),
        (str(tmp_path / "a.run"), tmp_path / "a.qrels"),
        # Rows in another order, the queries mixed.
        (run.sample(fraction=1, shuffle=True, seed=3), qrels.sample(fraction=1, shuffle=True, seed=4)),
    ]
    for form in forms:
        found = kbeval.evaluate(*form, METRICS)
        assert dict(found) == dict(expected), type(form[0])
        assert found.per_query().equals(expected.per_query())


def test_the_result_is_what_was_asked_for() -> None:
    result = kbeval.evaluate(RUN, QRELS, METRICS)
    assert list(result) == METRICS
    assert result["nDCG@10"] == result["ndcg_at_k.10"] == pytest.approx(0.69556, abs=1e-5)
    frame = result.per_query()
    assert frame.columns == ["query_id", "metric", "value"]
    assert set(frame["metric"]) == set(METRICS)
    assert (result.queries, result.only_in_run, result.only_in_qrels) == (2, 1, 1)
    assert "1 query of the qrels without a ranking left out" in repr(result)
    assert "<td>nDCG@10</td>" in result._repr_html_()
    with pytest.raises(KeyError, match="was not requested"):
        result["P@9"]


def test_data_in_a_table_is_not_html() -> None:
    result = kbeval.evaluate({"<b>x": RUN, "y\x1b[1m": RUN}, QRELS, "AP")
    assert "<b>x" not in result._repr_html_()
    assert "\x1b" not in repr(result)


@pytest.mark.parametrize("text", [*METRICS, "nDCG", "AP", "RR", "R", "Unjudged@3"])
def test_names_are_parsed_and_printed_back(text: str) -> None:
    name = Name.parse_classic(text)
    assert name is not None
    assert name.classic == text
    assert Name.parse_classic(text.lower()) == name
    assert parse_measure(text) == name
    assert name.metric in CLASSICS


def bigger(seed: int, shift: float) -> dict[str, dict[str, float]]:
    source = random.Random(seed)
    return {
        f"q{n}": {f"d{d}": source.random() + (shift if d < 3 else 0) for d in range(12)} for n in range(40)
    }  # d0 to d2 are relevant


LABELS = {f"q{n}": {f"d{d}": 1 if d < 3 else 0 for d in range(12)} for n in range(40)}


def test_compare_has_the_statistics_of_kbeval_compare() -> None:
    a, b = (kbeval.evaluate(bigger(seed, shift), LABELS, ["nDCG@10", "P@3"]) for seed, shift in ((1, 0.1), (2, 0.4)))
    found = a.compare(b)
    values = {
        asked: Pairs(np.array(a.table[parse_measure(asked).long]), np.array(b.table[parse_measure(asked).long]))
        for asked in ("nDCG@10", "P@3")
    }
    assert {name: one.to_dict() for name, one in found.significance.items()} == {
        name: one.to_dict() for name, one in assess(values).items()
    }
    assert found.verdict.answer == "better"
    assert b.compare(a).verdict.answer == "worse"
    assert found.frame()["p_holm"].max() <= 0.05


def test_many_runs_are_corrected_over_all_of_them() -> None:
    runs = {f"run{seed}": bigger(seed, 0.1 * seed) for seed in range(4)}
    found = kbeval.evaluate(runs, LABELS, ["nDCG@10", "P@3"], baseline="run1")
    assert found.baseline == "run1"
    frame = found.frame()
    assert frame.height == 8
    others = frame.filter(pl.col("run") != "run1")
    p = sorted(others["p"].to_list())
    worst, expected = 0.0, []
    for place, one in enumerate(p):
        worst = max(worst, min(1.0, one * (len(p) - place)))
        expected.append(worst)
    assert sorted(others["p_holm"].to_list()) == pytest.approx(expected, abs=1e-3)
    assert frame.filter(pl.col("run") == "run1")["p"].null_count() == 2
    assert found["run3"]["P@3"] == kbeval.evaluate(runs["run3"], LABELS, "P@3")["P@3"]


@pytest.mark.parametrize(
    ("run", "qrels", "metrics", "complaint"),
    [
        (RUN, QRELS, ["nDCGG@10"], "did you mean 'nDCG'"),
        (RUN, QRELS, ["P"], "needs a cutoff"),
        (RUN, QRELS, ["RBP(p=0.5)"], "RBP(p=0.8)"),
        (RUN, QRELS, [], "no metric given"),
        (RUN, QRELS, ["groundedness"], "for rankings"),
        ({"q1": {"a": "high"}}, QRELS, ["AP"], "'high' is not a number"),
        ({"q1": ["a"]}, QRELS, ["AP"], "run 'q1' is list"),
        ({"q1": {"a": float("nan")}}, QRELS, ["AP"], "1 rows without a score"),
        (RUN, {"q1": {"a": 1e12}}, ["AP"], "a grade above"),
        (pl.DataFrame({"query_id": ["q"], "doc_id": ["d"]}), QRELS, ["AP"], "has no column score"),
        (pl.DataFrame({"query_id": ["q"], "doc_id": [1.5], "score": [1.0]}), QRELS, ["AP"], "ids must be text"),
        (pl.DataFrame({"query_id": ["q"], "doc_id": ["d"], "score": ["1"]}), QRELS, ["AP"], "not numbers"),
        (pl.DataFrame({"query_id": ["q", "q"], "doc_id": ["d", "d"], "score": [1, 2]}), QRELS, ["AP"], "2 times"),
        (
            pl.DataFrame({"query_id": ["q", None], "doc_id": ["d", "e"], "score": [1, 2]}),
            QRELS,
            ["AP"],
            "1 rows without",
        ),
        (7, QRELS, ["AP"], "pass a table"),
        ("nowhere.run", QRELS, ["AP"], "does not exist"),
    ],
)
def test_wrong_input_is_one_line(run: Any, qrels: Any, metrics: Any, complaint: str) -> None:
    with pytest.raises(kbeval.KbevalError) as caught:
        kbeval.evaluate(run, qrels, metrics)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_run_has_no_numbers() -> None:
    empty = pl.DataFrame(schema={"query_id": pl.String, "doc_id": pl.String, "score": pl.Float64})
    assert kbeval.evaluate(empty, QRELS, "AP")["AP"] is None
    assert kbeval.evaluate(empty, QRELS, "AP", complete=True)["AP"] == 0
    assert kbeval.evaluate({}, QRELS, "AP")["AP"] is None


def test_counts_before_each_label_agree_with_the_sql() -> None:
    """The arrays of `ranking` and `sql/matching/label_finds.sql` are one relation."""
    source = random.Random(3)
    docs = [f"d{n}" for n in range(30)]
    qrels = {f"q{n}": {doc: source.choice([0, 0, 1, 2, 0.5]) for doc in source.sample(docs, 9)} for n in range(30)}
    run = {f"q{n}": {doc: source.choice([1.0, 2.0, 3.0]) for doc in source.sample(docs, 15)} for n in range(30)}
    labels = judge(table(run, "score"), table(qrels, "grade").cast({"grade": pl.Float64})).labels
    with Session() as session:
        session.connection.register("label_ranks", labels.select(labels.columns[:6]).to_arrow())
        found = session.frame(relations()["label_finds"].sql).sort("result_no", "place")
    ours = labels.sort("result_no", "place")
    for name in ("n_relevant_seen", "n_nonrelevant_seen", "n_relevant"):
        assert ours[name].to_list() == [None if value is None else int(value) for value in found[name]], name
    # The best order may differ among equal grades; labels of grade 0 come last, and some were left out.
    for frame in (ours.filter(pl.col("grade") > 0), found.filter(pl.col("grade") > 0)):
        ordered = frame.sort("result_no", "ideal_rank")
        places = ordered.select(pl.int_range(1, pl.len() + 1).over("result_no")).to_series()
        assert ordered["ideal_rank"].to_list() == places.to_list()
        grades = ordered.group_by("result_no").agg("grade")["grade"].to_list()
        assert all(found == sorted(found, reverse=True) for found in grades)


def test_what_is_not_a_number_a_metric_or_a_level_is_named() -> None:
    run, qrels = {"q1": {"a": 1.0}}, {"q1": {"a": 1}}
    cases: list[tuple[Any, Any, Any, str]] = [
        ({"q1": {"a": 10**400}}, ["RR"], None, "must map to a number"),
        (run, [None], None, "a metric is None"),
        (run, ["RR"], "2", "level is '2'"),
        (run, ["RR"], float("nan"), "level is nan"),
    ]
    for asked, metrics, level, fault in cases:
        with pytest.raises(KbevalError, match=fault):
            kbeval.evaluate(asked, qrels, metrics, level=level)


def test_ids_are_text_and_are_never_merged() -> None:
    qrels = {"1": {"a": 1}}
    assert kbeval.evaluate({1: {"a": 1.0}}, qrels, "RR")["RR"] == 1
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        ({1: {"a": 1.0}, "1": {"b": 1.0}}, qrels, {}, "the run has query '1' twice"),
        ({"1": {1: 1.0, "1": 2.0}}, qrels, {}, "document '1' 2 times"),
        ({"1": {"a": 1.0}}, {1: {"a": 1}, "1": {"b": 1}}, {}, "the qrels has query '1' twice"),
        ({1: {"q": {"a": 1.0}}, "1": {"q": {"a": 1.0}}}, qrels, {}, "two runs have the same name"),
        ({None: {"a": 1.0}}, qrels, {}, "the query id is None"),
        ({"1": {1.5: 1.0}}, qrels, {}, "the document id is 1.5"),
        ({"1": {True: 1.0}}, qrels, {}, "the document id is True"),
        ({"": {"a": 1.0}}, qrels, {}, "the query id is ''"),
        ({"1": {"a": 1.0}}, qrels, {"complete": "no"}, "complete is 'no'"),
        ({"1": {"a": 1.0}}, qrels, {"complete": None}, "complete is None"),
    ]
    for run, labels, options, complaint in cases:
        with pytest.raises(KbevalError) as caught:
            kbeval.evaluate(run, labels, "RR", **options)
        assert complaint in str(caught.value)


def test_ids_that_are_nearly_equal_are_a_doubt_and_not_a_zero() -> None:
    qrels = {"q1": {"d1": 1, "d2": 1}, "q2": {"e1": 1}}
    sound = kbeval.evaluate({"q1": {"d1": 1.0, "x": 0.5}, "q2": {"f": 1.0}}, qrels, "AP")
    assert sound.warnings == []
    for run, said in (
        ({"q1": {"D1": 1.0, "d2": 0.5}}, "1 judged document not found: the ids in the run and the qrels differ"),
        ({"q1": {"d1 ": 1.0, "d2": 0.5}}, "('d1 ' and 'd1')"),
        ({"q1": {"D1": 1.0, "D2": 0.5}}, "2 judged documents not found"),
        ({"q1": {"x": 1.0}}, "no document of the run is judged in the qrels"),
        ({"q1": {"d1": 1.0}, "Q2": {"e1": 1.0}}, "1 query left out: the ids in the run and the qrels differ"),
        ({"Q1": {"d1": 1.0}}, "no query of the run has judgements in the qrels"),
        ({"z": {"d1": 1.0}}, "no query of the run has judgements in the qrels"),
    ):
        found = kbeval.evaluate(run, qrels, "AP")
        assert any(said in warning for warning in found.warnings), (run, found.warnings)
        assert said in repr(found), "next to the number"
    assert kbeval.evaluate({"z": {"d1": 1.0}}, qrels, "AP")["AP"] is None
    # Two documents that differ in case only may both be judged.
    both = {"q1": {"d1": 1, "D1": 0}}
    assert kbeval.evaluate({"q1": {"d1": 1.0}}, both, "AP").warnings == []
    many = {f"q{number:05d}": {f"d{n}": 1.0 for n in range(20)} for number in range(2000)}
    labels = {query: {"d1": 1, "D2": 1} for query in many}
    (said,) = kbeval.evaluate(many, labels, "AP").warnings
    assert "500 judged documents of the first 500 queries" in said, "a sample is enough, and it is said"
