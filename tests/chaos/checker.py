"""What no client may ever see, looked for in the history of all of them.

Pure: a history and the logs as they are in the end go in, faults come out.  Offsets give
every log one order, so nothing has to be searched: each rule is one pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise

import attrs

from tests.chaos.history import (
    Acknowledged,
    Delivered,
    Failed,
    FinalLogs,
    History,
    Invoked,
    LogName,
    StoredMessage,
)


class Rule(Enum):
    """What a fault breaks; the texts say what was seen."""

    LOST = "acknowledged, and not in the log"
    DOUBLED = "in the log more than once"
    TWO_OFFSETS = "one value at two offsets"
    TWO_VALUES = "two values at one offset"
    REORDERED = "a producer's messages in another order than they were sent in"
    OVERTAKEN = "stored before a message that was acknowledged before it was sent"
    EPOCH_WENT_BACK = "a later message of a log acknowledged in an older epoch"
    VANISHED = "delivered, and not in the log"
    ABORTED = "surely not delivered, and in the log or delivered"
    INVENTED = "in the log, and sent by nobody"
    CONTRADICTED = "delivered otherwise than the log has it"
    SKIPPED = "a consumer missed what lies between two messages"
    REPEATED = "a consumer was handed again what it had, or what lies before that"
    UNSEEN = "a consumer that had the time did not get to the end of the log"
    NOT_DENSE = "the messages of a log don't lie one behind the other"


@attrs.frozen
class Fault:
    """One rule broken once."""

    rule: Rule
    log: LogName | None
    text: str
    values: frozenset[bytes] = frozenset()
    """What to look up in the history."""

    def __str__(self) -> str:
        return f"{self.rule.name}: {self.log}: {self.text} ({self.rule.value})"


def check(
    history: History, final: FinalLogs, finished: dict[str, set[LogName]] | None = None
) -> list[Fault]:
    """Every fault in *history*, given the *final* logs.  *finished*: consumers that were
    given the time to read all of these logs."""
    return [
        *_check_logs(final),
        *_check_producers(history, final),
        *_check_consumers(history, final, finished or {}),
    ]


def _check_logs(final: FinalLogs) -> Iterator[Fault]:
    where: dict[bytes, tuple[LogName, int]] = {}
    for log, messages in final.items():
        end: int | None = None
        for message in messages:
            first = where.setdefault(message.value, (log, message.offset))
            if first != (log, message.offset):
                text = f"{_show(message.value)} at {first[0]}@{first[1]} and @{message.offset}"
                yield Fault(Rule.DOUBLED, log, text, frozenset({message.value}))
            if end is not None and message.offset != end:
                text = f"@{message.offset} follows what ends at {end}"
                yield Fault(Rule.NOT_DENSE, log, text, frozenset({message.value}))
            end = message.next_offset


def _check_producers(history: History, final: FinalLogs) -> Iterator[Fault]:
    invoked = {one.value: one for one in history.events if isinstance(one, Invoked)}
    acknowledged = [one for one in history.events if isinstance(one, Acknowledged)]
    stored = {message.value: log for log, messages in final.items() for message in messages}
    by_offset = {
        (log, message.offset): message for log, messages in final.items() for message in messages
    }
    for one in acknowledged:
        found = by_offset.get((one.log, one.offset))
        if stored.get(one.value) != one.log:
            text = f"{_show(one.value)} acknowledged @{one.offset} in epoch {one.epoch}"
            yield Fault(Rule.LOST, one.log, text, frozenset({one.value}))
        elif found is None or found.value != one.value:
            text = f"{_show(one.value)} acknowledged @{one.offset}, where the log has " + (
                _show(found.value) if found is not None else "nothing"
            )
            yield Fault(Rule.TWO_OFFSETS, one.log, text, frozenset({one.value}))
    for failed in (one for one in history.events if isinstance(one, Failed)):
        if failed.value in stored:
            text = f"{_show(failed.value)} failed ({failed.why})"
            yield Fault(Rule.ABORTED, stored[failed.value], text, frozenset({failed.value}))
    for log, messages in final.items():
        for message in messages:
            if message.value not in invoked:
                text = f"{_show(message.value)} @{message.offset}"
                yield Fault(Rule.INVENTED, log, text, frozenset({message.value}))
    yield from _check_order(history, invoked, final)
    yield from _check_receipts(acknowledged)


def _check_order(
    history: History, invoked: dict[bytes, Invoked], final: FinalLogs
) -> Iterator[Fault]:
    place = {one.value: n for n, one in enumerate(history.events) if isinstance(one, Invoked)}
    acknowledged_at = {one.value: one.at for one in history.events if isinstance(one, Acknowledged)}
    for log, messages in final.items():
        last: dict[str, bytes] = {}
        for message in messages:
            sent = invoked.get(message.value)
            if sent is None:
                continue
            before = last.get(sent.producer)
            if before is not None and place[before] > place[message.value]:
                text = f"{_show(before)} lies before {_show(message.value)} @{message.offset}"
                yield Fault(Rule.REORDERED, log, text, frozenset({before, message.value}))
            last[sent.producer] = message.value
        earliest: tuple[float, bytes] | None = None
        """Of what lies behind: when it was acknowledged, at the earliest."""
        for message in reversed(messages):
            sent = invoked.get(message.value)
            if sent is not None and earliest is not None and earliest[0] < sent.at:
                text = f"{_show(message.value)} @{message.offset} lies before {_show(earliest[1])}"
                yield Fault(Rule.OVERTAKEN, log, text, frozenset({earliest[1], message.value}))
            at = acknowledged_at.get(message.value)
            if at is not None and (earliest is None or at < earliest[0]):
                earliest = at, message.value


def _check_receipts(acknowledged: list[Acknowledged]) -> Iterator[Fault]:
    by_log: dict[LogName, list[Acknowledged]] = defaultdict(list)
    for one in acknowledged:
        by_log[one.log].append(one)
    for log, receipts in by_log.items():
        receipts.sort(key=lambda one: one.offset)
        for before, after in pairwise(receipts):
            values = frozenset({before.value, after.value})
            if before.offset == after.offset and before.value != after.value:
                text = f"{_show(before.value)} and {_show(after.value)} @{after.offset}"
                yield Fault(Rule.TWO_VALUES, log, text, values)
            if after.epoch < before.epoch:
                text = (
                    f"{_show(after.value)} @{after.offset} in epoch {after.epoch}, behind "
                    f"@{before.offset} in epoch {before.epoch}"
                )
                yield Fault(Rule.EPOCH_WENT_BACK, log, text, values)


def _check_consumers(
    history: History, final: FinalLogs, finished: dict[str, set[LogName]]
) -> Iterator[Fault]:
    by_offset = {
        (log, message.offset): message for log, messages in final.items() for message in messages
    }
    failed = {one.value for one in history.events if isinstance(one, Failed)}
    stored = {(log, message.value) for log, messages in final.items() for message in messages}
    seen_at: dict[tuple[LogName, int], Delivered] = {}
    seen_value: dict[bytes, Delivered] = {}
    position: dict[tuple[str, LogName], int] = {}
    for one in history.events:
        if not isinstance(one, Delivered):
            continue
        who = f"{one.consumer} got {_show(one.value)} @{one.offset}"
        values = frozenset({one.value})
        expected = position.get((one.consumer, one.log), 0)
        if one.offset != expected:
            rule = Rule.SKIPPED if one.offset > expected else Rule.REPEATED
            yield Fault(rule, one.log, f"{who}, and {expected} came next", values)
        position[one.consumer, one.log] = one.next_offset
        yield from _check_delivery(one, who, by_offset, stored)
        if one.value in failed:
            yield Fault(Rule.ABORTED, one.log, who, values)
        at = seen_at.setdefault((one.log, one.offset), one)
        if at.value != one.value:
            text = f"{who}, {at.consumer} got {_show(at.value)} there"
            yield Fault(Rule.TWO_VALUES, one.log, text, values | {at.value})
        same = seen_value.setdefault(one.value, one)
        if (same.log, same.offset) != (one.log, one.offset):
            text = f"{who}, {same.consumer} got it at {same.log}@{same.offset}"
            yield Fault(Rule.TWO_OFFSETS, one.log, text, values)
    for consumer, logs in finished.items():
        for log in logs:
            end = final[log][-1].next_offset if final.get(log) else 0
            at_end = position.get((consumer, log), 0)
            if at_end < end:
                text = f"{consumer} got to {at_end} of {end}"
                yield Fault(Rule.UNSEEN, log, text)


def _check_delivery(
    one: Delivered,
    who: str,
    by_offset: dict[tuple[LogName, int], StoredMessage],
    stored: set[tuple[LogName, bytes]],
) -> Iterator[Fault]:
    found = by_offset.get((one.log, one.offset))
    values = frozenset({one.value})
    if (one.log, one.value) not in stored:
        yield Fault(Rule.VANISHED, one.log, who, values)
    if found is None or found != (one.offset, one.next_offset, one.value):
        has = f"{_show(found.value)} up to {found.next_offset}" if found else "nothing"
        yield Fault(Rule.CONTRADICTED, one.log, f"{who}, where the log has {has}", values)


def _show(value: bytes) -> str:
    return value[:24].decode(errors="replace").rstrip(".")
