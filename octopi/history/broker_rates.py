"""Writes the rates of the logs of a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from octopi.history.rate_messages import LogCounters, LogName, RateMessages
from octopi.history.writer import HistoryAccess, write
from octopi.identifiers import RATES_TOPIC, is_internal, is_system_topic
from octopi.replication.partition_replica import Role
from octopi.roles.broker.identity import BrokerIdentity
from octopi.roles.broker.node import BrokerNode
from octopi.roles.broker.replica_manager import ReplicaManager


async def write_rates(node: BrokerNode, access: HistoryAccess) -> None:
    """Write the rates of a broker to `RATES_TOPIC`, until cancelled."""
    await write_rates_of(
        node.replicas, lambda: None if node.link is None else node.link.identity, access
    )


async def write_rates_of(
    replicas: ReplicaManager,
    identity: Callable[[], BrokerIdentity | None],
    access: HistoryAccess,
) -> None:
    """Likewise for the broker with *replicas*; *identity*: None until it is known."""
    messages = RateMessages()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_note_rates, replicas, identity, messages, access)
        await write(messages, RATES_TOPIC, access)


async def _note_rates(
    replicas: ReplicaManager,
    identity: Callable[[], BrokerIdentity | None],
    messages: RateMessages,
    access: HistoryAccess,
) -> None:
    clock = access.environment.clock
    due_at = clock.now()
    while True:
        known = identity()
        if known is not None and known.broker is not None:
            messages.note(
                known.broker,
                known.incarnation,
                clock.wall_ms(),
                clock.now(),
                counters_of(replicas),
            )
        due_at = max(due_at + access.interval_s, clock.now())
        await clock.sleep_until(due_at)


def counters_of(replicas: ReplicaManager) -> Mapping[LogName, LogCounters]:
    """The counters of the logs of a broker, but for those of system topics: else the history would
    tell of itself."""
    led = {
        replica.partition for replica in replicas.replicas if replica.machine.role == Role.LEADER
    }
    return {
        (log.topic.topic_id, log.partition): LogCounters(
            log.topic.topic,
            log.partition in led,
            log.appended_count,
            log.appended_bytes,
            log.delivered_bytes,
        )
        for log in replicas.store
        if not is_internal(log.topic.topic) and not is_system_topic(log.topic.topic)
    }
