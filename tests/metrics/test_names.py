"""One meaning per name: any name that a table prints for a number means that number in every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbeval.compare.gates import make_gates
from kbeval.compare.options import CompareOptions
from kbeval.compare.run import compare_runs
from kbeval.errors import MetricError, UsageError
from kbeval.explore.history_names import find_measured
from kbeval.metrics.catalogue import Metric, catalogue, metrics_in_config
from kbeval.metrics.model import AggregateMetrics
from kbeval.metrics.names import ALIASES, SHORT_NAMES, Name, Names, ks_named
from kbeval.render.scores import number_table, score_table
from tests.cli.test_cli import call, refused
from tests.support.workspace import Workspace, answer, hits

OWN = {
    "gain_at_k": "MAX(CASE WHEN rank <= :k THEN 1 ELSE 0 END)",
    "recall_at_k": "MAX(CASE WHEN rank <= :k THEN 1 ELSE 0 END)",
    "depth": "MAX(CASE WHEN rank <= :k THEN 1 ELSE 0 END)",
    "depth_at_k": "MAX(CASE WHEN rank <= :k THEN 1 ELSE 0 END)",
    "refused_once": "MAX(rank)",
}


def everything() -> list[Metric]:
    """Every metric that is shipped, and own ones whose names come close to short ones."""
    return catalogue(configured=metrics_in_config(OWN, "kbeval.toml"), extra_ks=(7, 20))


def every_number() -> list[Name]:
    return [number for metric in everything() for number in metric.numbers]


def aggregate_of(numbers: list[Name]) -> AggregateMetrics:
    """Stored numbers, one of each name."""
    stored: dict[str, object] = {}
    for number in numbers:
        last = number.part or number.k
        if last is None:
            stored[number.metric] = 0.5
        else:
            found = stored.setdefault(number.metric, {})
            assert isinstance(found, dict)
            found[str(last)] = 0.5
    return AggregateMetrics.from_dict(stored)


def printed(number: Name) -> set[str]:
    """Every form that a table prints."""
    columns, _ = score_table([("run", None, aggregate_of([number]))], "csv", None)
    heads = {title for column in columns if column.name == number.long for title in (column.name, column.title)}
    _, rows = number_table(aggregate_of([number]))
    return heads | {str(row[0]) for row in rows if row[0] == number.long} | {number.short, number.long, str(number)}


@pytest.mark.parametrize("number", every_number(), ids=str)
def test_every_printed_form_means_the_same_number_to_every_command(number: Name) -> None:
    metrics = everything()
    stored = {one.long for one in every_number()}
    for text in printed(number):
        # explain, and --min-scored
        assert Names(metrics).metric(text).name == number.metric
        # gate
        (gate,) = make_gates({"min": {text: 0.5}}, metrics)
        assert gate.metric == number.long
        (gate,) = make_gates({"min_scored": {text: 1}}, metrics)
        assert gate.metric == number.metric
        # history, of numbers that are stored and of those that are not yet
        assert [one.name for one in find_measured([text], metrics, stored)] == [number.long]
        assert [one.name for one in find_measured([text], metrics, ())] == [number.long]
        # compare --only, and show --metric
        assert Names(metrics).numbers(text) == [number]
        # a metric that was taken out of the catalogue since
        assert [one.name for one in find_measured([text], [], stored)] == [number.long]


def test_no_two_numbers_are_printed_alike_and_names_parse_back() -> None:
    numbers = every_number()
    assert len({number.short for number in numbers}) == len({number.long for number in numbers}) == len(numbers)
    assert [Name.parse(number.long) for number in numbers] == numbers


def test_no_metric_is_called_like_the_short_name_of_another() -> None:
    names = {metric.name for metric in catalogue()}
    assert not names & ALIASES.keys()
    assert set(ALIASES.values()) <= names
    assert len(set(SHORT_NAMES.values())) == len(SHORT_NAMES)


@pytest.mark.parametrize("name", ["refused_ok", "hit", "cited", "under_refusal"])
def test_an_own_metric_cannot_take_a_short_name(name: str) -> None:
    with pytest.raises(MetricError, match=f"'{name}' is short for {ALIASES[name]}; choose another name"):
        metrics_in_config({name: "MAX(rank)"}, "kbeval.toml")


@pytest.mark.parametrize(
    ("text", "long", "short"),
    [
        ("hit@5", "hit_at_k.5", "hit@5"),
        ("hit_at_k.5", "hit_at_k.5", "hit@5"),
        ("hit_at_k@5", "hit_at_k.5", "hit@5"),
        ("nDCG@10", "ndcg_at_k.10", "ndcg@10"),
        (" MRR ", "mrr", "mrr"),
        ("latency_ms.p95", "latency_ms.p95", "latency_ms.p95"),
        ("refused", "refused", "refused"),
        ("refused_ok", "refusal_correctness", "refused_ok"),
        ("recall@7", "recall_at_k_doc.7", "recall@7"),
        ("recall_at_k.7", "recall_at_k.7", "recall_at_k.7"),
        ("depth@5", "depth_at_k.5", "depth@5"),
        ("depth.5", "depth.5", "depth.5"),
        ("under_refusal", "under_refusal_rate", "under"),
        ("abstention.unsupported_rate", "abstention.unsupported_rate", "abstention.unsupported_rate"),
    ],
)
def test_names_as_people_write_them(text: str, long: str, short: str) -> None:
    found = Names(everything()).number(text)
    assert (found.long, found.short) == (long, short)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mmr", "did you mean 'mrr'"),
        ("hit", "'hit' is ambiguous: specify k, for example hit@5"),
        ("latency_ms", "'latency_ms' is ambiguous: specify which, for example latency_ms.p50"),
        ("latency_ms.p99", "latency_ms is not computed at 'p99'; available: latency_ms.p50"),
        ("hit@05", "hit_at_k is not computed at '05'"),
        ("mrr.5", "mrr is not computed at '5'; available: mrr"),
        ("abstention.k", "there is no metric 'abstention.k'"),
        ("hit@", "hit_at_k is not computed at ''"),
        ("@", "there is no metric '@'"),
    ],
)
def test_an_unknown_number_is_a_usage_error(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        Names(everything()).number(text)
    assert message in str(error.value)


def test_the_values_of_k_in_names_are_found() -> None:
    assert ks_named(["hit@7", "ndcg_at_k.20", "mrr", "latency_ms.p95", "hit@0", "x@99999999999"]) == [7, 20]


def test_names_that_cannot_be_printed_as_a_k_are_kept_as_they_are() -> None:
    for text in ("mine.05", "mine.a.b", "mine.", "mine"):
        assert Name.parse(text).long == text


@pytest.fixture
def answered(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """One query with an expected chunk, one that should be refused and was."""
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["c1"]}, {"id": "q2", "answerable": False})
    rows: dict[str, dict[str, object]] = {
        "q1": {"hits_top_k": hits("c1"), "elapsed_ms": 3, "answer": answer("yes")},
        "q2": {"hits_top_k": hits(None), "answer": answer("", grounded=False)},
    }
    workspace.add_run("a", rows)
    workspace.add_run("b", rows, created_at="2026-02-01")
    monkeypatch.setenv("KBEVAL_DB", str(workspace.db))
    monkeypatch.setenv("KBEVAL_GOLDEN", str(workspace.golden))
    return workspace


def test_the_column_of_refusals_is_one_number_everywhere(
    answered: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """`refused` counts questions, of one system; the share that was refused rightly is `refused_ok`."""
    _, out, _ = call(capsys, "score", "--all")
    heads, values = out.splitlines()[0].split(), out.splitlines()[1].split()
    assert dict(zip(heads, values, strict=True))["refused_ok"] == "1.0000"
    assert call(capsys, "gate", "latest", "--min", "refused_ok=1")[0] == 0
    assert call(capsys, "explain", "refused_ok")[1].startswith("refusal_correctness: ")
    assert "1.0000" in call(capsys, "history", "refused_ok")[1]
    _, out, _ = call(capsys, "show", "latest", "--worst", "1", "--metric", "refused_ok", "--format", "csv")
    assert "q2,1.0" in out
    assert "refused_ok" in call(capsys, "compare", "a", "b", "--only", "refused_ok")[1]
    _, out, _ = call(capsys, "compare", "a", "b")
    assert "refused_ok" in out


def test_the_former_meaning_of_refused_is_explained_if_it_has_no_value(
    answered: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    call(capsys, "score", "--all")
    hint = "did you mean refused_ok (refusal_correctness)?"
    code, out, _ = call(capsys, "gate", "latest", "--min", "refused=0.9", "--format", "json")
    assert code == 1
    assert hint in out
    assert hint in call(capsys, "history", "refused")[2]
    assert hint in refused(capsys, "compare", "a", "b", "--only", "refused")
    assert hint in refused(capsys, "show", "latest", "--worst", "1", "--metric", "refused")


def test_a_metric_of_another_system_is_known_and_does_not_apply(
    answered: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "under_refusal_rate does not apply to any query of run b" in refused(
        capsys, "show", "b", "--worst", "1", "--metric", "under"
    )
    assert "does not apply to any query of these runs" in refused(capsys, "compare", "a", "b", "--only", "under")
    assert "total_queries is a count" in refused(capsys, "compare", "a", "b", "--only", "queries")


def test_comparing_one_metric_takes_every_k_or_the_one_that_is_named(answered: Workspace) -> None:
    def tested(*only: str) -> list[str]:
        options = CompareOptions(only=only)
        return sorted(compare_runs("a", "b", db=answered.db, golden=answered.golden, options=options).shown or ())

    assert tested("hit") == ["hit_at_k.1", "hit_at_k.10", "hit_at_k.3", "hit_at_k.5"]
    assert tested("hit@5", "MRR") == ["hit_at_k.5", "mrr"]


def test_own_metrics_are_printed_short_too(
    answered: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kbeval.toml").write_text(f'[metrics]\ngain_at_k = "{OWN["gain_at_k"]}"\n')
    assert "gain@5" in call(capsys, "score", "--all")[1]
    assert "gain@5" in call(capsys, "compare", "a", "b")[1]
    assert "gain@5" in call(capsys, "history", "gain@5")[1]
    assert call(capsys, "gate", "latest", "--min", "gain@5=0")[0] == 0
