"""Brings generations of topics into force: has brokers make logs and seal others, and tells them.

`octopi.coordination.generations` says what comes when.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import trio

from octopi.coordination.controller import Controller
from octopi.coordination.decisions import GenerationDecision
from octopi.coordination.generations import (
    Advance,
    GenerationChange,
    GenerationEffect,
    MakeLogs,
    OrderSeal,
    under_way,
)
from octopi.environment import Environment
from octopi.errors import NotReadyError, RefusedError, Status, StorageError, UnknownTopicError
from octopi.generation_record import GenerationState
from octopi.identifiers import BrokerId, PartitionId, TopicId
from octopi.limits import SEAL_RETRY_S
from octopi.logger import get_logger
from octopi.model import PartitionRecord, TopicRecord
from octopi.roles.register.decision_log import DecisionLog
from octopi.roles.register.gathering import Gathering
from octopi.roles.register.member import Member

_log = get_logger(__name__)

_DONE: Final = frozenset({GenerationState.IN_FORCE, GenerationState.CANCELLED})


@attrs.define(eq=False)
class _Growing:
    """A generation that is being brought into force, and the tasks that do it."""

    growth: GenerationChange
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    tasks: trio.Nursery | None = None
    is_over: trio.Event = attrs.field(factory=trio.Event)
    """Set when the generation is in force or cancelled and the brokers that are connected know, or
    when this register decides nothing about it any more."""


class Generations:
    """The generations that one register brings into force."""

    def __init__(
        self,
        environment: Environment,
        controller: Controller,
        decisions: DecisionLog,
        gathering: Gathering,
        members: Mapping[BrokerId, Member],
        tasks: trio.Nursery,
    ) -> None:
        """*tasks*: the nursery of the tasks that go on even if the client that asked is gone."""
        self._clock = environment.clock
        self._controller = controller
        self._decisions = decisions
        self._gathering = gathering
        self._members = members
        self._tasks = tasks
        self._growing: dict[TopicId, _Growing] = {}

    # --- orders ------------------------------------------------------------------------------

    async def grow(self, name: str, count: int) -> TopicRecord:
        """Have a topic grow to *count* partitions, and wait until that is in force.  It goes on
        even if this is cancelled.

        Raises:
          OctopiError: see `GenerationDecisions.grow`; `NotReadyError` while gathering, if the
              generation is cancelled, or if this register can't say how it ended; `RefusedError`
              (NO_BROKER) if a broker with logs of the topic is away or of an earlier version.
        """
        self._gathering.require_learned()
        return await self._order(self._controller.generations.grow(name, count))

    async def move(self, name: str, partition: PartitionId) -> TopicRecord:
        """Have a topic of one partition go on in another *partition*: see `grow`.

        Raises:
          OctopiError: see `GenerationDecisions.move`, and `grow`.
        """
        self._gathering.require_learned()
        return await self._order(self._controller.generations.move(name, partition))

    async def _order(self, decision: GenerationDecision) -> TopicRecord:
        number = decision.topic.generations[-1].number
        self._check_holders(decision)
        self._decisions.persist(decision)
        growing = self._begin(decision.topic)
        await self._decisions.durable(decision)
        await growing.is_over.wait()
        await self._decisions.durable()
        topic = self._controller.topics.of_id(decision.topic.topic_id)
        match topic.generations[number - 1].state:
            case GenerationState.IN_FORCE:
                return topic
            case GenerationState.CANCELLED:
                raise NotReadyError(
                    f"topic {topic.topic} keeps its partitions: not all leaders of its logs "
                    "confirmed in time; `octopi-node partitions list` shows which are away"
                )
        raise NotReadyError("the register can't say any more whether the topic has grown")

    def _check_holders(self, decision: GenerationDecision) -> None:
        """Raise NO_BROKER if a broker that has or gets logs of the topic is away, or of a version
        without generations: as a leader it would take messages that belong elsewhere."""
        placed = {PartitionId(one.partition): one for one in decision.placed}
        records = [
            placed.get(one) or self._partitions[one] for one in decision.topic.log_partitions
        ]
        for broker in sorted({one for record in records for one in record.replicas}):
            member = self._members.get(broker)
            if member is None or member.is_closed or not member.knows_seals:
                raise RefusedError(
                    f"broker {broker} is away, or of an earlier version, and has logs of topic "
                    f"{decision.topic.topic}: `octopi-node brokers list` shows both",
                    Status.NO_BROKER,
                )

    def resume(self) -> None:
        """Go on with the generations that are under way by the journal, which may have been learned
        from brokers."""
        state = self._controller.state
        for name in sorted(state.growing):
            topic = state.topic(name)
            if topic is not None and topic.topic_id not in self._growing:
                self._begin(topic)

    def _begin(self, topic: TopicRecord) -> _Growing:
        growing = _Growing(GenerationChange(topic, self._clock.now()))
        self._growing[TopicId(topic.topic_id)] = growing
        self._tasks.start_soon(self._bring, growing)
        return growing

    # --- one generation ----------------------------------------------------------------------

    async def _bring(self, growing: _Growing) -> None:
        """Bring one generation into force, or cancel it.  What the journal could not take is tried
        again, from the journal's state on."""
        topic_id = growing.growth.topic_id
        try:
            while not await self._try(growing):
                await self._clock.sleep_until(self._clock.now() + SEAL_RETRY_S)
                topic = self._controller.state.topic_of_id(topic_id)
                if topic is None or under_way(topic) is None:
                    return
                growing.growth = GenerationChange(topic, self._clock.now())
                growing.scope = trio.CancelScope()
        finally:
            self._growing.pop(TopicId(topic_id), None)
            growing.is_over.set()

    async def _try(self, growing: _Growing) -> bool:
        """Bring it into force as long as the journal takes what is decided; return whether this
        register has nothing more to do."""
        growth, state = growing.growth, self._controller.state
        try:
            with growing.scope:
                await self._decisions.durable()
                async with trio.open_nursery() as nursery:
                    growing.tasks = nursery
                    self._perform(growing, growth.begin(growth.state, self._partitions))
                    while True:
                        now = self._clock.now()
                        await self._clock.sleep_until(min(growth.next_look, now + SEAL_RETRY_S))
                        self._look_at_partitions(growing)
                        self._perform(growing, growth.look(self._clock.now()))
        except* (NotReadyError, StorageError, UnknownTopicError) as errors:
            why = str(errors.exceptions[0])
            _log.info("a generation waits", topic_id=growth.topic_id, why=why)
        has_ended = self._decisions.failure is not None or state.handed_over is not None
        return growing.scope.cancelled_caught or has_ended

    @property
    def _partitions(self) -> Mapping[PartitionId, PartitionRecord]:
        return self._controller.state.partitions

    def _look_at_partitions(self, growing: _Growing) -> None:
        """Let the machine know in which epochs the partitions are now."""
        for partition in growing.growth.logs:
            effects = growing.growth.decided(self._partitions[partition])
            self._perform(growing, effects)

    def _perform(self, growing: _Growing, effects: list[GenerationEffect]) -> None:
        assert growing.tasks is not None
        growing.growth.check_invariants()
        for effect in effects:
            match effect:
                case MakeLogs():
                    growing.tasks.start_soon(self._make_logs, growing)
                case OrderSeal():
                    growing.tasks.start_soon(self._seal, growing, effect)
                case Advance(state, ends):
                    # At once: nothing else is decided between the last end and this.
                    decision = self._controller.generations.advance(
                        TopicId(growing.growth.topic_id), growing.growth.number, state, ends
                    )
                    self._decisions.persist(decision)
                    growing.tasks.start_soon(self._advanced, growing, decision, state)

    async def _advanced(
        self, growing: _Growing, decision: GenerationDecision, state: GenerationState
    ) -> None:
        """Go on when the next state is durable."""
        await self._decisions.durable(decision)
        topic = decision.topic
        _log.info(
            "generation",
            topic=topic.topic,
            generation=growing.growth.number,
            state=state.value,
            partitions=topic.generations[growing.growth.number - 1].partitions,
        )
        if state in _DONE:
            await self._tell(topic, self._holders(topic))
            growing.scope.cancel()
        else:
            self._perform(growing, growing.growth.begin(state, self._partitions))

    async def _make_logs(self, growing: _Growing) -> None:
        """Have brokers make the logs, those that lead first: followers need a leader that has the
        log.  Repeat that until all leaders have confirmed."""
        while True:
            topic = self._controller.topics.of_id(growing.growth.topic_id)
            records = [self._partitions[one] for one in topic.log_partitions]
            leaders = {one.leader for one in records}
            if await self._tell(topic, leaders):
                await self._tell(topic, self._holders(topic) - leaders)
                self._perform(growing, growing.growth.logs_made())
                return
            await self._clock.sleep_until(self._clock.now() + SEAL_RETRY_S)

    def _holders(self, topic: TopicRecord) -> set[BrokerId]:
        records = [self._partitions[one] for one in topic.log_partitions]
        return {one for record in records for one in record.replicas}

    async def _tell(self, topic: TopicRecord, brokers: set[BrokerId]) -> bool:
        """Tell *brokers* the record of a topic, as far as they are members; return whether all of
        them are, and confirmed.  The others are told when they join."""
        confirmed = True

        async def tell(member: Member) -> None:
            nonlocal confirmed
            confirmed &= await member.install_topics([topic])

        async with trio.open_nursery() as nursery:
            for broker in sorted(brokers):
                if (member := self._members.get(broker)) is not None:
                    nursery.start_soon(tell, member)
                else:
                    confirmed = False
        return confirmed

    async def _seal(self, growing: _Growing, order: OrderSeal) -> None:
        """Have the leader of a partition seal its log."""
        growth, record = growing.growth, self._partitions[order.partition]
        member = self._members.get(BrokerId(record.leader))
        sealed = None
        if member is not None and record.epoch == order.epoch:
            sealed = await member.seal_topic(
                TopicId(growth.topic_id), order.partition, order.epoch, growth.number
            )
        self._look_at_partitions(growing)
        if sealed is not None and sealed.epoch == order.epoch:
            self._perform(growing, growth.sealed(order.partition, sealed))
        else:
            now = self._clock.now()
            self._perform(growing, growth.not_sealed(order.partition, order.epoch, now))
