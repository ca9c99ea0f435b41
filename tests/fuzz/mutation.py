"""Values and texts made odd: parts left out, doubled, moved, of another type or size, or not quite spelt right."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

NUMBERS = (
    0,
    -0.0,
    1,
    2,
    -1,
    0.5,
    1.5,
    10,
    100,
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**30,
    10**400,
    1e15,
    1e16,
    1e308,
    1.8e308,
    5e-324,
    1e-20,
    float("nan"),
    float("inf"),
    float("-inf"),
)
TEXTS = (
    "",
    " ",
    "0",
    "1",
    "01",
    "-1",
    "1e5",
    "NaN",
    "Infinity",
    "null",
    "true",
    "no",
    "~",
    "latest",
    "latest~1",
    "previous",
    "\0",
    "a\0b",
    "\x1b[31mred\x1b[0m",
    "a\rb",
    "a\nb",
    "\t",
    "\u2028",
    "\u202eabc",
    "\ufeff",
    "\ufffe",
    "\uffff",
    "\ud800",
    "é",
    "e\u0301",
    "İ",
    "ß",
    "ﬁ",
    "😀",
    "👩‍👩‍👧",
    "漢字",
    "'",
    '"',
    "';--",
    '"}',
    "\\",
    "\\u0000",
    "%",
    "%s",
    "{}",
    "{0}",
    "$1",
    "?",
    "*",
    "[a]",
    "a,b",
    "a=b",
    "a > b",
    "# A > ## B",
    "::error::x",
    "##[error]x",
    "<b>",
    "&amp;",
    "|",
    "`",
    "=1+1",
    "../..",
    "/",
    "a/b",
    "C:\\x",
    "~/x",
    "-o",
    "--all",
    "x" * 300,
    "é" * 5000,
    "2026-01-01",
    "9999-12-31T23:59:60Z",
    "line",
    "page",
    "region",
    "time",
)
# Where JSON is spelt differently, or not quite.
_SPELLINGS: tuple[tuple[str, str], ...] = (
    ("{", '{"rank":7,'),
    ("{", '{"kind":"line",'),
    ("{", '{"query_id":"q0",'),
    ("}", ",}"),
    ("]", ",]"),
    ("[", "[,"),
    (":", "::"),
    ('"', "'"),
    (",", ""),
    (",", ",,"),
    ("{", "{/* x */"),
    (":", ":\n"),
    (",", ",\t"),
    ("1", "01"),
    ("1", "+1"),
    ("1", "1."),
    ("1", ".1"),
    ("1", "0x1"),
    ("1", "1e999"),
    ("1", "NaN"),
    ("1", "-Infinity"),
    ("null", "None"),
    ("true", "True"),
    ("e", "\\u0065"),
    ("a", "\\ud800"),
    ("a", "\\u0000"),
    ("a", "\x01"),
    ("{", "\ufeff{"),
    ("{", "\x00{"),
    ("}", "}}"),
    ("}", "} x"),
    ("}", ""),
    ("]", ""),
)


class Source(random.Random):
    """Chance, and what can be made with it."""

    def chance(self, share: float) -> bool:
        """True in this share of cases."""
        return self.random() < share

    def odd(self, depth: int = 0) -> Any:  # noqa: PLR0911  (a kind of value each)
        """A value that need not fit anywhere."""
        luck = self.random()
        if luck < 0.35:
            return self.choice(TEXTS)
        if luck < 0.65:
            return self.choice(NUMBERS)
        if luck < 0.8:
            return self.choice((None, True, False, [], {}))
        if luck < 0.83:
            return nested(self.choice((3, 60, 400, 1500)), self.choice(("[", "{")))
        if depth > 3:
            return None
        if luck < 0.92:
            return [self.odd(depth + 1) for _ in range(self.randrange(4))]
        return {str(self.choice(TEXTS)): self.odd(depth + 1) for _ in range(self.randrange(4))}

    def changed(self, value: Any, times: int = 1, spare: Any = None) -> Any:
        """The same value with a few changes. `spare`: another value, of which parts are taken."""
        value = copy.deepcopy(value)
        for _ in range(times):
            holder = [value]
            container, key = self.choice(list(places(holder)))
            self._change(container, key, spare)
            value = holder[0] if holder else None
        return value

    def _change(self, container: Any, key: Any, spare: Any) -> None:
        """Change one place of a structure."""
        found = container[key]
        changes: list[Callable[[], Any]] = [self.odd, self.odd, lambda: [found], lambda: {"kind": found}]
        if isinstance(found, bool):
            changes += [lambda: not found, lambda: int(found), lambda: str(found)] * 2
        elif isinstance(found, int | float):
            changes += [
                lambda: -found,
                lambda: found + 1,
                lambda: found - 1,
                lambda: f"{found}"[:60],
                lambda: found * 0.14 if abs(found) < 1e300 else found,
                lambda: self.choice(NUMBERS),
                lambda: self.choice(NUMBERS),
                lambda: 0,
            ]
        elif isinstance(found, str):
            changes += [
                lambda: self.spoilt(found),
                lambda: self.spoilt(found),
                found.upper,
                lambda: found + " ",
                lambda: "",
                lambda: self.choice(TEXTS),
                lambda: found * self.choice((2, 50)),
                lambda: list(found[:9]),
            ]
        elif isinstance(found, list):
            changes += [
                lambda: found[::-1],
                lambda: found + found,
                lambda: found[:1],
                lambda: found[1:],
                lambda: [*found, self.odd()],
                lambda: dict(enumerate(map(_text, found))),
                lambda: [found, found],
                lambda: found * self.choice((3, 40)),
            ]
        elif isinstance(found, dict) and found:
            name = self.choice(list(found))
            rest = {other: value for other, value in found.items() if other != name}
            changes += [
                lambda: rest,
                lambda: rest,
                lambda: {**rest, self.spoilt(str(name)): found[name]},
                lambda: {**found, "x": self.odd()},
                lambda: list(found.values()),
                lambda: {**found, name: self.odd()},
                lambda: dict(reversed(list(found.items()))),
            ]
        if spare is not None:
            changes.append(lambda: copy.deepcopy(pick(self, spare)))
        if self.chance(0.12) and (isinstance(container, dict) or len(container) > 1):
            del container[key]
        else:
            container[key] = self.choice(changes)()

    def spoilt(self, text: str) -> str:
        """The text with something put in, left out or changed."""
        place = self.randrange(len(text) + 1)
        other = self.choice(TEXTS)[:400]
        return self.choice(
            (
                text[:place] + other + text[place:],
                text[:place] + text[place + 1 :],
                text[:place],
                text[place:],
                text[:place] + text[place:].swapcase(),
                text[:place] + chr(self.randrange(1, 0x250)) + text[place + 1 :],
            )
        )

    def spelt(self, value: Any, oddly: float = 0.1) -> str:
        """The value as JSON, in a share of cases not quite."""
        text = dumped(value, ascii_only=self.chance(0.5), indent=self.choice((None, None, None, 2)))
        if self.chance(oddly):
            old, new = self.choice(_SPELLINGS)
            at = [place for place in range(len(text)) if text.startswith(old, place)]
            if at:
                place = self.choice(at)
                text = text[:place] + new + text[place + len(old) :]
            if self.chance(0.2):
                text = self.spoilt(text)
        return text

    def spoilt_bytes(self, content: bytes, times: int = 1) -> bytes:
        """The bytes with some of them changed, left out, doubled or moved."""
        for _ in range(times):
            start = self.randrange(len(content) + 1)
            end = min(len(content), start + self.choice((1, 1, 2, 8, 40)))
            other = self.choice(
                (
                    b"",
                    b"\0",
                    b"\xff",
                    b"\xc3",
                    b"\xed\xa0\x80",
                    b"\r\n",
                    b"\n",
                    b"- ",
                    b": ",
                    b"&a ",
                    b"*a",
                    b"!!python/name:os.system ",
                    b"<<: ",
                    b"[",
                    b"{",
                    b"}",
                    b"]",
                    b'"',
                    b"'",
                    b"#",
                    b"|\n",
                    b">\n",
                    b"\t",
                    b"---\n",
                    b"...\n",
                    b"? ",
                    b"%YAML 9.9\n",
                    b"!!binary ",
                    b"0o7",
                    b"1_000",
                    b".nan",
                    b"\xef\xbb\xbf",
                ),
            )
            piece = content[start:end]
            content = self.choice(
                (
                    content[:start] + other + content[end:],
                    content[:start] + other + content[start:],
                    content[:start] + content[end:],
                    content[:end] + piece * self.choice((1, 3, 30)) + content[end:],
                    content[:start],
                    content[:start] + piece[::-1] + content[end:],
                )
            )
        return content


def _text(value: Any) -> str:
    try:
        return str(value)
    except RecursionError:
        return "deep"


def nested(depth: int, how: str) -> Any:
    """Lists in lists, or objects in objects."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if how == "[" else {"a": value}
    return value


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a structure: what holds it, and its name there."""
    level = [value]
    while level:
        container = level.pop()
        for key in container if isinstance(container, dict) else range(len(container)):
            yield container, key
            if isinstance(container[key], dict | list):
                level.append(container[key])


def pick(source: random.Random, value: Any) -> Any:
    """Some part of a structure."""
    container, key = source.choice(list(places([value])))
    return container[key]


def dumped(value: Any, *, ascii_only: bool = True, indent: int | None = None) -> str:
    """JSON of a value, whatever it is: what is nested too deeply for that is cut."""
    try:
        return json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    except (RecursionError, ValueError):
        return '{"query_id": ' + "[" * 5000 + "]" * 5000 + "}"
