"""Invented databases with several chunkings: kbeval and the oracle agree on every number, to the last digit.

Each example is a whole small database (`tests/matching_worlds.py`) and a choice of `match`, `min_overlap` and
`overlap_of`. All runs are scored in one session, one of them also alone, and two are compared. The oracle is
`tests/matching_oracle.py`; its docstring lists the choices that it makes.

To replay an example that fails, take the arguments that hypothesis prints (`seed=…, sizes=…, options=…`) to

    python -m tests.scoring.test_matching_against_oracle SEED [DOCUMENTS CHUNKINGS RUNS QUERIES] \
        [--match auto] [--min-overlap 0.5] [--overlap-of auto] [--shrink] [--keep FOLDER]

It prints what differs with what the oracle thinks of the run and of the query; `--shrink` first takes away whatever the
difference does not need and prints the world that is left; `--keep` leaves kb.db and golden.json in a folder.

The default profile takes the same examples each time; HYPOTHESIS_PROFILE=thorough looks for new ones.
"""

from __future__ import annotations

import argparse
import pprint
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, example, given
from hypothesis import strategies as st

from kbeval.compare.options import CompareOptions
from kbeval.compare.run import compare_runs
from kbeval.scoring.aggregate import score_runs
from kbeval.scoring.options import ScoreOptions
from tests.oracles.matching_oracle import OVERLAPS_OF, Oracle, World
from tests.oracles.matching_worlds import invent, smaller, store
from tests.scoring import test_oracle_by_hand as by_hand
from tests.support.examples import scorings

SIZES = st.tuples(st.integers(2, 4), st.integers(2, 3), st.integers(10, 20), st.integers(8, 14))


@dataclass(frozen=True)
class Options:
    match: str = "auto"
    min_overlap: float = 0.5
    overlap_of: str = "auto"

    def scoring(self) -> ScoreOptions:
        return ScoreOptions(**asdict(self))

    def oracle(self, world: World) -> Oracle:
        return Oracle(world, **asdict(self))


OPTIONS = st.builds(
    Options,
    match=st.sampled_from(["auto", "auto", "auto", "exact", "span"]),
    min_overlap=st.sampled_from([0.5, 0.5, 0.25, 0.1, 1.0, 1 / 3]),
    overlap_of=st.sampled_from(["auto", *OVERLAPS_OF]),
)


def differences(world: World, options: Options, folder: Path) -> Iterator[str]:
    """What kbeval and the oracle do not agree on, each with what the oracle thinks."""
    db, golden = store(world, folder)
    oracle = options.oracle(world)
    names = [run.run_id for run in world.runs]
    found = score_runs(db, golden, names, replace(options.scoring(), by="category"))
    scored = found.aggregates
    for run in world.runs:
        aggregate = scored[run.run_id]
        thought = about(oracle, run.run_id)
        if aggregate.provenance["matching"] != oracle.said(run):
            yield f"{thought}: provenance.matching is {aggregate.provenance['matching']}"
        yield from numbers_that_differ(thought, aggregate.to_dict(), oracle.score(run.run_id))
        for query_id, of_one in found.slices.get(run.run_id, {}).items():  # a category for each query
            if query_id in run.rows:
                judged = oracle.judge(run, query_id, oracle.matching(run))
                where = f"{thought}, {query_id} (by {judged.matching}, right are {judged.correct})"
                yield from numbers_that_differ(where, of_one.to_dict(), oracle.score(run.run_id, query_id=query_id))
    if len(names) > 1:
        run_id = names[0]
        alone = score_runs(db, golden, [run_id], options.scoring()).aggregates[run_id]
        if alone.to_json() != scored[run_id].to_json():
            yield f"{run_id} alone is {alone.to_json()}, with the others {scored[run_id].to_json()}"
        yield from differences_between(oracle, options, db, golden, (names[0], names[-1]))


def numbers_that_differ(thought: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*expected, "recall_at_k_chunk", "hit_within_tokens"}):
        if found.get(name) != expected.get(name):
            yield f"{thought}: {name} is {found.get(name)}, expected {expected.get(name)}"


def differences_between(
    oracle: Oracle, options: Options, db: Path, golden: Path, pair: tuple[str, str]
) -> Iterator[str]:
    a, b = pair
    report = compare_runs(a, b, db=db, golden=golden, options=CompareOptions(scoring=options.scoring(), resamples=100))
    expected = oracle.compare(a, b)
    found = {
        one.query_id: (one.kind, one.a_hit_rank, one.b_hit_rank, one.matching or "none") for one in report.per_query
    }
    both = f"{about(oracle, a)}; {about(oracle, b)}; both by {oracle.matching_of_both(a, b)}"
    for query_id in sorted({*found, *expected}):
        if found.get(query_id) != expected.get(query_id):
            yield f"{both}: {query_id} is {found.get(query_id)}, expected {expected.get(query_id)}"
    for run_id, aggregate in ((a, report.aggregate_a), (b, report.aggregate_b)):
        expected_numbers = oracle.score(run_id, oracle.matching_of_both(a, b), pair)
        yield from numbers_that_differ(f"{both}: {run_id}", aggregate.to_dict(), expected_numbers)


