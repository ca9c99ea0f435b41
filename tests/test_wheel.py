"""The built wheel, in an empty environment, away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_installs_and_scores_outside_the_checkout(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", dist, ROOT], check=True, capture_output=True)
    (wheel,) = dist.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "sql").rglob("*.sql"):
        assert f"kbeval/sql/{path.relative_to(ROOT / 'sql').as_posix()}" in packed
    assert not any(name.startswith(("tests/", "fixtures/")) for name in packed)
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
    where = subprocess.run(
        [python, "-c", "import kbeval; print(kbeval.__file__)"],
        cwd=away,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(ROOT) not in where.stdout
