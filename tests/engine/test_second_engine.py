"""Every statement after the facts, as it stands, on DuckDB and on a second engine: the same rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.support.examples import THOROUGH
from tests.support.second_engine import Sail, running_sail
from tests.support.statements import assert_same_rows, assert_same_sums


@pytest.fixture(scope="module")
def sail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sail]:
    with warnings.catch_warnings():
        # The client warns about new versions of pandas, which it does not use here.
        warnings.simplefilter("ignore")
        with running_sail(tmp_path_factory.mktemp("sail")) as engine:
            yield engine


@pytest.mark.filterwarnings("ignore")
def test_every_statement_after_the_facts_has_the_same_rows(made_demo: Path, tmp_path: Path, sail: Sail) -> None:
    """One test, since each case needs the server, and the files that ran are counted over all of them."""
    assert_same_rows((made_demo / "kb.db", made_demo / "golden.yaml"), tmp_path, sail, all_data=THOROUGH)


@pytest.mark.filterwarnings("ignore")
def test_sums_of_any_doubles_are_the_same_whole_numbers(sail: Sail, tmp_path: Path) -> None:
    """On an engine that is really another one."""
    _differs(sail)
    assert_same_sums(sail, tmp_path)


def _differs(sail: Sail) -> None:
    """What the files must not use does fail or differ there, so this module would notice it."""
    for refused in ("SELECT CAST(1 AS VARCHAR)", "SELECT 1 WHERE true QUALIFY true", "SELECT $1"):
        with pytest.raises(Exception, match=r".") as raised:
            sail.rows(refused)
        assert not isinstance(raised.value, AssertionError)
    assert sail.rows("SELECT LENGTH(LOWER('İ'))") == [(2,)]
    assert duckdb.execute("SELECT LENGTH(LOWER('İ'))").fetchall() == [(1,)]
