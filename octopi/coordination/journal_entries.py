"""The facts that a register writes into its journal.

The register's state is what these entries, applied in order, make of an empty one
(`octopi.coordination.cluster_state`).  Entries are facts, never commands: applying them
again after a restart decides nothing anew.
"""

from __future__ import annotations

import attrs

from octopi.identifiers import BrokerId, Epoch, Incarnation, PartitionId
from octopi.wire.messages import PartitionRecord, RegisterGeneration, TopicRecord


@attrs.frozen
class ClusterFormed:
    """The cluster has an id and a number of partitions."""

    cluster: str
    partition_count: int
    secret: str = ""
    """What the register seals its decisions with (`octopi.coordination.seals`); empty: as
    before."""


@attrs.frozen
class RegisterStarted:
    """The register was started; brokers know its lives apart."""

    life: RegisterGeneration


@attrs.frozen
class BrokerRegistered:
    """A broker joined, with this life and address."""

    broker: BrokerId
    incarnation: Incarnation
    nonce: str
    """Of this life."""
    address: str
    replaced: bool = False
    """Whether the broker came with another data directory than it was here with, and is still a
    replica that lost data in some partition: what it held there is gone for good."""


@attrs.frozen
class BrokerRemoved:
    """A broker is gone for good.  Its id stays taken: what it said may still be on its way."""

    broker: BrokerId


@attrs.frozen
class EpochAnnounced:
    """A partition's leader is being changed; the epoch is spent, whatever comes of it."""

    partition: PartitionId
    epoch: Epoch


@attrs.frozen
class PartitionDecided:
    """A partition has this leader, these replicas, this in-sync set."""

    record: PartitionRecord


@attrs.frozen
class TopicCreated:
    """A topic exists."""

    record: TopicRecord
    owner: str = ""
    """The subject of the token that it was created with; empty: there was none, or it is not known
    any more: a register that lost its disk learns of topics from brokers, who don't know it."""


@attrs.frozen
class TopicDeleted:
    """That creation of a topic is gone; brokers that held it still have to hear of it."""

    topic: str
    topic_id: str
    brokers: list[BrokerId]


@attrs.frozen
class OlderTopicFound:
    """A broker holds a creation of a topic that was deleted; it still has to hear of it."""

    topic: str
    topic_id: str
    broker: BrokerId


@attrs.frozen
class TopicRemoved:
    """A broker has removed its records of a deleted topic."""

    topic_id: str
    broker: BrokerId


Entry = (
    ClusterFormed
    | RegisterStarted
    | BrokerRegistered
    | BrokerRemoved
    | EpochAnnounced
    | PartitionDecided
    | TopicCreated
    | TopicDeleted
    | OlderTopicFound
    | TopicRemoved
)
