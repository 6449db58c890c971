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


class Place(Protocol):
    """What the register says of one partition."""

    @property
    def replicas(self) -> Collection[int]: ...

    @property
    def in_sync(self) -> Collection[int]: ...


def in_sync_everywhere(broker: int, places: Collection[Place]) -> bool:
    """Whether *broker* is in sync in everything that it holds."""
    return all(broker in one.in_sync for one in places if broker in one.replicas)


class Bounds:
    """Which brokers' copies may not be counted on now."""

    def __init__(self) -> None:
        self.spoilt: set[int] = set()
        """Brokers some of whose copies may lack something."""

    def spoil(self, broker: int, places: Collection[Place]) -> bool:
        """Whether the copies of *broker*, which is dead and known to be, may be taken away;
        they count as spoilt from then on."""
        lost = self.spoilt | {broker}
        allowed = all(
            set(one.in_sync) - lost for one in places if broker in one.in_sync or not one.in_sync
        )
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
