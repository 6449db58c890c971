"""What an observer of the trace is told of one replica.

Made where there is an observer, by `octopi.roles.broker.partition_replica`, which says when;
what is told, and by which names, is decided here and in `octopi.tracing.steps`.
"""

from __future__ import annotations

from typing import Final

import attrs

from octopi.environment import Trace
from octopi.identifiers import Offset
from octopi.record import Scan
from octopi.replication.effects import Answer, Receipt, Refusal, ReplicaState
from octopi.replication.replica import Replica, Role
from octopi.roles.broker import facts
from octopi.roles.broker.broker_log import BrokerLog
from octopi.roles.broker.facts import Facts
from octopi.tracing import steps
from octopi.tracing.step import Step
from octopi.wire.messages import Acknowledge, AlterInSync, Follow, Followed, FollowRefused

_EDGES: Final[dict[type, tuple[type[Step], type[Step]]]] = {
    Acknowledge: (steps.P4Acknowledging, steps.P4Acknowledged),
    Follow: (steps.J8Asking, steps.J8Asked),
    Followed: (steps.J9Comparing, steps.J9Compared),
}
"""What it means to tell another broker this."""


class ReplicaSteps:
    """Tells of *machine*, the replica of *partition*."""

    def __init__(self, trace: Trace, partition: int, machine: Replica) -> None:
        self._trace = trace
        self._partition = partition
        self._machine = machine
        self._role = (Role.IDLE, 0)
        """Role and epoch that were told last."""
        self._in_sync: tuple[int, list[int]] = (0, [])
        """Version and members of the set that was told last."""
        self._committed_epoch = 0

    def __call__(self, step: type[Step], told: Facts) -> None:
        self._trace(step(**told))

    def of_log(self, log: BrokerLog) -> Facts:
        """Which log, and the epoch of the role that is played for it."""
        role = self._machine.leader or self._machine.follower
        return facts.of_log(log, role.epoch if role is not None else 0)

    def of_batch(self, log: BrokerLog, found: Scan) -> Facts:
        """A producer's batch."""
        return self.of_log(log) | facts.of_batch(found)

    def of_append(self, log: BrokerLog, found: Scan) -> Facts:
        """A producer's batch, to be appended next."""
        return self.of_batch(log, found) | _place(log.end, found)

    def of_replication(self, log: BrokerLog, found: Scan) -> Facts:
        """What the leader sent, to be appended next."""
        known = {"records_epoch": log.state.epochs.latest}
        return self.of_log(log) | _place(log.end, found) | known

    def of_state(self, state: ReplicaState) -> Facts:
        """What the replica will remember."""
        return {"partition": self._partition, **attrs.asdict(state, recurse=False)}

    def of_end(self, log: BrokerLog) -> Facts:
        """The log, and where it ends."""
        return self.of_log(log) | {"log_end": log.end}

    def of_cut(self, log: BrokerLog, end: Offset) -> Facts:
        """The log, to be cut at *end*."""
        return self.of_log(log) | {"log_end": log.end, "end": end, "highwater": log.highwater}

    def of_restart(self, log: BrokerLog, begin: Offset) -> Facts:
        """The log, to be begun anew at *begin*."""
        return self.of_log(log) | {"log_end": log.end, "begin": begin}

    # --- steps with more to them ---------------------------------------------------------

    def observed(self, log: BrokerLog, found: Scan, answer: Answer) -> Answer:
        """*answer*, with the edges of the step that it is."""

        def observed(content: Receipt | Refusal) -> None:
            told = self.of_batch(log, found)
            before: type[Step]
            after: type[Step]
            if isinstance(content, Receipt):
                before, after = steps.P7Acknowledging, steps.P7Acknowledged
                told |= _place(content.offset, found)
                told |= {"records_epoch": content.epoch, "duplicate": content.duplicate}
                told |= {"highwater": log.highwater, **facts.of_set(self._machine.leader)}
            else:
                before, after = steps.P9Refusing, steps.P9Refused
                told |= {"status": content.status, "reason": content.reason}
            self(before, told)
            answer(content)
            self(after, told)

        return observed

    def telling(
        self,
        log: BrokerLog,
        broker: int,
        message: Follow | Followed | FollowRefused | Acknowledge,
        *,
        after: bool = False,
    ) -> None:
        """*message* is told to *broker* next, or was."""
        if not isinstance(message, FollowRefused):
            other = "follower" if isinstance(message, Followed) else "leader"
            self(_EDGES[type(message)][after], facts.of_message(log, message) | {other: broker})

    def proposing(self, change: AlterInSync) -> None:
        """The leader asks for *change* next."""
        if change.joiner_incarnation is not None:
            known = {"partition": self._partition, "epoch": change.epoch}
            (joiner,) = set(change.in_sync) - {*self._in_sync[1]}
            self(steps.J11CaughtUp, known | {"version": change.version, "follower": joiner})

    def publishing(self, log: BrokerLog, highwater: Offset) -> None:
        """The highwater mark is advanced next."""
        mark = self._mark(log, highwater)
        if self._machine.leader is None:
            self(steps.P8Following, mark)
        else:
            self(steps.P5InSync, mark)
            self(steps.P6Committing, mark)

    def published(self, log: BrokerLog, highwater: Offset) -> None:
        """The highwater mark was advanced."""
        mark, leader = self._mark(log, highwater), self._machine.leader
        if leader is None:
            self(steps.P8Followed, mark)
            return
        self(steps.P6Committed, mark)
        if leader.epoch != self._committed_epoch:
            self._committed_epoch = leader.epoch
            self(steps.E15FirstCommit, mark)

    def _mark(self, log: BrokerLog, highwater: Offset) -> Facts:
        mark = self.of_log(log) | {"highwater": highwater, "log_end": log.end}
        leader = self._machine.leader
        if leader is None:
            return mark
        return mark | {"flushed_end": log.state.flushed_end, **facts.of_set(leader)}

    def note_role(self) -> None:
        """An event was decided on: tell what it made of the replica.  Its effects are still to
        come."""
        leader, record = self._machine.leader, self._machine.state.record
        role, was = (self._machine.role, int(self._machine.state.promised)), self._role
        in_sync = (leader.version, sorted(leader.in_sync)) if leader is not None else (0, [])
        knew, self._in_sync = self._in_sync, in_sync
        known = {"partition": self._partition, "epoch": role[1]}
        if role != was:
            self._role = role
            if was[0] is not Role.IDLE:
                left = {"partition": self._partition, "epoch": was[1], "role": was[0].name}
                self(steps.E5Left, left)
            if leader is not None:
                self(steps.E11Leading, known | facts.of_set(leader))
            elif role[0] is Role.FOLLOWER and record is not None:
                self(steps.E12Following, known | {"leader": record.leader})
        elif leader is not None and knew != in_sync:
            known |= facts.of_set(leader)
            self(steps.E18Learned, known)
            for broker in sorted({*in_sync[1]} - {*knew[1]}):
                self(steps.J12InSync, known | {"follower": broker})


def _place(offset: Offset, found: Scan) -> Facts:
    return {"offset": offset, "end": offset + found.valid_bytes}
