"""What worlds of relays are made of."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from octopi.identifiers import (
    BrokerId,
    Incarnation,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence as RecordSequence,
    TopicId,
)
from octopi.record import BatchBuilder
from octopi.relay.adoption import EpochAdoption
from octopi.relay.digest import Digest
from octopi.relay.incarnations import RelayLife
from octopi.relay.member import RelayMember
from octopi.relay.message_ids import MessageId
from octopi.relay.messages import (
    RelayStatus,
)
from octopi.relay.receiver import (
    NotStored,
    RelayReceipt,
    RelayReceiver,
)

PARTITION = PartitionId(3)
TOPICS = [TopicId(f"{number:016x}") for number in range(1, 5)]


class BrokenRule(AssertionError):
    """The machines did what they must not do."""


@attrs.define
class RelayBroker:
    """One broker: a process, and the two numbers on its disk."""

    number: BrokerId
    incarnation: int = 1
    generation: int = 0
    member: WatchedMember | None = None
    """None: it is no member of the set."""
    receiver: RelayReceiver = attrs.field(default=None)
    alive: bool = True
    paused_until: float = 0.0
    skew_s: float = 0.0
    delivered: dict[TopicId, Offset] = attrs.field(factory=dict)
    status: RelayStatus = RelayStatus.JOINING

    @property
    def life(self) -> RelayLife:
        return self.member.life if self.member else RelayLife(Incarnation(self.incarnation))


@attrs.define
class Producing:
    """What a producer wants to have stored: it tries until it is acknowledged."""

    number: int
    topic: TopicId
    records: bytes
    count: int
    attempts: int = 0
    receipt: RelayReceipt | None = None
    refused: list[NotStored] = attrs.field(factory=list)


def produced(producer: int, values: Sequence[bytes], first: int = 0) -> bytes:
    """Records of one producer, from sequence *first* on."""
    builder = BatchBuilder()
    for value in values:
        builder.add(value)
    identity = ProducerId(producer.to_bytes(16, "big"))
    return builder.encode(identity, ProducerEpoch(0), RecordSequence(first))


class WatchedMember(RelayMember):
    """A member that notes what it does."""

    settled: list[EpochAdoption]
    lost_memory: bool = False
    """Whether it has found that its memory is wrong."""

    def _settle(self, adoption: EpochAdoption, now: float) -> None:
        super()._settle(adoption, now)
        self.settled.append(adoption)

    def _empty(self, *, keeps: bool) -> None:
        super()._empty(keeps=keeps)
        if self.relic is None:
            self.lost_memory = True


@attrs.frozen
class Told:
    """A transaction that was delivered, or acknowledged."""

    id: MessageId | None
    digest: Digest | None
    records: bytes | None

    def differs(self, other: Told) -> bool:
        """Whether it can't be the same one."""
        pairs = (
            (self.id, other.id),
            (self.digest, other.digest),
            (self.records, other.records),
        )
        return any(one is not None and two is not None and one != two for one, two in pairs)
