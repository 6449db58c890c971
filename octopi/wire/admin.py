"""Messages by which an operator changes a cluster: partitions, replicas, brokers."""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost, MayBeMissing
from octopi.identifiers import BrokerId, Epoch, PartitionId
from octopi.model import Verb
from octopi.wire.common import Brokers, Text
from octopi.wire.declarations import CLIENT_TO_DECIDER, TO_CLIENT, answer, on_the_cluster, request


@request("drain_broker", CLIENT_TO_DECIDER, needs=on_the_cluster(Verb.ADMIN))
@attrs.frozen
class DrainBroker:
    """Have other in-sync replicas lead what *broker* leads, and give it no leadership before
    it joins anew.  Answer: `Done`, when it leads nothing."""

    request: int
    broker: BrokerId


@request("add_partitions", CLIENT_TO_DECIDER, needs=on_the_cluster(Verb.ADMIN))
@attrs.frozen
class AddPartitions:
    """Have more partitions, for topics that are created from now on.  Answer: `Done`."""

    request: int
    count: int


@request("move_replica", CLIENT_TO_DECIDER, needs=on_the_cluster(Verb.ADMIN))
@attrs.frozen
class MoveReplica:
    """Have *joining* hold a replica in the place of *leaving*.  Answer: `Done`, when it is in
    sync and the other one is out."""

    request: int
    partition: PartitionId
    leaving: BrokerId
    joining: BrokerId


@attrs.frozen
class ReplicaHolding:
    """What one replica of a partition without a leader holds."""

    broker: BrokerId
    live: bool
    was_in_sync: bool
    """Whether it was in sync last, so that it has what was flushed before it was acknowledged."""
    answered: bool
    """Whether it has said what it holds; if not, all that follows is 0."""
    sound: bool
    """Whether nothing is missing of what it had on its device."""
    log_epoch: Epoch
    """The newest epoch in which it led, or agreed with the leader on every log."""
    log_count: int
    held_bytes: int
    """The ends of its logs, added up."""
    missing_bytes: int
    """Of what any replica that answered holds or is known to have held, log by log, it lacks this
    much."""


@attrs.frozen
class LostRange:
    """Records of one log that no leader would have."""

    topic: Text
    kept_end: int
    """The end of what is left."""
    known_end: int
    """The end of what is known to have been there."""


@request("recover_partition", CLIENT_TO_DECIDER, needs=on_the_cluster(Verb.ADMIN))
@attrs.frozen
class RecoverPartition:
    """Say what the replicas of a partition without a leader hold; with `accept_loss`, have the
    best of those that answer lead, though acknowledged records may be lost.  Refused while a
    replica in sync runs, or while waiting will do.  Answer: `PartitionRecovery`."""

    request: int
    partition: PartitionId
    accept_loss: bool
    empty_on: Annotated[BrokerId | None, MayBeMissing()] = None
    """The broker on which the partition begins again, empty, as its only replica.  Refused while
    any broker with a replica runs."""


@answer("partition_recovery", TO_CLIENT)
@attrs.frozen
class PartitionRecovery:
    """How a partition without a leader stands, or stood before this was ordered."""

    request: int
    partition: PartitionId
    leader: BrokerId | None
    """Who leads now; None: no broker does."""
    epoch: Epoch
    recovered: bool
    """Whether it leads by this order."""
    candidate: int | None
    """Who leads, or would lead if that was ordered now."""
    waits_for: Brokers
    """Brokers without which no leader is chosen unless that is ordered."""
    replicas: Annotated[list[ReplicaHolding], AtMost(1_000)]
    lost: Annotated[list[LostRange], AtMost(1_000)]
    """What is known to be lost if the candidate leads: of this many logs at most."""
    lost_log_count: int
    """Of all logs with such a loss."""
    emptied: Annotated[list[Text], AtMost(1_000), MayBeMissing()] = attrs.field(factory=list)
    """Topics of which the partition keeps nothing if it begins again empty."""
    emptied_count: Annotated[int, MayBeMissing()] = 0
    """Of all such topics."""


@request("remove_broker", CLIENT_TO_DECIDER, needs=on_the_cluster(Verb.ADMIN))
@attrs.frozen
class RemoveBroker:
    """Forget *broker*, which is away for good and holds no replica; its id is never given
    again.  Answer: `Done`, also if it was removed before."""

    request: int
    broker: BrokerId
