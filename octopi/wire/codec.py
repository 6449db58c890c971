"""Encodes messages to CBOR and decodes them, strictly and within bounds.

At the first message of a class, this module reads from the class which values each field may hold,
as kinds of `octopi.wire.field_kinds`.  Decoding follows that description through the bytes.  It
never builds a value that the message has no field for.  So the memory and time for hostile input
are bounded by the message that it claims to be: no tag, float, indefinite length or deeper nesting
is interpreted, and each length is compared with its bound, and with the bytes that there are,
before it is used.
(A general decoder would first turn 16 MiB of empty maps into a gigabyte, and would copy a batch in
small pieces.)

The subset of CBOR (RFC 8949): integers of 64 bits with sign, which may be negative only if the
class says so; byte and text strings; lists; maps with text keys; false, true and null; definite
lengths.  The first key of a message is ``type``; the other fields follow in any order, each exactly
once.  The encoder writes the shortest form, and the fields in the order of the class.

Fields of messages between nodes have narrower bounds (`Within`, `Grammar`), and a part of a message
may have a method `fault`, which checks the part as a whole.  Messages of clients have these only at
few fields, so producing and consuming cost nothing more.

A field that is declared as `MayBeMissing` is not written while it has its default, and decoding a
message without it gives the default.  All other fields have to be there, and no others may be.

This module knows no connection: callers pass the classes that are allowed on theirs.
"""

from __future__ import annotations

import types
import typing
from typing import Any, Final, TypeVar

import attrs

from octopi.errors import ProtocolError, Status
from octopi.limits import CBOR_DEPTH_MAX, KIB
from octopi.wire.cbor import (
    MAP,
    TEXT,
    Encoded,
    Problem,
    ReceivedView,
    container,
    head,
    quoted,
    read_head,
)
from octopi.wire.field_kinds import (
    INTEGER,
    SIGNED_INTEGER,
    BooleanField,
    BoundedInteger,
    BytesField,
    EncodedEntries,
    FieldKind,
    InPlaceBytes,
    ListField,
    OptionalField,
    RuledText,
    SizedBytes,
    TextField,
    TupleField,
)
from octopi.wire.messages import (
    JUDGED,
    MESSAGES,
    TYPE_NAMES,
    AtMost,
    Exactly,
    Grammar,
    MayBeMissing,
    MayBeNegative,
    Within,
)

_V = TypeVar("_V")

_COPIED_BYTES_MAX: Final = 8 * KIB
"""Byte strings of this length cost less to copy than to send by themselves."""


def encode(message: object) -> bytes:
    """The bytes of *message*, an instance of a class in `octopi.wire.messages`.

    Raises:
      ValueError: if a field is out of its bounds, so no peer would accept the message.
    """
    return b"".join(_encoded(message))


def encode_parts(message: object) -> list[bytes]:
    """The same in parts, of which long byte strings, such as records, are the objects that
    *message* has: they are not copied.

    Raises:
      ValueError: see `encode`.
    """
    pieces = _encoded(message)
    if sum(map(len, pieces)) < _COPIED_BYTES_MAX:
        return [b"".join(pieces)]
    parts: list[bytes] = []
    short: list[bytes] = []
    for piece in pieces:
        if len(piece) < _COPIED_BYTES_MAX:
            short.append(piece)
        else:
            parts += (b"".join(short), piece)
            short.clear()
    if short:
        parts.append(b"".join(short))
    return parts


def _encoded(message: object) -> list[bytes]:
    structure = _ENCODINGS[type(message)]
    pieces: list[bytes] = []
    try:
        structure.encode(message, pieces)
    except Problem as problem:
        raise ValueError(f"{TYPE_NAMES[type(message)]}{problem}") from None
    return pieces


def decode(received: bytes | memoryview, allowed: frozenset[type]) -> object:
    """The message in *received*: an instance of one of the *allowed* classes.  Nothing in it refers
    to a view that is given, except records of a `ReceivedRecords` field.

    Raises:
      ProtocolError: if it is anything else.  Its text names the field and the problem,
          and quotes nothing long or binary.  Its `request` is the message's request number,
          if that is the first field behind the type.
    """
    data: Encoded = received if isinstance(received, bytes) else ReceivedView(received)
    status = Status.MALFORMED_MESSAGE
    name = "message"
    fields_at = len(data)
    try:
        count, at = container(data, 0, MAP)
        if not count or not data.startswith(_TYPE_KEY, at):
            raise Problem("the first key has to be 'type'")
        found, at = _TYPE_NAME.decode(data, at + len(_TYPE_KEY))
        fields_at = at
        cls = MESSAGES.get(found)
        if cls is None:
            status = Status.UNKNOWN_MESSAGE
            raise Problem(f"there is no type {quoted(found)}")
        name = found
        if cls not in allowed:
            status = Status.WRONG_ENDPOINT
            raise Problem("it may not be sent here now")
        structure = _STRUCTURES[cls]
        if data is not received and not structure.reads_in_place:
            data = bytes(received)  # most kinds decode that quicker
        message, at = structure.decode_fields(data, at, count - 1)
        if at != len(data):
            raise Problem(f"{len(data) - at} bytes follow it")
    except Problem as problem:
        request = _request_at(data, fields_at)
        raise ProtocolError(f"{name}{problem}", status, request) from None
    return message


