"""Messages of the protocol in CBOR."""

from __future__ import annotations

import io
from typing import Any

import attrs
import cbor2
from hypothesis import strategies as st

from octopi.errors import ProtocolError, Status
from octopi.wire.codec import decode, encode
from octopi.wire.messages import TYPE_NAMES
from tests.fuzz.target import Target
from tests.strategies import as_written, messages, optional_fields

_ALL = frozenset(TYPE_NAMES)
_STATUSES = {Status.MALFORMED_MESSAGE, Status.UNKNOWN_MESSAGE}


def check(data: bytes) -> bool:
    """The first check: whether there is a message of that type."""
    try:
        message = decode(data, _ALL)
    except ProtocolError as error:
        return _check_refusal(error)
    canonical = encode(message)
    again = decode(canonical, _ALL)
    assert again == message, (again, message)
    assert encode(again) == canonical, "it has two canonical forms"
    source = io.BytesIO(data)
    said = cbor2.CBORDecoder(source, read_size=1).decode()
    assert source.tell() == len(data), "a general decoder ends earlier"
    assert _full(said, message) == _full(as_written(message), message), "readings differ"
    return True


def _check_refusal(error: ProtocolError) -> bool:
    text = str(error)
    assert error.status in _STATUSES, error.status
    assert len(text) < 1000, "the error repeats much of what came"
    assert text.isprintable(), "the error repeats what is not to be printed"
    return not text.startswith("message")


def _full(fields: Any, message: Any) -> Any:  # noqa: ANN401
    """*fields* with the defaults of those that are missing, in *message* and its parts."""
    if isinstance(message, list):
        return [_full(one, part) for one, part in zip(fields, message, strict=True)]
    if not attrs.has(type(message)):
        return fields
    given = {**optional_fields(type(message)), **fields}
    for field in attrs.fields(type(message)):
        if field.name in fields:
            given[field.name] = _full(fields[field.name], getattr(message, field.name))
    return given


_SHORT = {
    cbor2.dumps({"type": name, **others})
    for cls, name in TYPE_NAMES.items()
    for others in ({}, {"request": 1} if "request" in attrs.fields_dict(cls) else {})
}
"""Messages of a type, with few fields: not all are valid, and each type is there soon."""
_KEYS = {key for cls in TYPE_NAMES for key in (field.name for field in attrs.fields(cls))}

TARGET = Target(
    "codec",
    "any bytes are refused as documented, or decode to a message that has one canonical form "
    "and that a general CBOR decoder reads the same",
    messages().map(encode) | st.sampled_from(sorted(_SHORT)),
    check,
    (
        "octopi/wire/codec.py",
        "octopi/wire/field_kinds.py",
        "octopi/wire/cbor.py",
        "octopi/identifiers.py",
        "octopi/printable.py",
    ),
    words=(
        *(cbor2.dumps(key) for key in sorted(_KEYS)),
        *(cbor2.dumps(name) for name in sorted(TYPE_NAMES.values())),
        b"\xa0", b"\xa1", b"\x80", b"\x81", b"\x9f", b"\xbf", b"\x5f", b"\x7f", b"\xff",
        b"\xf4", b"\xf5", b"\xf6", b"\xf7", b"\xf9\x7e\x00", b"\xfb" + bytes(8), b"\xc0",
        b"\xd8\x23",
        b"\x1b" + b"\xff" * 8, b"\x3b\x7f" + b"\xff" * 7, b"\x5a\xff\xff\xff\xff", b"\x78\x18",
        b"\x1c", b"\x1f", b"\x3e", b"\x64type", b"\x9b" + b"\xff" * 8, b"\xbb" + b"\xff" * 8,
    ),
)  # fmt: skip
