"""JSON mode: each value is a record, and an array that is written is its elements.

Values are stored as they were written, not as Python would write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from octopi.errors import Status
from octopi.limits import RECORDS_PER_PRODUCE_MAX
from octopi.streams.problems import StreamProblem, invalid

_SPACE: Final = re.compile(r"[ \t\n\r]*")


def _refuse(text: str) -> object:
    raise ValueError(f"{text} is no JSON")


def _ignored(_: str) -> int:
    return 0


_DECODER: Final = json.JSONDecoder(
    parse_float=_ignored, parse_int=_ignored, parse_constant=_refuse, strict=True
)


def values_of(body: bytes) -> list[bytes]:
    """The values that *body* holds: the elements of an array, or else one value.

    Raises:
      StreamProblem: if it is no JSON, or has too many values.
    """
    try:
        text = body.decode()
        at = _skip(text, 0)
        if not text.startswith("[", at):
            value, end = _value(text, at)
            values = [value]
        else:
            values, end = _elements(text, at + 1)
        if _skip(text, end) != len(text):
            raise ValueError("something follows the value")
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is no valid JSON: {str(error)[:200]}") from None
    return [one.encode() for one in values]


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None  # it matches nothing, too
    return match.end()


def _value(text: str, at: int) -> tuple[str, int]:
    _, end = _DECODER.raw_decode(text, at)
    return text[at:end], end


def _elements(text: str, at: int) -> tuple[list[str], int]:
    """The elements of an array that begins before *at*, and where the array ends.

    Raises:
      StreamProblem: if there are too many.
    """
    values: list[str] = []
    at = _skip(text, at)
    if text.startswith("]", at):
        return values, at + 1
    while True:
        value, at = _value(text, at)
        values.append(value)
        if len(values) > RECORDS_PER_PRODUCE_MAX:  # parsing all of them would take long
            raise StreamProblem(
                f"a request writes at most {RECORDS_PER_PRODUCE_MAX} values",
                Status.MESSAGE_TOO_LARGE,
            )
        at = _skip(text, at)
        if text.startswith("]", at):
            return values, at + 1
        if not text.startswith(",", at):
            raise ValueError(f"an array goes on wrongly at character {at}")
        at = _skip(text, at + 1)


def is_value(data: bytes) -> bool:
    """Whether *data* is one JSON value."""
    try:
        text = data.decode()
        _, end = _DECODER.raw_decode(text, _skip(text, 0))
        return _skip(text, end) == len(text)
    except (ValueError, RecursionError):
        return False


def array_of(values: Iterable[bytes]) -> bytes:
    """An array of the values of records.  What another client wrote and is no JSON becomes a text,
    so that one such record doesn't hide the others."""
    shown = [
        one if is_value(one) else json.dumps(one.decode(errors="replace")).encode()
        for one in values
        if one  # the mark of the end of a stream has no value
    ]
    return b"[" + b",".join(shown) + b"]"
