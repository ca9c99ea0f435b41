"""The built wheel, in an environment with nothing but what it requires, away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.pages import ROOT, links

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("built")
    # A copy: in a checkout that was built before, the list of files of that time is used again.
    made = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist", "bench-data", "kbeval-demo")
    source = shutil.copytree(ROOT, folder / "checkout", ignore=made)
    # Without isolation: what pyproject.toml requires for this is installed here, and checked.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "dist"


def required_by(wheel: Path) -> list[Distribution]:
    """All that a wheel requires, directly or not, without extras: the versions that are installed here."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        lines = packed.read(name).decode().splitlines()
    texts = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    found: dict[tuple[str, str], Distribution] = {}
    todo = [(Requirement(text), "") for text in texts]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        one = distribution(requirement.name)
        assert requirement.specifier.contains(one.version, prereleases=True), requirement
        for wanted in ("", *requirement.extras):
            if (requirement.name.lower(), wanted) not in found:
                found[requirement.name.lower(), wanted] = one
                todo += [(Requirement(text), wanted) for text in one.requires or ()]
    return list(found.values())


def make_environment(folder: Path, wheel: Path) -> Path:
    """An environment with the wheel, and links to what it requires. To download that again would prove no more."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for one in required_by(wheel):
        for name in {path.parts[0] for path in one.files or () if ".." not in path.parts}:
            here = Path(str(one.locate_file(name)))
            if here.exists() and name != "__pycache__" and not (packages / name).exists():
                (packages / name).symlink_to(here)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True, capture_output=True)
    check = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "check"]
    subprocess.run(check, check=True, capture_output=True)
    return folder


def test_the_wheel_installs_and_scores_outside_the_checkout(dist: Path, tmp_path: Path) -> None:
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
    python = make_environment(tmp_path / "env", wheel) / "bin" / "python"
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


def test_the_source_archive_has_all_that_the_readme_links_to(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} <= names
    assert {target.partition("#")[0] for target in links((ROOT / "README.md").read_text(encoding="utf-8"))} <= names
