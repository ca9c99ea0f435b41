"""Regions: the pieces that they are cut into cover the same area, and large numbers of them are handled."""

from __future__ import annotations

import random
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.engine.session import Session
from tests.oracles.span_oracle import Box, sizes
from tests.support.examples import scorings
from tests.support.workspace import Workspace

Region = tuple[float, float, float, float]
NUMBER = st.integers(0, 12)
REGIONS = st.lists(
    st.tuples(NUMBER, st.integers(1, 8), NUMBER, st.integers(1, 8)).map(
        lambda r: (r[0], r[0] + r[1], r[2], r[2] + r[3])
    ),
    min_size=1,
    max_size=9,
)


def pieces(*sets: list[Region], axis: str = "region", variant: str | None = None) -> list[list[Region]]:
    """The pieces of each set."""
    with Session() as session:

        def load(session: Session) -> None:
            session.execute(
                "CREATE TABLE span_sets (owner VARCHAR, major VARCHAR, minor VARCHAR, axis VARCHAR,"
                " low DOUBLE, high DOUBLE, bottom DOUBLE, top DOUBLE)"
            )
            for number, regions in enumerate(sets):
                values = [list(edge) for edge in zip(*regions, strict=True)]
                session.execute(
                    f"INSERT INTO span_sets SELECT 'hit', '{number}', '1', '{axis}', UNNEST($1::DOUBLE[]),"
                    " UNNEST($2::DOUBLE[]), UNNEST($3::DOUBLE[]), UNNEST($4::DOUBLE[])",
                    values,
                )

        session.add_loaders({"span_sets": load})
        session.add_choices({"span_pieces": lambda _: variant})
        session.need("span_pieces")
        found = session.rows("SELECT CAST(major AS INTEGER), low, high, bottom, top FROM span_pieces ORDER BY ALL")
    return [[row[1:] for row in found if row[0] == number] for number in range(len(sets))]


def boxes(regions: list[Region]) -> list[Box]:
    return [(("region",), *map(Fraction, region)) for region in regions]  # type: ignore[misc]


def area(regions: list[Region]) -> float:
    return sum((high - low) * (top - bottom) for low, high, bottom, top in regions)


@scorings(5)
@given(st.lists(REGIONS, min_size=10, max_size=90))
def test_pieces_cover_what_the_regions_cover_and_nothing_twice(sets: list[list[Region]]) -> None:
    for regions, found in zip(sets, pieces(*sets), strict=True):
        shared, of_regions, of_pieces = sizes(boxes(regions), boxes(found))
        assert shared == of_regions == of_pieces == Fraction(area(found))


@scorings(12)
@given(st.lists(REGIONS, min_size=4, max_size=40))
def test_lines_have_the_same_pieces_if_no_span_is_a_region(sets: list[list[Region]]) -> None:
    lines = [[(low, high, 0.0, 1.0) for low, high, *_ in regions] for regions in sets]
    assert pieces(*lines, axis="line", variant="lines") == pieces(*lines, axis="line")


def test_many_regions_that_do_not_overlap_are_left_as_they_are() -> None:
    source = random.Random(5)
    regions: list[Region] = []
    for x in range(60):
        for y in range(50):
            low, bottom = 10 * x + source.uniform(0, 3), 10 * y + source.uniform(0, 3)
            regions.append((low, low + source.uniform(1, 6), bottom, bottom + source.uniform(1, 6)))
    started = time.monotonic()
    (found,) = pieces(regions)
    assert time.monotonic() - started < 5
    assert sorted(found) == sorted(regions)


def test_many_regions_that_overlap_their_neighbours_are_cut() -> None:
    regions: list[Region] = [(10 * x, 10 * x + 11, 10 * y, 10 * y + 11) for x in range(60) for y in range(50)]
    (found,) = pieces([*regions, *regions])
    assert area(found) == 601 * 501
    assert len(found) < 4 * len(regions)


@pytest.mark.parametrize("shape", ["stairs", "grid"])
def test_regions_that_are_too_tangled_have_no_pieces(shape: str) -> None:
    if shape == "stairs":
        regions: list[Region] = [(n, n + 3000, n, n + 3000) for n in range(3000)]
    else:
        regions = [(n, n + 0.5, 0, 3000) for n in range(1500)] + [(0, 3000, n, n + 0.5) for n in range(1500)]
    assert pieces(regions, [(0, 1, 0, 1)]) == [[], [(0, 1, 0, 1)]]


@pytest.mark.slow
def test_hits_with_thousands_of_regions_are_scored_at_once(workspace: Workspace) -> None:
    place = {"doc_id": "d", "kind": "region", "x": 0, "y": 0, "w": 30000, "h": 30000}
    workspace.add_golden({"id": "q", "expected_spans": [place], "expected_doc_ids": ["d"]})
    for overlap in (0, 1, 3000):
        size = 9 + overlap
        spans = [{"kind": "region", "x": 10 * n, "y": 10 * n, "w": size, "h": size} for n in range(3000)]
        hit = {"rank": 1, "chunk_id": "c", "doc_id": "d", "source_spans": spans}
        workspace.add_run(f"overlap-{overlap}", {"q": {"hits_top_k": [hit]}})
    started = time.monotonic()
    scored = workspace.score(memory_limit="200MB", overlap_of="hit")
    assert time.monotonic() - started < 10
    assert {run_id: one.mrr for run_id, one in scored.aggregates.items()} == {
        f"overlap-{overlap}": 1.0 for overlap in (0, 1, 3000)
    }
    assert [warning for warning in scored.warnings if "too many overlapping regions" in warning] == [
        "run overlap-3000, query q: hit 1 has too many overlapping regions to be matched by spans; the document decides"
    ]
