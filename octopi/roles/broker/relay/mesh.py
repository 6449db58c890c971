"""The static list of relays: who holds which partition, and where a topic is.  No I/O.

All of it is a function of the list, which is the same on all relays, so nobody has to be asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b, sha256
from typing import Final

from octopi.coordination.consistent_hash import HashCircle
from octopi.errors import InvalidOptionError
from octopi.identifiers import BrokerId, ClusterId, PartitionId, TopicId, TopicName, address_fault
from octopi.limits import ID_CHARACTERS, RELAY_PARTITIONS_MAX, RELAYS_MAX
from octopi.relay.relay_set import RelaySet

RELAYS_MIN: Final = 3
"""Fewer can't lose one, and promise nothing that one broker would not."""


class RelayMesh:
    """The relays of one static list.

    Invariant: two lists that differ in anything have different digests.
    """

    def __init__(
        self, relays: Mapping[BrokerId, str], partition_count: int, replica_count: int
    ) -> None:
        """*relays*: id and address of each.

        Raises:
          InvalidOptionError: if they are too few or too many, or an address is none.
        """
        if not RELAYS_MIN <= len(relays) <= RELAYS_MAX:
            raise InvalidOptionError(
                f"relays are {RELAYS_MIN} to {RELAYS_MAX}, not {len(relays)} (--relay-peers): with "
                "fewer, none of them may be lost"
            )
        if not 1 <= partition_count <= RELAY_PARTITIONS_MAX:
            raise InvalidOptionError(f"relays have 1 to {RELAY_PARTITIONS_MAX} partitions")
        if not replica_count >= RELAYS_MIN:
            raise InvalidOptionError(f"a relay set has at least {RELAYS_MIN} members")
        for broker, address in relays.items():
            if why := address_fault(address):
                raise InvalidOptionError(f"--relay-peers {broker}={address}: {why}")
        self.relays = {broker: relays[broker].rstrip("/") for broker in sorted(relays)}
        if len(set(self.relays.values())) < len(self.relays):
            raise InvalidOptionError("--relay-peers: two relays have the same address")
        listed = ",".join(f"{broker}={one}" for broker, one in self.relays.items())
        self.text = f"{partition_count}/{replica_count}: {listed}"
        """The list, as people compare it."""
        self.digest = sha256(self.text.encode()).digest()
        self.cluster = ClusterId(self.digest.hex()[:ID_CHARACTERS])
        """The id of the cluster that the relays are."""
        self.sets = [
            RelaySet(PartitionId(partition), self._members(partition, replica_count))
            for partition in range(partition_count)
        ]
        """The relay set of each partition."""
        self._circle = HashCircle(partition_count)

    def _members(self, partition: int, count: int) -> list[BrokerId]:
        """Who holds *partition*: by rendezvous hashing, so a relay more moves few of them."""
        return sorted(self.relays, key=lambda one: (_weight(partition, one), one))[:count]

    def partition_of(self, topic: TopicName) -> PartitionId:
        """The partition of *topic*.  A topic has one."""
        return self._circle.partitions(topic, 1)[0]

    def topic_id(self, topic: TopicName) -> TopicId:
        """The id of *topic*, which it always has with this list."""
        return TopicId(sha256(self.digest + topic.encode()).hexdigest()[:ID_CHARACTERS])


def _weight(partition: int, broker: BrokerId) -> bytes:
    return blake2b(f"relay set {partition} {broker}".encode(), digest_size=8).digest()
