"""What a record of a pipe's output says of its input, in the header `INPUT_HEADER`.

The value is ASCII, seven parts with a space between them::

    TOPIC-ID PARTITION OFFSET NEXT-OFFSET CHECK INDEX more|last

The message of the input with these offsets is the *unit*: all outputs that the program sent for it
have the same first five parts, and count from 0.  *CHECK* are 8 hex digits that tell the unit's
record from another one at the same offset: the CRC-32 of its request id.  *last* is on the unit's
last output.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

import attrs

from octopi.errors import RecordError
from octopi.identifiers import Offset, PartitionId, TopicId
from octopi.record import Message

_FORM: Final = re.compile(
    rb"([0-9a-f]{16}) (\d{1,10}) (\d{1,19}) (\d{1,19}) ([0-9a-f]{8}) (\d{1,10}) (more|last)"
)


@attrs.frozen
class Unit:
    """A message of the input."""

    topic_id: TopicId
    partition: PartitionId
    offset: Offset
    next_offset: Offset
    check: int
    """Tells its record from another one at the same offset."""

    @classmethod
    def of(cls, topic_id: TopicId, message: Message) -> Unit:
        """That of *message*, which the topic with *topic_id* has."""
        check = zlib.crc32(message.request_id)
        return cls(topic_id, message.partition, message.offset, message.next_offset, check)


@attrs.frozen
class InputPlace:
    """Which output of which unit a record is."""

    unit: Unit
    index: int
    """How many outputs of the unit come before it."""
    is_last: bool
    """Whether none comes behind it."""

    def encode(self) -> bytes:
        """The value of the header."""
        unit = self.unit
        text = f"{unit.topic_id} {unit.partition} {unit.offset} {unit.next_offset}"
        text += f" {unit.check:08x} {self.index} {'last' if self.is_last else 'more'}"
        return text.encode()

    @classmethod
    def decode(cls, value: bytes) -> InputPlace:
        """The place from the value of the header.

        Raises:
          RecordError: if no pipe wrote it.
        """
        found = _FORM.fullmatch(value)
        if found is None:
            raise RecordError(f"{value[:100]!r} is no place in the input of a pipe")
        topic_id, partition, offset, next_offset, check, index, end = found.groups()
        unit = Unit(
            TopicId(topic_id.decode()),
            PartitionId(int(partition)),
            Offset(int(offset)),
            Offset(int(next_offset)),
            int(check, 16),
        )
        return cls(unit, int(index), end == b"last")

    def reaches(self, other: InputPlace) -> bool:
        """Whether *other*, of the same log, is this place or lies before it."""
        return (self.unit.offset, self.index) >= (other.unit.offset, other.index)
