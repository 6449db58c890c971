"""Applies retention to all logs of a broker at intervals.

Each replica removes segments by itself, by its own clock and its own files; where a topic asks for
it, retention waits for subscriptions whose marks the replica knows.
"""

from __future__ import annotations

from functools import partial

import trio

from octopi.environment import Clock
from octopi.identifiers import is_internal
from octopi.roles.broker.internal_logs import InternalLogs
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.replica_marks import ReplicaMarks


class Retaining:
    """The retention of one broker.

    Task: `run`.
    """

    def __init__(
        self, clock: Clock, replicas: ReplicaManager, *internal_logs: InternalLogs
    ) -> None:
        self._clock = clock
        self._store = replicas.store
        self._disk = replicas.status.disk
        self._internal_logs = {one.name: one for one in internal_logs}
        self._marks = ReplicaMarks(clock, replicas.replica)

    async def run(self, interval_s: float) -> None:
        """Look at all logs every *interval_s*, and when the disk is full, until cancelled."""
        while True:
            with self._clock.timeout(interval_s):
                await self._disk.next_trouble()
            for log in self._store:
                await self._apply(log)
                await trio.lowlevel.checkpoint()

    async def _apply(self, log: LocalLog) -> None:
        if is_internal(log.topic_id):
            await self._internal_logs[log.topic_id].apply_retention(log)
        elif not log.topic.options.holds or self._disk.trouble:
            # While the disk takes nothing, messages that come count for more than old ones.
            await log.apply_retention()
        else:
            await self._marks.refresh(log.partition)
            await log.apply_retention(slowest=partial(self._marks.slowest, log))
