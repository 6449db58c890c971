"""What may be taken from a cluster so that its promises still say what is to be there.

A copy is *intact* unless its broker's files were damaged, or its machine lost power, since it
was last in sync in everything.  The one rule: each partition keeps an intact copy in its
in-sync set.  The one exception is power lost everywhere at once, with all copies intact before:
then what was acknowledged and not flushed may be gone, but where each produce is flushed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

FLUSHED_S: Final = 3.0
"""What was acknowledged longer ago was flushed: by default each second, and a busy machine is
late."""


class ReplicaSets(Protocol):
    """What the register says of one partition."""

    @property
    def replicas(self) -> Collection[int]: ...

    @property
    def in_sync(self) -> Collection[int]: ...


def in_sync_everywhere(broker: int, places: Collection[ReplicaSets]) -> bool:
    """Whether *broker* is in sync in everything that it holds."""
    return all(broker in one.in_sync for one in places if broker in one.replicas)


class CopyBounds:
    """Which brokers' copies may not be counted on now."""

    def __init__(self) -> None:
        self.spoilt: set[int] = set()
        """Brokers some of whose copies may lack something."""

    def can_spare(
        self, broker: int, places: Collection[ReplicaSets], dead: Collection[int] = ()
    ) -> bool:
        """Whether all partitions that have *broker* in their in-sync set have another broker
        there whose copy is intact, not counting the *dead* ones."""
        lost = self.spoilt | {broker, *dead}
        return all(
            set(one.in_sync) - lost for one in places if broker in one.in_sync or not one.in_sync
        )

    def spoil(self, broker: int, places: Collection[ReplicaSets]) -> bool:
        """Whether the copies of *broker* may be taken away; they count as spoilt from then on.

        The register knows that the broker is dead, and said *places* after that.  So none of the
        in-sync sets can shrink to that broker alone any more.
        """
        allowed = self.can_spare(broker, places)
        if allowed:
            self.spoilt.add(broker)
        return allowed

    def trust(self, broker: int) -> None:
        """Count on *broker* again: it has joined again, is in sync in everything, and its files
        are sound."""
        self.spoilt.discard(broker)

    @property
    def all_intact(self) -> bool:
        """Whether every copy may be counted on."""
        return not self.spoilt
