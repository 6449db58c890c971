"""Messages to CBOR and back: strict, bounded, the same for every message.

What a field may hold is read off the message classes once, at import; decoding then
follows that description through the bytes.  It never builds what the message has no place
for, so the memory and time for hostile input are bounded by the message it claims to be:
no tag, float, indefinite length or deeper nesting is ever interpreted, and no length is
believed before it was compared with its bound and with what there is.  (A general decoder
turns 16 MiB of empty maps into a gigabyte first, and copies a batch in small pieces.)

The subset of CBOR (RFC 8949): integers of 64 bits with sign, not negative but where the
class says so, byte and text strings, lists, maps with text keys, false, true, null;
definite lengths.  The first key of a message is ``type``; the other fields follow in any
order, each exactly once.  We write the shortest form and the order of the class.

What nodes tell each other has narrower bounds (`Within`, `Grammar`), and a part that has a method
`fault` is asked what is wrong with it as a whole.  Messages of clients have neither, but for few
fields, so producing and consuming pay nothing for that.

A field whose class says `MayBeMissing` is not written while it has its default, and a message
without it has the default.  All other fields have to be there, and no others.

This module knows no connection: who may send what is `allowed`.
"""

from __future__ import annotations

import struct
import types
import typing
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import attrs

from octopi.errors import ProtocolError, Status
from octopi.limits import CBOR_DEPTH_MAX
from octopi.wire.messages import (
    JUDGED,
    MESSAGES,
    TYPE_NAMES,
    AtMost,
    Grammar,
    MayBeMissing,
    MayBeNegative,
    Within,
)

# Major types, RFC 8949 section 3.1.
_UNSIGNED: Final = 0
_NEGATIVE: Final = 1
_BYTES: Final = 2
_TEXT: Final = 3
_LIST: Final = 4
_MAP: Final = 5
_SIMPLE: Final = 7

_FALSE: Final = b"\xf4"
_TRUE: Final = b"\xf5"
_NULL: Final = b"\xf6"

_INTEGER_BOUND: Final = 1 << 63
_BYTE: Final = [bytes((byte,)) for byte in range(256)]
_HEAD_OF_16_BITS: Final = struct.Struct(">BH").pack
_HEAD_OF_32_BITS: Final = struct.Struct(">BI").pack
_HEAD_OF_64_BITS: Final = struct.Struct(">BQ").pack
_NAME_BYTES_MAX: Final = 40
"""Names that a peer made up are repeated in an error up to this length."""

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

_V = TypeVar("_V")


def encode(message: object) -> bytes:
    """The bytes of *message*, an instance of a class in `octopi.wire.messages`.

    Raises:
      ValueError: if a field is out of its bounds, so that no peer would take it.
    """
    structure = _STRUCTURES[type(message)]
    parts: list[bytes] = []
    try:
        structure.encode(message, parts)
    except _Problem as problem:
        raise ValueError(f"{TYPE_NAMES[type(message)]}{problem}") from None
    return b"".join(parts)


def decode(data: bytes, allowed: frozenset[type]) -> object:
    """The message in *data*: an instance of one of the *allowed* classes.

    Raises:
      ProtocolError: if *data* is anything else.  Its text names the field and the problem
          and repeats nothing long or binary; its `request` is the message's request
          number where that came right behind the type.
    """
    status = Status.MALFORMED_MESSAGE
    name = "message"
    fields_at = len(data)
    try:
        count, at = _container(data, 0, _MAP)
        if not data.startswith(_TYPE_KEY, at):
            raise _Problem("the first key has to be 'type'")
        found, at = _TYPE_NAME.decode(data, at + len(_TYPE_KEY))
        fields_at = at
        cls = MESSAGES.get(found)
        if cls is None:
            status = Status.UNKNOWN_MESSAGE
            raise _Problem(f"there is no type {_quoted(found)}")
        name = found
        if cls not in allowed:
            status = Status.WRONG_ENDPOINT
            raise _Problem("it may not be sent here now")
        message, at = _STRUCTURES[cls].decode_fields(data, at, count - 1)
        if at != len(data):
            raise _Problem(f"{len(data) - at} bytes follow it")
    except _Problem as problem:
        request = _request_at(data, fields_at)
        raise ProtocolError(f"{name}{problem}", status, request) from None
    return message


