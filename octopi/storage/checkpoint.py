"""Small files that are replaced as a whole: a node's identity, a log's checkpoint.

==========  =====  ====================================================================
field       bytes  meaning
==========  =====  ====================================================================
magic       8      ``octopi\\r\\n``: shows a transfer that converted line endings
version     4      1, unsigned, in network byte order
checksum    4      CRC-32 (IEEE 802.3) of version and content, in network byte order
content     rest   one CBOR map (RFC 8949)
==========  =====  ====================================================================

`Disk.replace_file` replaces the file atomically, so a reader never finds half of it, and any
mismatch is damage.  Callers define what the map means.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, TypeVar
from zlib import crc32

import cattrs
import cbor2
from cattrs.errors import ForbiddenExtraKeysError

from octopi.environment import Disk
from octopi.errors import StorageError
from octopi.storage.full_disk import FULL, disk_full

MAGIC: Final = b"octopi\r\n"
VERSION: Final = 1
_HEADER: Final = struct.Struct(">8sII")


_CONVERTER: Final = cattrs.Converter(forbid_extra_keys=True)
_WHY_CHARACTERS_MAX: Final = 300
_C = TypeVar("_C")


class DamagedCheckpointError(StorageError):
    """The file exists, and its content isn't what was written."""


async def store(disk: Disk, path: str, content: Mapping[str, Any]) -> None:
    """Replace the content of the file at *path* by *content*, durably.

    Raises:
      DiskFullError: if there is no space.  The file has the old or the new content, since the
          fsync of the directory may be what failed.
      StorageError: if the disk fails otherwise; the file has the old or the new content.
    """
    payload = cbor2.dumps(dict(content))
    try:
        await disk.replace_file(
            path, _HEADER.pack(MAGIC, VERSION, _checksum(VERSION, payload)) + payload
        )
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(f"{path} was not replaced", error) from error
        raise StorageError(f"{path} can't be replaced: {error.strerror}") from error


def load(disk: Disk, path: str) -> dict[str, Any] | None:
    """The content that was stored last at *path*; None if there is no such file.

    Raises:
      DamagedCheckpointError: if the file's content isn't what was written.
      StorageError: if the file can't be read, or has another format version.
    """
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} can't be read: {error.strerror}") from error
    if len(data) < _HEADER.size:
        raise _damaged(path, f"it has only {len(data)} bytes")
    magic, version, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise _damaged(path, "it doesn't begin like one")
    payload = data[_HEADER.size :]
    if _checksum(version, payload) != checksum:
        raise _damaged(path, "its checksum doesn't match")
    if version != VERSION:
        raise StorageError(
            f"{path} has format version {version}, this program knows {VERSION}: "
            "use the program that wrote it, or a newer one"
        )
    try:
        content = cbor2.loads(payload)
    except cbor2.CBORDecodeError as error:
        raise _damaged(path, f"it holds no CBOR ({error})") from error
    if not isinstance(content, dict):
        raise _damaged(path, "it holds no map")
    return content


def structured(path: str, content: Mapping[str, Any], cls: type[_C]) -> _C:
    """Convert *content*, which was loaded from *path*, to *cls*, an attrs class.  It has to have
    each field that has no default, no unknown ones, and values of the declared types.

    Raises:
      DamagedCheckpointError: if it can't be converted.
    """
    try:
        return typed(content, cls)
    except ValueError as error:
        raise _damaged(path, f"it says no {cls.__name__}: {error}") from error


def typed(content: Mapping[str, Any], cls: type[_C]) -> _C:
    """Convert *content* to *cls*: see `structured`.

    Raises:
      ValueError: if it can't be converted; the text says why.
    """
    try:
        return _CONVERTER.structure(content, cls)
    except Exception as error:  # cattrs raises groups of what its hooks raise
        raise ValueError(_why(error)) from error


def _why(error: BaseException) -> str:
    """The text of the first exception in the group *error*, and the place in the structure."""
    places: list[str] = []
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
        places += getattr(error, "__notes__", [])
    if isinstance(error, ForbiddenExtraKeysError):  # whose text is about names alone
        error = ValueError(f"there is no field {min(map(repr, error.extra_fields))}")
    return "; ".join([str(error), *places])[:_WHY_CHARACTERS_MAX]


def _strictly(value: object, kind: type) -> object:
    if type(value) is not kind:
        raise TypeError(f"a {kind.__name__} was expected")
    return value


def _checksum(version: int, payload: bytes) -> int:
    """The checksum covers the version, so a flipped bit there is damage, not another format."""
    return crc32(payload, crc32(version.to_bytes(4, "big")))


def _damaged(path: str, why: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(
        f"{path} is damaged: {why}; restore it from a backup, or remove the data directory"
    )


for _kind in (bool, bytes, int, str):
    _CONVERTER.register_structure_hook(_kind, _strictly)
