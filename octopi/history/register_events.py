"""Writes the events of a register."""

from __future__ import annotations

from octopi.history.event_messages import EventMessages
from octopi.history.writer import HistoryAccess, write
from octopi.identifiers import EVENTS_TOPIC
from octopi.roles.register.node import RegisterNode


async def write_events(node: RegisterNode, access: HistoryAccess) -> None:
    """Write the events of a register to `EVENTS_TOPIC`, until cancelled."""
    state = node.controller.state
    messages = EventMessages(node.events.after, lambda: state.life.nonce if state.cluster else "")
    await write(messages, EVENTS_TOPIC, access)
