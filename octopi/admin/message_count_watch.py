"""Asks the leaders of a few topics how many messages these have, for the pages of a node.

A broker counts from the indexes of its segments, so a count is exact and needs no reading of
records; but to count in all logs each second would be too much with many of them.  So only the
topics that a page shows are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio

from octopi.admin.cluster_snapshot import ClusterSnapshot
from octopi.admin.message_counts import TopicCounts
from octopi.admin.recent_looks import RecentLooks
from octopi.clients.answers import BrokerCount
from octopi.clients.log_pages import counted_logs
from octopi.clients.routing import RequestRouter
from octopi.environment import Clock
from octopi.errors import OctopiError
from octopi.identifiers import BrokerId
from octopi.wire.messages import BrokerInfo, TopicInfo

TOPICS_COUNTED_MAX: Final = 50
"""Topics whose messages are counted for one page: more than the console shows."""

_ASKED_AT_A_TIME: Final = 20


class MessageCountWatch:
    """Looks at the number of messages of topics."""

    def __init__(self, clock: Clock, router: Callable[[], RequestRouter]) -> None:
        """*router* gives the way to the cluster, or raises NotReadyError while there is none."""
        self._router = router
        self._looks = RecentLooks(clock)

    async def of_topics(self, seen: ClusterSnapshot, topics: Sequence[TopicInfo]) -> TopicCounts:
        """The counts of the first `TOPICS_COUNTED_MAX` of *topics*, as far as their leaders answer;
        those that were silent when *seen* was taken are not asked."""
        some = topics[:TOPICS_COUNTED_MAX]
        leaders = {place.leader for one in some for place in one.partitions}
        brokers = {
            one.broker: one
            for one in seen.cluster.brokers
            if one.live and one.broker in leaders and one.broker not in seen.silent
        }
        key = tuple((one.topic_id, *(place.leader for place in one.partitions)) for one in some)
        return await self._looks.fresh((*brokers, *key), partial(self._count, brokers, some))

    async def _count(
        self, brokers: dict[BrokerId, BrokerInfo], topics: Sequence[TopicInfo]
    ) -> TopicCounts:
        found: list[BrokerCount] = []
        limit = trio.CapacityLimiter(_ASKED_AT_A_TIME)

        async def ask(broker: BrokerInfo, topic: str) -> None:
            async with limit:
                try:
                    counted = await counted_logs(self._router(), broker, topic)
                except OctopiError:  # what it leads is not counted
                    return
            found.extend(BrokerCount(broker.broker, broker.address, log) for log in counted)

        async with trio.open_nursery() as nursery:
            for info in topics:
                leaders = {place.leader for place in info.partitions}
                for broker in (one for number, one in brokers.items() if number in leaders):
                    nursery.start_soon(ask, broker, info.topic)
        return TopicCounts(found)
