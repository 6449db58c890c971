"""What became of a message, as an event of a history."""

from __future__ import annotations

from octopi.clients.producing.receipts import Receipt
from octopi.errors import OctopiError, OutcomeUnknownError
from octopi.simulation.history.events import Acknowledged, Failed, LogName, OutcomeUnknown


def outcome_of(
    now: float, value: bytes, outcome: Receipt | OctopiError
) -> Acknowledged | Failed | OutcomeUnknown:
    """That the message with *value* was stored where a receipt says, or what its error tells."""
    if not isinstance(outcome, Receipt):
        kind = OutcomeUnknown if isinstance(outcome, OutcomeUnknownError) else Failed
        return kind(now, value, str(outcome))
    log = LogName(outcome.topic, outcome.partition)
    offsets = outcome.offset, outcome.next_offset
    return Acknowledged(now, log, value, *offsets, outcome.epoch, outcome.duplicate)
