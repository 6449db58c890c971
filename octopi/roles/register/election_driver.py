"""The register's shell around leaderships: leaders that are gone are replaced, leaders that
stay may be asked to hand over, in-sync sets change on request.

One task drives all changes; whoever wants one waits for the decision.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import attrs
import trio

from octopi.coordination.election import NO_GOAL, ElectionGoal, LogLoss
from octopi.coordination.journal_entries import Entry, PartitionDecided
from octopi.coordination.retry_delays import RetryDelays
from octopi.errors import NotReadyError, RefusedError, Status, StorageError
from octopi.limits import (
    ACCEPT_WAIT_S,
    ACCEPTANCES_WAIT_S,
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
from octopi.tracing import steps
from octopi.wire.messages import AcceptEpoch, AlterInSync, PartitionRecord, Resign

if TYPE_CHECKING:
    from octopi.roles.register.node import RegisterNode
    from octopi.roles.register.sessions import MembershipSession

_log = get_logger(__name__)

MAY_BE_LOST: Final = "acknowledged records may be lost"
"""What a register writes to its log when a leader begins with what it has."""

_LOOK_S_MIN = 0.01
"""A rest is not shorter, however the times of a clock are rounded."""


@attrs.frozen
class _Decision:
    """Who leads a partition from now on."""

    record: PartitionRecord
    held_by: set[int]
    """The brokers that were its replicas before."""
    step: steps.E8Decided
    """For observers, once it is durable."""


class ElectionDriver:
    """Drives the leadership changes of one register."""

    def __init__(self, node: RegisterNode, tasks: trio.Nursery) -> None:
        self._node = node
        self._clock = node.environment.clock
        self._machine = node.controller.elections
        self._tasks = tasks
        self._look = trio.Event()
        self._patient_until = -math.inf
        self._decided = trio.Event()
        self._announced_at: dict[int, float] = {}
        self._unflushed: set[int] = set()
        """Partitions whose next epoch is in the journal, and not yet on the device."""
        self._goals: dict[int, ElectionGoal] = {}
        self._ordered: set[int] = set()
        """Partitions whose change an operator's order concludes."""
        self._reminders = RetryDelays(REMINDER_S, REMINDER_S_MAX)
        self._reliefs = RetryDelays(RELIEF_PAUSE_S, RELIEF_PAUSE_S_MAX)
        """By partition: when leaders that take no records may be replaced again."""
        self._telling_count = 0
        """Decisions that are about to be durable and told."""
        self._finishing = trio.Event()

    @property
    def is_finishing(self) -> bool:
        """Whether no change is begun any more."""
        return self._finishing.is_set()

    def look(self) -> None:
        """Something happened that a change may depend on."""
        self._look.set()
        self._notify()

    def wait_for_brokers(self) -> None:
        """What this register knows, it knows from its journal or from brokers, not from what it
        saw: give brokers `RECONNECT_GRACE_S` from now to come back before leaders that are away
        are replaced.  Changes that are under way stop their partitions, so they don't wait for
        that, but as long as it lasts for everybody who could lead."""
        self._patient_until = self._clock.now() + RECONNECT_GRACE_S
        self.look()

    async def run(self) -> None:
        """Replace leaders that are gone or take no records, until cancelled.  Whatever fails is
        tried again."""
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
        """Begin to replace leaders that are gone, and those that take no records where another
        one in sync does."""
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
                why=self._node.controller.health.trouble(record.leader, partition),
            )
            self._reliefs.begin(partition, now)
        if stranded:
            await self._announce(stranded)

    def _rest_s(self, patience_s: float) -> float:
        """How long nothing has to be looked at, unless something happens.  A change that waits for
        brokers goes on when one of them joins or accepts; time alone calls for reminders."""
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
        """Begin no change any more, and see those that are under way decided and told, within
        `FINISH_S`: until the register is back nobody else can, and their partitions stand still."""
        self._finishing.set()
        with self._clock.timeout(FINISH_S):
            while self._telling_count or self._machine.decidable():
                await self._decided.wait()

    async def _replace(self, partitions: list[int]) -> None:
        """Begin to replace leaders that are gone."""
        for partition in partitions:
            leader = self._record(partition).leader
            _log.warning("leader is gone", partition=partition, leader=leader)
        if partitions:
            await self._announce(partitions)

    def _record(self, partition: int) -> PartitionRecord:
        return self._node.controller.state.partitions[partition]

    # --- changes ---------------------------------------------------------------------

    async def _announce(self, partitions: list[int]) -> None:
        """Begin changes of leaders, with one flush of the journal for all of them."""
        if (trace := self._node.environment.trace) is not None:
            for partition in partitions:
                record, goal = self._record(partition), self._goals.get(partition)
                told = attrs.asdict(record, filter=lambda one, _: one.name != "seal")
                trace(steps.E1Wanted(**told, goal=goal))
        self._node.record([one for each in partitions for one in self._machine.announce(each)])
        self._unflushed.update(partitions)
        with trio.CancelScope(shield=True):  # else it would be decided, and told to nobody
            await self._node.durable()
        self._unflushed.difference_update(partitions)
        for partition in partitions:
            if trace is not None:
                epoch = self._node.controller.state.announced_epoch(partition)
                trace(steps.E2Announced(partition=partition, epoch=epoch))
            self._announced_at[partition] = self._clock.now()
            for member in list(self._node.members.values()):
                self.announce_to(member, partition)

    def announce_to(self, member: MembershipSession, partition: int) -> None:
        """Tell a replica of the change that is under way, if there is one that a restart would
        know of; of another one all hear as soon as that is so."""
        if partition in self._unflushed:
            return
        message = self._machine.announcement(partition)
        if message is not None and member.broker in self._record(partition).replicas:
            if (trace := self._node.environment.trace) is not None:
                trace(steps.E3Announcing(**attrs.asdict(message), broker=member.broker))
            member.post(message)
            if trace is not None:
                trace(steps.E3Told(**attrs.asdict(message), broker=member.broker))

    async def announce_again(
        self, member: MembershipSession, records: list[PartitionRecord]
    ) -> None:
        """Tell a broker of the changes of these partitions that it has not accepted."""
        changes = self._machine.changes
        numbers = [one.partition for one in records if one.partition in changes]
        unheard = [one for one in numbers if member.broker not in changes[one].accepts]
        if unheard:
            with contextlib.suppress(NotReadyError, StorageError):  # nobody may hear of it yet
                await self._node.durable()
                for partition in unheard:
                    self.announce_to(member, partition)

    async def _conclude(self, *, is_patient: bool) -> None:
        """Decide the changes that can be decided now."""
        decided: list[_Decision] = []
        problem: NotReadyError | StorageError | None = None
        for partition in list(self._machine.changes):
            try:
                entries = self._decision(partition, is_patient=is_patient)
                if entries:
                    decided.append(self._decide(partition, entries))
            except (NotReadyError, StorageError) as error:
                problem = error  # what was decided before is told all the same
                break
        if decided:
            await self._tell_decided(decided)
        if problem is not None:
            raise problem

    def _decision(self, partition: int, *, is_patient: bool) -> list[Entry]:
        """What concludes the change of *partition*, if that can be done now."""
        if partition in self._ordered:
            return []
        now = self._clock.now()
        controller = self._node.controller
        # Who led has all there is, so with that one back nobody else has to be waited for.
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
            return []
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

    def _decide(self, partition: int, entries: list[Entry], *, ordered: bool = False) -> _Decision:
        """Journal the decision that concludes a change; `_tell_decided` must follow.  *ordered*:
        an operator gives up what may be lost by it."""
        before = self._record(partition)
        losses = [
            (one.record, self._machine.losses(one.record))
            for one in entries
            if isinstance(one, PartitionDecided)
            and one.record.recovered_epoch > before.recovered_epoch
        ]
        lost_of_each = [lost for _, lost in losses]
        if (trace := self._node.environment.trace) is not None:
            trace(steps.E8Deciding(entries=entries, losses=lost_of_each))
        self._node.record(entries)
        waited_s = self._clock.now() - self._announced_at.pop(partition, self._clock.now())
        self._reminders.forget(partition)
        for decided, lost in losses:
            self._tell_loss(before, decided, lost, ordered=ordered)
        record = self._record(partition)
        _log.info(
            "leader appointed",
            partition=partition,
            leader=record.leader,
            epoch=record.epoch,
            replicas=record.replicas,
            in_sync=record.in_sync,
            after_s=round(waited_s, 3),
        )
        return _Decision(record, set(before.replicas), steps.E8Decided(entries, lost_of_each))

    async def _tell_decided(self, decided: list[_Decision]) -> None:
        """Flush the journal once, and have all that was decided told."""
        self._telling_count += 1
        await self._node.durable()  # if it can't be, the register ends
        if (trace := self._node.environment.trace) is not None:
            for one in decided:
                trace(one.step)
        self._notify()
        members = list(self._node.members.values())
        self._tasks.start_soon(self._tell, [one.record for one in decided], members)
        for member in members:
            joining = {
                one.record.partition
                for one in decided
                if member.broker in set(one.record.replicas) - one.held_by
            }
            if joining:
                # Whatever becomes of who wished for that.
                topics = self._node.controller.state.topics_on(joining)
                self._tasks.start_soon(member.install_topics, topics)

    def _tell_loss(
        self,
        before: PartitionRecord,
        decided: PartitionRecord,
        losses: list[LogLoss],
        *,
        ordered: bool,
    ) -> None:
        """Say loudly that a leader was chosen though acknowledged records may be lost."""
        state = self._node.controller.state
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
        self._node.events.recovered(decided, known, ordered=ordered)

    async def _tell(self, records: list[PartitionRecord], members: list[MembershipSession]) -> None:
        try:
            await self._node.tell_partitions(records, members)
        finally:
            self._telling_count -= 1
            self._notify()

    def _remind(self, partition: int) -> None:
        """Tell replicas that have not accepted the epoch of it again, now and then: whatever it
        was that kept them from it, the partition waits for them."""
        now = self._clock.now()
        if not self._reminders.is_over(partition, now):
            return
        self._reminders.begin(partition, now)
        change = self._machine.changes.get(partition)
        for member in list(self._node.members.values()) if change is not None else ():
            if change is not None and member.broker not in change.accepts:
                self.announce_to(member, partition)

    def accept(self, message: AcceptEpoch) -> None:
        """A replica accepted an epoch."""
        accepted = self._machine.accept(message)
        if accepted is not None:
            # Of a change that an earlier life of the register announced.
            self._announced_at.setdefault(message.partition, self._clock.now())
            if (trace := self._node.environment.trace) is not None:
                trace(steps.E7Counted(**attrs.asdict(accepted)))
            self.look()
            self._notify()

    async def alter_in_sync(self, session: MembershipSession, message: AlterInSync) -> None:
        """A leader asks for another in-sync set."""
        answer = self._machine.alter(message)
        if answer is None:
            return
        entries, altered = answer
        if (trace := self._node.environment.trace) is not None:
            judged = attrs.asdict(altered, recurse=False)
            trace(steps.E17Altering(**judged))
        try:
            self._node.record(entries)
            await self._node.durable()
        except (NotReadyError, StorageError):
            return  # it asks again
        if trace is not None:
            trace(steps.E17Altered(**judged))
        record = altered.record
        seals = self._node.controller.seals
        session.post(attrs.evolve(altered, record=seals.of_partition(record)))
        if entries:
            _log.info("in-sync set changed", partition=record.partition, in_sync=record.in_sync)
            self._notify()
            others = [one for one in self._node.members.values() if one is not session]
            await self._node.tell_partitions([record], others)

    async def resign(self, message: Resign) -> None:
        """A leader can't go on: another one takes over, if there is one that takes records."""
        record = self._node.controller.state.partitions.get(message.partition)
        if record is None:
            return  # not known again yet: the leader leads on
        asked = (message.epoch, message.leader, message.leader_incarnation)
        if asked != (record.epoch, record.leader, record.leader_incarnation):
            return
        if not self._machine.has_successor(message.partition):
            return  # if it says so with its status, it is replaced as soon as there is one
        _log.warning(
            "leader resigns",
            partition=message.partition,
            leader=message.leader,
            why=message.reason,
        )
        with contextlib.suppress(NotReadyError, StorageError):  # it is changed already, or can't be
            await self.change(message.partition, ElectionGoal(avoid=frozenset({message.leader})))

    # --- orders ----------------------------------------------------------------------

    async def gather_acceptances(self, partition: int) -> bool:
        """Begin a change, if none is under way, and wait a while for all replicas that run to
        accept; False: it was decided meanwhile.

        Raises:
          NotReadyError, StorageError: if no change can be begun now.
        """
        changes = self._machine.changes
        if partition not in changes:
            await self._announce([partition])
        change, live = changes.get(partition), self._node.members.keys()
        self.look()

        def is_over() -> bool:
            if change is None or changes.get(partition) is not change:
                return True
            return live & set(self._record(partition).replicas) <= change.accepts.keys()

        with contextlib.suppress(NotReadyError):
            await self.until(is_over, ACCEPTANCES_WAIT_S, "all acceptances")
        return change is not None and changes.get(partition) is change

    @contextlib.contextmanager
    def held(self, partition: int) -> Iterator[None]:
        """Have no change of *partition* concluded within, but by `recover`."""
        self._ordered.add(partition)
        try:
            yield
        finally:
            self._ordered.discard(partition)
            self.look()

    async def recover(self, partition: int) -> None:
        """Conclude the change of *partition* by an operator's order, with the best of the replicas
        that have accepted.

        Raises:
          NotReadyError, StorageError: if that can't be done now.
          RefusedError: NO_BROKER, if no replica answers.
        """
        entries = self._machine.conclude(partition, ordered=True)
        if not entries:
            raise RefusedError(
                f"no replica of partition {partition} answers: start one of the brokers "
                f"{self._record(partition).replicas}; if all their disks are lost for good, "
                f"`octopi-node partitions recover {partition} --empty-on ID`",
                Status.NO_BROKER,
            )
        await self._tell_decided([self._decide(partition, entries, ordered=True)])

    async def begin_empty(self, partition: int, broker: int) -> None:
        """Conclude the change of *partition*, of which no replica is left, by an operator's order:
        it begins again on *broker*.

        Raises:
          NotReadyError, StorageError: if that can't be done now.
        """
        entries = self._machine.begin_empty(partition, broker)
        if not entries:
            raise NotReadyError(f"partition {partition} can't begin again now: look once more")
        await self._tell_decided([self._decide(partition, entries, ordered=True)])

    # --- goals -----------------------------------------------------------------------

    async def change(
        self, partition: int, goal: ElectionGoal, *, if_still: Callable[[], bool] = lambda: True
    ) -> PartitionRecord:
        """Have the leader prepare, and then the leadership change so that *goal* is reached;
        return the new record.  *if_still*: asked when the leader is prepared.

        Raises:
          NotReadyError: if another change is under way, it is not so any more, or nobody could
              decide in time; the goal is given up, whatever comes of the change.
        """
        if self.is_changing(partition) or self._finishing.is_set():
            raise NotReadyError(f"partition {partition} changes its leader right now")
        self._goals[partition] = goal
        try:
            await self._prepare(partition)
            if partition in self._machine.changes or self._finishing.is_set() or not if_still():
                raise NotReadyError(f"partition {partition} has no need of another leader now")
            await self._announce([partition])
            epoch = self._node.controller.state.announced_epoch(partition)
            self.look()
            await self.until(
                lambda: self._record(partition).epoch >= epoch, HAND_OVER_TIMEOUT_S, "a new leader"
            )
            await self._node.durable()  # before anyone is told
        except NotReadyError:
            if (trace := self._node.environment.trace) is not None:
                trace(steps.E20GivenUp(partition=partition, goal=goal))
            raise
        finally:
            del self._goals[partition]
            self._notify()
        return self._record(partition)

    def is_changing(self, partition: int) -> bool:
        """Whether the leader of *partition* is about to change.  A change is over for the machine
        before it is durable, and who wished for it told."""
        return partition in self._machine.changes or partition in self._goals

    async def _prepare(self, partition: int) -> None:
        """Have the leader do what has to be done before another one leads."""
        record = self._record(partition)
        member = self._node.members.get(record.leader)
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

    def _notify(self) -> None:
        self._decided.set()
        self._decided = trio.Event()


def no_other(partition: int) -> RefusedError:
    """The refusal where a partition would be left without anybody to lead it."""
    return RefusedError(
        f"partition {partition} has no other live replica in sync", Status.NOT_READY
    )