class _Problem(Exception):
    """What is wrong, and, filled in on the way out, where."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.place = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class _Kind(Protocol[_V]):
    """What a field may hold."""

    @property
    def depth(self) -> int:
        """Containers within each other, at most."""

    def encode(self, value: _V, parts: list[bytes]) -> None:
        """Append the encoding of *value* to *parts*."""

    def decode(self, data: bytes, at: int) -> tuple[_V, int]:
        """The value at position *at* of *data*, and the position behind it."""


@attrs.frozen
class _Integer:
    is_signed: bool
    depth = 0

    def encode(self, value: int, parts: list[bytes]) -> None:
        if not -_INTEGER_BOUND <= value < _INTEGER_BOUND:
            raise _Problem("it does not fit into 64 bits with sign")
        if value < 0 and not self.is_signed:
            raise _Problem("it can't be negative")
        parts.append(_head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value))

    def decode(self, data: bytes, at: int) -> tuple[int, int]:
        if at < len(data) and data[at] < 24:  # the most frequent ones need no more
            return data[at], at + 1
        major, value, behind = _read_head(data, at)
        if major > _NEGATIVE:
            raise _mismatch("an integer", data, at)
        if value >= _INTEGER_BOUND:
            raise _Problem("it does not fit into 64 bits with sign")
        if major == _UNSIGNED:
            return value, behind
        if not self.is_signed:
            raise _Problem("it can't be negative")
        return -1 - value, behind


@attrs.frozen
class _BoundedInteger:
    low: int
    high: int
    depth = 0

    def encode(self, value: int, parts: list[bytes]) -> None:
        _INTEGER.encode(self._checked(value), parts)

    def decode(self, data: bytes, at: int) -> tuple[int, int]:
        value, at = _INTEGER.decode(data, at)
        return self._checked(value), at

    def _checked(self, value: int) -> int:
        if not self.low <= value <= self.high:
            raise _Problem(f"it is {value}, and has to be from {self.low} to {self.high}")
        return value


class _Boolean:
    depth = 0

    def encode(self, value: bool, parts: list[bytes]) -> None:
        parts.append(_TRUE if value else _FALSE)

    def decode(self, data: bytes, at: int) -> tuple[bool, int]:
        if data.startswith(_TRUE, at):
            return True, at + 1
        if data.startswith(_FALSE, at):
            return False, at + 1
        raise _mismatch("a boolean", data, at)


@attrs.frozen
class _Text:
    size_max: int
    depth = 0

    def encode(self, value: str, parts: list[bytes]) -> None:
        try:
            encoded = value.encode()
        except UnicodeEncodeError:
            raise _Problem("it has no form in UTF-8") from None
        _check_size(len(encoded), self.size_max, "bytes")
        parts.append(_head(_TEXT, len(encoded)))
        parts.append(encoded)

    def decode(self, data: bytes, at: int) -> tuple[str, int]:
        try:
            if at < len(data) and 0x60 <= (initial := data[at]) < 0x78 and self.size_max >= 24:
                end = at + initial - 0x5F  # short ones are the most frequent
                if end <= len(data):
                    return data[at + 1 : end].decode(), end
            value, at = _read_string(data, at, _TEXT, self.size_max)
            return value.decode(), at
        except UnicodeDecodeError:
            raise _Problem("it is not UTF-8") from None


@attrs.frozen
class _RuledText:
    text: _Text
    fault: Callable[[str], str]
    depth = 0

    def encode(self, value: str, parts: list[bytes]) -> None:
        self.text.encode(self._checked(value), parts)

    def decode(self, data: bytes, at: int) -> tuple[str, int]:
        value, at = self.text.decode(data, at)
        return self._checked(value), at

    def _checked(self, value: str) -> str:
        if fault := self.fault(value):
            raise _Problem(fault)
        return value


@attrs.frozen
class _Bytes:
    size_max: int
    depth = 0

    def encode(self, value: bytes, parts: list[bytes]) -> None:
        _check_size(len(value), self.size_max, "bytes")
        parts.append(_head(_BYTES, len(value)))
        parts.append(value)

    def decode(self, data: bytes, at: int) -> tuple[bytes, int]:
        return _read_string(data, at, _BYTES, self.size_max)


@attrs.frozen
class _Optional:
    kind: _Kind[Any]

    @property
    def depth(self) -> int:
        return self.kind.depth

    def encode(self, value: object, parts: list[bytes]) -> None:
        if value is None:
            parts.append(_NULL)
        else:
            self.kind.encode(value, parts)

    def decode(self, data: bytes, at: int) -> tuple[object, int]:
        if data.startswith(_NULL, at):
            return None, at + 1
        return self.kind.decode(data, at)


@attrs.frozen
class _List:
    kind: _Kind[Any]
    count_max: int

    @property
    def depth(self) -> int:
        return 1 + self.kind.depth

    def encode(self, value: list[object], parts: list[bytes]) -> None:
        _check_size(len(value), self.count_max, "entries")
        parts.append(_head(_LIST, len(value)))
        for index, entry in enumerate(value):
            try:
                self.kind.encode(entry, parts)
            except _Problem as problem:
                problem.place = f"[{index}]{problem.place}"
                raise

    def decode(self, data: bytes, at: int) -> tuple[list[object], int]:
        count, at = _container(data, at, _LIST)
        _check_size(count, self.count_max, "entries")
        decode_entry = self.kind.decode
        entries: list[object] = []
        for index in range(count):
            try:
                entry, at = decode_entry(data, at)
            except _Problem as problem:
                problem.place = f"[{index}]{problem.place}"
                raise
            entries.append(entry)
        return entries, at


_Field = tuple[str, bytes, _Kind[Any]]
"""Name, the encoding of the name, what it may hold."""


class _Structure:
    """A class of fields; as a message it has its type in front of them, as a part not."""

    def __init__(self, cls: type, *, is_part: bool) -> None:
        hints = typing.get_type_hints(cls, include_extras=True)
        attributes = attrs.fields(cls)
        self._cls = cls
        self._fields: list[_Field] = [
            (attribute.name, _key(attribute.name), _kind(hints[attribute.name]))
            for attribute in attributes
        ]
        self._places = {name.encode(): place for place, (name, _, _) in enumerate(self._fields)}
        self.depth = 1 + max((kind.depth for _, _, kind in self._fields), default=0)
        assert self.depth <= CBOR_DEPTH_MAX, f"{cls.__name__} nests too deep"
        is_optional = [_may_be_missing(hints[attribute.name]) for attribute in attributes]
        required = is_optional.count(False)
        assert not any(is_optional[:required]), f"{cls.__name__}: optional fields come last"
        self._required = self._fields[:required]
        self._optional = self._fields[required:]
        self._defaults = [_default(attribute) for attribute in attributes[required:]]
        self._first = {
            count: self._fields[:count] for count in range(required, len(self._fields) + 1)
        }
        """Number of fields of a message -> these, if they are the first ones of the class."""
        self._start, *self._longer_starts = (_start(cls, count, is_part) for count in self._first)

    def encode(self, value: object, parts: list[bytes]) -> None:
        """Append the head of the map and what is in it."""
        if self._optional and (given := self._given(value)):
            parts.append(self._longer_starts[len(given) - 1])
            self._encode(self._required, value, parts)
            self._encode(given, value, parts)
        else:
            parts.append(self._start)
            self._encode(self._required, value, parts)

    def _encode(self, fields: list[_Field], value: object, parts: list[bytes]) -> None:
        for name, key, kind in fields:
            parts.append(key)
            try:
                kind.encode(getattr(value, name), parts)
            except _Problem as problem:
                problem.place = f".{name}{problem.place}"
                raise

    def _given(self, value: object) -> list[_Field]:
        """The optional fields that don't have their default."""
        return [
            field
            for field, default in zip(self._optional, self._defaults, strict=True)
            if getattr(value, field[0]) != default
        ]

    def decode_fields(self, data: bytes, at: int, count: int) -> tuple[object, int]:
        """Decode *count* keys with their values, and make the object of them."""
        fields = self._first.get(count)
        if fields is not None:
            values, behind = self._decode_in_order(fields, data, at)
            if len(values) == count:
                return self._cls(*values), behind
        return self._decode_in_any_order(data, at, count)

    def _decode_in_order(self, fields: list[_Field], data: bytes, at: int) -> tuple[list[Any], int]:
        """The values of *fields*, as long as they stand in the order in which we write them."""
        values: list[Any] = []
        for name, key, kind in fields:
            if not data.startswith(key, at):
                break
            try:
                value, at = kind.decode(data, at + len(key))
            except _Problem as problem:
                problem.place = f".{name}{problem.place}"
                raise
            values.append(value)
        return values, at

    def _decode_in_any_order(self, data: bytes, at: int, count: int) -> tuple[object, int]:
        fields = self._fields
        values: dict[str, Any] = {}
        for _ in range(count):
            major, size, behind = _read_head(data, at)
            if major != _TEXT:
                raise _Problem("a key is no text")
            at = behind + size
            key = data[behind:at]
            place = self._places.get(key)
            if place is None:
                raise _Problem(f"there is no field {_quoted(key.decode(errors='replace'))}")
            name, _, kind = fields[place]
            if name in values:
                raise _Problem(f"field '{name}' comes twice")
            try:
                values[name], at = kind.decode(data, at)
            except _Problem as problem:
                problem.place = f".{name}{problem.place}"
                raise
        for name, _, _ in self._required:
            if name not in values:
                raise _Problem(f"field '{name}' is missing")
        return self._cls(**values), at


