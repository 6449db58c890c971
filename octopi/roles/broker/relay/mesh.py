"""Which relays there are, and where a topic is, by a static list or by a register.  No I/O.

With a static list all of it is a function of the list, which is the same on all relays, so nobody
has to be asked.  A register tells each broker the sets of which it is a member, and their topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b, sha256
from typing import NamedTuple, Protocol

import attrs

from octopi.coordination.consistent_hash import HashCircle
from octopi.coordination.relay_balance import wished_sequencers
from octopi.errors import InvalidOptionError
from octopi.identifiers import BrokerId, ClusterId, PartitionId, TopicId, TopicName, address_fault
from octopi.limits import ID_CHARACTERS, RELAY_PARTITIONS_MAX, RELAYS_MAX, RELAYS_MIN
from octopi.model import TopicRecord
from octopi.relay.relay_set import RelaySet
from octopi.security.grants import EVERY_TOPIC, is_pattern, matches


class TopicPlace(NamedTuple):
    """Where a topic in memory is."""

    topic_id: TopicId
    partition: PartitionId


@attrs.frozen
class PlacedStreams:
    """The streams with names of one pattern are in a relay partition of their own."""

    pattern: str
    """A name, in which ``*`` stands for any characters."""
    members: tuple[BrokerId, ...]
    """The relays that hold the partition."""

    @property
    def text(self) -> str:
        """The form in which people write it: ``prices.*=1+2+3``."""
        return f"{self.pattern}={'+'.join(map(str, self.members))}"


class Mesh(Protocol):
    """The relays that a broker shares sets with, and the topics in memory."""

    relays: Mapping[BrokerId, str]
    """Id and address of each, this one's as well."""

    @property
    def digest(self) -> bytes:
        """What has to be the same on all of them."""

    @property
    def text(self) -> str:
        """The same, as people compare it."""

    @property
    def cluster(self) -> ClusterId:
        """The id of the cluster."""

    def place(self, topic: TopicName) -> TopicPlace | None:
        """Where *topic* is; None: it is none of these."""


class RegisterMesh(Mesh):
    """The relays of the sets of which this broker is a member, as a register has told it."""

    def __init__(self, cluster: ClusterId) -> None:
        self.relays: dict[BrokerId, str] = {}
        self.topics: dict[TopicName, TopicRecord] = {}
        """Those in its relay partitions."""
        self._cluster = cluster

    @property
    def digest(self) -> bytes:
        return sha256(self._cluster.encode()).digest()

    @property
    def text(self) -> str:
        return f"cluster {self._cluster}"

    @property
    def cluster(self) -> ClusterId:
        return self._cluster

    def place(self, topic: TopicName) -> TopicPlace | None:
        record = self.topics.get(topic)
        if record is None:
            return None
        return TopicPlace(TopicId(record.topic_id), record.partitions[0])


class RelayMesh(Mesh):
    """The relays of one static list.

    Invariant: two lists that differ in anything have different digests.
    """

    def __init__(
        self,
        relays: Mapping[BrokerId, str],
        partition_count: int,
        replica_count: int,
        placed: Sequence[PlacedStreams] = (),
    ) -> None:
        """*relays*: id and address of each.  *placed*: which relays hold which streams; of the
        patterns that match a name, the first one counts.  The hash of its name decides where any
        other stream is, in *partition_count* partitions of *replica_count* members.

        Raises:
          InvalidOptionError: if they are too few or too many, an address is none, or *placed* names
            too few or unknown relays, or a wrong pattern.
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
        self.relays: dict[BrokerId, str] = {
            broker: relays[broker].rstrip("/") for broker in sorted(relays)
        }
        if len(set(self.relays.values())) < len(self.relays):
            raise InvalidOptionError("--relay-peers: two relays have the same address")
        for one in placed:
            self._check(one)
        listed = ",".join(f"{broker}={one}" for broker, one in self.relays.items())
        patterns = "".join(f"; {one.text}" for one in placed)
        self._text = f"{partition_count}/{replica_count}: {listed}{patterns}"
        self._digest = sha256(self._text.encode()).digest()
        # If one pattern matches all that others leave, no stream would be in the other partitions.
        hashed_count = 0 if any(one.pattern == EVERY_TOPIC for one in placed) else partition_count
        if hashed_count + len(placed) > RELAY_PARTITIONS_MAX:
            raise InvalidOptionError(
                f"relays have at most {RELAY_PARTITIONS_MAX} partitions, those of --relay-place "
                f"among them, not {hashed_count + len(placed)}"
            )
        self._placed = {
            PartitionId(number): one for number, one in enumerate(placed, start=hashed_count)
        }
        members = [self._members(number, replica_count) for number in range(hashed_count)]
        members += [sorted(one.members) for one in placed]
        self.sets = [RelaySet(PartitionId(number), some) for number, some in enumerate(members)]
        """The relay set of each partition."""
        self.wished = wished_sequencers({one.partition: one.ranked for one in self.sets})
        """Who is to be the sequencer of each partition, if it can."""
        self._circle = HashCircle(partition_count)

    @property
    def digest(self) -> bytes:
        return self._digest

    @property
    def text(self) -> str:
        return self._text

    @property
    def cluster(self) -> ClusterId:
        return ClusterId(self.digest.hex()[:ID_CHARACTERS])

    def place(self, topic: TopicName) -> TopicPlace:
        return TopicPlace(self.topic_id(topic), self.partition_of(topic))

    def _check(self, placed: PlacedStreams) -> None:
        """See `__init__`."""
        where = f"--relay-place {placed.text}"
        if not is_pattern(placed.pattern):
            raise InvalidOptionError(f"{where}: write a topic name, * for any characters")
        if unknown := [one for one in placed.members if one not in self.relays]:
            raise InvalidOptionError(f"{where}: relay {unknown[0]} is not in --relay-peers")
        if not RELAYS_MIN <= len(set(placed.members)) == len(placed.members):
            raise InvalidOptionError(f"{where}: a relay set has at least {RELAYS_MIN} members")

    def _members(self, partition: int, count: int) -> list[BrokerId]:
        """Who holds *partition*: by rendezvous hashing, so a relay more moves few of them."""
        return sorted(self.relays, key=lambda one: (_weight(partition, one), one))[:count]

    def partition_of(self, topic: TopicName) -> PartitionId:
        """The partition of *topic*.  A topic has one."""
        for number, one in self._placed.items():
            if matches(one.pattern, topic):
                return number
        return self._circle.partitions(topic, 1)[0]

    def topic_id(self, topic: TopicName) -> TopicId:
        """The id of *topic*, which it always has with this list."""
        return TopicId(sha256(self.digest + topic.encode()).hexdigest()[:ID_CHARACTERS])


def _weight(partition: int, broker: BrokerId) -> bytes:
    return blake2b(f"relay set {partition} {broker}".encode(), digest_size=8).digest()
