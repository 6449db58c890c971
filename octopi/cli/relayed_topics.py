"""What `octopi-node topics describe` prints of a topic in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octopi.admin.cluster_snapshot import RELAY_HEADINGS, relay_rows
from octopi.cli.output import say
from octopi.cli.rendering import print_table, size

if TYPE_CHECKING:
    from octopi import TopicInfo
    from octopi.admin.cluster_snapshot import ClusterSnapshot
    from octopi.clients.answers import BrokerCount


def print_relayed(
    info: TopicInfo, options: list[str], seen: ClusterSnapshot, counts: list[BrokerCount]
) -> None:
    """Print where a topic in memory is, and what its brokers hold.  *options*: the special ones."""
    count_of = {one.broker: one.log.count for one in counts}
    what = f"{info.topic} (id {info.topic_id}), in memory{': ' if options else ''}"
    say(what + ", ".join(options))
    say()
    print_table(RELAY_HEADINGS, relay_rows(info.partitions))
    say()
    rows: list[list[object]] = [
        [
            one.broker,
            count_of.get(one.broker),
            one.log.log_start,
            one.log.log_end,
            one.log.highwater,
            size(one.log.size_bytes),
        ]
        for one in seen.logs
    ]
    print_table(["BROKER", "MESSAGES", "START", "END", "HIGHWATER", "HELD"], rows)