def fault_in(part: object) -> str:
    """Why *part*, an instance of a class in `octopi.wire.messages`, can't be sent; empty: it can.
    It checks stored values, which a program without the present bounds may have written."""
    cls = type(part)
    kind = _PARTS.get(cls)
    if kind is None:
        kind = _PARTS[cls] = _kind(cls)
    try:
        kind.encode(part, [])
    except Problem as problem:
        return str(problem).removeprefix(".").removeprefix(": ")
    except (AttributeError, TypeError):
        return "a field is of another type"
    return ""


class EncodedList(EncodedEntries):
    """A list for a message whose entries are encoded as they are added, so thousands of entries can
    be encoded in several turns."""

    def __init__(self, cls: type) -> None:
        """*cls*: the class of the entries, which is a part of messages."""
        super().__init__()
        self._kind = _kind(cls)

    def add(self, entries: list[Any]) -> None:
        """Append *entries*.

        Raises:
          ValueError: if a field of one is out of its bounds.
        """
        parts: list[bytes] = []
        try:
            for entry in entries:
                self._kind.encode(entry, parts)
        except Problem as problem:
            raise ValueError(str(problem)) from None
        self.parts.append(b"".join(parts))
        self.extend(entries)


@attrs.frozen
class EncodedAnswer:
    """An answer that another node has encoded already; it is sent as it is."""

    request: int
    """The number of the request that it answers, which is in *data*, too."""
    data: bytes


class _Verbatim:
    """The encoding of `EncodedAnswer`."""

    def encode(self, value: EncodedAnswer, parts: list[bytes]) -> None:
        parts.append(value.data)


_Field = tuple[str, bytes, FieldKind[Any]]
"""The name of a field, the encoding of the name, and the kind of its value."""


class _Structure:
    """The encoding of a class with fields: of a message, whose type comes before the fields, or of
    a part of messages, which has no type."""

    def __init__(self, cls: type, *, is_part: bool) -> None:
        hints = typing.get_type_hints(cls, include_extras=True)
        attributes = attrs.fields(cls)
        self._cls = cls
        self._fields: list[_Field] = [
            (attribute.name, _key(attribute.name), _kind(hints[attribute.name]))
            for attribute in attributes
        ]
        self._places = {name.encode(): place for place, (name, _, _) in enumerate(self._fields)}
        self.reads_in_place = any(isinstance(kind, InPlaceBytes) for _, _, kind in self._fields)
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
        """Number of fields in a message -> the fields, if they are the first ones of the class."""
        self._start, *self._longer_starts = (_start(cls, count, is_part) for count in self._first)

    def encode(self, value: object, parts: list[bytes]) -> None:
        """Append the head of the map, and its keys and values."""
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
            except Problem as problem:
                problem.place = f".{name}{problem.place}"
                raise

    def _given(self, value: object) -> list[_Field]:
        """The optional fields whose values aren't their defaults."""
        return [
            field
            for field, default in zip(self._optional, self._defaults, strict=True)
            if getattr(value, field[0]) != default
        ]

    def decode_fields(self, data: Encoded, at: int, count: int) -> tuple[object, int]:
        """Decode *count* keys with their values, and make an object of the class."""
        fields = self._first.get(count)
        if fields is not None:
            values, behind = self._decode_in_order(fields, data, at)
            if len(values) == count:
                return self._cls(*values), behind
        return self._decode_in_any_order(data, at, count)

    def _decode_in_order(
        self, fields: list[_Field], data: Encoded, at: int
    ) -> tuple[list[Any], int]:
        """The values of *fields* and the position behind them; fewer values if the fields are not
        in the order in which the encoder writes them."""
        values: list[Any] = []
        for name, key, kind in fields:
            if not data.startswith(key, at):
                break
            try:
                value, at = kind.decode(data, at + len(key))
            except Problem as problem:
                problem.place = f".{name}{problem.place}"
                raise
            values.append(value)
        return values, at

    def _decode_in_any_order(self, data: Encoded, at: int, count: int) -> tuple[object, int]:
        fields = self._fields
        values: dict[str, Any] = {}
        for _ in range(count):
            major, size, behind = read_head(data, at)
            if major != TEXT:
                raise Problem("a key is no text")
            at = behind + size
            key = data[behind:at]
            place = self._places.get(key)
            if place is None:
                raise Problem(f"there is no field {quoted(key.decode(errors='replace'))}")
            name, _, kind = fields[place]
            if name in values:
                raise Problem(f"field '{name}' comes twice")
            try:
                values[name], at = kind.decode(data, at)
            except Problem as problem:
                problem.place = f".{name}{problem.place}"
                raise
        for name, _, _ in self._required:
            if name not in values:
                raise Problem(f"field '{name}' is missing")
        return self._cls(**values), at


