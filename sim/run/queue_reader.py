"""Looks, at the end of a run, how far its queue is, and reads its dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from octopi.clients.client import Client
from octopi.environment import Environment
from octopi.errors import OctopiError, UnknownSubscriptionError, UnknownTopicError
from octopi.identifiers import PartitionId
from octopi.record import Message
from octopi.retry import may_pass
from octopi.simulation.history.events import LogName
from sim.run.client_log import ClientLog
from sim.run.group_notes import NAME
from sim.run.queue_notes import QueueNotes

_AGAIN_S: Final = 0.3


class QueueReader:
    """The program on a host of its own."""

    host: Final = "queue-reader"

    def __init__(self, client_log: ClientLog, notes: QueueNotes) -> None:
        self.is_done = False
        """Whether all was worked off, and the dead letters were read and judged."""
        self.ends: Mapping[LogName, int] = {}
        """Up to where the queue is to be worked off."""
        self._client_log = client_log
        self._notes = notes
        self._marks: dict[PartitionId, int] = {}

    @property
    def behind(self) -> str:
        """What it waits for; empty: nothing."""
        if self.is_done:
            return ""
        return self._notes.behind(self._marks, self.ends) or "the dead letters are unread"

    async def run(self, environment: Environment) -> None:
        """`octopi.simulation.kernel.host.Program`."""
        client_log, clock = self._client_log, environment.clock
        async with client_log.connected(environment) as client:
            while not self.is_done:
                try:
                    await self._look(client)
                    if not self._notes.behind(self._marks, self.ends):
                        self._notes.judge(await self._letters(client))
                        self.is_done = True
                except OctopiError as error:
                    if not (may_pass(error) or isinstance(error, UnknownSubscriptionError)):
                        client_log.complain(self.host, error)
                        return
                await clock.sleep_until(clock.now() + _AGAIN_S)

    async def _look(self, client: Client) -> None:
        status = await client.admin.describe_subscription(self._notes.topic, NAME)
        self._marks = {PartitionId(one.partition): int(one.mark) for one in status.logs}

    async def _letters(self, client: Client) -> list[Message]:
        topic = f"{self._notes.topic}.{NAME}.dead"
        try:
            async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
                return [one async for one in consumer]
        except UnknownTopicError:
            return []  # it was lost with its partition
