"""The outcome of a produced message, as an event of a history."""

from __future__ import annotations

from octopi.clients.producing.receipts import Receipt
from octopi.errors import OctopiError, OutcomeUnknownError
from octopi.simulation.history.events import Acknowledged, Failed, LogName, OutcomeUnknown


def outcome_of(
    now: float, value: bytes, outcome: Receipt | OctopiError
) -> Acknowledged | Failed | OutcomeUnknown:
    """The event at time *now* (s) that says what became of the message with *value*, by its receipt
    or by its error."""
    if not isinstance(outcome, Receipt):
        kind = OutcomeUnknown if isinstance(outcome, OutcomeUnknownError) else Failed
        return kind(now, value, str(outcome))
    log = LogName(outcome.topic, outcome.partition)
    offsets = outcome.offset, outcome.next_offset
    return Acknowledged(now, log, value, *offsets, outcome.epoch, outcome.duplicate)
