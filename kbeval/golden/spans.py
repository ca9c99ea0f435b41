"""Spans in golden entries: `{doc_id or path, kind, …}`, with the numbers that each kind of span has.

A span without a position would be matched by its document alone, so every fault is reported when the file is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kbeval.golden.reading import Plain
from kbeval.golden.scalars import Value, WrongError, is_blank, number, text
from kbeval.util.text import did_you_mean

# Larger than any file. Far beyond it, floats cannot distinguish adjacent positions.
_MOST = 1e15
_WHERE = ("doc_id", "path")


@dataclass(frozen=True)
class _Kind:
    """A kind of span: which numbers it has, and the rules for them."""

    needs: tuple[str, ...] = ()
    # The fields for its start and its end. If they are not required, both must be given or neither.
    ends: tuple[str, str] | None = None
    least: Mapping[str, float] | None = None
    above: Mapping[str, float] | None = None
    # Does the end belong to the span? Otherwise it is the first position after it.
    inclusive: bool = False
    whole: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.needs, *(self.ends or ()))))

    def __str__(self) -> str:
        needs = ", ".join(self.needs)
        takes = [name for name in self.names if name not in self.needs]
        return f"{needs}, and accepts {' with '.join(takes)}" if takes else needs


def _between(start: str, end: str, least: float, *, inclusive: bool = False, whole: bool = True) -> _Kind:
    return _Kind((start, end), (start, end), {start: least, end: least}, inclusive=inclusive, whole=whole)


KINDS = {
    "line": _between("start", "end", 1, inclusive=True),
    "code": _between("line_start", "line_end", 1, inclusive=True),
    "char": _between("start", "end", 0),
    "byte": _between("start", "end", 0),
    "time": _between("start_ms", "end_ms", 0, whole=False),
    "page": _Kind(("page",), ("char_start", "char_end"), {"page": 1, "char_start": 0, "char_end": 0}),
    "region": _Kind(("x", "y", "w", "h"), above={"w": 0, "h": 0}, whole=False),
    "caption": _Kind(),
}
NAMES = frozenset(("kind", *_WHERE, *(name for kind in KINDS.values() for name in kind.names)))


def spans(value: Value) -> list[dict[str, Value]]:
    """The spans of an entry. Raises WrongError with every fault of every span."""
    if not isinstance(value, list) or not all(isinstance(span, dict) for span in value):
        msg = "must be a list of {doc_id or path, kind, start, end}"
        raise WrongError(msg)
    checked = [_Checked(span) for span in value]
    if faults := [f"span {place}: {fault}" for place, span in enumerate(checked, start=1) for fault in span.faults]:
        raise WrongError(*faults)
    return [span.values for span in checked]


def position_faults(span: Mapping[str, Value]) -> list[str]:
    """What is wrong with the kind and the numbers of a span whose document is known from elsewhere."""
    # Numbers of a golden file arrive as they are written.
    numbers = {
        name: Plain(value) for name, value in span.items() if isinstance(value, int | float) and type(value) is not bool
    }
    return _Checked({**span, **numbers, "doc_id": "-"}).faults


def unread_names(value: Value) -> Iterator[str]:
    """The fields with a value that a span of this kind does not have."""
    for span in value if isinstance(value, list) else ():
        kind = KINDS.get(str(span.get("kind"))) if isinstance(span, dict) else None
        if kind is not None:
            read = ("kind", *_WHERE, *kind.names)
            yield from (name for name in span if name not in read and span[name] is not None)


class _Checked:
    """One span: its normalized values, and what is wrong with it."""

    def __init__(self, span: Mapping[str, Value]) -> None:
        self.values: dict[str, Value] = {}
        self.faults: list[str] = []
        self._span = span
        self._check_document()
        if (kind := self._kind()) is not None:
            self._check_numbers(kind)

    def _check_document(self) -> None:
        given = [name for name in _WHERE if self._span.get(name) is not None and not is_blank(self._span[name])]
        if not given:
            self.faults.append("has neither doc_id nor path")
        for name in given:
            try:
                self.values[name] = text(self._span[name])
            except WrongError as error:
                self.faults.append(f"{name} {error}")

    def _kind(self) -> _Kind | None:
        name = self._span.get("kind")
        known = ", ".join(KINDS)
        if name is None or is_blank(name):
            self.faults.append(f"has no kind; use one of {known}")
        elif not isinstance(name, str) or name not in KINDS:
            hint = did_you_mean(str(name).lower(), KINDS) or f"; use one of {known}"
            self.faults.append(f"unknown kind {name!s:.40}{hint}")
        else:
            self.values["kind"] = str(name)
            return KINDS[name]
        return None

    def _check_numbers(self, kind: _Kind) -> None:
        given = [name for name in kind.names if self._span.get(name) is not None]
        needs = {*kind.needs, *(kind.ends or () if set(kind.ends or ()) & set(given) else ())}
        if missing := [name for name in kind.names if name in needs and name not in given]:
            self.faults.append(f"has no {' and no '.join(missing)}; kind {self.values['kind']} needs {kind}")
        for name in given:
            self._check_number(name, kind)
        if kind.ends is not None and all(name in self.values for name in kind.ends):
            self._check_ends(*kind.ends, inclusive=kind.inclusive)

    def _check_number(self, name: str, kind: _Kind) -> None:
        try:
            found = number(self._span[name])
        except WrongError as error:
            self.faults.append(f"{name} {error}")
            return
        least, above = (kind.least or {}).get(name), (kind.above or {}).get(name)
        if abs(found) > _MOST:
            self.faults.append(f"{name} is {found:g}, which is too large")
        elif kind.whole and found != int(found):
            self.faults.append(f"{name} is {found:g}, but must be an integer")
        elif least is not None and found < least:
            self.faults.append(f"{name} is {found:.15g}, but must be at least {least:g}")
        elif above is not None and found <= above:
            self.faults.append(f"{name} is {found:g}, but must be above {above:g}")
        else:
            self.values[name] = found

    def _check_ends(self, start: str, end: str, *, inclusive: bool) -> None:
        low, high = self.values[start], self.values[end]
        if high < low:
            self.faults.append(f"{end} {high:.15g} is before {start} {low:.15g}")
        elif high == low and not inclusive:
            self.faults.append(f"is empty: {start} and {end} are both {low:.15g}, and {end} is exclusive")
