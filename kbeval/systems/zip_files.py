"""Reads zip files of unknown origin: within limits, and without using the names in them as paths.

Newer tools compress with Zstandard, which Python's own reader supports only from 3.14 on.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Self

from kbeval.errors import KbevalError

_ZSTANDARD = 93
_LOCAL_HEADER = struct.Struct("<4s22xHH")
MOST_ENTRIES = 200_000
LARGEST_ENTRY = 512 * 1024 * 1024
LARGEST_SUM = 4 * 1024 * 1024 * 1024
_STEP = 1024 * 1024


class ZipReader:
    """The entries of one zip file, by name. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0

    def __enter__(self) -> Self:
        if not self._path.is_file():
            msg = f"{self._path} does not exist, or is not a file; check the path"
            raise KbevalError(msg)
        self._file = self._path.open("rb")
        try:
            self._zip = zipfile.ZipFile(self._file)
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            self._file.close()
            msg = f"{self._path} cannot be read as a zip file: {error}"
            raise KbevalError(msg) from error
        infos = self._zip.infolist()
        total = sum(info.file_size for info in infos)
        if total > LARGEST_SUM:
            self.__exit__()
            most = f"at most {LARGEST_SUM // 2**20:,} MB are read"
            msg = f"{self._path} is too large: it unpacks to {total // 2**20:,} MB; {most}"
            raise KbevalError(msg)
        if len(infos) > MOST_ENTRIES:
            self.__exit__()
            msg = f"{self._path} has {len(infos):,} entries; at most {MOST_ENTRIES:,} are read"
            raise KbevalError(msg)
        self._infos = {info.filename: info for info in infos}
        if len(self._infos) < len(infos):
            self.__exit__()
            msg = f"{self._path} has two entries with the same name; create the file again"
            raise KbevalError(msg)
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    def names(self) -> list[str]:
        """The names of all entries."""
        return list(self._infos)

    def read(self, name: str) -> bytes:
        """The contents of an entry. Raises an error if it is damaged, or larger than is reasonable."""
        info = self._infos[name]
        # Before anything is unpacked; what comes out is counted too, because the size may be wrong.
        if max(info.file_size, info.compress_size) > LARGEST_ENTRY:
            raise self._too_large(name)
        try:
            with self._stream(info) as stream:
                return self._sound(self._limited(stream, name), info)
        except KbevalError:
            raise
        except (OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError, RuntimeError, struct.error) as error:
            msg = (
                f"{self._path}, {name}: cannot be read: {str(error).splitlines()[0] if str(error) else 'it is damaged'}"
            )
            raise KbevalError(msg) from error

    @staticmethod
    def _sound(content: bytes, info: zipfile.ZipInfo) -> bytes:
        if zlib.crc32(content) != info.CRC:
            msg = "its checksum is wrong"
            raise zipfile.BadZipFile(msg)
        return content

    def _limited(self, stream: IO[bytes], name: str) -> bytes:
        parts = []
        size = 0
        while part := stream.read(_STEP):
            size += len(part)
            self._read_bytes += len(part)
            if size > LARGEST_ENTRY or self._read_bytes > LARGEST_SUM:
                raise self._too_large(name)
            parts.append(bytes(part))
        return b"".join(parts)

    def _too_large(self, name: str) -> KbevalError:
        most = f"{LARGEST_ENTRY // 2**20:,} MB of an entry and {LARGEST_SUM // 2**20:,} MB of a file"
        return KbevalError(f"{self._path}, {name}: is too large; at most {most} are read")

    def _stream(self, info: zipfile.ZipInfo) -> IO[bytes]:
        if info.compress_type != _ZSTANDARD:
            return self._zip.open(info)
        import pyarrow as pa

        self._file.seek(info.header_offset)
        mark, name_size, extra_size = _LOCAL_HEADER.unpack(self._file.read(_LOCAL_HEADER.size))
        if mark != b"PK\x03\x04":
            msg = "the local header is damaged"
            raise zipfile.BadZipFile(msg)
        self._file.seek(info.header_offset + _LOCAL_HEADER.size + name_size + extra_size)
        packed = io.BytesIO(self._file.read(info.compress_size))
        stream: IO[bytes] = pa.CompressedInputStream(packed, "zstd")
        return stream
