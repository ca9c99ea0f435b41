"""Rows in bulk: columns in Arrow's layout, in memory that is shared with the other end."""

from __future__ import annotations

import itertools
import mmap
import os
import sqlite3
from array import array

from .errors import described

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing these takes a third of the time to start
    from collections.abc import Sequence
    from typing import Any

INTEGER = "integer"
# The largest batch, if rows turn out larger than expected, and how far to read ahead.
BATCH_BYTES = 4_000_000
AHEAD_BATCHES = 2
AHEAD_BYTES = 8_000_000
# Below this size, joining the values of a column is cheaper than writing each of them separately.
_WORTH_A_PIECE = 2_000
_ALIGNED = 64
# Unused shared memory beyond this is released.
_KEPT_BYTES = 16_000_000


class Arena:
    """Memory shared with the other end, allocated in slots that are reused once they were read."""

    def __init__(self, handle: int | None) -> None:
        self._handle = handle
        # Offset, size and use (0 or 1) of each slot, in order.
        self._slots: list[list[int]] = []
        # Their maps, by offset.
        self._maps: dict[int, mmap.mmap] = {}

    def place(self, pieces: list[bytes | array[int]], size: int) -> tuple[int, int] | bytes:
        """Write to shared memory and return the place; or the bytes themselves if no memory can be shared."""
        try:
            if self._handle is not None:
                return self._write(self._handle, pieces, size)
        except OSError:
            # File size limit reached or no memory left: existing slots stay, later batches are sent.
            self._handle = None
        return b"".join(pieces)

    def _write(self, handle: int, pieces: list[bytes | array[int]], size: int) -> tuple[int, int]:
        slot = self._slot(handle, size)
        # Copying into a map takes half the time of writing to the file.
        memory = self._maps.get(slot[0])
        if memory is None:
            memory = self._maps[slot[0]] = mmap.mmap(handle, slot[1], offset=slot[0])
        place = 0
        for piece in pieces:
            end = place + len(piece) * (8 if isinstance(piece, array) else 1)
            memory[place:end] = piece
            place = end
        return slot[0], slot[1]

    def _slot(self, handle: int, size: int) -> list[int]:
        for slot in self._slots:
            if not slot[2] and slot[1] >= size:
                slot[2] = 1
                return slot
        end = self._slots[-1][0] + self._slots[-1][1] if self._slots else 0
        # Some spare space, so that later batches of a similar size fit. Maps begin at multiples of 64 KiB.
        granted = -(-size * 5 // 4 // 65_536) * 65_536 or 65_536
        slot = [end, granted, 1]
        # Fails if there is no memory left; the map would end this process.
        os.posix_fallocate(handle, end, granted)
        self._slots.append(slot)
        return slot

    def free(self, offsets: Sequence[int]) -> None:
        """Release slots that were read."""
        freed = set(offsets)
        for slot in self._slots:
            if slot[0] in freed:
                slot[2] = 0
        end = 0
        while self._slots and not self._slots[-1][2] and self._slots[-1][0] + self._slots[-1][1] > _KEPT_BYTES:
            end = self._slots.pop()[0]
            self._maps.pop(end, None)
        if end and self._handle is not None:
            os.truncate(self._handle, end)


class Stream:
    """The rows of one statement, as columns."""

    def __init__(self, cursor: sqlite3.Cursor, kinds: Sequence[str], rows: int, arena: Arena) -> None:
        self._cursor = cursor
        self._kinds = kinds
        self._most_rows = self._rows = rows
        self._arena = arena
        self._ahead: list[tuple[Any, ...]] = []
        self._ahead_bytes = 0
        self._is_done = False

    def next(self) -> tuple[Any, ...]:
        """`("batch", rows, where, buffers)`, `("end",)` or an error."""
        if not self._ahead:
            self.read_ahead()
        found = self._ahead.pop(0) if self._ahead else ("end",)
        if found[0] == "batch":
            self._ahead_bytes -= found[-1]
            return found[:-1]
        return found

    def wants_more(self) -> bool:
        """Should one more batch be read ahead?"""
        return not self._is_done and len(self._ahead) < AHEAD_BATCHES and self._ahead_bytes < AHEAD_BYTES

    def is_wanted_soon(self) -> bool:
        """Should one more batch be read before the first is asked for?"""
        return not self._is_done and self._ahead_bytes < AHEAD_BYTES

    def read_ahead(self) -> None:
        """Read one more batch in advance."""
        if self._is_done:
            return
        try:
            found = self._cursor.fetchmany(self._rows)
            if len(found) < self._rows:
                self._is_done = True
            if found:
                self._ahead.append(self._batch(found))
        except Exception as error:  # noqa: BLE001  (reported to the other end)
            self._is_done = True
            self._ahead.append(described(error))

    def _batch(self, rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        pieces: list[bytes | array[int]] = []
        buffers: list[tuple[int, int]] = []
        place = 0

        def add(values: Sequence[bytes | array[int]], size: int) -> int:
            nonlocal place
            start = place
            pieces.extend(values)
            padding = -size % _ALIGNED
            pieces.append(bytes(padding))
            place += size + padding
            return start

        for kind, column in zip(self._kinds, zip(*rows, strict=True), strict=True):
            if kind == INTEGER:
                numbers = array("q", column)
                buffers.append((add([numbers], 8 * len(numbers)), -1))
                continue
            offsets = array("q", itertools.accumulate(map(len, column), initial=0))
            start = add([offsets], 8 * len(offsets))
            size = offsets[-1]
            values = column if size > _WORTH_A_PIECE * len(column) else [b"".join(column)]
            buffers.append((start, add(values, size)))
        # Keep the next batch below the size limit.
        fitting = max(1, len(rows) * BATCH_BYTES // max(1, place))
        self._rows = min(self._most_rows, fitting)
        self._ahead_bytes += place
        return ("batch", len(rows), self._arena.place(pieces, place), buffers, place)
