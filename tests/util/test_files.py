from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbeval.errors import UsageError
from kbeval.util.files import is_safe_name, run_file, write_whole


@pytest.mark.parametrize("name", ["nightly-42", "2026-03-04 rechunked", "läuft_ünïcode", "a.b", "v1.2+rc", "日本語"])
def test_ordinary_run_ids_are_folder_names(name: str) -> None:
    assert run_file(Path("runs"), name, "report.md", "use --report PATH") == Path("runs") / name / "report.md"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../up",
        "a/b",
        "/etc/passwd",
        "a\\b",
        "c:\\x",
        "a\0b",
        "a\nb",
        "\x1b[31m",
        "\u202egpj.exe",
        "\ud800",
        ".hidden",
        "-rf",
        "~root",
        "trailing.",
        "trailing ",
        "NUL",
        "com1.txt",
        "x" * 201,
        "ü" * 150,
    ],
)
def test_a_run_id_that_could_lead_elsewhere_never_becomes_a_path(name: str) -> None:
    assert not is_safe_name(name)
    with pytest.raises(UsageError, match="cannot be used as a folder name; use --report PATH"):
        run_file(Path("runs"), name, "report.md", "use --report PATH")


def test_a_file_is_written_whole_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "report.md"
    write_whole(path, "one\n")
    write_whole(path, "two → \ud800\n")
    assert path.read_text(encoding="utf-8") == "two → \\ud800\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["report.md"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("path", [".", "file/report.md", "x\0y", "n" * 300])
def test_a_path_that_cannot_be_written_is_reported(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"cannot be written|is a directory"):
        write_whole(Path(path), "text")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file"]
