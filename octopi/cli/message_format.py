"""How `consume` prints a message: a format with ``%`` fields, or a JSON object.

======  ===========================================================
field   what it becomes
======  ===========================================================
``%t``  topic
``%p``  partition
``%o``  offset
``%T``  time stamp, milliseconds since 1970 (``-`` if there is none)
``%k``  key (nothing if there is none)
``%v``  value
``%h``  headers: ``name=value``, separated by commas
``%%``  a percent sign
======  ===========================================================

Bytes are printed unchanged, except on a terminal, where `octopi.printable` escapes bytes that could
control it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Final

from octopi import printable
from octopi.cli.failures import CommandError, ExitCode
from octopi.record import Message

Formatter = Callable[[Message], bytes]

_FIELDS: Final[dict[str, Formatter]] = {
    "%t": lambda message: message.topic.encode(),
    "%p": lambda message: b"%d" % message.partition,
    "%o": lambda message: b"%d" % message.offset,
    "%T": lambda message: b"-" if message.timestamp_ms is None else b"%d" % message.timestamp_ms,
    "%k": lambda message: message.key or b"",
    "%v": lambda message: message.value,
    "%h": lambda message: b",".join(
        name.encode() + b"=" + value for name, value in message.headers.items()
    ),
}

BASE64_SUFFIX: Final = "_base64"
"""Ends the name of a JSON field whose bytes are in base 64."""

_ESCAPES: Final = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\0": "\0", r"\\": "\\"}

_TOKEN: Final = re.compile(r"%.?|\\.?|[^%\\]+", re.DOTALL)


def compile_format(text: str, *, for_terminal: bool = False) -> Formatter:
    r"""A function that formats messages as *text* says; ``\n \t \r \0 \\`` are escapes.
    *for_terminal*: print bytes that could control a terminal as escapes, except those of *text*
    itself.

    Raises:
      CommandError: if *text* has an unknown field or escape.
    """
    parts: list[Formatter] = []
    for token in _TOKEN.findall(text):
        if token in _FIELDS:
            field = _FIELDS[token]
            parts.append(_cleaned(field) if for_terminal else field)
        elif token == "%%":
            parts.append(_constant("%"))
        elif token in _ESCAPES:
            parts.append(_constant(_ESCAPES[token]))
        elif token[0] in "%\\":
            known = " ".join([*_FIELDS, "%%", *_ESCAPES])
            raise CommandError(
                f"{token!r} in the format means nothing; there are {known}", ExitCode.USAGE
            )
        else:
            parts.append(_constant(token))
    return lambda message: b"".join([part(message) for part in parts])


def for_terminal(data: bytes) -> bytes:
    """*data* on one line, with escapes for control characters of terminals, and for bytes that
    aren't UTF-8."""
    return printable.readable(data.decode(errors="backslashreplace")).encode()


def _cleaned(field: Formatter) -> Formatter:
    return lambda message: for_terminal(field(message))


def _constant(text: str) -> Formatter:
    data = text.encode()
    return lambda message: data


def as_json(message: Message) -> bytes:
    """*message* as a JSON object, and a newline.

    A value that is UTF-8 is given as text (``value``), others in base 64 (``value_base64``); the
    same applies to the key.
    """
    fields: dict[str, object] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "next_offset": message.next_offset,
        "timestamp_ms": message.timestamp_ms,
    }
    fields.update(text_or_base64("key", message.key))
    fields.update(text_or_base64("value", message.value))
    headers: dict[str, object] = {}
    for name, value in message.headers.items():
        headers.update(text_or_base64(name, value))
    fields["headers"] = headers
    return printable.as_json(fields).encode() + b"\n"


def text_or_base64(name: str, data: bytes | None) -> dict[str, object]:
    """A field of a JSON object: *name* with text, or *name* and ``_base64`` with base 64.  The
    latter also if *name* itself ends so, as a header's may."""
    if data is None:
        return {name: None}
    if not name.endswith(BASE64_SUFFIX):
        try:
            return {name: data.decode()}
        except UnicodeDecodeError:
            pass
    return {name + BASE64_SUFFIX: base64.b64encode(data).decode()}
