"""The values that a field of a message may hold, and their CBOR: one class for each kind.

Encoding appends to a list of parts.  Decoding takes a position, and returns the position behind the
value.  If a value is out of its bounds, both raise `Problem`, which names the place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import attrs

from octopi.wire.cbor import (
    BYTES,
    FALSE,
    INTEGER_BOUND,
    LIST,
    NEGATIVE,
    NULL,
    TEXT,
    TRUE,
    UNSIGNED,
    Encoded,
    Problem,
    ReceivedView,
    check_size,
    container,
    head,
    mismatch,
    read_head,
    read_string,
    string_bounds,
)

_V = TypeVar("_V")


class FieldKind(Protocol[_V]):
    """The kind of values that a field may hold."""

    @property
    def depth(self) -> int:
        """The greatest number of lists and maps within each other."""

    def encode(self, value: _V, parts: list[bytes]) -> None:
        """Append the encoding of *value* to *parts*."""

    def decode(self, data: Encoded, at: int) -> tuple[_V, int]:
        """The value at position *at* of *data*, and the position behind it."""


@attrs.frozen
class IntegerField:
    is_signed: bool
    depth = 0

    def encode(self, value: int, parts: list[bytes]) -> None:
        if 0 <= value < INTEGER_BOUND:
            parts.append(head(UNSIGNED, value))
        elif not -INTEGER_BOUND <= value < INTEGER_BOUND:
            raise Problem("it does not fit into 64 bits with sign")
        elif self.is_signed:
            parts.append(head(NEGATIVE, -1 - value))
        else:
            raise Problem("it can't be negative")

    def decode(self, data: Encoded, at: int) -> tuple[int, int]:
        if at < len(data) and data[at] < 24:  # a fast path for the most frequent ones
            return data[at], at + 1
        major, value, behind = read_head(data, at)
        if major > NEGATIVE:
            raise mismatch("an integer", data, at)
        if value >= INTEGER_BOUND:
            raise Problem("it does not fit into 64 bits with sign")
        if major == UNSIGNED:
            return value, behind
        if not self.is_signed:
            raise Problem("it can't be negative")
        return -1 - value, behind


INTEGER: Final = IntegerField(is_signed=False)
SIGNED_INTEGER: Final = IntegerField(is_signed=True)


@attrs.frozen
class BoundedInteger:
    low: int
    high: int
    depth = 0

    def encode(self, value: int, parts: list[bytes]) -> None:
        INTEGER.encode(self._checked(value), parts)

    def decode(self, data: Encoded, at: int) -> tuple[int, int]:
        value, at = INTEGER.decode(data, at)
        return self._checked(value), at

    def _checked(self, value: int) -> int:
        if not self.low <= value <= self.high:
            raise Problem(f"it is {value}, and has to be from {self.low} to {self.high}")
        return value


class BooleanField:
    depth = 0

    def encode(self, value: bool, parts: list[bytes]) -> None:
        parts.append(TRUE if value else FALSE)

    def decode(self, data: Encoded, at: int) -> tuple[bool, int]:
        if data.startswith(TRUE, at):
            return True, at + 1
        if data.startswith(FALSE, at):
            return False, at + 1
        raise mismatch("a boolean", data, at)


@attrs.frozen
class TextField:
    size_max: int
    depth = 0

    def encode(self, value: str, parts: list[bytes]) -> None:
        try:
            encoded = value.encode()
        except UnicodeEncodeError:
            raise Problem("it has no form in UTF-8") from None
        check_size(len(encoded), self.size_max, "bytes")
        parts.append(head(TEXT, len(encoded)))
        parts.append(encoded)

    def decode(self, data: Encoded, at: int) -> tuple[str, int]:
        try:
            if at < len(data) and 0x60 <= (initial := data[at]) < 0x78 and self.size_max >= 24:
                end = at + initial - 0x5F  # short ones are the most frequent
                if end <= len(data):
                    return data[at + 1 : end].decode(), end
            value, at = read_string(data, at, TEXT, self.size_max)
            return value.decode(), at
        except UnicodeDecodeError:
            raise Problem("it is not UTF-8") from None


@attrs.frozen
class RuledText:
    text: TextField
    fault: Callable[[str], str]
    depth = 0

    def encode(self, value: str, parts: list[bytes]) -> None:
        self.text.encode(self._checked(value), parts)

    def decode(self, data: Encoded, at: int) -> tuple[str, int]:
        value, at = self.text.decode(data, at)
        return self._checked(value), at

    def _checked(self, value: str) -> str:
        if fault := self.fault(value):
            raise Problem(fault)
        return value


@attrs.frozen
class BytesField:
    size_max: int
    depth = 0

    def encode(self, value: bytes, parts: list[bytes]) -> None:
        check_size(len(value), self.size_max, "bytes")
        parts.append(head(BYTES, len(value)))
        parts.append(value)

    def decode(self, data: Encoded, at: int) -> tuple[bytes, int]:
        return read_string(data, at, BYTES, self.size_max)


@attrs.frozen
class SizedBytes:
    """Byte strings of one size."""

    size: int
    depth = 0

    def encode(self, value: bytes, parts: list[bytes]) -> None:
        parts.append(head(BYTES, self.size))
        parts.append(self._checked(value))

    def decode(self, data: Encoded, at: int) -> tuple[bytes, int]:
        value, at = read_string(data, at, BYTES, self.size)
        return self._checked(value), at

    def _checked(self, value: bytes) -> bytes:
        if len(value) != self.size:
            raise Problem(f"it has {len(value)} bytes, and has to have {self.size}")
        return value


@attrs.frozen
class InPlaceBytes:
    """Bytes that stay where they were received, if the message was received in place."""

    size_max: int
    depth = 0

    def encode(self, value: bytes | memoryview, parts: list[bytes]) -> None:
        check_size(len(value), self.size_max, "bytes")
        parts.append(head(BYTES, len(value)))
        parts.append(bytes(value))

    def decode(self, data: Encoded, at: int) -> tuple[bytes | memoryview, int]:
        at, end = string_bounds(data, at, BYTES, self.size_max)
        return data.part(at, end) if isinstance(data, ReceivedView) else data[at:end], end


@attrs.frozen
class OptionalField:
    kind: FieldKind[Any]

    @property
    def depth(self) -> int:
        return self.kind.depth

    def encode(self, value: object, parts: list[bytes]) -> None:
        if value is None:
            parts.append(NULL)
        else:
            self.kind.encode(value, parts)

    def decode(self, data: Encoded, at: int) -> tuple[object, int]:
        if data.startswith(NULL, at):
            return None, at + 1
        return self.kind.decode(data, at)


class EncodedEntries(list[Any]):
    """A list whose entries were encoded when they were added."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: Final[list[bytes]] = []
        """The bytes of the entries, in order."""


