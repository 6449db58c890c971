"""Formats values for people, briefly and on one line: the facts of events, and messages.

The text of any value is printable, bounded, without a line end and without two spaces in a row.  It
is the same in every run, because it never contains the address of an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set as AbstractSet
from enum import Enum
from typing import Final

import attrs

from octopi.printable import printable

_DEPTH_MAX: Final = 4
_COUNT_MAX: Final = 12
"""The most elements of a collection that are shown."""
_BYTES_SHOWN: Final = 4
_TEXT_SHOWN: Final = 120
_PLAIN: Final = re.compile(r"[^\s'\"=,\[\]{}()\\]+")
_CAPITALS: Final = re.compile("[A-Z]")
_SPACES: Final = re.compile(" {2,}")


def one_line(text: str, length_max: int = 1000) -> str:
    """*text* on one line of at most *length_max* characters, without two spaces in a row."""
    text = printable(text[: length_max + 1])
    if "  " in text:
        text = _SPACES.sub(lambda found: " " + "\\x20" * (len(found[0]) - 1), text)
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"


def brief(value: object, length_max: int = 160) -> str:
    """*value* as text of at most *length_max* characters."""
    return one_line(_words(value, _DEPTH_MAX), length_max)


def action_words(action: object) -> str:
    """A fault's action (`octopi.simulation.faults.actions`) in words."""
    cls = type(action)
    if not attrs.has(cls):
        return brief(action)
    words = [_CAPITALS.sub(lambda found: f" {found[0].lower()}", cls.__name__).strip()]
    for field in attrs.fields(cls):
        value = getattr(action, field.name)
        label = field.name.removesuffix("_s")
        if value is None:
            words.append(f"no {label}")
        elif field.name == "seconds":
            words.append(f"{brief(value)} s")
        elif label != field.name:
            words.append(f"{label} {brief(value)} s")
        elif value is not False:
            words.append(label if value is True else f"{label} {brief(value)}")
    return one_line(", ".join(words))


def _words(value: object, depth: int) -> str:
    match value:
        case None | bool():
            return str(value)
        case Enum():
            return value.name
        case int():
            return str(value) if abs(value) < 1 << 64 else hex(value)
        case float():
            return f"{value:g}"
        case str():
            return _text(value)
        case bytes() | bytearray() | memoryview():
            return _bytes(bytes(value))
        case BaseException():
            return f"{type(value).__name__}: {_text(str(value))}"
        case type():
            return value.__name__
    if depth == 0:
        return "…"
    if isinstance(value, tuple) and type(value).__str__ is not tuple.__str__:
        return _text(str(value))  # a tuple that defines its text, such as a log's name
    cls = type(value)
    if attrs.has(cls):
        fields = (
            f"{field.name}={_words(getattr(value, field.name), depth - 1)}"
            for field in attrs.fields(cls)
        )
        return f"{cls.__name__}({', '.join(fields)})"
    if isinstance(value, Mapping):
        pairs = (f"{_words(key, 0)}: {_words(one, depth - 1)}" for key, one in value.items())
        return f"{{{_listed(pairs, len(value))}}}"
    if isinstance(value, AbstractSet):
        return f"{{{_listed(sorted(_words(one, depth - 1) for one in value), len(value))}}}"
    if isinstance(value, list | tuple):
        return f"[{_listed((_words(one, depth - 1) for one in value), len(value))}]"
    return f"<{cls.__name__}>"


def _listed(words: Iterable[str], count: int) -> str:
    shown = [one for _, one in zip(range(_COUNT_MAX), words, strict=False)]
    more = [f"… {count - _COUNT_MAX} more"] if count > _COUNT_MAX else []
    return ("," if all(map(str.isdigit, shown)) else ", ").join([*shown, *more])


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    shown = text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}…"
    return f"'{shown}'"


def _bytes(data: bytes) -> str:
    if len(data) <= _BYTES_SHOWN:
        return data.hex() or "empty"
    return f"{data[:_BYTES_SHOWN].hex()}…"
