"""How much property tests and long tests try: a fixed, bounded size in `make test`, more of it if that is asked for."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def sized(usual: int, thorough: int) -> int:
    """The size of a long test: the usual one, or the one of the profile `thorough`."""
    return thorough if THOROUGH else usual


def scorings(usual: int, **more: Any) -> settings:
    """For properties that score each example, which costs the same for one run as for ten: few examples, each with
    many runs or queries. The profile `thorough` tries twenty times as many.
    """
    return settings(max_examples=sized(usual, 20 * usual), **more)
