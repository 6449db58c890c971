"""Describes this broker's logs or streams, and its readings, and counts messages, in pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import attrs

from octopi.model import Verb
from octopi.roles.answers import tell_with_room
from octopi.roles.broker.services.context import ServiceContext
from octopi.storage.time_slices import in_turns
from octopi.transport.services import Service
from octopi.transport.turns import another
from octopi.wire import messages as m

_LOGS_PER_PAGE: Final = 500
_READINGS_TOLD: Final = 2_000


class DescribeService(Service):
    """Lists logs and readings of the topics that the client may describe."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(
            {
                m.DescribeLogs: lambda asked: self._tell_list(partial(self._logs_page, asked)),
                m.CountMessages: lambda asked: self._tell_list(partial(self._counts_page, asked)),
                m.DescribeReadings: lambda asked: self._tell_list(
                    partial(self._readings_page, asked)
                ),
            }
        )
        self._context = context
        self._connection = context.connection

    def _tell_list(self, tell: Callable[[], Awaitable[None]]) -> None:
        self._context.tasks.start_soon(tell_with_room, self._connection, tell)

    async def _logs_page(self, message: m.DescribeLogs) -> None:
        covers = self._connection.grants.covers
        after = (message.after_topic, message.after_partition)
        work = self._context.describe(message.topic, after, _LOGS_PER_PAGE + 1, covers)
        described = await in_turns(work, another(self._connection.turn))
        page = [self._shown(one) for one in described[:_LOGS_PER_PAGE]]
        more = len(described) > _LOGS_PER_PAGE
        self._connection.post(m.LogList(message.request, page, more))

    async def _counts_page(self, message: m.CountMessages) -> None:
        covers = self._connection.grants.covers
        after = (message.after_topic, message.after_partition)
        work = self._context.count(message.topic, after, _LOGS_PER_PAGE + 1, covers)
        counted = await in_turns(work, another(self._connection.turn))
        more = len(counted) > _LOGS_PER_PAGE
        self._connection.post(m.MessageCounts(message.request, counted[:_LOGS_PER_PAGE], more))

    def _shown(self, log: m.LogInfo) -> m.LogInfo:
        """*log* without the name of a subscription that the client may not know of."""
        is_known = self._connection.grants.allows(Verb.CONSUME, log.topic, log.held_for)
        return log if is_known or not log.held_for else attrs.evolve(log, held_for="")

    async def _readings_page(self, message: m.DescribeReadings) -> None:
        covers = self._connection.grants.covers
        work = self._context.readers.describe(message.topic, _READINGS_TOLD + 1, covers)
        described = await in_turns(work, another(self._connection.turn))
        some, more = described[:_READINGS_TOLD], len(described) > _READINGS_TOLD
        self._connection.post(m.ReadingList(message.request, some, more))
