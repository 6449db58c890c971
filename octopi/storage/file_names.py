"""The names of a log's files.

=====================  ==================================================================
name                   content
=====================  ==================================================================
``<offset>.log``       a segment: the records from that offset on
``<offset>.index``     its sparse index (`octopi.storage.offset_index`)
``<offset>.cut``       bytes that were cut off at that offset; ``<offset>.<n>.cut`` (*n* from
                       2) if there are such bytes already
=====================  ==================================================================

The offset has 20 decimal digits, as many as 64 bits need, so names sort like offsets.
This package ignores other names in the directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from octopi.identifiers import Offset

DAMAGED_SUFFIX: Final = ".damaged"
"""The end of the name of a log's directory that could not be used: ``<topic>!<n>.damaged``."""

_SEGMENT: Final = re.compile(r"([0-9]{20})\.log", re.ASCII)
_INDEX: Final = re.compile(r"([0-9]{20})\.index", re.ASCII)
_CUT: Final = re.compile(r"([0-9]{20})(?:\.[0-9]+)?\.cut", re.ASCII)


def segment_path(directory: str, base: Offset) -> str:
    """The path of the segment that begins at *base*."""
    return f"{directory}/{base:020d}.log"


def index_path(directory: str, base: Offset) -> str:
    """The path of the index of the segment that begins at *base*."""
    return f"{directory}/{base:020d}.index"


def cut_path(directory: str, offset: Offset, names: Iterable[str]) -> str:
    """A path for bytes that are cut off at *offset*; its name is not in *names*, those of the
    directory."""
    taken = set(names)
    name, number = f"{offset:020d}.cut", 1
    while name in taken:
        number += 1
        name = f"{offset:020d}.{number}.cut"
    return f"{directory}/{name}"


def segment_bases(names: Iterable[str]) -> list[Offset]:
    """The base offsets of the segments among *names*, sorted."""
    return sorted(offset for _, offset in _matching(_SEGMENT, names))


def index_bases(names: Iterable[str]) -> list[Offset]:
    """The base offsets of the indexes among *names*, sorted."""
    return sorted(offset for _, offset in _matching(_INDEX, names))


def cut_names(names: Iterable[str], below: Offset) -> list[str]:
    """Those of *names* that hold bytes cut off below the offset *below*."""
    return [name for name, offset in _matching(_CUT, names) if offset < below]


def _matching(pattern: re.Pattern[str], names: Iterable[str]) -> list[tuple[str, Offset]]:
    matches = ((name, pattern.fullmatch(name)) for name in names)
    return [(name, Offset(int(match[1]))) for name, match in matches if match is not None]