@attrs.frozen
class _Part:
    """A structure inside a message."""

    structure: _Structure

    @property
    def depth(self) -> int:
        return self.structure.depth

    def encode(self, value: object, parts: list[bytes]) -> None:
        self.structure.encode(value, parts)

    def decode(self, data: bytes, at: int) -> tuple[object, int]:
        count, at = _container(data, at, _MAP)
        return self.structure.decode_fields(data, at, count)


@attrs.frozen
class _JudgedPart:
    """A structure inside a message that says itself whether its fields belong together."""

    structure: _Structure

    @property
    def depth(self) -> int:
        return self.structure.depth

    def encode(self, value: object, parts: list[bytes]) -> None:
        self.structure.encode(value, parts)
        _judge(value)

    def decode(self, data: bytes, at: int) -> tuple[object, int]:
        count, at = _container(data, at, _MAP)
        value, at = self.structure.decode_fields(data, at, count)
        _judge(value)
        return value, at


def _judge(value: Any) -> None:  # noqa: ANN401
    """Ask *value* what is wrong with it."""
    if fault := value.fault():
        raise _Problem(fault)


def _head(major: int, argument: int) -> bytes:
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


def _read_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Major type, argument, position behind them."""
    if at >= len(data):
        raise _Problem("it ends too early")
    initial = data[at]
    argument = initial & 31
    if argument < 24:
        return initial >> 5, argument, at + 1
    if argument > 27:
        raise _Problem("indefinite lengths and reserved values are not allowed")
    behind = at + 1 + (1 << argument - 24)
    if behind > len(data):
        raise _Problem("it ends too early")
    return initial >> 5, int.from_bytes(data[at + 1 : behind], "big"), behind


def _read_string(data: bytes, at: int, expected: int, size_max: int) -> tuple[bytes, int]:
    major, size, behind = _read_head(data, at)
    if major != expected:
        raise _mismatch(_MAJOR_NAMES[expected], data, at)
    _check_size(size, size_max, "bytes")
    if behind + size > len(data):
        raise _Problem("it ends too early")
    return data[behind : behind + size], behind + size


def _container(data: bytes, at: int, expected: int) -> tuple[int, int]:
    """The number of entries of the list or map at *at*, and where the first starts."""
    major, count, behind = _read_head(data, at)
    if major != expected:
        raise _mismatch(_MAJOR_NAMES[expected], data, at)
    return count, behind


def _check_size(size: int, size_max: int, unit: str) -> None:
    if size > size_max:
        raise _Problem(f"it has {size} {unit}, at most {size_max} are allowed")


def _mismatch(expected: str, data: bytes, at: int) -> _Problem:
    found = data[at : at + 1]
    if not found:
        return _Problem("it ends too early")
    if found in (_FALSE, _TRUE):
        return _Problem(f"it has to be {expected}, not a boolean")
    if found == _NULL:
        return _Problem(f"it has to be {expected}, not null")
    if found in (b"\xf9", b"\xfa", b"\xfb"):
        return _Problem(f"it has to be {expected}, not a float")
    return _Problem(f"it has to be {expected}, not {_MAJOR_NAMES[found[0] >> 5]}")


def _quoted(name: str) -> str:
    if len(name) <= _NAME_BYTES_MAX and name.isascii() and name.isprintable():
        return f"'{name}'"
    return "of that name"


def _key(name: str) -> bytes:
    return _head(_TEXT, len(name)) + name.encode()


def _start(cls: type, count: int, is_part: bool) -> bytes:
    """What stands in front of *count* fields of *cls*."""
    if is_part:
        return _head(_MAP, count)
    name = TYPE_NAMES[cls].encode()
    return _head(_MAP, 1 + count) + _TYPE_KEY + _head(_TEXT, len(name)) + name


def _request_at(data: bytes, at: int) -> int | None:
    if not data.startswith(_REQUEST_KEY, at):
        return None
    try:
        return _INTEGER.decode(data, at + len(_REQUEST_KEY))[0]
    except _Problem:
        return None


def _notes(hint: object) -> tuple[object, list[object]]:
    """The type that *hint* is about, and what is said of it."""
    if typing.get_origin(hint) is not typing.Annotated:
        return hint, []
    inner, *notes = typing.get_args(hint)
    return inner, notes


def _may_be_missing(hint: object) -> bool:
    return any(isinstance(note, MayBeMissing) for note in _notes(hint)[1])


def _default(attribute: attrs.Attribute[Any]) -> object:
    assert attribute.default is not attrs.NOTHING, f"{attribute.name} needs a default"
    factory = getattr(attribute.default, "factory", lambda: attribute.default)
    return factory()


def _kind(hint: object) -> _Kind[Any]:
    """What the type *hint* of a field allows."""
    hint, notes = _notes(hint)
    bound: int | None = None
    grammar: Grammar | None = None
    for note in notes:
        if isinstance(note, MayBeNegative):
            assert hint is int
            return _SIGNED_INTEGER
        if isinstance(note, Within):
            assert hint is int
            return _BoundedInteger(note.low, note.high)
        if isinstance(note, AtMost):
            bound = note.size
        if isinstance(note, Grammar):
            grammar = note
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        inner, nothing = typing.get_args(hint)
        assert nothing is types.NoneType
        return _Optional(_kind(inner))
    if hint is int:
        return _INTEGER
    if hint is bool:
        return _Boolean()
    if isinstance(hint, type) and attrs.has(hint):
        structure = _Structure(hint, is_part=True)
        return _JudgedPart(structure) if hint in JUDGED else _Part(structure)
    assert bound is not None, f"{hint} needs a bound"
    if hint is str:
        text = _Text(bound)
        return text if grammar is None else _RuledText(text, grammar.fault)
    if hint is bytes:
        return _Bytes(bound)
    assert origin is list, f"{hint} has no encoding"
    return _List(_kind(typing.get_args(hint)[0]), bound)


_INTEGER: Final = _Integer(is_signed=False)
_SIGNED_INTEGER: Final = _Integer(is_signed=True)
_TYPE_NAME: Final = _Text(1000)
_TYPE_KEY: Final = _key("type")
_REQUEST_KEY: Final = _key("request")
_STRUCTURES: Final = {cls: _Structure(cls, is_part=False) for cls in TYPE_NAMES}
