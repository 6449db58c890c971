"""Timelines and epochs, both in an order."""

from __future__ import annotations

from typing import Final, NamedTuple

GENERATION_BITS: Final = 24
NAME_BITS: Final = 40
_BYTES: Final = (GENERATION_BITS + NAME_BITS) // 8


class Timeline(NamedTuple):
    """An agreed history of all streams of a relay partition, from the moment in which it was
    founded.  A newer one wins over an older one."""

    generation: int
    """Counts the timelines of a partition, from 1."""
    name: int
    """Random: two that were founded apart from each other differ."""

    def to_bytes(self) -> bytes:
        """Its 8 bytes, which compare as timelines do."""
        return (self.generation << NAME_BITS | self.name).to_bytes(_BYTES, "big")

    @classmethod
    def from_bytes(cls, content: bytes) -> Timeline:
        """The timeline that `to_bytes` wrote."""
        number = int.from_bytes(content, "big")
        return cls(number >> NAME_BITS, number & (1 << NAME_BITS) - 1)


class RelayEpoch(NamedTuple):
    """One leadership of a relay set: in it one sequencer puts transactions in order."""

    timeline: Timeline
    number: int
    """Counts the epochs of a timeline.  It also says who is the sequencer
    (`octopi.relay.relay_set`)."""

    @property
    def next(self) -> RelayEpoch:
        """The next one of the same timeline."""
        return RelayEpoch(self.timeline, self.number + 1)


NEVER: Final = RelayEpoch(Timeline(0, 0), 0)
"""Below all epochs: that of a relay that knows nothing."""
