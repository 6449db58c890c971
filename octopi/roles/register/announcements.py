"""Tells replicas of the epochs of elections that are under way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from octopi.coordination.controller import Controller
from octopi.errors import NotReadyError, StorageError
from octopi.identifiers import PartitionId
from octopi.roles.register.decision_log import DecisionLog
from octopi.roles.register.member import Member
from octopi.roles.register.register_tracer import RegisterTracer
from octopi.wire.messages import PartitionRecord


class Announcements:
    """Announces the elections of one register to replicas."""

    def __init__(
        self, controller: Controller, decisions: DecisionLog, tracer: RegisterTracer
    ) -> None:
        self._controller = controller
        self._decisions = decisions
        self._tracer = tracer
        self._unflushed: set[PartitionId] = set()
        """Partitions whose next epoch is in the journal but not durable yet."""

    def hold_back(self, partitions: Iterable[PartitionId]) -> None:
        """The next epochs of *partitions* are not durable yet."""
        self._unflushed.update(partitions)

    def release(self, partition: PartitionId) -> None:
        """The next epoch of *partition* is durable."""
        self._unflushed.discard(partition)

    def tell(self, member: Member, partition: PartitionId) -> None:
        """Announce the partition's election to a replica, if one is under way and its epoch is
        durable.  If the epoch isn't durable yet, all replicas are told once it is."""
        if partition in self._unflushed:
            return
        message = self._controller.elections.announcement(partition)
        record = self._controller.state.partitions[partition]
        if message is not None and member.broker in record.replicas:
            self._tracer.ordering(member.broker, message)
            member.post(message)
            self._tracer.ordered(member.broker, message)

    async def tell_again(self, member: Member, records: list[PartitionRecord]) -> None:
        """Tell a broker of the elections of these partitions whose epochs it has not accepted."""
        changes = self._controller.elections.changes
        numbers = [one.partition for one in records if one.partition in changes]
        unheard = [one for one in numbers if member.broker not in changes[one].accepts]
        if unheard:
            with contextlib.suppress(NotReadyError, StorageError):  # they are not durable yet
                await self._decisions.durable()
                for partition in unheard:
                    self.tell(member, partition)
