"""The position of a consumer in a topic, and its form as text, which is the same in all languages::

    position = "v1:" topic "@" topic-id ":" [ place *( "," place ) ]
    place    = partition "=" offset [ "~" anchor ]
    anchor   = begun *5( "." begun ) / end "." 16 hex digits
    begun    = epoch "-" start

For example ``v1:orders@5f0c2a1b5f0c2a1b:0=1234~7-1200.6-800,3=99~6-0``.  Numbers are decimal,
without leading zeros, and fit 63 bits.

Offsets are equal on all replicas, so a position is valid at each of them, in another process and in
another language.  The topic id shows whether the topic was deleted and created again.  The *anchor*
shows whether the log has another history: if all replicas lose records that were read, other
records can take their place, at the same offsets.  The anchor of a place names the epoch of the
record that ends there, and the offset at which the records of that epoch begin; then the same of
some epochs before it (`DISTANCES`).  A broker that has another epoch before the place answers
``history_forked``, with an offset up to which both agree.  To find that offset it needs the starts:
if it never had records of an epoch, it doesn't know where that epoch began.  A place without an
anchor is not checked: there is no record before offset 0, and a person who typed an offset didn't
give an anchor.

Clients store anchors unchanged, and don't interpret them.  The second form of an anchor, an end and
8 bytes of a digest, is used for logs without epochs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NewType, TypeAlias

import attrs

from octopi.errors import InvalidOptionError
from octopi.identifiers import Epoch, Offset, PartitionId, TopicId, TopicName

Anchor = NewType("Anchor", str)
"""The anchor of a place, as text; empty: not known."""

NO_ANCHOR: Final = Anchor("")

BegunEpoch: TypeAlias = tuple[Epoch, Offset]
"""An epoch of a log, and the offset at which its records begin."""

DISTANCES: Final = (0, 1, 2, 4, 8, 16)
"""The epochs that an anchor names, counted back from the epoch of the record that ends at the
place; only epochs with records count.  The first ones are consecutive, so the answer is exact if
the log has one of them.  The larger distances keep anchors small, and bound how much is read
again."""

_INTEGER_MAX: Final = 2**63 - 1
"""The greatest integer of the wire."""

_NUMBER: Final = r"(?:0|[1-9][0-9]{0,18})"
_BEGUN: Final = rf"[1-9][0-9]{{0,18}}-{_NUMBER}"
_ANCHOR_FORM: Final = (
    rf"(?:{_BEGUN}(?:\.{_BEGUN}){{0,{len(DISTANCES) - 1}}}|{_NUMBER}\.[0-9a-f]{{16}})"
)
_PLACE_FORM: Final = rf"(?:0|[1-9][0-9]{{0,9}})={_NUMBER}(?:~{_ANCHOR_FORM})?"
_ANCHOR: Final = re.compile(_ANCHOR_FORM)
_POSITION: Final = re.compile(
    rf"v1:([A-Za-z0-9._-]+)@([0-9a-f]{{1,64}}):((?:{_PLACE_FORM}(?:,{_PLACE_FORM})*)?)"
)


def anchor_of(epochs: Iterable[BegunEpoch]) -> Anchor:
    """The anchor that names *epochs*, the newest first; `NO_ANCHOR` if there are none."""
    return Anchor(".".join(f"{epoch}-{start}" for epoch, start in epochs))


def epochs_of(anchor: Anchor) -> list[BegunEpoch]:
    """The inverse of `anchor_of`.

    Raises:
      InvalidOptionError: if *anchor* names no epochs, or epochs that can't be those before a place.
    """
    if not anchor:
        return []
    if "-" not in checked_anchor(anchor):
        raise InvalidOptionError(f"anchor {anchor!r} names no epoch: it isn't one of a log")
    begun = []
    for one in anchor.split("."):
        epoch, _, start = one.partition("-")
        begun.append((Epoch(int(epoch)), Offset(int(start))))
    if any(new[0] <= old[0] or new[1] <= old[1] for new, old in pairwise(begun)):
        raise InvalidOptionError(f"anchor {anchor!r} is wrong: older epochs begin earlier")
    return begun


def checked_anchor(text: str) -> Anchor:
    """*text*, if it is empty or can be an anchor.

    Raises:
      InvalidOptionError: if it can't.
    """
    if text and (_ANCHOR.fullmatch(text) is None or max(_numbers(text)) > _INTEGER_MAX):
        raise InvalidOptionError(f"{text[:80]!r} is no anchor; one looks like '7-1200.6-800'")
    return Anchor(text)


def _numbers(anchor: str) -> list[int]:
    """The decimal numbers in *anchor*."""
    decimal = anchor if "-" in anchor else anchor.partition(".")[0]
    return [int(one) for one in re.split(r"[-.]", decimal)]


@attrs.frozen
class Place:
    """A place in one log."""

    offset: Offset
    """The offset of the next record."""
    anchor: Anchor = NO_ANCHOR
    """The anchor of that offset."""

    def __str__(self) -> str:
        return f"{self.offset}~{self.anchor}" if self.anchor else str(self.offset)

    @classmethod
    def parse(cls, text: str) -> Place:
        """The inverse of ``str(place)``.

        Raises:
          InvalidOptionError: if *text* is malformed.
        """
        offset, mark, anchor = text.partition("~")
        if re.fullmatch(_NUMBER, offset) is None or bool(mark) is not bool(anchor):
            raise InvalidOptionError(f"{text[:80]!r} is no place; one looks like '1234~7-1200'")
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
    """The position of a consumer in a topic, at which another consumer can continue."""

    topic: TopicName
    topic_id: TopicId
    places: Mapping[PartitionId, Place] = attrs.field(converter=_checked)
    """Partition -> the place of the next record; an offset stands for a place without an anchor.  A
    partition that isn't named is read from its start."""

    @property
    def offsets(self) -> Mapping[PartitionId, Offset]:
        """Partition -> the offset of the next record."""
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
                f"{text[:80]!r} is no position; one looks like "
                "'v1:orders@5f0c2a...:0=1234~7-1200,3=99'"
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
