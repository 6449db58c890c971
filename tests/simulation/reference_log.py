"""Histories of a cluster that keeps its promises, in all the ways in which they may come about.

The cluster is the simplest that there is: each log is a list.  What varies is who does what
when: sends that are on their way together, retried, lost or of unknown outcome, leaders that
follow one another, consumers that stop, resume and seek, and what is noted of all that.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import attrs
from hypothesis import strategies as st

from octopi.record import encode_headers, record_size_bytes
from octopi.simulation.history.events import (
    Acknowledged,
    Assigned,
    Committed,
    Delivered,
    Failed,
    FinalLog,
    History,
    Invoked,
    LogName,
    OutcomeUnknown,
    PositionStored,
    ReachedEnd,
    Rested,
    Resumed,
    StoredMessage,
    unique_value,
)

LOGS: Final = (LogName("orders", 0), LogName("orders", 1))
PRODUCERS: Final = ("p1", "p2", "p3")
CONSUMERS: Final = ("c1", "c2")
STEPS: Final = (
    *("send", "store", "settle", "deliver") * 4,
    *("deliver", "lead", "save", "resume", "seek", "ask", "fail", "give up"),
)


@attrs.define
class _Sent:
    event: Invoked
    offset: int = -1
    """Where it is stored; -1: nowhere."""
    epoch: int = 0


class _Cluster:
    def __init__(self, sees_brokers: bool) -> None:
        self.history = History()
        self.logs: dict[LogName, list[StoredMessage]] = {log: [] for log in LOGS}
        self.sees_brokers = sees_brokers
        self.epoch = 1
        self.count = 0
        self.under_way: dict[tuple[str, LogName], deque[_Sent]] = {
            (producer, log): deque() for producer in PRODUCERS for log in LOGS
        }
        """Sent and not stored, in the order in which each producer sent them."""
        self.unsettled: list[_Sent] = []
        self.position: dict[tuple[str, LogName], int] = {}
        """Of each consumer that has begun; the number of the message that comes next."""
        self.saved: dict[tuple[str, LogName], int] = {}

    @property
    def now(self) -> float:
        return float(len(self.history.events))

    def end(self, log: LogName) -> int:
        return self.logs[log][-1].next_offset if self.logs[log] else 0

    def offset(self, log: LogName, number: int) -> int:
        return self.logs[log][number].offset if number < len(self.logs[log]) else self.end(log)

    def step(self, what: str, x: int, y: int) -> None:
        log = LOGS[x % len(LOGS)]
        match what:
            case "send":
                self.send(PRODUCERS[y % len(PRODUCERS)], log, x)
            case "store":
                self.store(PRODUCERS[y % len(PRODUCERS)], log)
            case "settle" | "fail" | "give up":
                if self.unsettled:
                    self.settle(self.unsettled[(x + y) % len(self.unsettled)], what)
            case "lead":
                self.epoch += 1
            case _:
                self.consume(what, CONSUMERS[y % len(CONSUMERS)], log, x)

    # --- producers ---------------------------------------------------------------------

    def send(self, producer: str, log: LogName, x: int) -> None:
        self.count += 1
        key = b"key" if x % 3 == 0 else None
        headers = {"n": b"%d" % x} if x % 4 == 0 else {}
        partition = log.partition if x < 6 else None
        value = unique_value(producer, self.count, 10 * x)
        sent = _Sent(Invoked(self.now, producer, log.topic, partition, value, key, headers))
        self.history.note(sent.event)
        self.under_way[producer, log].append(sent)
        self.unsettled.append(sent)

    def store(self, producer: str, log: LogName) -> None:
        """The leader gets what its producer sent first; it knows it again when it gets it
        twice, so that is the same as once."""
        if not self.under_way[producer, log]:
            return
        sent = self.under_way[producer, log].popleft()
        value, key, headers = sent.event[-3:]
        sent.offset, sent.epoch = self.end(log), self.epoch
        next_offset = sent.offset + record_size_bytes(value, key, encode_headers(headers))
        self.logs[log].append(StoredMessage(sent.offset, next_offset, value, key, headers))
        if self.sees_brokers:
            self.history.note(Committed(self.now, log, next_offset))

    def settle(self, sent: _Sent, what: str) -> None:
        """The producer gets its receipt, or gives up on it, or may not have it yet."""
        value = sent.event.value
        for log, messages in self.logs.items():
            for one in messages:
                if one.value == value and what != "give up":
                    receipt = Acknowledged(
                        self.now, log, value, one.offset, one.next_offset, sent.epoch
                    )
                    self.history.note(receipt)
                    self.unsettled.remove(sent)
                    return
        if what == "give up":  # it may be stored, and may be stored later
            self.history.note(OutcomeUnknown(self.now, value, "time-out"))
            self.unsettled.remove(sent)
        elif what == "fail":
            for queue in self.under_way.values():
                if sent in queue:
                    queue.remove(sent)
            self.history.note(Failed(self.now, value, "refused"))
            self.unsettled.remove(sent)

    # --- consumers ---------------------------------------------------------------------

    def consume(self, what: str, consumer: str, log: LogName, x: int) -> None:
        reading = consumer, log
        if reading not in self.position:
            self.position[reading] = 0
            if x % 2 == 0:  # where a consumer begins need not be noted
                self.history.note(Assigned(self.now, consumer, log, 0))
        number = self.position[reading]
        match what:
            case "deliver":
                self.deliver(consumer, log)
            case "save":
                self.saved[reading] = number
                self.history.note(PositionStored(self.now, consumer, log, self.offset(log, number)))
            case "resume":
                number = self.position[reading] = self.saved.get(reading, number)
                self.history.note(Resumed(self.now, consumer, log, self.offset(log, number)))
                self.saved[reading] = number
            case "seek":
                number = self.position[reading] = x % (len(self.logs[log]) + 1)
                self.saved.pop(reading, None)
                self.history.note(Assigned(self.now, consumer, log, self.offset(log, number)))
            case "ask":
                self.read_to_end(consumer, log)

    def deliver(self, consumer: str, log: LogName) -> bool:
        number = self.position[consumer, log]
        if number == len(self.logs[log]):
            return False
        self.position[consumer, log] += 1
        self.history.note(Delivered(self.now, consumer, log, *self.logs[log][number]))
        return True

    def read_to_end(self, consumer: str, log: LogName) -> None:
        since = self.now
        while self.deliver(consumer, log):
            pass
        self.history.note(ReachedEnd(self.now, consumer, log, self.end(log), since))

    def finish(self, is_read: bool) -> None:
        """Everything comes to rest."""
        for log in LOGS:
            for consumer in CONSUMERS:
                if (consumer, log) in self.position:
                    while self.deliver(consumer, log):
                        pass
                    self.history.note(Rested(self.now, consumer, log))
            if is_read:
                self.history.note(FinalLog(self.now, log, tuple(self.logs[log])))


@st.composite
def true_histories(draw: st.DrawFn, is_long: bool = False) -> History:
    """What may be noted of a cluster that keeps its promises; *is_long*: much, and up to the
    final reads."""
    cluster = _Cluster(sees_brokers=draw(st.booleans()))
    # Two bytes a step: one draw for all of them is many times faster than one for each.
    steps = draw(st.binary(min_size=100 if is_long else 0, max_size=200))
    for what, xy in zip(steps[::2], steps[1::2], strict=False):
        cluster.step(STEPS[what % len(STEPS)], xy & 7, xy >> 4 & 7)
    if is_long or draw(st.booleans()):
        cluster.finish(is_read=is_long or draw(st.booleans()))
    return cluster.history
