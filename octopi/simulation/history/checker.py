"""Checks the history of all clients for violations of the rules.

This module does no I/O: from a history it makes a list of anomalies, always in the same order.
Offsets order every log, so no search for an order is needed: `octopi.simulation.history.index`
reads the events once, and each rule here goes through the messages once.

Only what the history shows can be an anomaly: without a final read nothing is missing from the end
of a log, and without its start a consumer may begin anywhere.
"""

from __future__ import annotations

from typing import Final

from octopi.identifiers import Offset
from octopi.record import HEADER_BYTES, STRUCTURED_BYTES_MIN, encode_headers, record_size_bytes
from octopi.simulation.history.anomalies import Anomaly, Rule
from octopi.simulation.history.events import History, show
from octopi.simulation.history.index import HistoryIndex
from octopi.simulation.history.tables import NEVER, LogFacts, MessageFacts

__all__ = ["Anomaly", "Rule", "check"]

_RULES: Final = list(Rule)


def check(history: History) -> list[Anomaly]:
    """All anomalies in *history*, in the order in which they became visible; empty if there are
    none.

    This takes about a microsecond per event.

    Raises:
      HistoryError: if two sends have the same value, or an outcome belongs to no send.
    """
    history_index = HistoryIndex(history.events)
    for log in history_index.logs:
        messages = [log.messages[offset] for offset in sorted(log.messages)]
        _check_bytes(history_index, log, messages)
        sent = [one for one in messages if one.invoked != NEVER]
        _check_sends(history_index, log, sent)
        _check_receipts(history_index, log, sent)
    _check_missing(history_index)
    _check_failed(history_index)
    _check_rested(history_index)
    return sorted(
        history_index.faults, key=lambda one: (one.events[-1], _RULES.index(one.rule), one.events)
    )


def _check_bytes(history_index: HistoryIndex, log: LogFacts, messages: list[MessageFacts]) -> None:
    """Check that records have the sizes of their messages and don't overlap."""
    end = 0
    previous: MessageFacts | None = None
    for one in messages:
        size_bytes = one.next_offset - one.offset
        if (
            size_bytes != STRUCTURED_BYTES_MIN + len(one.value) or one.key or one.headers
        ) and size_bytes not in _sizes_bytes(one):
            text = f"{show(one.value)} from {one.offset} to {one.next_offset} has {size_bytes} "
            text += f"bytes, its record has {_sizes_bytes(one)[0]}"
            history_index.blame(Rule.NOT_DENSE, log, text, (one.value,), one.seen)
        # With a final read, the stricter rule applies that it has no gaps.
        if one.offset < end and previous is not None and log.final == NEVER:
            text = f"{show(one.value)} begins at {one.offset}, within {show(previous.value)}, "
            text += f"which lies from {previous.offset} to {end}"
            values = (previous.value, one.value)
            history_index.blame(Rule.NOT_DENSE, log, text, values, previous.seen, one.seen)
        end = one.next_offset
        previous = one


def _sizes_bytes(message: MessageFacts) -> tuple[int, ...]:
    """The sizes that the record of *message* may have; see `octopi.record`."""
    size_bytes = record_size_bytes(message.value, message.key, encode_headers(message.headers))
    if message.key is None and not message.headers:
        return size_bytes, HEADER_BYTES + len(message.value)  # version 1
    return (size_bytes,)


def _check_sends(history_index: HistoryIndex, log: LogFacts, messages: list[MessageFacts]) -> None:
    """Check that messages lie in the log that they were sent to, in the order in which they were
    sent."""
    topic, partition = log.name
    last: dict[str, MessageFacts] = {}
    for one in messages:
        sent = one.sent
        if sent.topic != topic or (sent.partition != partition and sent.partition is not None):
            text = f"{sent}, and it is in {log.name} at {one.offset}"
            history_index.blame(Rule.WRONG_LOG, log, text, (one.value,), one.invoked, one.seen)
        before = last.get(sent.producer)
        if before is not None and before.invoked > one.invoked:
            text = f"{sent.producer} sent {show(one.value)} first, which is at {one.offset}, "
            text += f"and then {show(before.value)}, which is at {before.offset}"
            values, numbers = (one.value, before.value), (one.invoked, before.invoked)
            history_index.blame(Rule.NONMONOTONIC_SEND, log, text, values, *numbers)
        last[sent.producer] = one