def about(oracle: Oracle, run_id: str) -> str:
    run = oracle.runs[run_id]
    version, source = oracle.version_and_source(run)
    current = "current" if oracle.is_current(run) else "not current"
    return (
        f"{run_id} (version {version} by {source}, policy {oracle.policy(run)}, {current}, by {oracle.matching(run)})"
    )


# Shrinking a seed shows nothing: `--shrink` takes the database apart instead.
@scorings(3, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@example(seed=0, sizes=(2, 2, 6, 6), options=Options())
# Every way of matching and every side of the overlap, whatever is drawn.
@example(seed=1, sizes=(3, 3, 12, 10), options=Options("exact"))
@example(seed=2, sizes=(4, 2, 12, 10), options=Options("span", 0.25, "smaller"))
@example(seed=3, sizes=(2, 3, 12, 10), options=Options("auto", 1 / 3, "expected"))
@example(seed=4, sizes=(3, 2, 12, 10), options=Options("span", 0.1, "hit"))
@given(seed=st.integers(0, 2**20), sizes=SIZES, options=OPTIONS)
def test_kbeval_and_the_oracle_agree_on_what_is_a_correct_hit(
    seed: int, sizes: tuple[int, int, int, int], options: Options
) -> None:
    with TemporaryDirectory() as folder:
        assert list(differences(invent(seed, *sizes), options, Path(folder))) == []


A, B, C = by_hand.line(1, 10), by_hand.line(21, 30), by_hand.line(31, 40)
HITS = (by_hand.hit("n", A), by_hand.hit("m", B), by_hand.hit("o", B, doc="e"))
BARE = by_hand.chunk("c", version="md@0")
BY_HAND = {
    "a label that only an archived hit knows": by_hand.world(
        by_hand.entry("c"), by_hand.run(*HITS), kept=[by_hand.kept("c", B, seen_in="hits")]
    ),
    "a label of which hits in another document have the id": by_hand.world(
        by_hand.entry("c"),
        by_hand.run(*HITS),
        by_hand.run(by_hand.hit("c", B, doc="e"), version="md@1", name="other"),
        table=[BARE],
    ),
    "a label that one hit places in no document, and another cites": by_hand.world(
        by_hand.entry("c"),
        by_hand.run(*HITS),
        by_hand.run(by_hand.hit("c", A, doc=None), version="md@0", name="nowhere"),
        by_hand.run(by_hand.hit("c", citation=B), version="md@1", name="cited"),
    ),
    "a label whose id means the same lines of another document now": by_hand.world(
        by_hand.entry("c"),
        by_hand.run(by_hand.hit("c", doc="e"), by_hand.hit("m", A)),
        table=[by_hand.chunk("c", A, version="md@2", doc="e", tokens=1, characters=4)],
        kept=[by_hand.kept("c", A)],
    ),
    "chunks kept without a policy, and others of their ids in the table": by_hand.world(
        by_hand.entry("c"),
        by_hand.run(by_hand.hit("c"), version="md@1"),
        by_hand.run(by_hand.hit("c", chunker_version="md@1"), version=None, name="unnamed"),
        table=[by_hand.chunk("c", A, policy="p", tokens=1, characters=4)],
        kept=[by_hand.kept("c", C)],
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_kbeval_and_the_oracle_agree_on_rare_cases(name: str, tmp_path: Path) -> None:
    made = BY_HAND[name]
    golden = [{"query": "?", "category": entry["id"], **entry} for entry in made.golden]
    assert list(differences(replace(made, golden=golden), Options(), tmp_path)) == []


# --- the examples are worth it ------------------------------------------------------------------------


def why(oracle: Oracle, run_id: str) -> Iterator[str]:
    """The branches of the definitions that a run takes."""
    run = oracle.runs[run_id]
    version, source = oracle.version_and_source(run)
    policy = oracle.policy(run)
    matching = oracle.matching(run)
    yield f"version by {source}"
    yield f"policy {'unknown' if policy is None else 'configured' if 'policy_hash' in run.config else 'by tables'}"
    yield "current" if oracle.is_current(run) else "not current"
    yield f"run by {matching}"
    for entry in oracle.world.golden:
        for chunk_id in entry.get("expected_chunk_ids") or ():
            ownership = oracle.ownership(run, chunk_id)
            known = oracle.known.get(chunk_id, [])
            of_version = [one for one in known if one.chunk.version == version]
            fitting = [one for one in of_version if policy is None or one.chunk.policy in {"", policy}]
            reason = (
                "another version in hits"
                if not known and oracle.sighted_versions(chunk_id)
                else "nothing known"
                if not known
                else "another version"
                if not of_version
                else "another policy"
                if not fitting
                else "earlier or another text"
            )
            yield f"{ownership}{'' if ownership == 'own' else f': {reason}'}"
            if matching == "span" and ownership == "foreign":
                yield f"by span: {reason}"
            if ownership == "own" and known and known[0].chunk.version != version:
                yield "own: the same text under another version"
    for query_id, row in run.rows.items():
        judged = oracle.judge(run, query_id, matching)
        yield f"query by {judged.matching} in a run by {matching}, {'hit' if judged.correct else 'miss'}"
        for hit in row.get("hits_top_k") or ():
            spans = oracle.spans_of(run, hit)
            yield (
                "hit nowhere"
                if spans is None
                else "hit by source_spans"
                if spans is hit.get("source_spans")
                else "hit by citation"
                if spans == [hit.get("citation")]
                else "hit by tables"
            )
            doc = oracle.doc_of(run, hit)
            yield (
                "document by id"
                if hit.get("doc_id")
                else "document by tables"
                if any(c.doc_id for c in oracle.rows_for(run, hit))
                else "document by path"
                if doc
                else "path for a document"
                if oracle.path_of(hit)
                else "no document"
            )
            yield f"size {'unknown' if oracle.tokens_of(run, hit) is None else 'known'}"


BRANCHES = {
    "version by config": 200,
    "version by hits": 30,
    "version by tables": 30,
    "version by None": 30,
    "policy unknown": 100,
    "policy configured": 100,
    "policy by tables": 100,
    "current": 100,
    "not current": 100,
    "run by exact": 100,
    "run by span": 100,
    "own": 500,
    "own: the same text under another version": 10,
    "foreign: nothing known": 100,
    "foreign: another version": 300,
    "foreign: another policy": 50,
    "foreign: earlier or another text": 100,
    "foreign: another version in hits": 50,
    "by span: another version in hits": 50,
    "unknown: nothing known": 100,
    "by span: nothing known": 50,
    "by span: another version": 200,
    "by span: another policy": 40,
    "by span: earlier or another text": 50,
    **{f"query by exact in a run by exact, {what}": 300 for what in ("hit", "miss")},
    **{f"query by span in a run by {how}, {what}": 100 for how in ("exact", "span") for what in ("hit", "miss")},
    **{f"query by doc in a run by {how}, {what}": 8 for how in ("exact", "span") for what in ("hit", "miss")},
    "query by unmatched in a run by span, miss": 30,
    "hit by source_spans": 1000,
    "hit by tables": 1000,
    "hit by citation": 500,
    "hit nowhere": 500,
    "document by id": 1000,
    "document by tables": 500,
    "document by path": 300,
    "path for a document": 50,
    "no document": 300,
    "size known": 1000,
    "size unknown": 300,
}


def test_the_invented_databases_reach_every_branch_of_the_definitions() -> None:
    counts = dict.fromkeys(BRANCHES, 0)
    for seed in range(120):
        world = invent(seed, 2 + seed % 3, 2 + seed % 2)
        oracle = Oracle(world)
        for run in world.runs:
            for branch in why(oracle, run.run_id):
                counts[branch] = counts.get(branch, 0) + 1
    assert {branch: counts[branch] for branch, least in BRANCHES.items() if counts[branch] < least} == {}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_arguments_invent_the_same_database(seed: int) -> None:
    assert invent(seed, 3, 3) == invent(seed, 3, 3)


# --- replaying ----------------------------------------------------------------------------------------


def found_in(world: World, options: Options, folder: Path | None = None) -> list[str]:
    with TemporaryDirectory() as name:
        return list(differences(world, options, folder or Path(name)))


def shrunk(world: World, options: Options) -> World:
    """As little of the world as still shows a difference."""
    while True:
        for less in smaller(world):
            if less.runs and less.golden and found_in(less, options):
                world = less
                break
        else:
            return world


def replay() -> None:
    parser = argparse.ArgumentParser(description="Replay an invented database.")
    parser.add_argument("seed", type=int)
    parser.add_argument("sizes", type=int, nargs="*", default=[2, 2, 6, 6])
    parser.add_argument("--match", default="auto")
    parser.add_argument("--min-overlap", type=float, default=0.5)
    parser.add_argument("--overlap-of", default="auto")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--keep", type=Path)
    given_ = parser.parse_args()
    options = Options(given_.match, given_.min_overlap, given_.overlap_of)
    world = invent(given_.seed, *given_.sizes)
    if given_.shrink and found_in(world, options):
        world = shrunk(world, options)
        pprint.pp(world, width=140)
    if given_.keep is not None:
        (given_.keep / "kb.db").unlink(missing_ok=True)
    found = found_in(world, options, given_.keep)
    print(*(found or ["no differences"]), sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    replay()
