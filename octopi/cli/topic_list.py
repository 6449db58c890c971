"""What `octopi-node topics list` shows of each topic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import attrs

from octopi.identifiers import is_system_topic

if TYPE_CHECKING:
    from octopi import Client, TopicInfo
    from octopi.admin.cluster_snapshot import ClusterSnapshot

RATE_S: Final = 1.0
"""The time between the two looks at the ends of logs from which a rate follows (s)."""


@attrs.frozen
class ListedTopic:
    """A topic, with sums over its partitions.  None: no broker that could say it has answered."""

    info: TopicInfo
    message_count: int | None
    """The committed messages that are kept, counted once; None also if a broker can't count those
    of a log at present."""
    messages_bytes: int | None
    """The committed messages that are kept, in the records of one replica."""
    disk_bytes: int | None
    """The files of all replicas that answered."""
    written_bytes_per_s: float | None
    """How much is written in the leaders' logs; None also if that was not measured."""

    def as_json(self) -> dict[str, Any]:
        """The topic as `topics list --json` prints it."""
        sums = attrs.asdict(self, filter=lambda field, _: field.name != "info")
        return attrs.asdict(self.info) | sums


async def listed(client: Client, *, rates: bool, system: bool = False) -> list[ListedTopic]:
    """The topics of the cluster, by name; with *system* also those of the cluster itself.

    Raises:
      OctopiError: if the register can't be reached.
    """
    import trio

    from octopi.admin.cluster_snapshot import look
    from octopi.admin.message_counts import TopicCounts, count_messages

    infos = [one for one in await client.topics() if system or not is_system_topic(one.topic)]
    began = trio.current_time()
    first = await look(client, in_order=False)
    seen, seconds = first, 0.0
    if rates:
        await trio.sleep_until(began + RATE_S)
        again = trio.current_time()
        seen, seconds = await look(client, in_order=False), again - began
    before, after = _ends(first), _ends(seen)
    counts = TopicCounts(await count_messages(client, seen.cluster.brokers))
    sums = _Sums(seen)
    return [
        ListedTopic(
            info,
            counts.of_topic(info),
            sums.messages_bytes.get(info.topic_id),
            sums.disk_bytes.get(info.topic_id),
            _rate(info, before, after, seconds) if seconds else None,
        )
        for info in infos
    ]


ORDERS: Final[dict[str, Callable[[ListedTopic], Any]]] = {
    "name": lambda one: one.info.topic,
    "messages": lambda one: -(one.message_count or 0),
    "size": lambda one: -(one.messages_bytes or 0),
    "rate": lambda one: -(one.written_bytes_per_s or 0.0),
}
"""What topics are sorted by; the largest comes first."""


def in_order(topics: Iterable[ListedTopic], by: str) -> list[ListedTopic]:
    """*topics* in one of `ORDERS`, and by name where that is equal."""
    return sorted(topics, key=lambda one: (ORDERS[by](one), one.info.topic))


class _Sums:
    def __init__(self, seen: ClusterSnapshot) -> None:
        self.messages_bytes: defaultdict[str, int] = defaultdict(int)
        self.disk_bytes: defaultdict[str, int] = defaultdict(int)
        longest: dict[tuple[str, int], int] = {}
        for one in seen.logs:
            log = one.log
            self.disk_bytes[log.topic_id] += log.size_bytes
            key = log.topic_id, log.partition
            # Of the replicas, the one that knows most to be committed is the leader, or as good.
            longest[key] = max(longest.get(key, 0), log.highwater - log.log_start)
        for (topic_id, _), count_bytes in longest.items():
            self.messages_bytes[topic_id] += count_bytes


def _ends(seen: ClusterSnapshot) -> dict[tuple[str, int, int], int]:
    """The end of each log, by topic id, partition and broker."""
    return {(one.log.topic_id, one.log.partition, one.broker): one.log.log_end for one in seen.logs}


def _rate(
    info: TopicInfo,
    before: dict[tuple[str, int, int], int],
    after: dict[tuple[str, int, int], int],
    seconds: float,
) -> float | None:
    leaders = [
        (info.topic_id, int(one.partition), int(one.leader))
        for one in info.partitions
        if one.leader is not None
    ]
    known = [key for key in leaders if key in before and key in after]
    return sum(after[key] - before[key] for key in known) / seconds if known else None
