"""Requests of leaders to the register: for another in-sync set, or another leader."""

from __future__ import annotations

import contextlib

import attrs

from octopi.coordination.controller import Controller
from octopi.coordination.election import ElectionGoal
from octopi.errors import NotReadyError, StorageError
from octopi.logger import get_logger
from octopi.roles.register.decision_log import DecisionLog
from octopi.roles.register.election_driver import ElectionDriver
from octopi.roles.register.member import Member
from octopi.roles.register.members import Members
from octopi.wire.messages import AlterInSync, Resign

_log = get_logger(__name__)


class LeaderRequests:
    """Checks requests of leaders, and carries out the valid ones."""

    def __init__(
        self,
        controller: Controller,
        decisions: DecisionLog,
        members: Members,
        election_driver: ElectionDriver,
    ) -> None:
        self._controller = controller
        self._machine = controller.elections
        self._decisions = decisions
        self._members = members
        self._election_driver = election_driver

    async def alter_in_sync(self, member: Member, message: AlterInSync) -> None:
        """A leader asks for another in-sync set."""
        judged = self._machine.alter(message)
        if judged is None:
            return
        try:
            await self._decisions.carry_out(judged)
        except (NotReadyError, StorageError):
            return  # the leader repeats its request
        altered = judged.answer
        record = altered.record
        seals = self._controller.seals
        member.post(attrs.evolve(altered, record=seals.of_partition(record)))
        if altered.accepted:
            _log.info("in-sync set changed", partition=record.partition, in_sync=record.in_sync)
            self._election_driver.notify()
            others = [one for one in self._members.values() if one is not member]
            await self._members.tell_partitions([record], others)

    async def resign(self, message: Resign) -> None:
        """A leader can't continue: another in-sync replica takes over, if one takes records."""
        record = self._controller.state.partitions.get(message.partition)
        if record is None:
            return  # not learned again yet: the leader keeps leading
        asked = (message.epoch, message.leader, message.leader_incarnation)
        if asked != (record.epoch, record.leader, record.leader_incarnation):
            return
        if not self._machine.has_successor(message.partition):
            return  # once its status says so, it is replaced as soon as a successor is available
        _log.warning(
            "leader resigns",
            partition=message.partition,
            leader=message.leader,
            why=message.reason,
        )
        with contextlib.suppress(NotReadyError, StorageError):  # it is changed already, or can't be
            goal = ElectionGoal(avoid=frozenset({message.leader}))
            await self._election_driver.change(message.partition, goal)
