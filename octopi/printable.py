"""Makes texts from other programs safe for a terminal, a log line or a page.

Names, addresses, keys and error texts come from other programs.  On a terminal some characters are
commands: they move the cursor, change the title, or change the order in which a text is shown
(https://unicode.org/reports/tr9/ for the bidirectional ones).  All texts that a node logs, or that
a command of the program prints, pass through here.
"""

from __future__ import annotations

import json
import re
from typing import Final

_FORBIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: ECMA-48
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the bidirectional controls
    "\u2028\u2029"  # ends of lines and paragraphs
    "\ud800-\udfff]"  # half a character
)

_DATA_DIRECTORY: Final = re.compile(
    r"(?:(?<=[\s'\"(:])|^)"  # where a path can begin
    r"(?:\.{0,2}/|[^\s/'\"()]+/)(?:[^'\"\n]*?/)??"  # the directory, whose name may have spaces
    r"(?=(?:logs|replicas|journal)(?:/|\b)|(?:identity|partitions|room\.probe|lock)\b)"
)
"""The path of a data directory, before the name of a file or folder in it."""

_OF_WRITING: Final = frozenset("\u00a0\u200c\u200d\u3000")
"""Spaces and joiners that the correct spelling of some languages and emoji needs."""


def printable(text: str) -> str:
    """*text* on one line: invisible characters, also line ends, are written as escapes such as
    ``\\x1b`` or ``\\u202e``."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def readable(text: str) -> str:
    """Like `printable`, for prose of any language: special spaces and joiners stay."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in _OF_WRITING else _escaped(one) for one in text
    )


def without_directory(text: str) -> str:
    """*text* with paths relative to the node's data directory, for readers on other machines:
    ``logs/3/orders`` instead of ``/srv/octopi/logs/3/orders``."""
    return _DATA_DIRECTORY.sub("", text)


def has_controls(text: str) -> bool:
    """Whether *text* has a control character: of C0 or C1, DEL, a bidirectional control, an end of
    a line or paragraph, or half a surrogate pair."""
    return _FORBIDDEN.search(text) is not None


def controls_fault(text: str) -> str:
    """Why *text* is refused if `has_controls`; empty if it has no control character."""
    return "it has a control character" if has_controls(text) else ""


def as_json(value: object, indent: int | None = None) -> str:
    """*value* as JSON that any terminal can show: characters that are not printable are written as
    ``\\uXXXX``, which JSON parsers read as the same characters."""
    lines = json.dumps(value, indent=indent, ensure_ascii=False).split("\n")
    return "\n".join(one if one.isprintable() else _ascii_json(one) for one in lines)


def _ascii_json(line: str) -> str:
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in line)


def _escaped(character: str) -> str:
    return ascii(character)[1:-1]
