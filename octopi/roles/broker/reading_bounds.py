"""How far a reader may read a log whose topic got other partitions
(`octopi.coordination.generations`).

A reader says up to which generation of the topic it knows the list of partitions.  It gets the
messages of that generation, and not those that lie behind the sealed end: by the lists that it
knows it would hand them out before earlier ones in other logs, and miss logs of which it hasn't
heard.  So its reading ends there with ``stale_route``, and it looks the topic up.

A broker knows sealed ends by the topic's record.  It may get records of a generation from the
leader before it gets the record that says that the generation is in force.  The leader says with
all that it sends which generation it knows.  If that one is newer than the one that this broker
knows, readers wait where the first such records begin until the record is there.
"""

from __future__ import annotations

from typing import Final

import attrs

from octopi.errors import RefusedError, Status
from octopi.identifiers import Offset, PartitionId
from octopi.model import TopicRecord

GENERATIONS_SINCE: Final = 2
"""The first version of the protocol whose clients know of generations."""


@attrs.frozen
class ReadBound:
    """A reader gets the records below *end*."""

    end: Offset
    is_sealed: bool
    """Whether the log is sealed there; otherwise this broker doesn't know (yet) what may be read
    behind it."""


class ReadingBounds:
    """Those of one log."""

    __slots__ = ("_sealed", "_unjudged")

    def __init__(self, topic: TopicRecord, partition: PartitionId) -> None:
        self._sealed: tuple[tuple[int, Offset], ...] = ()
        """The generations of the topic whose log of the partition is sealed, and where, the oldest
        first."""
        self._unjudged: tuple[int, Offset] | None = None
        """A generation that this broker doesn't know to be in force, and where its records may
        begin."""
        self.known(topic, partition)

    def known(self, topic: TopicRecord, partition: PartitionId) -> None:
        """The broker knows this record of the topic."""
        self._sealed = tuple(
            (one.number, Offset(one.sealed[one.partitions.index(partition)]))
            for one in topic.generations
            if one.sealed and partition in one.partitions
        )
        if self._unjudged is not None and topic.generations:
            in_force = max(one.number for one in topic.generations if one.state == "in_force")
            if in_force >= self._unjudged[0]:
                self._unjudged = None

    def received(self, offset: Offset, generation: int, known: int) -> None:
        """Records at *offset* came from a leader that knows *generation* to be in force, while this
        broker knows only *known*."""
        if generation <= known:
            return
        if self._unjudged is None or offset < self._unjudged[1]:
            self._unjudged = (generation, offset)

    def of(self, generation: int) -> ReadBound | None:
        """That of a reader that knows the topic up to *generation* (0: it knows of none); None: it
        may read all."""
        for number, end in self._sealed:
            if number >= generation:
                return ReadBound(end, is_sealed=True)
        if self._unjudged is not None and self._unjudged[0] > generation:
            return ReadBound(self._unjudged[1], is_sealed=False)
        return None


def stale_reader(version: int, topic: str) -> RefusedError:
    """Why a reading ends at a sealed end; the client speaks *version* of the protocol."""
    if version < GENERATIONS_SINCE:
        return RefusedError(
            f"topic {topic} got other partitions while it was in use, and clients of this version "
            "can't go on in the right order: install the version of the nodes "
            "(`octopi-node --version`)",
            Status.UNSUPPORTED_VERSION,
        )
    return RefusedError(
        f"topic {topic} got other partitions: all messages of the list that the reader knows were "
        "sent from this log",
        Status.STALE_ROUTE,
    )
