"""Heads, strings and containers of CBOR (RFC 8949), as far as messages use them.

Each length that is read is compared with its bound, and with the bytes that there are, before it is
used.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol, SupportsIndex, overload

# Major types, RFC 8949 section 3.1.
UNSIGNED: Final = 0
NEGATIVE: Final = 1
BYTES: Final = 2
TEXT: Final = 3
LIST: Final = 4
MAP: Final = 5
SIMPLE: Final = 7

FALSE: Final = b"\xf4"
TRUE: Final = b"\xf5"
NULL: Final = b"\xf6"

INTEGER_BOUND: Final = 1 << 63
_BYTE: Final = [bytes((byte,)) for byte in range(256)]
_HEAD_OF_16_BITS: Final = struct.Struct(">BH").pack
_HEAD_OF_32_BITS: Final = struct.Struct(">BI").pack
_HEAD_OF_64_BITS: Final = struct.Struct(">BQ").pack
_NAME_BYTES_MAX: Final = 40
"""An error message quotes an unknown name of a peer only up to this length."""

_MAJOR_NAMES: Final = (
    "an integer",
    "a negative integer",
    "a byte string",
    "a text",
    "a list",
    "a map",
    "a tag",
    "a simple value",
)


class Encoded(Protocol):
    """Bytes that are decoded: `bytes`, or a `ReceivedView`."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> int: ...

    @overload
    def __getitem__(self, index: slice, /) -> bytes: ...

    def startswith(self, prefix: bytes, start: int, /) -> bool: ...


class ReceivedView:
    """What `Encoded` asks for, on the view of a message that was received in place.  A slice is a
    copy; `part` is a view."""

    __slots__ = ("_view",)

    def __init__(self, view: memoryview) -> None:
        self._view = view

    def __len__(self) -> int:
        return len(self._view)

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> int: ...

    @overload
    def __getitem__(self, index: slice, /) -> bytes: ...

    def __getitem__(self, index: SupportsIndex | slice, /) -> int | bytes:
        if isinstance(index, slice):
            return bytes(self._view[index])
        return self._view[index]

    def startswith(self, prefix: bytes, start: int, /) -> bool:
        return self._view[start : start + len(prefix)] == prefix

    def part(self, start: int, end: int) -> memoryview:
        """The bytes from *start* to *end*, where they are."""
        return self._view[start:end]


class Problem(Exception):
    """A value that a message must not hold.  Callers add to `place`, which names the field, while
    the exception passes through them."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.place = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def head(major: int, argument: int) -> bytes:
    initial = major << 5
    if argument < 24:
        return _BYTE[initial | argument]
    if argument < 1 << 8:
        return bytes((initial | 24, argument))
    if argument < 1 << 16:
        return _HEAD_OF_16_BITS(initial | 25, argument)
    if argument < 1 << 32:
        return _HEAD_OF_32_BITS(initial | 26, argument)
    return _HEAD_OF_64_BITS(initial | 27, argument)


def read_head(data: Encoded, at: int) -> tuple[int, int, int]:
    """The major type, the argument, and the position behind them."""
    if at >= len(data):
        raise Problem("it ends too early")
    initial = data[at]
    argument = initial & 31
    if argument < 24:
        return initial >> 5, argument, at + 1
    if argument > 27:
        raise Problem("indefinite lengths and reserved values are not allowed")
    behind = at + 1 + (1 << argument - 24)
    if behind > len(data):
        raise Problem("it ends too early")
    return initial >> 5, int.from_bytes(data[at + 1 : behind], "big"), behind


def read_string(data: Encoded, at: int, expected: int, size_max: int) -> tuple[bytes, int]:
    at, end = string_bounds(data, at, expected, size_max)
    return data[at:end], end


def string_bounds(data: Encoded, at: int, expected: int, size_max: int) -> tuple[int, int]:
    """Where the content of the string at *at* begins and ends."""
    major, size, behind = read_head(data, at)
    if major != expected:
        raise mismatch(_MAJOR_NAMES[expected], data, at)
    check_size(size, size_max, "bytes")
    if behind + size > len(data):
        raise Problem("it ends too early")
    return behind, behind + size


def container(data: Encoded, at: int, expected: int) -> tuple[int, int]:
    """The number of entries of the list or map at *at*, and the position of its first entry."""
    major, count, behind = read_head(data, at)
    if major != expected:
        raise mismatch(_MAJOR_NAMES[expected], data, at)
    return count, behind


def check_size(size: int, size_max: int, unit: str) -> None:
    if size > size_max:
        raise Problem(f"it has {size} {unit}, at most {size_max} are allowed")


def mismatch(expected: str, data: Encoded, at: int) -> Problem:
    found = data[at : at + 1]
    if not found:
        return Problem("it ends too early")
    if found in (FALSE, TRUE):
        return Problem(f"it has to be {expected}, not a boolean")
    if found == NULL:
        return Problem(f"it has to be {expected}, not null")
    if found in (b"\xf9", b"\xfa", b"\xfb"):
        return Problem(f"it has to be {expected}, not a float")
    return Problem(f"it has to be {expected}, not {_MAJOR_NAMES[found[0] >> 5]}")


def quoted(name: str) -> str:
    if len(name) <= _NAME_BYTES_MAX and name.isascii() and name.isprintable():
        return f"'{name}'"
    return "of that name"
