"""A reader's place in a topic, and its form as text, the same in every language::

    position = "v1:" topic "@" topic-id ":" [ place *( "," place ) ]
    place    = partition "=" offset [ "~" anchor ]
    anchor   = epoch / end "." 16 hex digits

For example ``v1:orders@5f0c2a1b5f0c2a1b:0=1234~7,3=99~6``.  Numbers are decimal, without
leading zeros, and fit 63 bits.

Offsets are equal on every replica, so a position is good at any of them, in another process and
in another language.  The topic id keeps it from pointing into the data of a topic that was
deleted and created again.  The *anchor* keeps it from pointing into another history of the same
log: if all replicas lose what was read, other records can take its place, at the same offsets.
The anchor of a place is the epoch of the record that ends there; a broker that finds another
epoch there answers ``history_forked``.  A place without an anchor is not checked: offset 0 has
nothing before it, and an offset that a person typed says nothing of it.

Clients keep anchors as they come and never look into them.  The second form, an end and 8 bytes
of a digest, is that of logs without epochs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NewType

import attrs

from octopi.errors import InvalidOptionError
from octopi.identifiers import Epoch, Offset, PartitionId, TopicId, TopicName

Anchor = NewType("Anchor", str)
"""What stands before a place, as text; empty: not known."""

NO_ANCHOR: Final = Anchor("")

_INTEGER_MAX: Final = 2**63 - 1
"""The wire has no greater ones."""

_NUMBER: Final = r"(?:0|[1-9][0-9]{0,18})"
_ANCHOR_FORM: Final = rf"(?:[1-9][0-9]{{0,18}}|{_NUMBER}\.[0-9a-f]{{16}})"
_PLACE_FORM: Final = rf"(?:0|[1-9][0-9]{{0,9}})={_NUMBER}(?:~{_ANCHOR_FORM})?"
_ANCHOR: Final = re.compile(_ANCHOR_FORM)
_POSITION: Final = re.compile(
    rf"v1:([A-Za-z0-9._-]+)@([0-9a-f]{{1,64}}):((?:{_PLACE_FORM}(?:,{_PLACE_FORM})*)?)"
)


def anchor_of_epoch(epoch: Epoch) -> Anchor:
    """The anchor of a place behind a record of *epoch*; 0: not known."""
    return Anchor(str(epoch)) if epoch else NO_ANCHOR


def epoch_of(anchor: Anchor) -> Epoch:
    """The inverse of `anchor_of_epoch`.

    Raises:
      InvalidOptionError: if *anchor* names no epoch.
    """
    if not anchor:
        return Epoch(0)
    if "." in checked_anchor(anchor):
        raise InvalidOptionError(f"anchor {anchor!r} names no epoch: it isn't one of a log")
    return Epoch(int(anchor))


def checked_anchor(text: str) -> Anchor:
    """*text*, if it can be an anchor, or empty.

    Raises:
      InvalidOptionError: if it can't.
    """
    if text and (_ANCHOR.fullmatch(text) is None or int(text.partition(".")[0]) > _INTEGER_MAX):
        raise InvalidOptionError(f"{text[:80]!r} is no anchor; one is an epoch, such as 7")
    return Anchor(text)


@attrs.frozen
class Place:
    """A place in one log."""

    offset: Offset
    """Of the next record (bytes)."""
    anchor: Anchor = NO_ANCHOR
    """What stands before it."""

    def __str__(self) -> str:
        return f"{self.offset}~{self.anchor}" if self.anchor else str(self.offset)

    @classmethod
    def parse(cls, text: str) -> Place:
        """The inverse of ``str(place)``.

        Raises:
          InvalidOptionError: if *text* is no place.
        """
        offset, mark, anchor = text.partition("~")
        if re.fullmatch(_NUMBER, offset) is None or bool(mark) is not bool(anchor):
            raise InvalidOptionError(f"{text[:80]!r} is no place; one looks like '1234~7'")
        return cls(_checked_offset(int(offset)), checked_anchor(anchor))


def _checked_offset(offset: int) -> Offset:
    if not 0 <= offset <= _INTEGER_MAX:
        raise InvalidOptionError(f"offset is {offset}; it must be from 0 to {_INTEGER_MAX}")
    return Offset(offset)


def _checked(places: Mapping[PartitionId, Place | int]) -> Mapping[PartitionId, Place]:
    checked = {}
    for partition, place in sorted(places.items()):
        one = place if isinstance(place, Place) else Place(Offset(place))
        checked[partition] = Place(_checked_offset(one.offset), checked_anchor(one.anchor))
    return checked


@attrs.frozen(hash=False)
class Position:
    """Where to go on reading a topic."""

    topic: TopicName
    topic_id: TopicId
    places: Mapping[PartitionId, Place] = attrs.field(converter=_checked)
    """Partition -> place of the next record; an offset stands for a place without an anchor.  A
    partition that isn't named: from its start."""

    @property
    def offsets(self) -> Mapping[PartitionId, Offset]:
        """Partition -> offset of the next record (bytes)."""
        return {partition: place.offset for partition, place in self.places.items()}

    def __str__(self) -> str:
        places = ",".join(f"{partition}={place}" for partition, place in self.places.items())
        return f"v1:{self.topic}@{self.topic_id}:{places}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The inverse of ``str(position)``.

        Raises:
          InvalidOptionError: if *text* is no position.
        """
        match = _POSITION.fullmatch(text)
        if match is None:
            raise InvalidOptionError(
                f"{text[:80]!r} is no position; one looks like 'v1:orders@5f0c2a...:0=1234~7,3=99'"
            )
        topic, topic_id, listed = match.groups()
        places: dict[PartitionId, Place] = {}
        for one in listed.split(",") if listed else []:
            partition, _, place = one.partition("=")
            if int(partition) in places:
                raise InvalidOptionError(
                    f"position {text[:80]!r} names partition {partition} twice"
                )
            places[PartitionId(int(partition))] = Place.parse(place)
        return cls(TopicName(topic), TopicId(topic_id), places)
