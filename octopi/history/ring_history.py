"""Writes what a broker of a cluster without a register noted, and its rates."""

from __future__ import annotations

import trio

from octopi.history.broker_rates import write_rates_of
from octopi.history.event_messages import EventMessages
from octopi.history.writer import HistoryAccess, write
from octopi.identifiers import EVENTS_TOPIC
from octopi.roles.broker.ring.node import RingBroker
from octopi.wire.messages import ClusterEvent


async def write_ring_history(node: RingBroker, access: HistoryAccess) -> None:
    """Write the events of a broker to `EVENTS_TOPIC`, and its rates to `RATES_TOPIC`, until
    cancelled.  All brokers write to the same topics, each only what it noted itself."""

    def after(number: int) -> list[ClusterEvent]:
        return [] if node.member is None else node.member.events.after(number)

    def life() -> str:
        return "" if node.member is None else node.member.identity.nonce

    events = EventMessages(after, life)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, events, EVENTS_TOPIC, access)
        await write_rates_of(
            node.replicas, lambda: None if node.member is None else node.member.identity, access
        )
