"""The facts that a register writes into its journal.

The register's state is what these entries, applied in order, make of an empty one
(`octopi.coordination.cluster_state`).  Entries are facts, never commands: applying them
again after a restart decides nothing anew.
"""

from __future__ import annotations

import attrs

from octopi.identifiers import BrokerId, Epoch, Incarnation, PartitionId
from octopi.wire.messages import (
    PartitionRecord,
    RegisterGeneration,
    RelaySetRecord,
    TopicRecord,
)


@attrs.frozen
class ClusterFormed:
    """The cluster has an id and a number of partitions."""

    cluster: str
    partition_count: int
    secret: str = ""
    """The secret of the register's seals (`octopi.coordination.seals`); empty: unchanged."""


@attrs.frozen
class RegisterStarted:
    """The register was started, with this generation and nonce."""

    life: RegisterGeneration


@attrs.frozen
class BrokerRegistered:
    """A broker joined, with this incarnation and address."""

    broker: BrokerId
    incarnation: Incarnation
    nonce: str
    """The nonce of this incarnation."""
    address: str
    replaced: bool = False
    """Whether the broker joined with another data directory than before and is still listed as a
    replica that lost data in some partition: what it held there is lost."""
    host: str = ""
    """The label of its machine; empty: it is the only broker there."""


@attrs.frozen
class BrokerRemoved:
    """A broker was removed for good.  Its id is never given again, because messages that it sent
    may still arrive."""

    broker: BrokerId


@attrs.frozen
class EpochAnnounced:
    """An election of a partition has begun; the epoch is spent, whether or not it is decided."""

    partition: PartitionId
    epoch: Epoch


@attrs.frozen
class PartitionDecided:
    """The record of a partition was decided: its leader, replicas and in-sync set."""

    record: PartitionRecord


@attrs.frozen
class TopicCreated:
    """A topic was created."""

    record: TopicRecord
    owner: str = ""
    """The subject of the token with which the topic was created.  Empty if there was no token, or
    if the register lost its disk and learned of the topic from brokers, which don't know the
    subject."""


@attrs.frozen
class TopicAltered:
    """The options of a topic were altered."""

    record: TopicRecord
    """The topic with its new options."""


@attrs.frozen
class TopicDeleted:
    """The topic with this id was deleted; the brokers that hold it have not confirmed that yet."""

    topic: str
    topic_id: str
    brokers: list[BrokerId]


@attrs.frozen
class OlderTopicFound:
    """A broker holds an earlier topic of that name, which was deleted; the broker has not confirmed
    that yet."""

    topic: str
    topic_id: str
    broker: BrokerId


@attrs.frozen
class TopicRemoved:
    """A broker has removed its records of a deleted topic."""

    topic_id: str
    broker: BrokerId


@attrs.frozen
class RelaySetDecided:
    """The members of a relay partition were decided, or have brought that into force."""

    record: RelaySetRecord


@attrs.frozen
class HandOverAnnounced:
    """The brokers are told next that the register is about to hand the cluster over to them."""

    attempt: str
    """Random; each try has its own."""


@attrs.frozen
class HandedOver:
    """The cluster has no register any more.  No entry follows, ever: its brokers decide from what
    the entries before say, and from *record*."""

    record: bytes
    """The first record of the cluster without a register (`octopi.ring.cluster_record`)."""


Entry = (
    ClusterFormed
    | RegisterStarted
    | BrokerRegistered
    | BrokerRemoved
    | EpochAnnounced
    | PartitionDecided
    | TopicCreated
    | TopicAltered
    | TopicDeleted
    | OlderTopicFound
    | TopicRemoved
    | RelaySetDecided
    | HandOverAnnounced
    | HandedOver
)