@attrs.frozen
class ListField:
    kind: FieldKind[Any]
    count_max: int

    @property
    def depth(self) -> int:
        return 1 + self.kind.depth

    def encode(self, value: list[object], parts: list[bytes]) -> None:
        check_size(len(value), self.count_max, "entries")
        parts.append(head(LIST, len(value)))
        if isinstance(value, EncodedEntries):
            parts += value.parts
            return
        for index, entry in enumerate(value):
            try:
                self.kind.encode(entry, parts)
            except Problem as problem:
                problem.place = f"[{index}]{problem.place}"
                raise

    def decode(self, data: Encoded, at: int) -> tuple[list[object], int]:
        count, at = container(data, at, LIST)
        check_size(count, self.count_max, "entries")
        decode_entry = self.kind.decode
        entries: list[object] = []
        for index in range(count):
            try:
                entry, at = decode_entry(data, at)
            except Problem as problem:
                problem.place = f"[{index}]{problem.place}"
                raise
            entries.append(entry)
        return entries, at


@attrs.frozen
class TupleField:
    """A list on the wire that can't be changed."""

    entries: ListField

    @property
    def depth(self) -> int:
        return self.entries.depth

    def encode(self, value: tuple[object, ...], parts: list[bytes]) -> None:
        self.entries.encode(list(value), parts)

    def decode(self, data: Encoded, at: int) -> tuple[tuple[object, ...], int]:
        entries, at = self.entries.decode(data, at)
        return tuple(entries), at
