"""Finds where each message was observed, and compares the events of a history with each other.

Each log has one table, offset -> message, with what the first event about an offset says: a
receipt, a delivery or a final read.  Each later event is compared with the table, and with what its
consumer did before; a contradiction is an anomaly.  `octopi.simulation.history.checker` checks the
rules that need the whole history.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from sys import maxsize

from octopi.identifiers import Offset
from octopi.simulation.history.anomalies import Anomaly, Rule
from octopi.simulation.history.events import (
    Acknowledged,
    Assigned,
    Committed,
    Delivered,
    Event,
    Failed,
    FinalLog,
    HistoryError,
    Invoked,
    LogName,
    LossTold,
    OutcomeUnknown,
    PositionStored,
    ReachedEnd,
    Rested,
    Resumed,
    StartMoved,
    TopicCreation,
    TopicRemoval,
    name_of,
    show,
)
from octopi.simulation.history.tables import NEVER, ConsumerRead, LogFacts, MessageFacts


class HistoryIndex:
    """The contents of all events of a history.

    Raises:
      HistoryError: if two sends have the same value, or an outcome belongs to no send.
    """

    def __init__(self, events: list[Event]) -> None:
        self.faults: list[Anomaly] = []
        """The anomalies in the order in which they were found."""
        self.messages: dict[bytes, MessageFacts] = {}
        """Every value that was sent, or that was delivered without having been sent."""
        self.failed: list[tuple[int, MessageFacts]] = []
        """Sends that failed, each with the number of that event."""
        self.rested: list[tuple[int, ConsumerRead]] = []
        """Consumers that had the time to read everything, each with the number of that event."""
        self._events = events
        self._names: dict[bytes, bytes] = {}
        """Name -> value of all sent messages; made when it is needed."""
        self._copies: list[tuple[MessageFacts, MessageFacts]] = []
        """Pairs of a message and the same message at another place."""
        self._logs: dict[LogName, LogFacts] = {}
        self._removed: list[LogFacts] = []
        self._readings: dict[tuple[str, LogName], ConsumerRead] = {}
        self._gone: set[str] = set()
        """Topics that are being removed."""
        self._born: dict[str, int] = {}
        """Topics that were created again -> the number of that event."""
        self._read_events()
        for message, copy in self._copies:
            message.stored = max(message.stored, copy.stored)
            message.delivered = max(message.delivered, copy.delivered)

    @property
    def logs(self) -> list[LogFacts]:
        """All logs; those of removed topics first, in their state before the removal."""
        return [*self._removed, *self._logs.values()]

    def blame(
        self, rule: Rule, log: LogFacts, text: str, values: tuple[bytes, ...], *numbers: int
    ) -> None:
        """Note that a rule is broken: *text* says how, *values* are the messages and *numbers* the
        events concerned.  Nothing is noted if the removal of a topic explains it."""
        if log.is_gone:
            return
        for value in values:
            message = self.messages.get(value)
            if message is not None and NEVER < message.invoked < log.born:
                return
        events = tuple(sorted({number for number in numbers if number != NEVER}))
        self.faults.append(Anomaly(rule, log.name, text, tuple(dict.fromkeys(values)), events))

    # --- event by event ----------------------------------------------------------------

    def _read_events(self) -> None:
        """Read all events.  The frequent kinds of events are handled in this function, so that an
        event without contradiction costs only a few look-ups."""
        messages, logs, readings = self.messages, self._logs, self._readings
        for number, event in enumerate(self._events):
            if isinstance(event, Delivered):
                _, consumer, name, offset, next_offset, value, key, headers = event
                reading = readings.get((consumer, name)) or self._reading(consumer, name)
                log = reading.log
                message = log.messages.get(offset)
                if log.losses and self._is_of_lost(number, reading, event):
                    continue
                if offset != reading.position:
                    self._jump(number, reading, event)
                if (
                    message is None
                    or message.value != value
                    or message.next_offset != next_offset
                    or message.key != key
                    or (headers is not message.headers and headers != message.headers)
                ):
                    message = self._see(number, log, offset, next_offset, value, key, headers)
                if next_offset > log.highwater:
                    text = f"{event}, and the highwater mark is {log.highwater}"
                    self.blame(Rule.DIRTY_READ, log, text, (value,), number)
                message.delivered = number
                reading.position = next_offset
                reading.last = number
            elif isinstance(event, Invoked):
                value = event.value
                if value in messages:
                    raise _sent_again(number, event, messages[value])
                messages[value] = MessageFacts(number, event)
            elif isinstance(event, Acknowledged):
                _, name, value, offset, next_offset, epoch, _ = event
                message = messages.get(value) or self._settled(number, event)
                log = logs.get(name) or self._log(name)
                if log.losses and _is_lost(log, event):
                    message.lost, message.lost_offset = number, offset
                    continue
                message.acknowledged = number
                message.epoch = epoch
                if message.log is None and offset not in log.messages:
                    log.messages[offset] = message
                    message.log = log
                    message.offset = offset
                    message.next_offset = next_offset
                    message.seen = number
                elif (
                    message.log is not log
                    or message.offset != offset
                    or message.next_offset != next_offset
                ):
                    key, headers = message.key, message.headers
                    self._see(number, log, offset, next_offset, value, key, headers)
                if next_offset > log.acknowledged_end:
                    log.acknowledged_end = next_offset
                    log.tail.append(number)
            else:
                self._read_rare_event(number, event)

    def _read_rare_event(self, number: int, event: Event) -> None:
        match event:
            case Failed():
                self.failed.append((number, self._settled(number, event)))
            case OutcomeUnknown():
                self._settled(number, event)
            case Assigned():
                reading = self._reading(event.consumer, event.log)
                if event.forked:
                    self._fork(number, reading, event)
                reading.move(event.offset, number)
                reading.stored = reading.untold = reading.untold_stored = NEVER
            case PositionStored():
                self._store(number, self._reading(event.consumer, event.log), event.offset)
            case Resumed():
                self._resume(number, self._reading(event.consumer, event.log), event.offset)
            case ReachedEnd():
                self._end(number, self._log(event.log), event)
            case Rested():
                self.rested.append((number, self._reading(event.consumer, event.log)))
            case Committed():
                log = self._log(event.log)
                known = log.highwater != maxsize
                log.highwater = max(log.highwater, event.highwater) if known else event.highwater
            case StartMoved():
                log = self._log(event.log)
                log.start = max(log.start, event.start)
            case LossTold():
                self._lose(number, self._log(event.log), event)
            case FinalLog():
                self._read_final(number, self._log(event.log), event)
            case TopicRemoval():
                self._removed += self._forget(event.topic)
                self._gone.add(event.topic)
            case TopicCreation():
                if event.topic in self._gone:
                    self._forget(event.topic)
                    self._gone.remove(event.topic)
                    self._born[event.topic] = number

    def _settled(self, number: int, event: Acknowledged | Failed | OutcomeUnknown) -> MessageFacts:
        message = self.messages.get(event.value)
        if message is None or message.invoked == NEVER:
            raise HistoryError(
                f"event {number}: {event}, but nobody sent it before; "
                "note Invoked before you send, and the outcome when you have it"
            )
        return message

    def _log(self, name: LogName) -> LogFacts:
        if name not in self._logs:
            born = self._born.get(name.topic, NEVER)
            self._logs[name] = LogFacts(name, born, name.topic in self._gone)
        return self._logs[name]

    def _reading(self, consumer: str, name: LogName) -> ConsumerRead:
        if (consumer, name) not in self._readings:
            log = self._log(name)
            self._readings[consumer, name] = ConsumerRead(consumer, log)
            log.readings.append(self._readings[consumer, name])
        return self._readings[consumer, name]

    def _forget(self, topic: str) -> list[LogFacts]:
        """Have later events about *topic* refer to new logs."""
        forgotten = [log for name, log in self._logs.items() if name.topic == topic]
        for log in forgotten:
            log.is_removed = True
            del self._logs[log.name]
        for key in [key for key in self._readings if key[1].topic == topic]:
            del self._readings[key]
        return forgotten

    # --- events about messages ---------------------------------------------------------

    def _see(
        self,
        number: int,
        log: LogFacts,
        offset: Offset,
        next_offset: Offset,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes],
    ) -> MessageFacts:
        """The message that an event shows, if the table doesn't have exactly that."""
        known = log.messages.get(offset)
        message = self.messages.get(value)
        if message is None:
            message = self._see_unsent(number, log, offset, value, key, headers)
            if message.value != value:
                value, key, headers = message.value, message.key, message.headers
        elif key != message.key or headers != message.headers:
            what = "key" if key != message.key else "headers"
            text = f"{show(value)} at {offset} has other {what} than it was sent with"
            self.blame(Rule.CORRUPT, log, text, (value,), message.invoked, number)
        if known is None:
            if message.log is not None:
                message = self._see_elsewhere(number, log, offset, message)
            log.messages[offset] = message
            message.log, message.offset, message.next_offset = log, offset, next_offset
            message.seen = number
        elif known.value != value:
            text = f"{show(known.value)} and {show(value)} are both at {offset}"
            values = (known.value, value)
            self.blame(Rule.INCONSISTENT_OFFSET, log, text, values, known.seen, number)
            if message.log is None:
                message.log, message.offset, message.next_offset = log, offset, next_offset
                message.seen = number
        elif known.next_offset != next_offset:
            text = f"{show(value)} at {offset} ends at {known.next_offset} and at {next_offset}"
            self.blame(Rule.INCONSISTENT_OFFSET, log, text, (value,), known.seen, number)
            return known
        return message

    def _see_elsewhere(
        self, number: int, log: LogFacts, offset: Offset, message: MessageFacts
    ) -> MessageFacts:
        """A copy of *message*, which is known to lie at another place."""
        assert message.log is not None
        text = f"{show(message.value)} is at {message.offset}"
        text += f" and at {offset}" if log is message.log else f" of {message.log.name}, too"
        if message.stored == number or self._has_passed(number, message):
            rule, witness = Rule.DUPLICATE, max(message.delivered, message.stored)
        else:
            rule, witness = Rule.INCONSISTENT_OFFSET, message.seen
        self.blame(rule, log, text, (message.value,), witness, number)
        copy = MessageFacts(NEVER, message.sent)
        self._copies.append((message, copy))
        return copy

    def _has_passed(self, number: int, message: MessageFacts) -> bool:
        """Whether the consumer of an event got *message* before."""
        event = self._events[number]
        if message.delivered == NEVER or not isinstance(event, Delivered):
            return False
        reading = self._readings[event.consumer, event.log]
        return reading.log is message.log and reading.has_passed(Offset(message.offset))

    def _see_unsent(
        self,
        number: int,
        log: LogFacts,
        offset: Offset,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes],
    ) -> MessageFacts:
        """The message whose bytes were changed to *value*; otherwise a new one that was never
        sent."""
        if not self._names:
            sends = (event for event in self._events if isinstance(event, Invoked))
            self._names = {name_of(event.value): event.value for event in sends}
        known = log.messages.get(offset)
        original = self.messages.get(self._names.get(name_of(value), b""), known)
        if original is not None and original.invoked != NEVER:
            text = f"{show(original.value)} at {offset} is {_difference(original.value, value)}"
            values = (original.value, value)
            self.blame(Rule.CORRUPT, log, text, values, original.invoked, number)
            return original
        self.blame(Rule.PHANTOM, log, f"{show(value)} is at {offset}", (value,), number)
        nobody = Invoked(0.0, "nobody", log.name.topic, None, value, key, headers)
        self.messages[value] = MessageFacts(NEVER, nobody)
        return self.messages[value]

    # --- what is lost --------------------------------------------------------------------

    def _lose(self, number: int, log: LogFacts, event: LossTold) -> None:
        """Forget what is known of records behind the end of the loss."""
        log.losses.append((event.end, event.epoch, number))
        behind = [at for at, one in log.messages.items() if one.next_offset > event.end]
        for offset in behind:
            one = log.messages.pop(offset)
            one.log, one.lost, one.lost_offset = None, number, one.offset
            one.offset = one.next_offset = NEVER
            one.acknowledged = one.delivered = one.stored = one.seen = NEVER
        log.acknowledged_end = min(log.acknowledged_end, event.end)
        log.tail = [one for one in log.tail if self._acknowledged_end(one) <= event.end]
        for reading in log.readings:
            if reading.position > event.end:
                reading.untold = number
            if reading.stored > event.end:
                reading.untold_stored = number
            reading.ranges = [(start, min(end, event.end)) for start, end in reading.ranges]

    def _acknowledged_end(self, number: int) -> int:
        event = self._events[number]
        assert isinstance(event, Acknowledged)
        return event.next_offset

    def _is_of_lost(self, number: int, reading: ConsumerRead, event: Delivered) -> bool:
        """Whether a consumer gets a lost message, which may have been on its way.  If it gets one
        that came instead and wasn't told of the loss, note an anomaly.  A message at another offset
        isn't the lost one: the producer sent it to an earlier leader as well, whose log is in force
        now."""
        message = self.messages.get(event.value)
        if (
            message is not None
            and message.lost != NEVER
            and message.log is None
            and message.lost_offset == event.offset
        ):
            reading.position, reading.last = event.next_offset, number
            reading.untold = message.lost
            return True
        if reading.untold != NEVER:
            text = f"{reading.consumer} is handed {show(event.value)} at {event.offset}, and was "
            text += "not told that what it read before that is lost"
            told, reading.untold = reading.untold, NEVER
            self.blame(Rule.SILENT_FORK, reading.log, text, (event.value,), told, number)
        return False

    def _fork(self, number: int, reading: ConsumerRead, event: Assigned) -> None:
        """Check that a consumer is sent back at least as far as the end of what was kept."""
        for end, _, told in reading.log.losses:
            if told == reading.untold and event.offset > end:
                text = (
                    f"{reading.consumer} is sent back to {event.offset}, and what it read behind "
                )
                text += f"{end} is lost"
                self.blame(Rule.SILENT_FORK, reading.log, text, (), told, number)

    def _read_final(self, number: int, log: LogFacts, event: FinalLog) -> None:
        log.final = number
        log.end = log.start
        previous: tuple[bytes, ...] = ()
        for offset, next_offset, value, key, headers in event.messages:
            if offset > log.end or (previous and offset < log.end):
                text = f"{show(value)} is at {offset}, where {log.end} comes next"
                self.blame(Rule.NOT_DENSE, log, text, (*previous, value), number)
            message = log.messages.get(offset)
            if (
                message is None
                or message.value != value
                or message.next_offset != next_offset
                or message.key != key
                or (headers is not message.headers and headers != message.headers)
            ):
                message = self._see(number, log, offset, next_offset, value, key, headers)
            message.stored = number
            log.end = next_offset
            previous = (value,)

    # --- events about consumers --------------------------------------------------------

    def _jump(self, number: int, reading: ConsumerRead, event: Delivered) -> None:
        expected = reading.position
        if expected == NEVER:
            reading.move(event.offset, number)
            return
        rule = Rule.POLL_SKIP if event.offset > expected else Rule.NONMONOTONIC_POLL
        text = f"{event}, and {expected} comes next"
        values = [event.value]
        missed = reading.log.messages.get(expected)
        if missed is not None:
            text += f", where {show(missed.value)} is"
            values.append(missed.value)
        self.blame(rule, reading.log, text, tuple(values), reading.last, number)

    def _store(self, number: int, reading: ConsumerRead, offset: Offset) -> None:
        if reading.position != NEVER and offset > reading.position:
            text = f"{reading.consumer} stored {offset}, and was handed what lies before "
            text += f"{reading.position}"
            self.blame(Rule.POSITION_AHEAD, reading.log, text, (), reading.last, number)
        if offset < reading.stored:
            text = f"{reading.consumer} stored {offset} after {reading.stored}"
            numbers = (reading.stored_last, number)
            self.blame(Rule.POSITION_WENT_BACK, reading.log, text, (), *numbers)
        reading.stored, reading.stored_last = offset, number
        reading.untold_stored = reading.untold

    def _resume(self, number: int, reading: ConsumerRead, offset: Offset) -> None:
        has_stored = reading.stored != NEVER
        expected = reading.stored if has_stored else reading.position
        if expected not in {NEVER, offset}:
            rule = Rule.POLL_SKIP if offset > expected else Rule.POSITION_WENT_BACK
            text = f"{reading.consumer} resumes at {offset}, and its position is {expected}"
            last = reading.stored_last if has_stored else reading.last
            self.blame(rule, reading.log, text, (), last, number)
        reading.move(offset, number)
        reading.stored, reading.stored_last = offset, number
        reading.untold = reading.untold_stored

    def _end(self, number: int, log: LogFacts, event: ReachedEnd) -> None:
        before = bisect_left(log.tail, event.since, key=lambda one: self._events[one].at)
        if before:
            last = log.tail[before - 1]
            acknowledged = self._events[last]
            assert isinstance(acknowledged, Acknowledged)
            if acknowledged.next_offset > event.offset:
                text = f"{event}, and {show(acknowledged.value)} at {acknowledged.offset} "
                text += "was acknowledged before"
                self.blame(Rule.STALE_TAIL, log, text, (acknowledged.value,), last, number)


def _is_lost(log: LogFacts, event: Acknowledged) -> bool:
    """Whether a receipt is for a message that was lost before the receipt came."""
    return any(event.next_offset > end and event.epoch < epoch for end, epoch, _ in log.losses)


def _difference(sent: bytes, seen: bytes) -> str:
    """Where two values diverge."""
    same = next((at for at, (a, b) in enumerate(zip(sent, seen, strict=False)) if a != b), None)
    if same is None:
        return f"cut or lengthened from {len(sent)} to {len(seen)} bytes"
    return f"changed from byte {same} on, of {len(sent)} (now {len(seen)})"


def _sent_again(number: int, event: Invoked, before: MessageFacts) -> HistoryError:
    if before.invoked == NEVER:
        return HistoryError(
            f"event {number}: {event}, but it was seen before, in event {before.seen}; "
            "note Invoked before you send"
        )
    return HistoryError(
        f"event {number}: {event}, as event {before.invoked} did; "
        "give each message a value of its own (see unique_value)"
    )
