"""What tokens cost: `[prices]` in kbeval.toml. A price that is not known is None, never 0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbeval.errors import UsageError

_MILLION = 1_000_000
_PARTS = ("input", "output")
# Of English text; only for estimates.
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float

    def of(self, tokens_in: int | None, tokens_out: int | None) -> float | None:
        """What a request cost; None if the server did not report its usage."""
        if tokens_in is None or tokens_out is None:
            return None
        return (tokens_in * self.input + tokens_out * self.output) / _MILLION


def read_prices(table: Mapping[str, Any], origin: str) -> dict[str, Price]:
    """The prices of a config file, by the name of the model."""
    found = {}
    for name, value in table.items():
        wrong = not isinstance(value, dict) or set(value) != set(_PARTS) or not all(map(_is_price, value.values()))
        if wrong:
            msg = (
                f"{origin}: prices.{name!r} must be a table like {{ input = 0.15, output = 0.60 }},"
                " in US dollars per million tokens"
            )
            raise UsageError(msg)
        found[name] = Price(float(value["input"]), float(value["output"]))
    return found


def _is_price(value: Any) -> bool:  # noqa: ANN401  (any TOML value)
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def price_of(prices: Mapping[str, Price], provider: str, model: str) -> Price | None:
    """The price of a model: under its name with the provider, or without."""
    return prices.get(f"{provider}:{model}") or prices.get(model)


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has."""
    return len(text) // CHARACTERS_PER_TOKEN + 1
