"""Parses times as runners write them: all notations of the same time are equal; anything else is None."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from kbeval.errors import UsageError
from kbeval.util.text import cut

# ISO 8601, and SQLite's notation. Without an offset it is UTC, like SQLite's CURRENT_TIMESTAMP.
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d|\d{8}(?=T))(?:[T ](\d\d:?\d\d(?::?\d\d)?)(?:[.,](\d+))?(?: ?(Z|UTC|[+-]\d\d(?::?\d\d)?))?)?",
    re.ASCII | re.IGNORECASE,
)
# Seconds or milliseconds since 1970.
_EPOCH = re.compile(r"(\d{9,10})(?:\.\d+)?|(\d{12,13})", re.ASCII)


def moment(text: str) -> datetime | None:
    """The time of a run, in UTC; None if the text is not a time."""
    text = text.strip()
    if epoch := _EPOCH.fullmatch(text):
        seconds, milliseconds = epoch.groups()
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=float(text) if seconds else int(milliseconds) / 1e3)
    return _iso(text)


def since(text: str) -> datetime:
    """The value of --since; raises UsageError if it is neither a date nor a date with a time."""
    found = _iso(text.strip())
    if found is None:
        msg = f"--since {cut(text, 60)!r} is not a date; use e.g. 2026-03-01 or 2026-03-01T14:00+02:00"
        raise UsageError(msg)
    return found


def _iso(text: str) -> datetime | None:
    written = _ISO.fullmatch(text)
    if written is None:
        return None
    day, time, fraction, offset = written.groups()
    offset = "+00:00" if offset is None or offset.upper() in ("Z", "UTC") else offset
    try:
        found = datetime.fromisoformat(f"{day}T{time or '00:00'}{offset}")
        # Fractions may have more digits than Python keeps.
        found += timedelta(microseconds=int((fraction or "0")[:6].ljust(6, "0")))
        return found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
