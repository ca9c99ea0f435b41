"""`kbeval config`: each setting, and where it comes from."""

from __future__ import annotations

import os
from typing import Any

import click

from kbeval.cli import common

ENVIRONMENT = {key: f"KBEVAL_{key.upper()}" for key in ("db", "golden", "threads", "cache", *common.HOW)}
DEFAULTS: dict[str, Any] = {
    "threads": "all processors",
    "memory_limit": "400MB",
    "cache": "auto",
    "match": "auto",
    "min_overlap": 0.5,
    "overlap_of": "auto",
    "missing": "skip",
    "k": [1, 3, 5, 10],
    "runs_dir": "runs, beside the database",
}


@click.command("config")
@common.format_option
def config_command(form: str) -> int:
    """Show each setting and where it comes from.

    The environment wins over the config file, which wins over kbeval's own default.
    """
    from kbeval.config import KEYS
    from kbeval.render.table import Column

    settings = common.Settings()
    path = str(settings.config.path) if settings.config.path is not None else None
    rows = []
    for key in KEYS:
        value, origin = _value(key, settings, path)
        for name, inner in _flat(key, value):
            rows.append([name, inner if form == "json" else _text(inner), origin])
    common.print_table([Column("setting"), Column("value", width=80), Column("from", width=100)], rows, form)
    if path is None and form == "table":
        common.note("no kbeval.toml and no [tool.kbeval] in pyproject.toml, here or above")
    return 0


def _value(key: str, settings: common.Settings, path: str | None) -> tuple[Any, str]:
    named = os.environ.get(ENVIRONMENT.get(key, ""))
    if named:
        return named, f"the environment ({ENVIRONMENT[key]})"
    if key == "k" and (more := settings.config.get("k")):
        # The value that holds: what the file says is added to what is always computed.
        added = sorted(set(more) - set(DEFAULTS["k"]))
        said = f"adds {_text(added)}" if added else "adds nothing"
        return sorted({*DEFAULTS["k"], *more}), f"{path} ({said} to {_text(DEFAULTS['k'])})"
    if settings.config.get(key) is not None:
        return settings.config.get(key), path or ""
    return DEFAULTS.get(key), "default" if key in DEFAULTS else "not set"


def _flat(key: str, value: Any) -> list[tuple[str, Any]]:  # noqa: ANN401  (what TOML holds)
    """A table has a row for each of its values."""
    if not isinstance(value, dict):
        return [(key, value)]
    return [row for name, inner in value.items() for row in _flat(f"{key}.{name}", inner)]


def _text(value: Any) -> str | None:  # noqa: ANN401  (what TOML holds)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower()
