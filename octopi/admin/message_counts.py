"""How many messages topics have, for `topics list`, `topics describe` and the console."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from octopi.errors import ConnectionLostError, NotReadyError, RefusedError, Status, UnreachableError

if TYPE_CHECKING:
    from octopi import BrokerCount, BrokerInfo, Client, TopicInfo


async def count_messages(
    client: Client, brokers: Iterable[BrokerInfo], topic: str | None = None
) -> list[BrokerCount]:
    """The counts of those *brokers* that are live, answer, and are of a version that counts; in the
    logs of *topic* (None: of all topics).

    Raises:
      OctopiError: if the topic does not exist.
    """
    import trio

    found: list[BrokerCount] = []

    async def ask(broker: BrokerInfo) -> None:
        try:
            found.extend(await client.admin.count_messages(topic, brokers=[broker]))
        except (NotReadyError, UnreachableError, ConnectionLostError):
            return
        except RefusedError as error:
            if error.status != Status.UNSUPPORTED_VERSION:
                raise

    async with trio.open_nursery() as nursery:
        for broker in brokers:
            if broker.live:
                nursery.start_soon(ask, broker)
    return found


class TopicCounts:
    """The number of messages of each topic, from what brokers counted."""

    def __init__(self, counts: Iterable[BrokerCount]) -> None:
        self._logs: dict[tuple[str, int], tuple[int, int | None]] = {}
        """Topic id and partition -> the furthest highwater mark of a replica, and its count."""
        for one in counts:
            log = one.log
            key = log.topic_id, log.partition
            # Of the replicas, the one that knows most to be committed is the leader, or as good.
            if key not in self._logs or log.highwater > self._logs[key][0]:
                self._logs[key] = log.highwater, log.count

    def of_topic(self, info: TopicInfo) -> int | None:
        """How many messages there are in all partitions of a topic; None if that is not known."""
        total = 0
        for place in info.partitions:
            count = self.of_log(info.topic_id, place.partition)
            if count is None:
                return None
            total += count
        return total

    def of_log(self, topic_id: str, partition: int) -> int | None:
        """How many messages there are in one partition of a topic; None if that is not known."""
        return self._logs.get((topic_id, partition), (0, None))[1]
