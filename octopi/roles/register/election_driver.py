"""Carries out elections: leaders that are gone or take no records are replaced, and other parts of
the register may ask for an election.

One task carries out all of them; a part that asked for one waits for the decision.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Final

import attrs
import trio

from octopi.coordination.controller import Controller
from octopi.coordination.decisions import EpochDecision, LeaderDecision
from octopi.coordination.election import NO_GOAL, ElectionGoal, LogLoss
from octopi.coordination.retry_delays import RetryDelays
from octopi.environment import Environment
from octopi.errors import NotReadyError, RefusedError, Status, StorageError
from octopi.identifiers import PartitionId
from octopi.limits import (
    ACCEPT_WAIT_S,
    BACKOFF_S_MAX,
    FINISH_S,
    HAND_OVER_TIMEOUT_S,
    RECONNECT_GRACE_S,
    RELIEF_PAUSE_S,
    RELIEF_PAUSE_S_MAX,
    REMINDER_S,
    REMINDER_S_MAX,
)
from octopi.logger import get_logger
from octopi.roles.register.announcements import Announcements
from octopi.roles.register.decision_log import DecisionLog
from octopi.roles.register.event_log import EventLog
from octopi.roles.register.member import Member
from octopi.roles.register.members import Members
from octopi.roles.register.register_tracer import RegisterTracer
from octopi.wire.messages import AcceptEpoch, PartitionRecord

_log = get_logger(__name__)

MAY_BE_LOST: Final = "acknowledged records may be lost"
"""The log message when a leader is chosen although acknowledged records may be lost."""

_LOOK_S_MIN = 0.01
"""The shortest pause between two looks, however the times of a clock are rounded."""


class ElectionDriver:
    """Carries out the elections of one register."""

    def __init__(
        self,
        environment: Environment,
        controller: Controller,
        decisions: DecisionLog,
        events: EventLog,
        tracer: RegisterTracer,
        members: Members,
        announcements: Announcements,
        tasks: trio.Nursery,
    ) -> None:
        """*tasks*: the nursery of the tasks that tell brokers the decisions."""
        self._environment = environment
        self._clock = environment.clock
        self._controller = controller
        self._machine = controller.elections
        self._decisions = decisions
        self._events = events
        self._tracer = tracer
        self._members = members
        self._announcements = announcements
        self._tasks = tasks
        self._look = trio.Event()
        self._patient_until = -math.inf
        self._decided = trio.Event()
        self._announced_at: dict[PartitionId, float] = {}
        self._goals: dict[PartitionId, ElectionGoal] = {}
        self._ordered: set[PartitionId] = set()
        """Partitions whose election only an operator's order concludes (`held`)."""
        self._reminders = RetryDelays(REMINDER_S, REMINDER_S_MAX)
        self._reliefs = RetryDelays(RELIEF_PAUSE_S, RELIEF_PAUSE_S_MAX)
        """By partition: when leaders that take no records may be replaced again."""
        self._telling_count = 0
        """The number of decisions that are being made durable and told."""
        self._finishing = trio.Event()

    @property
    def is_finishing(self) -> bool:
        """Whether the driver begins no more elections because the register stops."""
        return self._finishing.is_set()

    def look(self) -> None:
        """Wake the driver: something happened that may allow or require an election."""
        self._look.set()
        self.notify()

    def wait_for_brokers(self) -> None:
        """Give brokers `RECONNECT_GRACE_S` from now to come back before leaders that are away are
        replaced: the register knows of them from its journal or from other brokers, and has not
        seen yet which are live.  Elections that are under way stop their partitions, so they don't
        wait for this time to end.  As long as it lasts, they wait for all brokers that could
        lead."""
        self._patient_until = self._clock.now() + RECONNECT_GRACE_S
        self.look()

    def waits_for_nobody(self) -> None:
        """No leader that is away can come back."""
        self._patient_until = self._clock.now()
        self.look()

    async def run(self) -> None:
        """Replace leaders that are gone or take no records, until cancelled.  What fails is tried
        again."""
        while True:
            self._look = trio.Event()
            try:
                patience_s = max(0.0, self._patient_until - self._clock.now())
                if not patience_s and not self._finishing.is_set():
                    await self._replace_leaders()
                await self._conclude(is_patient=patience_s > 0)
                again_s = self._rest_s(patience_s)
            except (NotReadyError, StorageError) as error:
                _log.warning("leaders can't be changed now", why=str(error))
                again_s = BACKOFF_S_MAX
            with self._clock.timeout(again_s):
                await self._look.wait()

    async def _replace_leaders(self) -> None:
        """Begin to replace leaders that are gone, and leaders that take no records while another
        in-sync replica does."""
        await self._replace(self._machine.leaderless())
        now = self._clock.now()
        stranded = [
            one
            for one in self._machine.stranded()
            if one not in self._goals and self._reliefs.is_over(one, now)
        ]
        for partition in stranded:
            record = self._record(partition)
            _log.warning(
                "leader takes no records",
                partition=partition,
                leader=record.leader,
                why=self._controller.health.trouble(record.leader, partition),
            )
            self._reliefs.begin(partition, now)
        if stranded:
            await self.begin(stranded)

    def _rest_s(self, patience_s: float) -> float:
        """How long the driver can pause unless it is woken.  An election that waits for brokers
        continues when one of them joins or accepts; only reminders are due by time."""
        now = self._clock.now()
        looks = [
            max(announced_at + ACCEPT_WAIT_S, self._reminders.ends_at(partition))
            for partition, announced_at in self._announced_at.items()
            if partition in self._machine.changes and partition not in self._ordered
        ]
        looks += (self._reliefs.ends_at(partition) for partition in self._machine.stranded())
        if patience_s:
            looks.append(now + patience_s)
        return max(_LOOK_S_MIN, min(looks, default=math.inf) - now)

    async def finish(self) -> None:
        """Begin no more elections, and wait up to `FINISH_S` until those under way are decided and
        told.  Otherwise their partitions would stand still until the register is back."""
        self._finishing.set()
        with self._clock.timeout(FINISH_S):
            while self._telling_count or self._machine.decidable():
                await self._decided.wait()

    async def _replace(self, partitions: list[PartitionId]) -> None:
        """Begin to replace leaders that are gone."""
        for partition in partitions:
            leader = self._record(partition).leader
            _log.warning("leader is gone", partition=partition, leader=leader)
        if partitions:
            await self.begin(partitions)

    def _record(self, partition: PartitionId) -> PartitionRecord:
        return self._controller.state.partitions[partition]

    # --- changes ---------------------------------------------------------------------

    async def begin(self, partitions: list[PartitionId]) -> None:
        """Begin elections, with one flush of the journal for all of them.

        Raises:
          NotReadyError, StorageError: if none can be begun now.
        """
        for partition in partitions:
            self._tracer.wanted(self._record(partition), self._goals.get(partition))
        begun = [self._machine.begin(one) for one in partitions]
        self._decisions.persist(*begun)
        self._announcements.hold_back(partitions)
        with trio.CancelScope(shield=True):  # else replicas would not be told of the epochs
            await self._decisions.durable(*begun, tell=self._announce)

    def _announce(self, begun: EpochDecision) -> None:
        """Announce the next epoch, which is durable, to the replicas of its partition."""
        self._announcements.release(begun.partition)
        self._announced_at[begun.partition] = self._clock.now()
        for member in list(self._members.values()):
            self._announcements.tell(member, begun.partition)

    async def _conclude(self, *, is_patient: bool) -> None:
        """Decide the elections that can be decided now."""
        decided: list[LeaderDecision] = []
        problem: NotReadyError | StorageError | None = None
        for partition in list(self._machine.changes):
            try:
                decision = self._decision(partition, is_patient=is_patient)
                if decision is not None:
                    self._persist(decision)
                    decided.append(decision)
            except (NotReadyError, StorageError) as error:
                problem = error  # the decisions taken before are told nevertheless
                break
        if decided:
            await self._tell_decided(decided)
        if problem is not None:
            raise problem

    def _decision(self, partition: PartitionId, *, is_patient: bool) -> LeaderDecision | None:
        """The decision that concludes the election of *partition*, if it can be taken now."""
        if partition in self._ordered:
            return None
        now = self._clock.now()
        controller = self._controller
        # The last leader has all committed records, so once it is back no other broker is awaited.
        expects_all = (
            is_patient
            and partition not in self._goals
            and not self._machine.has_former_leader(partition)
        )
        waited_s = now - self._announced_at.get(partition, now)
        is_complete = self._machine.is_complete(partition, expects_all=expects_all)
        if waited_s >= ACCEPT_WAIT_S:
            self._remind(partition)
        if not is_complete and (expects_all or waited_s < ACCEPT_WAIT_S):
            return None
        goal = self._goals.get(partition, NO_GOAL)
        health = controller.health
        troubled = {
            one for one in self._record(partition).in_sync if health.trouble(one, partition)
        }
        goal = attrs.evolve(
            goal,
            avoid=goal.avoid | troubled | controller.draining | controller.stopping,
            leaving=frozenset(controller.stopping),
        )
        return self._machine.conclude(partition, goal=goal)

    def _persist(self, decision: LeaderDecision) -> None:
        """Persist the decision that concludes an election; `_tell_decided` must follow."""
        self._decisions.persist(decision)
        record, now = decision.record, self._clock.now()
        waited_s = now - self._announced_at.pop(record.partition, now)
        self._reminders.forget(record.partition)
        if decision.losses is not None:
            self._tell_loss(decision, decision.losses)
        _log.info(
            "leader appointed",
            partition=record.partition,
            leader=record.leader,
            epoch=record.epoch,
            replicas=record.replicas,
            in_sync=record.in_sync,
            after_s=round(waited_s, 3),
        )

    async def _tell_decided(self, decided: list[LeaderDecision]) -> None:
        """Flush the journal once for all of *decided*, and have them told."""
        self._telling_count += 1
        await self._decisions.durable(*decided)  # if this fails, the register stops
        self.notify()
        members = list(self._members.values())
        self._tasks.start_soon(self._tell, [one.record for one in decided], members)
        for member in members:
            joining = {one.record.partition for one in decided if member.broker in one.joining}
            if joining:
                # Also if the part of the register that asked for it is gone by then.
                topics = self._controller.state.topics_on(joining)
                self._tasks.start_soon(member.install_topics, topics)

    def _tell_loss(self, decision: LeaderDecision, losses: list[LogLoss]) -> None:
        """Say loudly that a leader was chosen though acknowledged records may be lost."""
        before, decided, ordered = decision.before, decision.record, decision.ordered
        state = self._controller.state
        names = {one.topic_id: one.topic for one in state.topics_on({decided.partition})}
        known = [
            f"{names.get(one.topic_id, one.topic_id)} from {one.kept_end} to {one.known_end}"
            for one in losses
        ]
        if decided.leader not in before.replicas:
            known = [f"all of {name}" for name in names.values()]
        _log.error(
            MAY_BE_LOST,
            partition=decided.partition,
            leader=decided.leader,
            epoch=decided.epoch,
            lost_data=before.lost,
            known_to_be_lost=known,
            ordered=ordered,
        )
        self._events.recovered(decided, known, ordered=ordered)

    async def _tell(self, records: list[PartitionRecord], members: list[Member]) -> None:
        try:
            await self._members.tell_partitions(records, members)
        finally:
            self._telling_count -= 1
            self.notify()

    def _remind(self, partition: PartitionId) -> None:
        """Announce the epoch again, from time to time, to replicas that have not accepted it: the
        partition waits for them, whatever the cause of the delay."""
        now = self._clock.now()
        if not self._reminders.is_over(partition, now):
            return
        self._reminders.begin(partition, now)
        change = self._machine.changes.get(partition)
        for member in list(self._members.values()) if change is not None else ():
            if change is not None and member.broker not in change.accepts:
                self._announcements.tell(member, partition)

    def accept(self, message: AcceptEpoch) -> None:
        """A replica accepted an epoch."""
        accepted = self._machine.accept(message)
        if accepted is not None:
            # The election was announced by an earlier generation of the register.
            self._announced_at.setdefault(message.partition, self._clock.now())
            self._tracer.counted(accepted)
            self.look()
            self.notify()

    # --- orders ----------------------------------------------------------------------

    @contextlib.contextmanager
    def held(self, partition: PartitionId) -> Iterator[None]:
        """A context in which only `appoint` concludes elections of *partition*."""
        self._ordered.add(partition)
        try:
            yield
        finally:
            self._ordered.discard(partition)
            self.look()

    async def appoint(self, decision: LeaderDecision) -> None:
        """Conclude an election with *decision*, by an operator's order.

        Raises:
          NotReadyError, StorageError: if that can't be done now.
        """
        self._persist(decision)
        await self._tell_decided([decision])

    # --- goals -----------------------------------------------------------------------

    async def change(
        self,
        partition: PartitionId,
        goal: ElectionGoal,
        *,
        if_still: Callable[[], bool] = lambda: True,
    ) -> PartitionRecord:
        """Have the leader prepare, then hold an election with *goal*; return the new record.
        *if_still*: called once the leader has prepared; if it returns false, no election is held.

        Raises:
          NotReadyError: if another change is under way, if *if_still* returned false, if the
              register stops, or if there was no decision in time; the goal is given up, but the
              election may still be decided.
        """
        if self.is_changing(partition) or self._finishing.is_set():
            raise NotReadyError(f"partition {partition} changes its leader right now")
        self._goals[partition] = goal
        try:
            await self._prepare(partition)
            if partition in self._machine.changes or self._finishing.is_set() or not if_still():
                raise NotReadyError(f"partition {partition} has no need of another leader now")
            await self.begin([partition])
            epoch = self._controller.state.announced_epoch(partition)
            self.look()
            await self.until(
                lambda: self._record(partition).epoch >= epoch, HAND_OVER_TIMEOUT_S, "a new leader"
            )
            await self._decisions.durable()  # before the caller is told
        except NotReadyError:
            self._tracer.given_up(partition, goal)
            raise
        finally:
            del self._goals[partition]
            self.notify()
        return self._record(partition)

    def is_changing(self, partition: PartitionId) -> bool:
        """Whether a change of the leader of *partition* is under way.  The machine concludes an
        election before the decision is durable and its caller is told; until then the change counts
        as under way."""
        return partition in self._machine.changes or partition in self._goals

    async def _prepare(self, partition: PartitionId) -> None:
        """Have the leader prepare the hand-over to another leader."""
        record = self._record(partition)
        member = self._members.get(record.leader)
        if member is not None and member.incarnation == record.leader_incarnation:
            await member.prepare_hand_over(partition)

    async def until(self, holds: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until decisions make *holds* true.

        Raises:
          NotReadyError: if that takes longer than *timeout_s*.
        """
        with self._clock.timeout(timeout_s):
            while not holds():
                await self._decided.wait()
            return
        raise NotReadyError(f"{what}: not within {timeout_s:g} s")

    def notify(self) -> None:
        """Something was decided: wake the tasks that wait in `until`."""
        self._decided.set()
        self._decided = trio.Event()


def no_other(partition: PartitionId) -> RefusedError:
    """The refusal if no other broker could lead the partition."""
    return RefusedError(
        f"partition {partition} has no other live replica in sync", Status.NOT_READY
    )
