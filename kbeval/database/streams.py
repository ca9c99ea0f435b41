"""Rows that another process reads, as an Arrow stream: DuckDB reads the columns directly from shared memory.

The structures of the Arrow C data interface are filled in here with ctypes, so that no library is needed for it. Those
of rows are packed as plain numbers: there are many of them, and assigning each field through ctypes takes longer.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import mmap
import re
import struct
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_void_p, cast, pointer
from typing import TYPE_CHECKING, Any, NamedTuple

from kbeval.database.process import ProcessEndedError, error_of
from kbeval.errors import DatabaseError

if TYPE_CHECKING:
    from kbeval.database.process import Process

# Text with 64-bit offsets: a batch may have any size.
_FORMATS = {"text": b"U", "integer": b"l"}
_FAILURE = re.compile(r"\[stream (\d+)\]")
_MOST_FAILURES = 100
_MOST_MAPS = 100

Explain = Callable[[DatabaseError], DatabaseError]


class _Schema(ctypes.Structure):
    pass


class _ArrowStream(ctypes.Structure):
    pass


_RELEASE_SCHEMA = ctypes.CFUNCTYPE(None, POINTER(_Schema))
_RELEASE_ARRAY = ctypes.CFUNCTYPE(None, c_void_p)
_RELEASE_STREAM = ctypes.CFUNCTYPE(None, POINTER(_ArrowStream))
_GET_SCHEMA = ctypes.CFUNCTYPE(c_int, POINTER(_ArrowStream), POINTER(_Schema))
_GET_NEXT = ctypes.CFUNCTYPE(c_int, POINTER(_ArrowStream), c_void_p)
_GET_ERROR = ctypes.CFUNCTYPE(c_void_p, POINTER(_ArrowStream))

_Schema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_char_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(_Schema))),
    ("dictionary", POINTER(_Schema)),
    ("release", _RELEASE_SCHEMA),
    ("private_data", c_void_p),
]
_ArrowStream._fields_ = [
    ("get_schema", _GET_SCHEMA),
    ("get_next", _GET_NEXT),
    ("get_last_error", _GET_ERROR),
    ("release", _RELEASE_STREAM),
    ("private_data", c_void_p),
]
# A structure of rows: length, null_count, offset, n_buffers, n_children, buffers, children, dictionary, release,
# private_data; and where the last two are.
_ARRAY = struct.Struct("=5q5Q")
_ARRAY_RELEASE, _ARRAY_PRIVATE = 64, 72


class _Held(NamedTuple):
    """What a structure needs as long as it is used: its children, and whatever they point to.

    `children` are structures, or, of rows, their addresses.
    """

    children: Sequence[Any] = ()
    others: tuple[Any, ...] = ()
    reader: Any = None


_number_at = ctypes.c_uint64.from_address
# Objects that DuckDB still uses, by the number that it passes back when it releases them.
_USED: dict[int, _Held] = {}
_NUMBERS = itertools.count(1)
# Why streams failed: DuckDB passes on only a text.
_FAILURES: dict[int, DatabaseError] = {}


def failure_behind(error: BaseException) -> DatabaseError | None:
    """The database error that made DuckDB fail, if there is one."""
    found = _FAILURE.search(str(error))
    return None if found is None else _FAILURES.get(int(found[1]))


def _hold(value: _Held) -> int:
    number = next(_NUMBERS)
    _USED[number] = value
    return number


def _release(structure: Any) -> None:  # noqa: ANN401  (a pointer to one of the three)
    """Release what belongs to a structure, and its children unless their ownership was moved."""
    found = structure.contents
    for child in _USED.pop(found.private_data or 0, _Held()).children:
        if child.release:
            _USED.pop(child.private_data or 0, None)
            _mark_released(child)
    _mark_released(found)


def _mark_released(structure: Any) -> None:  # noqa: ANN401  (one of the three)
    """A null pointer marks a released structure."""
    ctypes.memset(byref(structure, type(structure).release.offset), 0, ctypes.sizeof(c_void_p))


def _release_rows(address: int) -> None:
    """Release rows, and their columns unless the ownership of these was moved."""
    number = _number_at(address + _ARRAY_PRIVATE)
    held = _USED.pop(number.value, _Held())
    for child in held.children:
        release = _number_at(child + _ARRAY_RELEASE)
        if release.value:
            _USED.pop(_number_at(child + _ARRAY_PRIVATE).value, None)
            release.value = 0
    _number_at(address + _ARRAY_RELEASE).value = 0


def _release_reader(structure: Any) -> None:  # noqa: ANN401  (a pointer to a stream)
    held = _USED.get(structure.contents.private_data or 0)
    _release(structure)
    if held is not None:
        held.reader.end()


def _get_schema(structure: Any, schema: Any) -> int:  # noqa: ANN401  (pointers, here and below)
    reader: _Reader = _USED[structure.contents.private_data].reader
    _fill_schema(schema.contents, b"+s", b"", reader.relation.columns)
    return 0


def _get_next(structure: Any, target: int) -> int:  # noqa: ANN401
    reader: _Reader = _USED[structure.contents.private_data].reader
    try:
        reader.fill_next(target)
    except BaseException as error:  # noqa: BLE001  (DuckDB cannot handle Python exceptions)
        reader.fail(error)
        return errno.EIO
    return 0


def _get_error(structure: Any) -> int | None:  # noqa: ANN401
    reader: _Reader = _USED[structure.contents.private_data].reader
    return cast(reader.failure, c_void_p).value


# As DuckDB calls them; they must live as long as the program.
_release_schema = _RELEASE_SCHEMA(_release)
_release_array = _RELEASE_ARRAY(_release_rows)
_RELEASE_ARRAY_ADDRESS = cast(_release_array, c_void_p).value or 0
_release_stream = _RELEASE_STREAM(_release_reader)
_schema_callback, _next_callback, _error_callback = (
    _GET_SCHEMA(_get_schema),
    _GET_NEXT(_get_next),
    _GET_ERROR(_get_error),
)


def _fill_schema(schema: _Schema, form: bytes, name: bytes, columns: Sequence[tuple[str, str]]) -> None:
    children = [_Schema() for _ in columns]
    for child, (column, kind) in zip(children, columns, strict=True):
        _fill_schema(child, _FORMATS[kind], column.encode(), ())
    pointers = (POINTER(_Schema) * len(children))(*map(pointer, children))
    schema.format, schema.name, schema.metadata, schema.flags = form, name, None, 0
    schema.n_children, schema.children = len(children), cast(pointers, POINTER(POINTER(_Schema)))
    schema.dictionary = None
    schema.release = _release_schema
    schema.private_data = _hold(_Held(children, (pointers, form, name)))


class _Batch:
    """Some rows, in memory that is kept until all of its columns are released."""

    def __init__(self, process: Process, where: tuple[int, int] | bytes) -> None:
        self._process = process
        self._offset: int | None = None
        if isinstance(where, bytes):
            self._memory: Any = ctypes.create_string_buffer(where, len(where))
            self.address = ctypes.addressof(self._memory)
            return
        self._offset, size = where
        if process.arena is None:
            msg = "the database is closed"
            raise ProcessEndedError(msg)
        # Maps are kept: mapping the memory again for each batch would make the processor look up all its pages again.
        memory = process.maps.get(where)
        if memory is None:
            if len(process.maps) >= _MOST_MAPS:
                process.maps.clear()
            process.maps[where] = memory = mmap.mmap(process.arena, size, offset=self._offset)
        self._memory = memory
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def __del__(self) -> None:
        if self._offset is not None:
            self._process.freed.append(self._offset)


class _Reader:
    """One pass over the rows."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.failure = c_char_p(None)
        self._number = next(_NUMBERS)
        self._is_started = self._is_done = False

    def _next(self) -> tuple[Any, ...]:
        process, relation = self.relation.process, self.relation
        if not self._is_started:
            self._is_started = True
            if (begun := relation.take_begun()) is not None:
                found = process.ask_plainly("next", begun)
                # Otherwise the database was closed and opened again since.
                if found[0] != "gone":
                    self._number = begun
                    return found
            process.ask("stream", self._number, *relation.statement)
        return process.ask_plainly("next", self._number)

    def fill_next(self, target: int) -> None:
        """Fill in the next rows; at the end, leave a structure that counts as released."""
        ctypes.memset(target, 0, _ARRAY.size)
        if self._is_done:
            return
        kind, *found = self._next()
        if kind == "end":
            self._is_done = True
            return
        if kind != "batch":
            raise error_of(kind, *found)
        length, where, buffers = found
        _fill_rows(target, length, buffers, _Batch(self.relation.process, where))

    def fail(self, error: BaseException) -> None:
        """Record the error; DuckDB is given its number."""
        self._is_done = True
        if not isinstance(error, DatabaseError):
            error = DatabaseError(f"{type(error).__name__}: {error}")
        error = self.relation.explain(error)
        while len(_FAILURES) >= _MOST_FAILURES:
            with contextlib.suppress(KeyError, StopIteration):
                del _FAILURES[next(iter(_FAILURES))]
        _FAILURES[self._number] = error
        self.failure = c_char_p(f"[stream {self._number}] {error.headline}".encode("utf-8", "backslashreplace"))

    def end(self) -> None:
        """DuckDB needs no more rows."""
        if self._is_started and not self._is_done:
            self._is_done = True
            self.relation.process.dropped.append(self._number)


