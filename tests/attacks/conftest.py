"""Databases to attack."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.places import Place, hits


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def one_run(place: Place) -> Place:
    place.label({"id": "q", "expected_chunk_ids": ["c"]})
    place.run("run", {"q": {"query_id": "q", "hits_top_k": hits("c")}})
    return place
