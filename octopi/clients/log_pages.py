"""Asks a broker about its logs, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeVar

from octopi.clients.routing import RequestRouter
from octopi.wire.messages import (
    BrokerInfo,
    CountMessages,
    DescribeLogs,
    LogCount,
    LogInfo,
    LogList,
    MessageCounts,
)

_P = TypeVar("_P", LogList, MessageCounts)


async def described_logs(router: RequestRouter, broker: BrokerInfo, topic: str) -> list[LogInfo]:
    """The logs of *topic* (empty: of all topics) that *broker* holds."""
    what = f"describe the logs of broker {broker.broker}"

    def question(after: tuple[str, int], request: int) -> DescribeLogs:
        return DescribeLogs(request, topic, *after)

    pages = _pages(router, what, broker, question, LogList)
    return [log async for page in pages for log in page.logs]


async def counted_logs(router: RequestRouter, broker: BrokerInfo, topic: str) -> list[LogCount]:
    """How many messages there are in the logs of *topic* (empty: of all topics) that *broker*
    holds."""
    what = f"count the messages of broker {broker.broker}"

    def question(after: tuple[str, int], request: int) -> CountMessages:
        return CountMessages(request, topic, *after)

    pages = _pages(router, what, broker, question, MessageCounts)
    return [log async for page in pages for log in page.logs]


async def _pages(
    router: RequestRouter,
    what: str,
    broker: BrokerInfo,
    question: Callable[[tuple[str, int], int], Any],
    expected: type[_P],
) -> AsyncIterator[_P]:
    """All answers to *question*, which is about the logs behind one, in the order of topic and
    partition."""
    after = ("", -1)
    while True:
        page = await router.ask_broker(what, broker.address, partial(question, after), expected)
        yield page
        if not page.more or not page.logs:
            return
        after = page.logs[-1].topic, page.logs[-1].partition