def _check_receipts(
    history_index: HistoryIndex, log: LogFacts, messages: list[MessageFacts]
) -> None:
    """Check, from the end of the log, that no message behind another one was acknowledged before
    that one was sent, or in an older epoch."""
    earliest: MessageFacts | None = None
    """The message behind the present one that was acknowledged first."""
    behind: MessageFacts | None = None
    """The next acknowledged message."""
    for one in reversed(messages):
        if earliest is not None and earliest.acknowledged < one.invoked:
            text = f"{show(earliest.value)} at {earliest.offset} was acknowledged before "
            text += f"{show(one.value)} was sent, which is at {one.offset}"
            values, numbers = (earliest.value, one.value), (earliest.acknowledged, one.invoked)
            history_index.blame(Rule.REAL_TIME_ORDER, log, text, values, *numbers)
        if one.acknowledged == NEVER:
            continue
        if behind is not None and behind.epoch < one.epoch:
            text = f"{show(one.value)} at {one.offset} was acknowledged in epoch {one.epoch}, "
            text += f"{show(behind.value)} at {behind.offset} in epoch {behind.epoch}"
            values, numbers = (one.value, behind.value), (one.acknowledged, behind.acknowledged)
            history_index.blame(Rule.EPOCH_WENT_BACK, log, text, values, *numbers)
        behind = one
        if earliest is None or one.acknowledged < earliest.acknowledged:
            earliest = one


def _check_missing(history_index: HistoryIndex) -> None:
    """Check that acknowledged and delivered messages are in the log."""
    for one in history_index.messages.values():
        log = one.log
        if log is None or log.is_removed or one.offset < log.start:
            continue
        if log.final == NEVER:
            if one.acknowledged != NEVER and one.delivered == NEVER:
                _check_passed(history_index, one, log)
        elif one.stored != log.final:
            what = f"{show(one.value)} at {one.offset} was"
            if one.acknowledged != NEVER:
                text = f"{what} acknowledged in epoch {one.epoch}, and is not in the log"
                numbers = (one.acknowledged, log.final)
                history_index.blame(Rule.LOST_WRITE, log, text, (one.value,), *numbers)
            if one.delivered != NEVER:
                text = f"{what} handed out, and is not in the log"
                numbers = (one.delivered, log.final)
                history_index.blame(Rule.DIRTY_READ, log, text, (one.value,), *numbers)


def _check_passed(history_index: HistoryIndex, one: MessageFacts, log: LogFacts) -> None:
    """Check that no consumer has read past *one*, which was delivered to none."""
    for reading in log.readings:
        if reading.has_passed(Offset(one.offset)):
            text = f"{show(one.value)} at {one.offset} was acknowledged in epoch {one.epoch}, "
            text += f"and {reading.consumer} read past it without being handed it"
            numbers = (one.acknowledged, reading.last)
            history_index.blame(Rule.LOST_WRITE, log, text, (one.value,), *numbers)
            return


def _check_failed(history_index: HistoryIndex) -> None:
    """Check that failed messages are in no log."""
    for number, one in history_index.failed:
        if one.log is not None:
            text = f"{show(one.value)} failed, and is at {one.offset}"
            last = max(one.stored, one.delivered, one.acknowledged, one.seen)
            history_index.blame(Rule.ABORTED_READ, one.log, text, (one.value,), number, last)


def _check_rested(history_index: HistoryIndex) -> None:
    """Check that consumers that had the time have read to the end."""
    for number, reading in history_index.rested:
        log = reading.log
        end = log.acknowledged_end if log.final == NEVER else log.end
        position = max(reading.position, 0)
        if position < end and not log.is_removed:
            text = f"{reading.consumer} was handed what lies before {position}, and the log "
            text += f"ends at {end}"
            waiting = [offset for offset in log.messages if offset >= position]
            values: tuple[bytes, ...] = ()
            numbers = [reading.last, number]
            if waiting:
                one = log.messages[min(waiting)]
                values = (one.value,)
                numbers.append(max(one.acknowledged, one.seen))
            history_index.blame(Rule.UNSEEN, log, text, values, *numbers)