class _JudgedStructure(_Structure):
    """A message, or a structure inside one, that has a method `fault`, which checks it as a
    whole."""

    def encode(self, value: object, parts: list[bytes]) -> None:
        super().encode(value, parts)
        _judge(value)

    def decode_fields(self, data: Encoded, at: int, count: int) -> tuple[object, int]:
        value, at = super().decode_fields(data, at, count)
        _judge(value)
        return value, at


def _structure(cls: type, *, is_part: bool) -> _Structure:
    return (_JudgedStructure if cls in JUDGED else _Structure)(cls, is_part=is_part)


class _Structures(dict[type, _Structure]):
    """Message class -> its structure, which is made when it is first needed: most programs send and
    get few of the messages that there are."""

    def __missing__(self, cls: type) -> _Structure:
        if cls not in TYPE_NAMES:
            raise KeyError(cls)
        structure = self[cls] = _structure(cls, is_part=False)
        return structure


class _Encodings(dict[type, Any]):
    """Class -> what encodes its instances: message classes, and `EncodedAnswer`."""

    def __missing__(self, cls: type) -> _Structure:
        structure = self[cls] = _STRUCTURES[cls]
        return structure


@attrs.frozen
class _Part:
    """A structure inside a message."""

    structure: _Structure

    @property
    def depth(self) -> int:
        return self.structure.depth

    def encode(self, value: object, parts: list[bytes]) -> None:
        self.structure.encode(value, parts)

    def decode(self, data: Encoded, at: int) -> tuple[object, int]:
        count, at = container(data, at, MAP)
        return self.structure.decode_fields(data, at, count)


def _judge(value: Any) -> None:  # noqa: ANN401
    """Raise the fault that *value* finds in itself, if any."""
    if fault := value.fault():
        raise Problem(fault)


def _key(name: str) -> bytes:
    return head(TEXT, len(name)) + name.encode()


def _start(cls: type, count: int, is_part: bool) -> bytes:
    """The bytes before *count* fields of *cls*."""
    if is_part:
        return head(MAP, count)
    name = TYPE_NAMES[cls].encode()
    return head(MAP, 1 + count) + _TYPE_KEY + head(TEXT, len(name)) + name


def _request_at(data: Encoded, at: int) -> int | None:
    if not data.startswith(_REQUEST_KEY, at):
        return None
    try:
        return INTEGER.decode(data, at + len(_REQUEST_KEY))[0]
    except Problem:
        return None


def _notes(hint: object) -> tuple[object, list[object]]:
    """The type in *hint*, and the annotations of that type."""
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


def _kind(hint: object) -> FieldKind[Any]:
    """The kind of the values that the type *hint* of a field allows."""
    hint, notes = _notes(hint)
    hint = getattr(hint, "__supertype__", hint)
    bound: int | None = None
    grammar: Grammar | None = None
    for note in notes:
        if isinstance(note, MayBeNegative):
            assert hint is int
            return SIGNED_INTEGER
        if isinstance(note, Within):
            assert hint is int
            return BoundedInteger(note.low, note.high)
        if isinstance(note, Exactly):
            assert hint is bytes
            return SizedBytes(note.size)
        if isinstance(note, AtMost):
            bound = note.size
        if isinstance(note, Grammar):
            grammar = note
    origin = typing.get_origin(hint)
    if hint == bytes | memoryview:
        assert bound is not None, f"{hint} needs a bound"
        return InPlaceBytes(bound)
    if origin in (typing.Union, types.UnionType):
        inner, nothing = typing.get_args(hint)
        assert nothing is types.NoneType
        return OptionalField(_kind(inner))
    if hint is int:
        return INTEGER
    if hint is bool:
        return BooleanField()
    if isinstance(hint, type) and attrs.has(hint):
        return _Part(_structure(hint, is_part=True))
    assert bound is not None, f"{hint} needs a bound"
    if hint is str:
        text = TextField(bound)
        return text if grammar is None else RuledText(text, grammar.fault)
    if hint is bytes:
        return BytesField(bound)
    assert origin in (list, tuple), f"{hint} has no encoding"
    entries = ListField(_kind(typing.get_args(hint)[0]), bound)
    return entries if origin is list else TupleField(entries)


_TYPE_NAME: Final = TextField(1000)
_TYPE_KEY: Final = _key("type")
_REQUEST_KEY: Final = _key("request")
_STRUCTURES: Final = _Structures()
_ENCODINGS: Final = _Encodings({EncodedAnswer: _Verbatim()})
_PARTS: Final[dict[type, FieldKind[Any]]] = {}
"""The kinds that `fault_in` has made so far, by class."""
