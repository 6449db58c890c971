"""Offsets of streams, as HTTP's clients see them: 20 digits, then the topic's id and the anchor,
each behind a ``~``.

They sort as texts, since the digits decide.  Of a position (`octopi.position`) such an offset is
the topic's id and the place in one log.  So an offset of a stream that was deleted is none of a
later one of that name, and no cache has an answer of the one under a URL of the other.  Two words
stand for places: ``-1`` for the beginning, ``now`` for the end.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from octopi.errors import InvalidOptionError
from octopi.identifiers import Offset, TopicId
from octopi.limits import ID_CHARACTERS, OFFSET_MAX
from octopi.position import NO_ANCHOR, Anchor, Place, checked_anchor
from octopi.streams.problems import invalid

BEGINNING: Final = "-1"
NOW: Final = "now"

_OFFSET: Final = re.compile(
    rf"([0-9]{{20}})(?:~([0-9a-f]{{{ID_CHARACTERS}}})(?:~([0-9.-]{{1,240}}))?)?", re.ASCII
)


@attrs.frozen
class StreamPlace:
    """A place in a stream."""

    topic_id: TopicId | None
    """The topic that the stream is; None: a person wrote the offset, and didn't say."""
    place: Place


def offset_text(topic_id: TopicId, offset: Offset, anchor: Anchor = NO_ANCHOR) -> str:
    """The text of a place in the stream that the topic *topic_id* is."""
    return f"{offset:020d}~{topic_id}" + (f"~{anchor}" if anchor else "")


def place_of(text: str) -> StreamPlace:
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
        place = Place(Offset(int(match[1])), checked_anchor(match[3] or ""))
    except InvalidOptionError as error:
        raise invalid(str(error)) from None
    return StreamPlace(TopicId(match[2]) if match[2] else None, place)
