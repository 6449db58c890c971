"""The producer's machine against a broker and a network that do their worst.

The model broker appends in sequence or not at all, exactly as a real one must; the model
network loses requests and answers, cuts connections, and lets copies arrive late over
connections that were given up long ago.  Whatever happens, the log has no message twice,
keeps the order of `add`, holds what was acknowledged, and lacks what was reported as
certainly not stored.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

import attrs
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octopi.clients.producing.batches import Batch, Stored
from octopi.clients.producing.effects import AskLeader, Fenced, FindLeader, Send, Settled
from octopi.clients.producing.producer_session import ProducerSession
from octopi.clients.producing.session_options import SessionOptions
from octopi.errors import (
    ConnectionLostError,
    NotDeliveredError,
    OutcomeUnknownError,
    Status,
    refused,
)
from octopi.identifiers import Epoch, Offset, PartitionId, ProducerId, TopicName
from octopi.record import NO_HEADERS, decode

OPTIONS = SessionOptions(
    linger_s=0.01,
    grown_batch_bytes=1000,
    batch_bytes=200,
    batches_in_flight=4,
    delivery_timeout_s=30.0,
    request_timeout_s=5.0,
)

BEFORE_APPEND = [
    Status.DISK_FULL,
    Status.NOT_LEADER,
    Status.RECORD_CHECKSUM,
    Status.MALFORMED_RECORD,
    Status.UNKNOWN_TOPIC,
]
AFTER_APPEND = [Status.UNCOMMITTED, Status.INTERNAL, Status.LOG_READ_ONLY]

fates = st.none() | st.sampled_from(["lost", *BEFORE_APPEND, *AFTER_APPEND])
"""What happens to a request: it is carried out, lost, or refused with a status, which for
some comes after the append."""

Answer = Stored | tuple[Status, str]


def numbers(records: bytes) -> list[int]:
    return [int(m.value) for m in decode(records, Offset(0), TopicName("t"), PartitionId(0))]


@attrs.define
class ModelBroker:
    """Appends a producer's records in sequence or not at all."""

    log: list[int] = attrs.Factory(list)
    epoch: int = -1
    next_sequence: int = 0
    receipts: dict[tuple[int, int], int] = attrs.Factory(dict)

    def judge(self, records: bytes) -> tuple[Status, str] | None:
        """Why these can't be appended or acknowledged, or None."""
        epoch, first, _ = self._ids(records)
        if self.epoch == -1:
            return None if first == 0 else (Status.UNKNOWN_PRODUCER, "who are you?")
        if epoch < self.epoch:
            return (Status.PRODUCER_FENCED, "an old epoch")
        expected = 0 if epoch > self.epoch else self.next_sequence
        return (Status.SEQUENCE_GAP, f"expected {expected}") if first > expected else None

    def append(self, records: bytes) -> Answer:
        why = self.judge(records)
        if why is not None:
            return why
        epoch, first, count = self._ids(records)
        if epoch == self.epoch and first < self.next_sequence:
            assert first + count <= self.next_sequence, "a batch was sent with other bounds"
            if (epoch, first) not in self.receipts:
                return (Status.RECEIPT_FORGOTTEN, "long ago")
            return Stored(Offset(self.receipts[epoch, first]), Epoch(1), True)
        self.epoch, self.next_sequence = epoch, first + count
        self.receipts[epoch, first] = len(self.log)
        self.log += numbers(records)
        return Stored(Offset(self.receipts[epoch, first]), Epoch(1), False)

    @staticmethod
    def _ids(records: bytes) -> tuple[int, int, int]:
        messages = decode(records, Offset(0), TopicName("t"), PartitionId(0))
        ids = [m.request_id for m in messages]
        sequences = [int.from_bytes(i[24:], "big") for i in ids]
        assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
        assert len({i[:24] for i in ids}) == 1
        return int.from_bytes(ids[0][16:20], "big"), sequences[0], len(messages)


@attrs.define
class ModelConnection:
    """Requests on their way to the broker, answers on their way back; each in order."""

    requests: deque[Send] = attrs.Factory(deque)
    answers: deque[tuple[Send, Answer]] = attrs.Factory(deque)


class ProducerSessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.session = ProducerSession("t/0", ProducerId(bytes(16)), OPTIONS)
        self.broker = ModelBroker()
        self.now = 0.0
        self.live: ModelConnection | None = None
        self.abandoned: list[ModelConnection] = []
        self.count = 0
        self.members: dict[Batch, list[int]] = {}
        self.sent: set[Batch] = set()
        self.settled: dict[Batch, object] = {}
        self.faults = 0

    def pump(self) -> None:
        self.session.check_invariants()
        for effect in self.session.advance(self.now):
            match effect:
                case Send(batch, _, records):
                    assert self.live is not None, "sent without a connection"
                    assert numbers(records) == self.members[batch]
                    self.sent.add(batch)
                    self.live.requests.append(effect)
                case Settled(batch):
                    assert batch not in self.settled, "settled twice"
                    self.settled[batch] = batch.outcome
                    self.check_outcome(batch)
                case FindLeader():
                    self.abandon()
                case AskLeader():
                    assert self.live is not None, "asked about nobody"
                    self.session.no_leader_found(self.now)
                case Fenced():
                    raise AssertionError("nobody else writes with this producer id")
        self.session.check_invariants()
        if not self.session.is_empty:
            assert self.session.wake_at() > self.now, "it would be woken at once again"

    def abandon(self) -> None:
        if self.live is not None:
            self.abandoned.append(self.live)
            self.live = None

    def check_outcome(self, batch: Batch) -> None:
        match batch.outcome:
            case Stored(offset, _, _):
                stored = self.broker.log[offset : offset + len(self.members[batch])]
                assert stored == self.members[batch]
            case OutcomeUnknownError():
                assert batch in self.sent, "what was never sent has a known outcome"
                assert self.faults or self.now >= OPTIONS.delivery_timeout_s
            case NotDeliveredError():
                assert not set(self.members[batch]) & set(self.broker.log)

    # --- the program ---

    @rule(sizes=st.lists(st.sampled_from([1, 60, 300]), max_size=8), seal=st.booleans())
    def add(self, sizes: list[int], seal: bool) -> None:
        for size in sizes:
            value = str(self.count).zfill(size).encode()
            batch = self.session.add(value, None, NO_HEADERS, 0, self.now)
            self.members.setdefault(batch, []).append(self.count)
            self.count += 1
        if seal:
            self.session.seal()
        self.pump()

    @rule()
    def wait_for_the_newest(self) -> None:
        if self.session.open_batch is not None:
            self.session.hurry(self.session.open_batch)
            self.pump()

    # --- the network ---

    def connect(self) -> None:
        if self.live is None:
            self.live = ModelConnection()
            self.session.connected()
            self.pump()

    @rule()
    def lose_connection(self) -> None:
        """With all that is on its way; the requests may still arrive."""
        self.faults += 1
        self.abandon()
        self.session.disconnected(ConnectionLostError("gone"))
        self.pump()

    @rule(fates=st.lists(fates, min_size=1, max_size=8), tell=st.integers(0, 8))
    def exchange(self, fates: list[Status | Literal["lost"] | None], tell: int) -> None:
        """The broker gets requests, in order; then some answers arrive."""
        self.connect()
        connection = self.live
        assert connection is not None
        for fate in fates:
            if not connection.requests:
                break
            request = connection.requests.popleft()
            answer: Answer
            if fate is None:
                answer = self.broker.append(request.records)
            elif fate == "lost":
                continue
            else:
                if fate not in BEFORE_APPEND:
                    self.broker.append(request.records)
                answer = (fate, "no")
            self.faults += fate is not None
            connection.answers.append((request, answer))
        for _ in range(min(tell, len(connection.answers))):
            self.tell(connection)

    def tell(self, connection: ModelConnection) -> None:
        request, answer = connection.answers.popleft()
        if isinstance(answer, Stored):
            self.session.answered(request.batch, request.attempt, answer)
        else:
            self.session.refused(request.batch, request.attempt, refused(*answer))
        self.pump()

    @precondition(lambda self: any(c.requests for c in self.abandoned))
    @rule(data=st.data())
    def a_late_copy_arrives(self, data: st.DataObject) -> None:
        at = data.draw(st.sampled_from([c for c in self.abandoned if c.requests]))
        self.broker.append(at.requests.popleft().records)

    @precondition(lambda self: self.abandoned)
    @rule()
    def late_copies_vanish(self) -> None:
        self.abandoned.pop(0)

    @precondition(lambda self: any(c.answers for c in self.abandoned))
    @rule(data=st.data())
    def a_late_answer_arrives(self, data: st.DataObject) -> None:
        self.tell(data.draw(st.sampled_from([c for c in self.abandoned if c.answers])))

    @precondition(lambda self: self.broker.next_sequence > 0 and not self.zero_is_about())
    @rule()
    def the_broker_forgets_the_producer(self) -> None:
        """Never while sequence 0 could come again: then a broker can't tell it from new."""
        self.faults += 1
        self.broker.epoch, self.broker.next_sequence = -1, 0
        self.broker.receipts.clear()

    def zero_is_about(self) -> bool:
        connections = [*self.abandoned, *([self.live] if self.live else [])]
        return any(connection.requests for connection in connections) or any(
            batch.first_sequence == 0 and len(batch) > 0 for batch in self.members
        )

    @precondition(lambda self: self.broker.receipts)
    @rule()
    def the_broker_forgets_receipts(self) -> None:
        self.faults += 1
        self.broker.receipts.clear()

    # --- time ---

    @rule(seconds=st.sampled_from([0.005, 0.02, 1.0, 6.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.pump()

    @rule()
    def woken(self) -> None:
        if self.session.wake_at() < float("inf"):
            self.now = max(self.now, self.session.wake_at())
            self.pump()

    # --- what always holds ---

    @invariant()
    def the_log_has_everything_once_and_in_order(self) -> None:
        assert self.broker.log == sorted(set(self.broker.log))

    @invariant()
    def outcomes_stay_true(self) -> None:
        for batch in self.settled:
            if not isinstance(batch.outcome, OutcomeUnknownError):
                self.check_outcome(batch)

    def teardown(self) -> None:
        for connection in self.abandoned:
            for request in connection.requests:
                self.broker.append(request.records)
        for _ in range(100):
            if self.session.is_empty:
                break
            self.connect()
            self.session.seal()
            self.pump()
            while self.live is not None and (self.live.requests or self.live.answers):
                self.exchange([None], 1)
            if self.live is not None and not self.session.is_empty:
                self.lose_connection()  # an answer that was forgotten: it is asked for again
        assert self.session.is_empty
        assert set(self.settled) == set(self.members)
        self.the_log_has_everything_once_and_in_order()
        self.outcomes_stay_true()


ProducerSessionMachine.TestCase.settings = settings(max_examples=300, stateful_step_count=50)
TestProducerSessionAgainstAModel = ProducerSessionMachine.TestCase