def _fill_rows(target: int, length: int, buffers: Sequence[tuple[int, int]], batch: _Batch) -> None:
    """Fill in the structure at this address with the rows of a batch.

    `buffers`: for each column, where its numbers or the offsets of its texts are in the batch, and where its texts are
    (-1: there are none).
    """
    width = len(buffers)
    # One piece of memory: the structures of the columns, the addresses of these, and the buffers of each structure.
    memory = ctypes.create_string_buffer(width * (_ARRAY.size + 32) + 8)
    start = ctypes.addressof(memory)
    columns = range(start, start + width * _ARRAY.size, _ARRAY.size)
    addresses = start + width * _ARRAY.size
    own_buffer = addresses + 8 * width
    numbers = list(itertools.islice(_NUMBERS, width + 1))
    tables: list[int] = [*columns, 0]
    for column, (values, text) in enumerate(buffers):
        tables += (0, batch.address + values, 0 if text < 0 else batch.address + text)
        place = own_buffer + 8 + 24 * column
        array = (length, 0, 0, 2 if text < 0 else 3, 0, place, 0, 0, _RELEASE_ARRAY_ADDRESS, numbers[column])
        _ARRAY.pack_into(memory, column * _ARRAY.size, *array)
    struct.pack_into(f"={len(tables)}Q", memory, width * _ARRAY.size, *tables)
    held = _Held(others=(memory, batch))
    for number in numbers:
        _USED[number] = held
    _USED[numbers[-1]] = held._replace(children=columns)
    whole = (length, 0, 0, 1, width, own_buffer, addresses, 0, _RELEASE_ARRAY_ADDRESS, numbers[-1])
    ctypes.memmove(target, _ARRAY.pack(*whole), _ARRAY.size)


