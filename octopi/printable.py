"""Text of strangers, made fit for a terminal, a log line or a page.

Names, addresses, keys and error texts come from other programs.  On a terminal some
characters are commands: they move the cursor, change the title, or show a text in another
order than it is read (https://unicode.org/reports/tr9/ for the bidirectional ones).  Everything
that a node logs, and that a command of the program prints, passes through here.
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
"""What stands before the name of something in a data directory."""

_OF_WRITING: Final = frozenset("\u00a0\u200c\u200d\u3000")
"""Spaces and joiners without which some languages and emoji are not spelt right."""


def printable(text: str) -> str:
    """*text* on one line: what can't be seen in it, line ends too, is written as an escape such
    as ``\\x1b`` or ``\\u202e``."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def readable(text: str) -> str:
    """Like `printable` for prose of any language: wide spaces and joiners stay."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in _OF_WRITING else _escaped(one) for one in text
    )


def without_directory(text: str) -> str:
    """*text* as another machine may read it: what lies in a node's data directory is named from
    there on, ``logs/3/orders`` instead of ``/srv/octopi/logs/3/orders``."""
    return _DATA_DIRECTORY.sub("", text)


def has_controls(text: str) -> bool:
    """Whether *text* has a character that no name has: of C0 or C1, DEL, a bidirectional
    control, an end of a line or paragraph, or half a surrogate pair."""
    return _FORBIDDEN.search(text) is not None


def controls_fault(text: str) -> str:
    """The same in words; empty if it has none."""
    return "it has a control character" if has_controls(text) else ""


def as_json(value: object, indent: int | None = None) -> str:
    """*value* as JSON that any terminal can show: what is not printable is written as
    ``\\uXXXX``, which means the same to a reader of JSON."""
    lines = json.dumps(value, indent=indent, ensure_ascii=False).split("\n")
    return "\n".join(one if one.isprintable() else _ascii_json(one) for one in lines)


def _ascii_json(line: str) -> str:
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in line)


def _escaped(character: str) -> str:
    return ascii(character)[1:-1]
