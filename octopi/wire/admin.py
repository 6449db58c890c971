"""Messages with which an operator changes a cluster: its topics, partitions, replicas and
brokers."""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost, MayBeMissing
from octopi.identifiers import BrokerId, Epoch, PartitionId
from octopi.limits import ASK_TIMEOUT_S, DRAIN_TIMEOUT_S, MOVE_TIMEOUT_S, RELAYS_MAX
from octopi.model import OPTION_COUNT, OptionName, TopicOptions, Verb
from octopi.wire.common import Brokers, Text
from octopi.wire.declarations import (
    CLIENT_TO_DECIDER,
    TO_CLIENT,
    answer,
    on_its_topic,
    on_the_cluster,
    request,
)


@request(
    "alter_topic",
    CLIENT_TO_DECIDER,
    needs=on_its_topic(Verb.ADMIN),
    asked_s=ASK_TIMEOUT_S,
    since=2,
)
@attrs.frozen
class AlterTopic:
    """Change options of a topic.  Answer: `octopi.wire.client.TopicDescription`, when the change is
    in force on all brokers that are connected to the register."""

    request: int
    topic: Text
    names: Annotated[list[OptionName], AtMost(OPTION_COUNT)]
    """The options to change; the others stay as they are."""
    options: TopicOptions
    """Their new values; the values of other options are ignored."""


@request(
    "drain_broker",
    CLIENT_TO_DECIDER,
    needs=on_the_cluster(Verb.ADMIN),
    asked_s=DRAIN_TIMEOUT_S,
)
@attrs.frozen
class DrainBroker:
    """Have other in-sync replicas lead the partitions that *broker* leads, and give it no
    leadership until it joins again.  Answer: `Done`, when it leads no partition."""

    request: int
    broker: BrokerId


@request(
    "add_partitions",
    CLIENT_TO_DECIDER,
    needs=on_the_cluster(Verb.ADMIN),
    asked_s=ASK_TIMEOUT_S,
)
@attrs.frozen
class AddPartitions:
    """Add *count* partitions, for topics that are created from now on.  Answer: `Done`."""

    request: int
    count: int


@request(
    "move_replica",
    CLIENT_TO_DECIDER,
    needs=on_the_cluster(Verb.ADMIN),
    asked_s=MOVE_TIMEOUT_S,
)
@attrs.frozen
class MoveReplica:
    """Have the broker *joining* hold a replica instead of the broker *leaving*.  Answer: `Done`,
    when the new replica is in sync and the old one is no replica any more."""

    request: int
    partition: PartitionId
    leaving: BrokerId
    joining: BrokerId


@request(
    "set_relays",
    CLIENT_TO_DECIDER,
    needs=on_the_cluster(Verb.ADMIN),
    asked_s=MOVE_TIMEOUT_S,
    since=2,
)
@attrs.frozen
class SetRelays:
    """Give a relay partition these members, of which one after the other is added or removed; no
    members: leave it to the register again which ones it has.  Answer: `Done`, when the members
    have brought that into force."""

    request: int
    partition: PartitionId
    members: Annotated[list[BrokerId], AtMost(RELAYS_MAX)]


@attrs.frozen
class ReplicaHolding:
    """What one replica of a partition without a leader holds."""

    broker: BrokerId
    live: bool
    was_in_sync: bool
    """Whether it was in sync last, so that it has the records that were flushed before they were
    acknowledged."""
    answered: bool
    """Whether it has reported its logs; if not, all following fields are false or 0."""
    sound: bool
    """Whether it still has everything that it had on its device."""
    log_epoch: Epoch
    """The newest epoch in which it led, or agreed with the leader on every log."""
    log_count: int
    held_bytes: int
    """The sum of the ends of its logs."""
    missing_bytes: int
    """How much it lacks of what any answering replica holds, or is known to have held; the sum over
    all logs."""


@attrs.frozen
class LostRange:
    """Records of one log that would be lost."""

    topic: Text
    kept_end: int
    """The end of the log that the candidate has."""
    known_end: int
    """The greatest end that the log is known to have had."""


@request(
    "recover_partition",
    CLIENT_TO_DECIDER,
    needs=on_the_cluster(Verb.ADMIN),
    asked_s=ASK_TIMEOUT_S,
)
@attrs.frozen
class RecoverPartition:
    """Report what the replicas of a partition without a leader hold.  With `accept_loss`, have the
    best of the answering replicas lead, although acknowledged records may be lost.  Refused while
    an in-sync replica runs, or while the partition will get a leader without this.
    Answer: `PartitionRecovery`."""

    request: int
    partition: PartitionId
    accept_loss: bool
    empty_on: Annotated[BrokerId | None, MayBeMissing()] = None
    """The broker on which the partition starts empty, as its only replica.  Refused while any
    broker with a replica runs."""


@answer("partition_recovery", TO_CLIENT)
@attrs.frozen
class PartitionRecovery:
    """Answer to `RecoverPartition`: the state of the partition.  If a loss was accepted, `replicas`
    and the fields behind it have the state before."""

    request: int
    partition: PartitionId
    leader: BrokerId | None
    """The broker that leads now; None: no broker does."""
    epoch: Epoch
    recovered: bool
    """Whether the leader was chosen by this request."""
    candidate: int | None
    """The broker that leads, or would lead with `accept_loss`; None: there is none."""
    waits_for: Brokers
    """The brokers that must come back before a leader is chosen without `accept_loss`."""
    replicas: Annotated[list[ReplicaHolding], AtMost(1_000)]
    lost: Annotated[list[LostRange], AtMost(1_000)]
    """The records that are known to be lost if the candidate leads, of the first logs."""
    lost_log_count: int
    """The number of all logs with such a loss."""
    emptied: Annotated[list[Text], AtMost(1_000), MayBeMissing()] = attrs.field(factory=list)
    """If there is no candidate: the first of the topics that lose all records in the partition if
    it starts empty."""
    emptied_count: Annotated[int, MayBeMissing()] = 0
    """The number of all such topics."""


@request(
    "remove_broker",
    CLIENT_TO_DECIDER,
    needs=on_the_cluster(Verb.ADMIN),
    asked_s=ASK_TIMEOUT_S,
)
@attrs.frozen
class RemoveBroker:
    """Remove *broker*, which is away for good and holds no replica, from the cluster.  Its id is
    never given again.  Answer: `Done`, also if it was removed before."""

    request: int
    broker: BrokerId
