"""Computes once what several commands in a row would compute again: the same runs in the next format."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbeval.compare import gates
from kbeval.compare import run as comparing
from kbeval.explore import explorer
from kbeval.scoring import aggregate, scorer


@contextlib.contextmanager
def computed_once() -> Iterator[None]:
    """Within it, commands with the same runs, labels and options share one computation; each still writes its output.

    Nothing may be stored within it: what was computed before would be used again.
    """
    with contextlib.ExitStack() as held, pytest.MonkeyPatch.context() as patch:
        for module, name in ((comparing, "compare_runs"), (gates, "check_gates"), (aggregate, "score_runs")):
            patch.setattr(module, name, _remembered(getattr(module, name)))
        for module, name in ((scorer, "open_scoring"), (explorer, "open_explorer")):
            opened = _remembered(_held_by(held, getattr(module, name)))
            patch.setattr(module, name, _as_context(opened))
        yield


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[str, Any] = {}

    def found(*arguments: Any, **options: Any) -> Any:
        # A command passes functions that show its progress: another object each time.
        key = re.sub(r" at 0x[0-9a-f]+", "", repr((arguments, sorted(options.items()))))
        if key not in known:
            known[key] = function(*arguments, **options)
        return known[key]

    return found


def _held_by(held: contextlib.ExitStack, open_it: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: held.enter_context(open_it(*arguments, **options))


def _as_context(opened: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: contextlib.nullcontext(opened(*arguments, **options))
