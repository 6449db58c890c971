"""Reads messages that `octopi.cli.message_format.as_json` has written, or a program in that form.

A message is a JSON object.  Its fields are ``value``, ``key``, ``headers`` and ``timestamp_ms``;
``value_base64`` and ``key_base64`` have bytes that are no UTF-8 in base 64, and so has a header
whose name ends with ``_base64``, which is no part of the name then.  Only the value has to be
there.  ``topic``, ``partition``, ``offset`` and ``next_offset`` say where a message was, and count
for nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from octopi.cli.message_format import BASE64_SUFFIX
from octopi.record import NO_HEADERS

_WHERE_IT_WAS: Final = frozenset({"topic", "partition", "offset", "next_offset"})
_CONTENT: Final = ("value", "key", "headers", "timestamp_ms")
_ALLOWED: Final = _WHERE_IT_WAS | {*_CONTENT, f"value{BASE64_SUFFIX}", f"key{BASE64_SUFFIX}"}
_UNIX_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
TIMESTAMP_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, up to which Python's dates go."""


class Outgoing(NamedTuple):
    """A message that is going to be produced."""

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] = NO_HEADERS
    timestamp: datetime | None = None
    """None: now."""


def parse_message(line: bytes) -> Outgoing:
    """The message of a JSON object.

    Raises:
      ValueError: if *line* is no such object; the text says why.
    """
    try:
        fields = json.loads(line, object_pairs_hook=_once)
    except UnicodeDecodeError:
        raise ValueError("it is no UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError('it is no JSON object, such as {"value": "hello"}')
    unknown = [name for name in fields if name not in _ALLOWED]
    if unknown:
        known = ", ".join(_CONTENT)
        raise ValueError(f"it has a field {unknown[0]!r}, and there are {known}, value_base64 ...")
    value = _bytes_of(fields, "value")
    if value is None:
        raise ValueError('it has no value (an empty one is written as "value": "")')
    return Outgoing(
        value,
        _bytes_of(fields, "key"),
        _headers(fields.get("headers")),
        timestamp_of(fields.get("timestamp_ms")),
    )


def timestamp_of(milliseconds: object) -> datetime | None:
    """The time that is *milliseconds* after 1970-01-01 UTC; None for None.

    Raises:
      ValueError: if it is no number of milliseconds up to the year 9999.
    """
    if milliseconds is None:
        return None
    if type(milliseconds) is not int or not 0 <= milliseconds <= TIMESTAMP_MS_MAX:
        raise ValueError(
            f"its timestamp_ms is {milliseconds!r}, not milliseconds from 1970 to the year 9999"
        )
    return _UNIX_ZERO + timedelta(milliseconds=milliseconds)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("it has a field twice")
    return fields


def _bytes_of(fields: dict[str, Any], name: str) -> bytes | None:
    text, encoded = fields.get(name), fields.get(name + BASE64_SUFFIX)
    if encoded is None:
        return None if text is None else _utf8(name, text)
    if text is not None:
        raise ValueError(f"it has both {name} and {name}{BASE64_SUFFIX}")
    return _decoded(name + BASE64_SUFFIX, encoded)


def _headers(given: object) -> Mapping[str, bytes]:
    if not given and given in (None, {}):
        return NO_HEADERS
    if not isinstance(given, dict):
        raise ValueError("its headers are no JSON object")
    headers: dict[str, bytes] = {}
    for name, content in given.items():
        plain = name.removesuffix(BASE64_SUFFIX)
        if plain in headers:
            raise ValueError(f"it has the header {plain!r} twice")
        headers[plain] = (
            _utf8(f"header {name!r}", content)
            if plain == name
            else _decoded(f"header {name!r}", content)
        )
    return headers


def _utf8(name: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError(f"its {name} is no text")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"its {name} has half a character (a lone surrogate)") from None


def _decoded(name: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError(f"its {name} is no text")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"its {name} is not in base 64") from None
