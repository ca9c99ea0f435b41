"""`kbeval config`: each setting, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
from click.core import ParameterSource

from kbeval.cli import common
from kbeval.metrics.catalogue import DEFAULT_KS
from kbeval.settings import KEYS, Config

# What applies if a setting has no value.
_OTHERWISE = {"threads": "all processors, one for a small database", "runs_dir": "runs, next to the database"}


@click.command("config")
@common.db_option
@common.golden_option
@common.engine_options
@common.how_options
@common.metric_options
@common.runs_dir_option
@common.format_option
@click.pass_context
def config_command(context: click.Context, /, form: str, **_: Any) -> int:  # noqa: ANN401
    """Show each setting and where it comes from.

    An option overrides the environment, which overrides the config file, which overrides the built-in default.
    """
    from kbeval.render.table import Column
    from kbeval.util.hiding import Hider

    config = common.Settings().config
    rows = []
    hider = Hider()
    for key, value, origin in (*_options(context, config), *_tables(config)):
        for name, inner in _flat(key, value):
            # In a target, keys identify secrets. Elsewhere only values do, because a metric may have any name.
            shown = hider.hide(inner, name if key in ("target", "targets") else "")
            rows.append([name, shown if form == "json" else _text(shown), origin])
    common.print_table([Column("setting"), Column("value", width=80), Column("from", width=100)], rows, form)
    if config.path is None and form == "table":
        common.note("no kbeval.toml and no [tool.kbeval] in pyproject.toml, in this folder or above it")
    return 0


def _options(context: click.Context, config: Config) -> Iterator[tuple[str, Any, str]]:
    """The settings that are options: click knows their values and where each comes from."""
    options = {param.name: param for param in context.command.params}
    for name, key in common.FILE_OPTIONS.items():
        value, source = context.params[name], context.get_parameter_source(name)
        origins = {
            ParameterSource.COMMANDLINE: "the command line",
            ParameterSource.ENVIRONMENT: f"the environment ({options[name].envvar})",
            ParameterSource.DEFAULT_MAP: str(config.path),
        }
        origin = origins.get(source or ParameterSource.DEFAULT)
        if key == "k":
            yield key, *_all_ks(value, origin)
        elif origin is not None:
            yield key, value, origin
        else:
            value = value if value is not None else _OTHERWISE.get(key)
            yield key, value, "not set" if value is None else "default"


def _all_ks(more: Sequence[int], origin: str | None) -> tuple[list[int], str]:
    """The effective value: the given values of k are added to those that are always computed."""
    if origin is None:
        return list(DEFAULT_KS), "default"
    added = sorted(set(more) - set(DEFAULT_KS))
    what = f"adds {_text(added)}" if added else "adds nothing"
    return sorted({*DEFAULT_KS, *more}), f"{origin} ({what} to {_text(list(DEFAULT_KS))})"


def _tables(config: Config) -> Iterator[tuple[str, Any, str]]:
    """The tables of the config file, which are not options."""
    for key in KEYS:
        if key not in common.FILE_OPTIONS.values():
            value = config.get(key)
            yield key, value, "not set" if value is None else str(config.path)


def _flat(key: str, value: Any) -> list[tuple[str, Any]]:  # noqa: ANN401  (what TOML holds)
    """One row per value of a table."""
    if not isinstance(value, dict):
        return [(key, value)]
    return [row for name, inner in value.items() for row in _flat(f"{key}.{name}", inner)]


def _text(value: Any) -> str | None:  # noqa: ANN401  (what TOML holds)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower()
