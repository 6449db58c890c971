"""Offsets of streams, as HTTP's clients see them: 20 digits, then ``~`` and the anchor.

They sort as texts, since the digits decide.  Of a position (`octopi.position`) such an offset is
the place in one log.  Two words stand for places: ``-1`` for the beginning, ``now`` for the end.
"""

from __future__ import annotations

import re
from typing import Final

from octopi.errors import InvalidOptionError
from octopi.identifiers import Offset
from octopi.limits import OFFSET_MAX
from octopi.position import NO_ANCHOR, Anchor, Place, checked_anchor
from octopi.streams.problems import invalid

BEGINNING: Final = "-1"
NOW: Final = "now"

_OFFSET: Final = re.compile(r"([0-9]{20})(?:~([0-9.-]{1,240}))?", re.ASCII)


def offset_text(offset: Offset, anchor: Anchor = NO_ANCHOR) -> str:
    """The text of a place in a stream."""
    return f"{offset:020d}~{anchor}" if anchor else f"{offset:020d}"


def place_of(text: str) -> Place:
    """The inverse of `offset_text`.

    Raises:
      StreamProblem: if *text* is no offset that a node gave out.
    """
    match = _OFFSET.fullmatch(text)
    if match is None or int(match[1]) > OFFSET_MAX:
        raise invalid(
            f"{text[:80]!r} is no offset: use -1, now, or what Stream-Next-Offset of an answer said"
        )
    try:
        return Place(Offset(int(match[1])), checked_anchor(match[2] or ""))
    except InvalidOptionError as error:
        raise invalid(str(error)) from None
