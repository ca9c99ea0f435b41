"""Golden files in YAML, with the line of every entry; about a second for ten thousand entries.

Values are built from the events of the C parser, without recursion and without expanding aliases: events have line
numbers and tell whether a scalar was quoted, depth is not a problem, and a file whose aliases would expand to millions
of values is rejected before they are expanded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kbeval.errors import GoldenError
from kbeval.golden.reading import Entry, Plain, as_entry

# Aliases may be used, but the number of values after expansion must stay in proportion to the file.
_MAX_UNFOLDED = 5_000_000
_UNFOLDED_FACTOR = 10
_MAX_DEPTH = 50
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_MERGE = "<<"


class _RefusedError(ValueError):
    """The file as a whole cannot be accepted."""


class _Open:
    """A list or mapping that is being built."""

    __slots__ = ("anchor", "fault", "is_list", "items", "key", "line", "merged", "size")

    def __init__(self, *, is_list: bool, line: int, anchor: str | None) -> None:
        self.is_list = is_list
        self.items: Any = [] if is_list else {}
        self.key: str | None = None
        self.line = line
        self.anchor = anchor
        self.size = 1
        self.merged: dict[str, Any] = {}
        self.fault: str | None = None

    def add(self, value: Any) -> None:  # noqa: ANN401  (any value in a file)
        if self.is_list:
            self.items.append(value)
        elif self.key is None:
            self.key = value if isinstance(value, str) else ""
        else:
            self._set(self.key, value)
            self.key = None

    def _set(self, key: str, value: Any) -> None:  # noqa: ANN401
        if key == _MERGE:
            for base in value if isinstance(value, list) else [value]:
                if isinstance(base, dict):
                    self.merged = {**base, **self.merged}
        elif key in self.items:
            self.fault = f"duplicate field {key!r}"
        else:
            self.items[key] = value

    def value(self) -> Any:  # noqa: ANN401
        return {**self.merged, **self.items} if self.merged else self.items


def read_yaml(path: Path, text: str) -> list[Entry]:
    """The entries of a YAML list. Raises GoldenError if the file as a whole cannot be read."""
    try:
        return _Reader().read(text)
    except _RefusedError as error:
        raise GoldenError(str(path), [str(error)]) from error
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise GoldenError(str(path), [f"{where}not valid YAML: {error.problem or error.context}"]) from error
    except yaml.YAMLError as error:
        raise GoldenError(str(path), [f"not valid YAML: {' '.join(str(error).split())}"]) from error


class _Reader:
    """Builds entries from events. The bottom of the stack is the list of entries itself."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._written = 0
        self._unfolded = 0
        self._documents = 0

    def read(self, text: str) -> list[Entry]:
        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._start(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end()
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    msg = f"line {_line(event)}: the file contains a second document (after ---); keep only one list"
                    raise _RefusedError(msg)
        return self._entries

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._written += 1
        value = _value(event)
        if not self._stack:
            if value is not None:
                raise _RefusedError(_not_a_list(event))
            return
        # A key is text even if the same scalar would be null as a value.
        top = self._stack[-1]
        if value is None and not top.is_list and top.key is None:
            value = str(event.value)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1)
        self._add(value, 1, _line(event))

    def _start(self, event: yaml.CollectionStartEvent) -> None:
        self._written += 1
        is_list = isinstance(event, yaml.SequenceStartEvent)
        if not self._stack and not is_list:
            raise _RefusedError(_not_a_list(event))
        if len(self._stack) >= _MAX_DEPTH:
            msg = f"line {_line(event)}: the file is nested too deeply"
            raise _RefusedError(msg)
        self._stack.append(_Open(is_list=is_list, line=_line(event), anchor=event.anchor))

    def _end(self) -> None:
        done = self._stack.pop()
        if not self._stack:
            return
        value = done.value()
        if done.anchor is not None:
            self._anchors[done.anchor] = (value, done.size)
        self._add(value, done.size, done.line, done.fault)

    def _alias(self, event: yaml.AliasEvent) -> None:
        line = _line(event)
        if any(part.anchor == event.anchor for part in self._stack):
            msg = f"line {line}: an anchor contains itself"
            raise _RefusedError(msg)
        if event.anchor not in self._anchors:
            msg = f"line {line}: not valid YAML: the alias *{event.anchor} is not defined"
            raise _RefusedError(msg)
        value, size = self._anchors[event.anchor]
        self._written += 1
        self._unfolded += size
        self._add(value, size, line)
        if self._unfolded > min(_MAX_UNFOLDED, _UNFOLDED_FACTOR * self._written + 1000):
            msg = f"line {line}: aliases expand to far more values than the file contains; write the values instead"
            raise _RefusedError(msg)

    def _add(self, value: Any, size: int, line: int, fault: str | None = None) -> None:  # noqa: ANN401
        top = self._stack[-1]
        top.size += size
        if len(self._stack) > 1:
            top.add(value)
            top.fault = top.fault or fault
        elif fault is not None:
            self._entries.append(Entry(line, value if isinstance(value, dict) else {}, fault))
        else:
            self._entries.append(as_entry(value, line))


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _value(event: yaml.ScalarEvent) -> str | None:
    if event.style:  # quoted, or a block: always text
        return event.value
    return None if event.value in _NULLS else Plain(event.value)


def _not_a_list(event: yaml.Event) -> str:
    return f"line {_line(event)}: the file must be a list of entries, each beginning with '- id: …'"
