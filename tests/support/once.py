"""Computes once what several commands in a row would compute again: the same runs in the next format."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbeval.compare import gates
from kbeval.compare import run as comparing
from kbeval.explore import explorer
from kbeval.scoring import aggregate


@contextlib.contextmanager
def computed_once(*, sessions: bool = True) -> Iterator[None]:
    """Within it, commands with the same files and options share one computation; each still writes its own output.

    `sessions`: SQL queries share a session, too. It stays open, so that nothing may be stored in the meantime.
    """
    with contextlib.ExitStack() as held, pytest.MonkeyPatch.context() as patch:
        for module, name in ((comparing, "compare_runs"), (gates, "check_gates"), (aggregate, "score_runs")):
            patch.setattr(module, name, _remembered(getattr(module, name)))
        if sessions:
            opened = _remembered(_held_by(held, explorer.open_explorer))
            patch.setattr(explorer, "open_explorer", _as_context(opened))
        yield


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[Any, Any] = {}

    def found(*arguments: Any, **options: Any) -> Any:
        # A command passes functions that show its progress: another object each time.
        said = re.sub(r" at 0x[0-9a-f]+", "", repr((arguments, sorted(options.items()))))
        key = (said, *(_state(one) for one in (*arguments, *options.values())))
        if key not in known:
            known[key] = function(*arguments, **options)
        return known[key]

    return found


def _state(named: Any) -> tuple[int, int] | None:
    """Whether a database or a golden file is still the same."""
    with contextlib.suppress(OSError, TypeError, ValueError):
        found = Path(named).stat()
        return found.st_mtime_ns, found.st_size
    return None


def _held_by(held: contextlib.ExitStack, open_it: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: held.enter_context(open_it(*arguments, **options))


def _as_context(opened: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: contextlib.nullcontext(opened(*arguments, **options))