# Libraries pass pointers to each other in capsules.
_CAPSULE_NAME = b"arrow_array_stream"
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))
_capsule_name = ctypes.PYFUNCTYPE(c_char_p, c_void_p)(("PyCapsule_GetName", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
# The structures that capsules point to. DuckDB moves their contents, unless it only needed the schema.
_MADE: dict[int, _ArrowStream] = {}


def _drop_capsule(capsule: int) -> None:
    stream = _MADE.pop(_capsule_pointer(capsule, _capsule_name(capsule)), None)
    if stream is not None and stream.release:
        _release_reader(pointer(stream))


_dropped = ctypes.PYFUNCTYPE(None, c_void_p)(_drop_capsule)


class Relation:
    """Rows that DuckDB can read any number of times."""

    def __init__(
        self, process: Process, sql: str, columns: Sequence[tuple[str, str]], batch_rows: int, explain: Explain
    ) -> None:
        self.process = process
        self.explain = explain
        self.sql = sql
        self.columns = columns
        self.batch_rows = batch_rows
        # The number of a pass over the rows that was begun and not asked for yet.
        self._begun: int | None = None

    @property
    def statement(self) -> tuple[str, tuple[str, ...], int]:
        """As the process is told: the SQL, the kinds of its columns, and how many rows a batch has."""
        return self.sql, tuple(kind for _, kind in self.columns), self.batch_rows

    def begin(self) -> None:
        """Have the first rows read whenever the process has nothing else to do: they will be needed soon."""
        number = next(_NUMBERS)
        # An error is reported when the rows are needed.
        with contextlib.suppress(DatabaseError):
            self.process.ask("begin", number, *self.statement)
            self._begun = number

    def take_begun(self) -> int | None:
        """The number of the pass that was begun; only the first caller gets it."""
        number, self._begun = self._begun, None
        return number

    def __del__(self) -> None:
        if self._begun is not None:
            self.process.dropped.append(self._begun)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:  # noqa: ANN401  (a capsule)
        """Implement the Arrow PyCapsule protocol for streams."""
        stream = _ArrowStream()
        stream.get_schema, stream.get_next = _schema_callback, _next_callback
        stream.get_last_error, stream.release = _error_callback, _release_stream
        stream.private_data = _hold(_Held(reader=_Reader(self)))
        _MADE[ctypes.addressof(stream)] = stream
        return _new_capsule(ctypes.addressof(stream), _CAPSULE_NAME, cast(_dropped, c_void_p))
