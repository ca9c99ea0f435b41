"""The built wheel, in an empty environment, away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.pages import ROOT, links


@pytest.mark.slow
def test_the_wheel_installs_and_scores_outside_the_checkout(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", dist, ROOT], check=True, capture_output=True)
    (wheel,) = dist.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "sql").rglob("*.sql"):
        assert f"kbeval/sql/{path.relative_to(ROOT / 'sql').as_posix()}" in packed
    for path in (ROOT / "kbeval" / "live" / "rubrics").glob("*.md"):
        assert f"kbeval/live/rubrics/{path.name}" in packed
    for path in (ROOT / "kbeval" / "live" / "labelling" / "page").iterdir():
        assert f"kbeval/live/labelling/page/{path.name}" in packed
    for path in (ROOT / "kbeval" / "report" / "templates").iterdir():
        assert f"kbeval/report/templates/{path.name}" in packed
    assert not any(name.startswith(("tests/", "fixtures/", "docs/")) for name in packed)
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True, capture_output=True)
    away = tmp_path / "away"
    away.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def kbeval(*arguments: str, folder: Path = away) -> str:
        command = [str(tmp_path / "env" / "bin" / "kbeval"), *arguments]
        result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        return result.stdout

    kbeval("demo")
    assert '"mrr": 0.9091' in kbeval("score", "latest~1", "--format", "json", folder=away / "kbeval-demo")
    asked = ("judge", "latest", "--judge-model", "m", "--judge-base-url", "http://localhost:1/v1", "--dry-run")
    assert "answers to judge" in kbeval(*asked, folder=away / "kbeval-demo")
    kbeval("report", "latest~1", "latest", "-o", "report.html", folder=away / "kbeval-demo")
    assert (away / "kbeval-demo" / "report.html").read_text().endswith("</html>\n")
    where = subprocess.run(
        [python, "-c", "import kbeval; print(kbeval.__file__)"],
        cwd=away,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(ROOT) not in where.stdout


@pytest.mark.slow
def test_the_source_archive_has_all_that_the_readme_links_to(tmp_path: Path) -> None:
    # A copy: in a checkout that was built before, the list of files of that time is used again.
    made = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist", "bench-data", "kbeval-demo")
    source = shutil.copytree(ROOT, tmp_path / "checkout", ignore=made)
    command = [sys.executable, "-m", "build", "--sdist", "--outdir", str(tmp_path / "dist"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} <= names
    assert {target.partition("#")[0] for target in links((ROOT / "README.md").read_text(encoding="utf-8"))} <= names
