"""A topic that gets other partitions while it is used: a register, replicas, producers and a
consumer, with failures between any two steps.

The register's side is the code: `GenerationChange`, `GenerationDecisions` and the journal.
Replicas, clients and the network are a few lists.  Key 0 stays in partition 0, key 1 moves to
partition 1.  A *variant* leaves out one rule:

=====================  ============================================================================
no_gate                the consumer begins with a log before it has read the sealed ones
sealed_takes_old       a sealed log takes messages of the generation before
only_leader_told       a seal counts when only the leader has it
no_fence               the next generation is in force before any log is sealed
fence_before_commit    the leader reports an end before all of that is committed
route_anew_at_once     a producer sends elsewhere what it does not know to be refused
=====================  ============================================================================
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Final

import attrs

from octopi.coordination.controller import Controller
from octopi.coordination.generation_decisions import GenerationDecisions
from octopi.coordination.generations import (
    Advance,
    GenerationChange,
    GenerationEffect,
    MakeLogs,
    OrderSeal,
    SealedLog,
    in_force,
    under_way,
)
from octopi.coordination.journal_entries import PartitionDecided
from octopi.errors import NotReadyError
from octopi.generation_record import GenerationState
from octopi.identifiers import BrokerId, Epoch, Offset, PartitionId, TopicId
from octopi.limits import GROW_TIMEOUT_S
from octopi.model import PartitionRecord, TopicOptions, TopicRecord
from octopi.wire.messages import Inventory
from tests.coordination.joins import REGISTER, SECRET, join
from tests.coordination.journaled import JournaledController

VARIANTS: Final = (
    "no_gate",
    "sealed_takes_old",
    "only_leader_told",
    "no_fence",
    "fence_before_commit",
    "route_anew_at_once",
)
MESSAGES: Final = 4
"""Of each key."""
Message = tuple[int, int]
"""(key, number)."""


class ViolationError(AssertionError):
    """The order of a key is broken, or a message is lost or doubled."""


@attrs.define
class Replica:
    """One log of the topic, and its seal, on one broker."""

    log: list[Message] = attrs.field(factory=list)
    seal: int = 0


@attrs.define
class Log:
    """One log of the topic, on three brokers, all in sync."""

    epoch: Epoch
    leader: BrokerId
    replicas: dict[BrokerId, Replica]
    cancelled: set[int] = attrs.field(factory=set)

    @property
    def led(self) -> Replica:
        return self.replicas[self.leader]

    @property
    def committed(self) -> int:
        return min(len(one.log) for one in self.replicas.values())


@attrs.define
class Producer:
    """The producer of one key."""

    number: int = 0
    """Of the message to send next."""
    generation: int = 1
    """The generation that it goes by."""
    asked: bool = False
    """Whether its message may be stored somewhere without a receipt."""


def _replicate(log: Log, replica: Replica) -> None:
    replica.log.append(log.led.log[len(replica.log)])


class World:
    """One run.  `step` lets something happen; `finish` lets all that has to happen do so."""

    def __init__(self, seed: int, *variants: str) -> None:
        self.random = random.Random(seed)
        self.variants = frozenset(variants)
        self.now = 0.0
        self.register = JournaledController(Controller(2, 3))
        controller = self.register.controller
        self.register.persist(controller.form("c1" * 8, REGISTER.nonce, 1, secret=SECRET))
        for broker in (1, 2, 3):
            admission = controller.admit(join(broker, cluster=""), [Inventory([], [])])
            self.register.persist(admission)
            controller.admitted(admission)
        created = controller.topics.create(
            "orders", "1" * 16, partitions=[PartitionId(0)], options=TopicOptions()
        )
        self.register.persist(created)
        self.decisions = GenerationDecisions(controller.state, controller.topics)
        self.growth: GenerationChange | None = None
        self.orders: list[tuple[OrderSeal, int]] = []
        """On their way to a leader, with the generation."""
        self.reports: list[tuple[PartitionId, SealedLog, int]] = []
        """On their way to the register."""
        self.logs: dict[int, Log] = {}
        self._make_log(0)
        self.producers = [Producer(), Producer()]
        self.position: dict[int, int] = {}
        self.read: list[Message] = []
        self.failures = 3
        self.later_failures = 3
        """Changes of leaders once a later generation is in force."""
        self.growths = 3

    # --- what is there -----------------------------------------------------------------------

    @property
    def topic(self) -> TopicRecord:
        topic = self.register.controller.state.topic("orders")
        assert topic is not None
        return topic

    def _make_log(self, partition: int) -> None:
        record = self.register.controller.state.partitions[PartitionId(partition)]
        replicas = {BrokerId(one): Replica() for one in record.replicas}
        self.logs[partition] = Log(Epoch(record.epoch), BrokerId(record.leader), replicas)

    def _place(self, key: int, generation: int) -> int:
        """Where a key goes in a generation."""
        known = self.topic.generations
        partitions = known[generation - 1].partitions if known else self.topic.partitions
        return partitions[key % len(partitions)]

    # --- what can happen ---------------------------------------------------------------------

    def step(self) -> None:
        """Let one thing happen, then look at what must hold."""
        actions = self._actions(fails=True)
        if actions:
            self.random.choice(actions)()
        self.check()

    def finish(self) -> None:
        """Let everything happen that has to, without failures; then all has been read."""
        for _ in range(3_000):
            actions = self._actions(fails=False)
            if not actions:
                break
            self.random.choice(actions)()
            self.check()
        if len(self.read) != 2 * MESSAGES:
            raise ViolationError(f"lost, or stuck: {self.read}")

    def _actions(self, *, fails: bool) -> list[Callable[[], None]]:
        actions: list[Callable[[], None]] = []
        if fails:
            if self.growths and under_way(self.topic) is None:
                actions.append(self._propose)
            if self.failures:
                actions += [self._restart_register, self._fail_over, self._time_out]
            if self.later_failures and in_force(self.topic).number > 1:
                actions += [self._fail_over_later] * 3
        if self.growth is not None and self.growth.next_look < self.growth.deadline:
            actions.append(self._look)
        if self.growth is not None and self.growth.state == GenerationState.PROPOSED:
            actions.append(self._logs_made)
        if self.orders:
            actions.append(self._deliver_order)
        if self.reports:
            actions.append(self._deliver_report)
        for partition, log in self.logs.items():
            for broker, replica in log.replicas.items():
                if len(replica.log) < len(log.led.log):
                    actions.append(partial(_replicate, log, replica))
                is_told = broker == log.leader or "only_leader_told" not in self.variants
                if replica.seal < log.led.seal and is_told:
                    actions.append(partial(setattr, replica, "seal", log.led.seal))
            if self._reportable(partition, log):
                actions.append(partial(self._report, partition))
            if cancelled := self._cancelled() - log.cancelled:
                actions.append(partial(log.cancelled.update, cancelled))
            if self._readable(partition, log):
                actions.append(partial(self._read, partition))
        for key, producer in enumerate(self.producers):
            if producer.number < MESSAGES:
                actions.append(partial(self._produce, key))
        return actions

    # --- the register ------------------------------------------------------------------------

    def _propose(self) -> None:
        self.growths -= 1
        now = in_force(self.topic).partitions
        if len(now) == 1:
            self.register.persist(self.decisions.grow("orders", 2))
            self._begin()

    def _begin(self) -> None:
        self.growth = GenerationChange(self.topic, self.now)
        self._perform(self.growth.begin(self.growth.state, self._records))

    @property
    def _records(self) -> dict[PartitionId, PartitionRecord]:
        return self.register.controller.state.partitions

    def _perform(self, effects: list[GenerationEffect]) -> None:
        growth = self.growth
        assert growth is not None
        growth.check_invariants()
        for effect in effects:
            match effect:
                case MakeLogs():
                    pass  # `_logs_made` may come next
                case OrderSeal():
                    self.orders.append((effect, growth.number))
                case Advance(state, ends):
                    self._advance(growth, state, ends)

    def _advance(
        self,
        growth: GenerationChange,
        state: GenerationState,
        ends: Mapping[PartitionId, SealedLog],
    ) -> None:
        try:
            decision = self.decisions.advance(TopicId(growth.topic_id), growth.number, state, ends)
        except NotReadyError:
            if self.variants:
                return
            raise
        self.register.persist(decision)
        if state in {GenerationState.IN_FORCE, GenerationState.CANCELLED}:
            self.growth = None
            self.orders.clear()
            return
        if "no_fence" in self.variants:
            partitions = in_force(self.topic).partitions
            zero = {one: SealedLog(self.logs[one].epoch, Offset(0)) for one in partitions}
            self._advance(growth, GenerationState.IN_FORCE, zero)
            return
        self._perform(growth.begin(state, self._records))

    def _logs_made(self) -> None:
        assert self.growth is not None
        for partition in self.topic.log_partitions:
            if partition not in self.logs:
                self._make_log(partition)
        self._perform(self.growth.logs_made())

    def _look(self) -> None:
        assert self.growth is not None
        self.now = max(self.now, self.growth.next_look)
        self._perform(self.growth.look(self.now))

    def _time_out(self) -> None:
        self.failures -= 1
        self.now += GROW_TIMEOUT_S
        if self.growth is not None:
            self._perform(self.growth.look(self.now))

    def _restart_register(self) -> None:
        self.failures -= 1
        self.orders.clear()
        if under_way(self.topic) is not None:
            self._begin()

    def _deliver_report(self) -> None:
        partition, sealed, number = self.reports.pop(self.random.randrange(len(self.reports)))
        if self.growth is not None and self.growth.number == number:
            self._perform(self.growth.sealed(partition, sealed))

    def _fail_over_later(self) -> None:
        self.later_failures -= 1
        self.failures += 1
        self._fail_over()

    def _fail_over(self) -> None:
        self.failures -= 1
        partition = self.random.choice(list(self.logs))
        log = self.logs[partition]
        log.leader = self.random.choice([one for one in log.replicas if one != log.leader])
        for one in log.replicas.values():
            kept = len(log.led.log)
            one.log, one.seal = one.log[:kept], min(one.seal, log.led.seal)
        records = self.register.controller.state.partitions
        before = records[PartitionId(partition)]
        log.epoch = Epoch(before.epoch + 1)
        after = attrs.evolve(before, epoch=log.epoch, version=0, leader=log.leader)
        self.register.record([PartitionDecided(after)])
        if self.growth is not None:
            self._perform(self.growth.decided(after))

    # --- leaders -----------------------------------------------------------------------------

    def _cancelled(self) -> set[int]:
        return {
            one.number for one in self.topic.generations if one.state == GenerationState.CANCELLED
        }

    def _deliver_order(self) -> None:
        order, number = self.orders.pop(self.random.randrange(len(self.orders)))
        log = self.logs[order.partition]
        is_lost = self.failures > 0 and self.random.random() < 0.2
        if log.epoch == order.epoch and not is_lost and number not in log.cancelled:
            log.led.seal = max(log.led.seal, number)
        if self.growth is not None and self.growth.number == number:
            # The answer never comes; the report may.
            self._perform(self.growth.not_sealed(order.partition, order.epoch, self.now))

    def _reportable(self, partition: int, log: Log) -> bool:
        newest = under_way(self.topic)
        if newest is None or self.growth is None or newest.state != GenerationState.SEALING:
            return False
        if partition not in in_force(self.topic).partitions or log.led.seal != newest.number:
            return False
        if len(self.reports) >= 3:
            return False
        is_kept = all(one.seal >= newest.number for one in log.replicas.values())
        is_committed = log.committed == len(log.led.log)
        return (is_kept or "only_leader_told" in self.variants) and (
            is_committed or "fence_before_commit" in self.variants
        )

    def _report(self, partition: int) -> None:
        log, newest = self.logs[partition], under_way(self.topic)
        assert newest is not None
        sealed = SealedLog(log.epoch, Offset(len(log.led.log)))
        self.reports.append((PartitionId(partition), sealed, newest.number))

    def _takes(self, log: Log, generation: int) -> bool:
        if "sealed_takes_old" in self.variants:
            return True
        return log.led.seal in log.cancelled or generation >= log.led.seal

    # --- clients -----------------------------------------------------------------------------

    def _produce(self, key: int) -> None:
        """Send the next message, once more, or hear of it; or look the topic up."""
        one = self.producers[key]
        message = (key, one.number)
        log = self.logs[self._place(key, one.generation)]
        newest = in_force(self.topic).number
        is_settled = not one.asked or "route_anew_at_once" in self.variants
        if one.generation < newest and is_settled and self.random.random() < 0.3:
            one.generation = newest  # it heard of that, with nothing on its way
        elif message in log.led.log:
            if message in log.led.log[: log.committed]:
                one.number, one.asked = one.number + 1, False
        elif self._takes(log, one.generation):
            log.led.log.append(message)
            one.asked = True
        else:
            one.generation, one.asked = newest, False  # refused: it is certainly not stored

    def _readable(self, partition: int, log: Log) -> bool:
        at = self.position.get(partition, 0)
        if at >= log.committed:
            return False
        if "no_gate" in self.variants:
            return True
        first, *later = [one for one in self.topic.generations if one.state == "in_force"] or [
            in_force(self.topic)
        ]
        for before, one in pairwise([first, *later]):
            if partition in one.partitions and partition not in before.partitions:
                ends = zip(before.partitions, before.sealed, strict=True)
                return all(self.position.get(old, 0) >= end for old, end in ends)
        return True

    def _read(self, partition: int) -> None:
        at = self.position.get(partition, 0)
        self.read.append(self.logs[partition].led.log[at])
        self.position[partition] = at + 1

    # --- what must hold ----------------------------------------------------------------------

    def check(self) -> None:
        """Check the promises.

        Raises:
          ViolationError: if one is broken.
        """
        for key in (0, 1):
            numbers = [number for one, number in self.read if one == key]
            if numbers != list(range(len(numbers))):
                raise ViolationError(f"order: key {key} is read as {numbers}")
            held = [one for log in self.logs.values() for one in log.led.log if one[0] == key]
            if len(set(held)) < len(held):
                raise ViolationError(f"doubled: key {key} is stored as {held}")
        for one in self.topic.generations:
            for partition, end in zip(one.partitions, one.sealed, strict=False):
                if end > len(self.logs[partition].led.log):
                    raise ViolationError(f"stuck: the end {end} of a log lies behind it")


def run(seed: int, *variants: str) -> World:
    """One whole run.

    Raises:
      ViolationError: if a promise is broken.
    """
    world = World(seed, *variants)
    for _ in range(80):
        world.step()
    world.finish()
    return world
