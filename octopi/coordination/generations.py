"""Generations of a topic: how a topic gets other partitions while it is in use.

A generation is a numbered list of partitions; a key chooses one by its index in the list of the
generation that is in force.  No record is copied: the next generation gets logs that are empty, or
goes on in logs that the topic has.  What keeps the order of a key is that its messages in the next
generation begin only where those in the generation before have ended for good.  For that each log
of the generation in force is *sealed*: from then on it takes only messages of the next generation,
which no client knows yet.

==========  =======================================================================================
state       what happens
==========  =======================================================================================
proposed    brokers make the logs that are new
sealing     the leader of each log of the generation in force commits the seal
            (`octopi.replication.generation_seals`), and when all that the log holds is committed,
            too, it reports where the log ends
in force    all ends are known and in the topic's record: messages of the generation are taken
cancelled   time was up; the brokers take messages of the generation that is in force again
==========  =======================================================================================

Each state is a `TopicAltered` in the journal, and brokers and clients are told afterwards.  The
ends are not stored before the generation is in force: a register that was restarted orders the
seals again, and gets the same ends.  An end counts while the partition is in the epoch in which it
was reported.  A later leader that was in sync holds the seal and the same end; one that lost
records may hold neither.

The rules are those of a model that was searched completely: with any of them left out, some order
of events stores a message twice or hands out a key's messages in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from octopi.errors import RefusedError, Status
from octopi.generation_record import UNDER_WAY, Generation, GenerationState
from octopi.identifiers import Epoch, Offset, PartitionId
from octopi.limits import (
    GENERATED_PARTITIONS_MAX,
    GENERATIONS_MAX,
    GROW_TIMEOUT_S,
    PARTITIONS_PER_TOPIC_MAX,
    SEAL_RETRY_S,
)
from octopi.model import PartitionRecord, TopicRecord

# --- the record of a topic -------------------------------------------------------------------


def in_force(topic: TopicRecord) -> Generation:
    """The generation whose partitions take the messages of *topic*."""
    for one in reversed(topic.generations):
        if one.state == GenerationState.IN_FORCE:
            return one
    return Generation(1, list(topic.partitions), GenerationState.IN_FORCE)


def under_way(topic: TopicRecord) -> Generation | None:
    """The generation that is being brought into force; None: there is none."""
    newest = topic.generations[-1] if topic.generations else None
    return newest if newest is not None and newest.state in UNDER_WAY else None


def check_kind(topic: TopicRecord) -> None:
    """Check whether *topic* can get another generation now, on whatever partitions.

    Raises:
      RefusedError: WRONG_KIND, INVALID_OPTION; NOT_READY while another one is under way.
    """
    if topic.is_relay:
        raise RefusedError(
            f"topic {topic.topic} is in memory: it keeps its one partition", Status.WRONG_KIND
        )
    if topic.stream is not None:
        raise RefusedError(
            f"topic {topic.topic} is a stream over HTTP: it keeps its one partition",
            Status.INVALID_OPTION,
        )
    if (other := under_way(topic)) is not None:
        raise RefusedError(
            f"topic {topic.topic} is getting other partitions already: {other.partitions}",
            Status.NOT_READY,
        )


def proposed(topic: TopicRecord, partitions: Sequence[PartitionId]) -> TopicRecord:
    """*topic* with a next generation of these *partitions*, which brokers have to make.

    Raises:
      RefusedError: see `check_kind`; INVALID_OPTION, TOO_MANY.
    """
    check_kind(topic)
    now = in_force(topic).partitions
    if len(set(partitions)) < len(partitions) or not partitions or list(partitions) == now:
        raise RefusedError(
            f"{list(partitions)} are no other partitions than {now}, or not all different",
            Status.INVALID_OPTION,
        )
    used = {one for old in topic.generations if old.sealed for one in old.partitions} - {*now}
    if taken := used.intersection(partitions):
        raise RefusedError(
            f"partition {min(taken)} has a sealed log of topic {topic.topic}: choose another one",
            Status.INVALID_OPTION,
        )
    known = _all(topic)
    held = sum(len(one.partitions) for one in known) + len(partitions)
    if (
        len(known) >= GENERATIONS_MAX
        or held > GENERATED_PARTITIONS_MAX
        or len(partitions) > PARTITIONS_PER_TOPIC_MAX
    ):
        raise RefusedError(
            f"a topic has at most {GENERATIONS_MAX} generations, with at most "
            f"{GENERATED_PARTITIONS_MAX} partitions in all of them together",
            Status.TOO_MANY,
        )
    following = Generation(len(known) + 1, list(partitions), GenerationState.PROPOSED)
    return attrs.evolve(topic, generations=[*known, following])


def sealing(topic: TopicRecord) -> TopicRecord:
    """*topic* whose generation under way has all its logs: the seals may be ordered."""
    return _with_newest(topic, GenerationState.SEALING)


def cancelled(topic: TopicRecord) -> TopicRecord:
    """*topic* whose generation under way never comes into force."""
    return _with_newest(topic, GenerationState.CANCELLED)


def brought_into_force(topic: TopicRecord, ends: Mapping[PartitionId, Offset]) -> TopicRecord:
    """*topic* whose generation under way is in force, and whose logs were sealed at *ends*."""
    old, new = in_force(topic), under_way(topic)
    assert new is not None, "no generation is under way"
    assert new.state == GenerationState.SEALING, "its logs were not sealed"
    sealed = attrs.evolve(old, sealed=[ends[one] for one in old.partitions])
    begun = attrs.evolve(new, state=GenerationState.IN_FORCE)
    known = [sealed if one.number == old.number else one for one in topic.generations[:-1]]
    return attrs.evolve(topic, partitions=list(new.partitions), generations=[*known, begun])


def _all(topic: TopicRecord) -> list[Generation]:
    return list(topic.generations) or [in_force(topic)]


def _with_newest(topic: TopicRecord, state: GenerationState) -> TopicRecord:
    newest = under_way(topic)
    assert newest is not None, "no generation is under way"
    return attrs.evolve(
        topic, generations=[*topic.generations[:-1], attrs.evolve(newest, state=state)]
    )


# --- bringing a generation into force --------------------------------------------------------


@attrs.frozen
class MakeLogs:
    """Have brokers make the logs of the generation; then call `GenerationChange.logs_made`."""


@attrs.frozen
class OrderSeal:
    """Have the leader of a partition seal its log; then call `GenerationChange.sealed` or
    `GenerationChange.not_sealed`."""

    partition: PartitionId
    epoch: Epoch
    """The epoch that is led."""


@attrs.frozen
class Advance:
    """Decide that the generation is in another state now; then call `GenerationChange.begin`, or
    forget this change."""

    state: GenerationState
    ends: Mapping[PartitionId, SealedLog] = attrs.field(factory=dict)
    """Of each log of the generation in force, if the next one comes into force."""


@attrs.frozen
class SealedLog:
    """What the leader of a log reported."""

    epoch: Epoch
    """The epoch that it led."""
    end: Offset
    """All before it is committed, and nothing of the sealed generation comes behind it."""


GenerationEffect = MakeLogs | OrderSeal | Advance


class GenerationChange:
    """Brings one generation of one topic into force, at the register that is active.

    Events are method calls, which return effects.  Nothing in here is stored: another register, or
    this one after a restart, begins with the topic's record again.

    Invariants: what counts as sealed was reported in the epoch that the partition is in; at most
    one order for a partition is without an answer in an epoch.
    """

    def __init__(self, topic: TopicRecord, now: float) -> None:
        """*topic*: its record, with a generation under way.  *now*: monotonic (s)."""
        generation = under_way(topic)
        assert generation is not None, "no generation is under way"
        self.topic_id = topic.topic_id
        self.number = generation.number
        self.state = GenerationState(generation.state)
        self.deadline = now + GROW_TIMEOUT_S
        """When it is cancelled (monotonic, s)."""
        self.logs = tuple(in_force(topic).partitions)
        """The partitions whose logs are sealed."""
        self._epochs: dict[PartitionId, Epoch] = {}
        self._sealed: dict[PartitionId, SealedLog] = {}
        self._ordered: dict[PartitionId, Epoch] = {}
        """The epochs in which an order is without an answer."""
        self._retry_at: dict[PartitionId, float] = {}
        self._is_decided = False
        """Whether the next state is being decided."""

    def begin(
        self, state: GenerationState, partitions: Mapping[PartitionId, PartitionRecord]
    ) -> list[GenerationEffect]:
        """The generation is in *state* by the journal, and *partitions* are the records in force:
        at first, and after an `Advance`."""
        self.state, self._is_decided = state, False
        if state == GenerationState.PROPOSED:
            return [MakeLogs()]
        if state != GenerationState.SEALING:
            return []
        effects: list[GenerationEffect] = []
        for one in self.logs:
            effects += self.decided(partitions[one])
        return effects

    def logs_made(self) -> list[GenerationEffect]:
        """Brokers have all logs of the generation."""
        if self.state != GenerationState.PROPOSED or self._is_decided:
            return []
        return self._advance(Advance(GenerationState.SEALING))

    def decided(self, record: PartitionRecord) -> list[GenerationEffect]:
        """A partition has this *record* now.  An end of an older epoch counts no more."""
        partition, epoch = PartitionId(record.partition), Epoch(record.epoch)
        if self.state != GenerationState.SEALING or partition not in self.logs:
            return []
        if self._epochs.get(partition) == epoch:
            return []
        self._epochs[partition] = epoch
        self._sealed.pop(partition, None)
        return self._order(partition)

    def sealed(self, partition: PartitionId, log: SealedLog) -> list[GenerationEffect]:
        """The leader has sealed the log of *partition*, and reports this."""
        if self._ordered.get(partition) == log.epoch:
            del self._ordered[partition]
        if self.state != GenerationState.SEALING or self._epochs.get(partition) != log.epoch:
            return []  # a leader that was replaced: the present one is asked, too
        self._retry_at.pop(partition, None)
        self._sealed[partition] = log
        if self._is_decided or self._sealed.keys() != set(self.logs):
            return []
        return self._advance(Advance(GenerationState.IN_FORCE, dict(self._sealed)))

    def not_sealed(
        self, partition: PartitionId, epoch: Epoch, now: float
    ) -> list[GenerationEffect]:
        """The order for *partition* in *epoch* was not carried out, or has no answer."""
        if self._ordered.get(partition) == epoch:
            del self._ordered[partition]
            self._retry_at[partition] = now + SEAL_RETRY_S
        return []

    def look(self, now: float) -> list[GenerationEffect]:
        """It is *now*: order again what was not carried out, or give up.  Call this at `next_look`,
        or some time after that."""
        if self._is_decided:
            return []
        if now >= self.deadline:
            return self._advance(Advance(GenerationState.CANCELLED))
        effects: list[GenerationEffect] = []
        for partition in [one for one, at in self._retry_at.items() if at <= now]:
            effects += self._order(partition)
        return effects

    @property
    def next_look(self) -> float:
        """When to call `look` (monotonic, s)."""
        return min([self.deadline, *self._retry_at.values()])

    def _order(self, partition: PartitionId) -> list[GenerationEffect]:
        self._retry_at.pop(partition, None)
        epoch = self._epochs[partition]
        if partition in self._sealed or self._ordered.get(partition) == epoch:
            return []
        self._ordered[partition] = epoch
        return [OrderSeal(partition, epoch)]

    def _advance(self, effect: Advance) -> list[GenerationEffect]:
        self._is_decided = True
        return [effect]

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        for partition, log in self._sealed.items():
            assert log.epoch == self._epochs[partition]
            assert partition not in self._ordered
        assert self._retry_at.keys().isdisjoint(self._sealed)
