"""Answers that are kept in a file until they are committed."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from kbeval.storage.spool import Spool, remove_strays, spools_of

ROW = ("r", "q1", 1, 1, "hash", "2026-03-04T02:10:00.000000Z", 12.5, 200, None, None, '{"answer": "Zürich \ud83d\\n"}')


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "kb [1].db"
    path.write_bytes(b"")
    path.chmod(0o640)
    return path


def spool(database: Path, run_id: str = "../r/1", started_at: str = "2026-03-04") -> Spool:
    return Spool(database, run_id, started_at)


def test_rows_come_back_as_they_were(database: Path) -> None:
    own = spool(database)
    assert own.rows() == []
    own.begin()
    own.append(ROW)
    own.append((*ROW[:1], "q2", *ROW[2:]))
    # By another process, while this one still has it open.
    assert spool(database).rows() == [ROW, (*ROW[:1], "q2", *ROW[2:])]
    (file,) = spools_of(database)
    # Ids are not paths; and those who may read the database may read this.
    assert file.parent == database.parent
    assert file.stat().st_mode & 0o777 == 0o640
    own.remove()
    assert spools_of(database) == []


def test_what_was_not_written_to_its_end_does_not_count(database: Path) -> None:
    own = spool(database)
    own.begin()
    for _ in range(3):
        own.append(ROW)
    own.close()
    (file,) = spools_of(database)
    whole = file.read_bytes()
    for end in range(len(whole)):
        file.write_bytes(whole[:end])
        assert spool(database).rows() == [ROW] * whole[:end].count(b"\n"), end
    file.write_bytes(b"\x00\xff\n[]\n{}\n" + whole)
    assert spool(database).rows() == [ROW] * 3


def test_an_older_run_of_the_same_id_is_another_one(database: Path) -> None:
    own = spool(database)
    own.begin()
    own.append(ROW)
    assert spool(database, started_at="2026-03-05").rows() == []


def test_it_stays_small(database: Path) -> None:
    own = spool(database)
    own.begin()
    large = (*ROW[:-1], "x" * 1_500_000)
    for _ in range(2):
        own.append(large)
        own.shrink([])
    assert len(spool(database).rows()) == 2, "not large yet"
    own.append(large)
    own.shrink([ROW])
    assert spool(database).rows() == [ROW]
    own.append(ROW)
    assert spool(database).rows() == [ROW, ROW]
    assert len(spools_of(database)) == 1


def test_a_disk_that_is_full_loses_nothing_that_was_kept(database: Path) -> None:
    own = spool(database)
    own.begin()
    own.append(ROW)
    (file,) = spools_of(database)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 20, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            own.append(ROW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(OSError, match="cannot be continued"):
        own.append(ROW)
    assert spool(database).rows() == [ROW]


def test_links_and_pipes_in_its_place_are_not_followed(database: Path) -> None:
    own = spool(database)
    own.begin()
    (file,) = spools_of(database)
    own.remove()
    elsewhere = database.parent / "elsewhere"
    elsewhere.write_text("kept")
    file.symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic"):
        own.begin()
    assert elsewhere.read_text() == "kept"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(OSError, match="not a file"):
        own.rows()


def test_files_without_an_unfinished_run_are_removed(database: Path) -> None:
    for run_id in ("a", "b"):
        spool(database, run_id).begin()
    (database.parent / "kb [1].dbx").write_text("other")
    remove_strays(spools_of(database), ["b"])
    assert len(spools_of(database)) == 1
    assert spool(database, "b").rows() == []
    remove_strays(spools_of(database), [])
    assert sorted(path.name for path in database.parent.iterdir()) == ["kb [1].db", "kb [1].dbx"]
