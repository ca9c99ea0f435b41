"""The example notebook: its cells run in order, and their results are shown as tables."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import kbeval
from tests.support.pages import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def run_cells(folder: Path) -> tuple[list[Any], dict[str, Any]]:
    """Run the code as Jupyter does; returns the value of each cell, and the names at the end."""
    assert folder == Path.cwd()
    names: dict[str, Any] = {}
    values = []
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        tree = ast.parse(source)
        last = tree.body[-1]
        # A semicolon at the end hides the value.
        is_shown = isinstance(last, ast.Expr) and not source.rstrip().endswith(";")
        body = tree.body[:-1] if is_shown else tree.body
        exec(compile(ast.Module(body, []), NOTEBOOK.name, "exec"), names)
        shown = compile(ast.Expression(last.value), NOTEBOOK.name, "eval") if is_shown else None  # type: ignore[attr-defined]
        values.append(None if shown is None else eval(shown, names))
    return values, names


def test_the_notebook_runs_and_shows_tables(tmp_path: Path) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    assert all(cell.get("outputs", []) == [] for cell in notebook["cells"]), (
        "kept without outputs, which would go stale"
    )
    values, names = run_cells(tmp_path)
    shown = [value for value in values if value is not None]
    assert len(shown) == 3
    assert all("<table" in value._repr_html_() for value in shown)
    # By hand: of words the ranks are 2, 1 and none, of vectors 1, 1 and 2.
    scored, report = names["scored"], names["report"]
    assert {run_id: one.mrr for run_id, one in scored.aggregates.items()} == {"words": 0.5, "vectors": 0.8333}
    assert names["tokens"].rows() == [("vectors", 500), ("words", 400)]
    assert [one.kind for one in report.per_query] == ["win", "draw", "win"]
    history = kbeval.metric_history("mrr", db="notebook.db")
    for found in (scored, report, history):
        assert "<table" in found._repr_html_()
