"""The rules of queues: sound histories pass, and each broken one is named."""

from __future__ import annotations

from collections.abc import Sequence as Some
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from octopi.identifiers import (
    Claim,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence,
    SubscriptionId,
    SubscriptionName,
    TopicId,
    TopicName,
)
from octopi.model import SubscriptionMode
from octopi.position import NO_ANCHOR
from octopi.record import BatchBuilder, Message, decode
from octopi.roles.broker.subscriptions.letters import letter_records
from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.disk.log_bytes import LogBytes
from octopi.simulation.invariants.queues import ACKNOWLEDGED, CONFIRMED, QueueRules
from octopi.simulation.kernel.world import Event
from octopi.subscriptions.effects import AppendLetter
from octopi.subscriptions.entries import (
    LetterEntry,
    LetterSequence,
    MarkEntry,
    QueueEntry,
    mark_key,
    to_map,
)
from octopi.tracing import steps
from octopi.tracing.step import Step
from tests.simulation.told import step_event

SID, TOPIC_ID = SubscriptionId("51" * 8), TopicId("0a" * 8)
TOPIC, PARTITION = TopicName("orders"), PartitionId(0)
DEAD = TopicName("orders.work.dead")
ANN, BOB = 1, 2
"""Attaches of two members."""


class FakeLog:
    """One log on the leader's disk."""

    start = 0

    def __init__(self) -> None:
        self.data = b""

    @property
    def end(self) -> int:
        return len(self.data)

    def read(self, start: int, end: int) -> bytes:
        return self.data[start:end]


class Judged:
    """The rules, and the leader of a queue in one log; messages and deliveries have numbers."""

    def __init__(self, keys: str = "----", *, attempts: int | None = 2, window: int = 3) -> None:
        """*keys*: that of each message; ``-``: none.  With any key the queue is ordered."""
        self.broken: list[str] = []
        record = SimpleNamespace(leader=1, epoch=1)
        state = SimpleNamespace(partitions={PARTITION: record}, brokers={})
        cluster = SimpleNamespace(
            decided=SimpleNamespace(state=state), host_of=lambda one: f"broker-{one}"
        )
        self.rules = QueueRules(cast(SimulatedCluster, cluster), self._break)
        self.logs = {TOPIC: FakeLog(), DEAD: FakeLog()}
        self.rules._log = self._log  # type: ignore[method-assign, assignment]
        builder, self.offsets = BatchBuilder(), list[Offset]()
        for number, key in enumerate(keys):
            name = None if key == "-" else key.encode()
            self.offsets.append(Offset(builder.add(b"%d" % number, name, {"n": b"1"})))
        self.offsets.append(Offset(builder.size_bytes))
        producer = ProducerId(bytes(16))
        self.logs[TOPIC].data = builder.encode(producer, ProducerEpoch(0), Sequence(0))
        ordered = SubscriptionMode.KEY_SHARED
        mode = SubscriptionMode.SHARED if set(keys) == {"-"} else ordered
        self.entry = MarkEntry(
            SubscriptionName("work"),
            TOPIC,
            Offset(0),
            mode=mode,
            attempts=attempts,
            window=window,
        )
        self.epoch = 1
        self.load()

    def _log(self, host: str, topic: str, partition: PartitionId) -> LogBytes:
        return cast(LogBytes, self.logs[TopicName(topic)])

    def _break(self, rule: str, text: str, event: Event, *others: Event) -> None:
        assert SID in text
        self.broken.append(rule)

    def come(self, step: type[Step], **facts: Any) -> None:  # noqa: ANN401
        self._take(step_event(step, partition=0, epoch=self.epoch, **facts))

    def say(self, what: str, number: int) -> None:
        facts = {"sid": SID, "topic": TOPIC, "partition": 0, "attempt": 1}
        self._take(Event(0, 0.0, "member-1", 1, what, {**facts, "offset": self.offsets[number]}))

    def _take(self, event: Event) -> None:
        handler = self.rules.handlers.of(event)
        assert handler is not None
        handler(event)

    def load(self) -> None:
        """A leader begins with what is committed."""
        self.come(steps.S13Loaded, states={mark_key(SID, TOPIC_ID): to_map(self.entry)})

    def change_leader(self) -> None:
        self.epoch += 1
        self.load()

    def store(self, *settled: int, commit: bool = True, **queue: Any) -> None:  # noqa: ANN401
        """The leader stores that these messages are settled, beside those before the mark."""
        ranges, at = list[int](), self.entry.mark
        for number in settled:
            begin, end = self.offsets[number], self.offsets[number + 1]
            if ranges and begin == at:
                ranges[-1] += end - begin
            else:
                ranges += (begin - at, end - begin)
            at = end
        kept = {
            "sequence": self.entry.queue.sequence,
            "letter_count": self.entry.queue.letter_count,
        }
        entry = QueueEntry(ranges, **{**kept, **queue})
        self.put(attrs.evolve(self.entry, queue=entry), commit=commit)

    def put(self, entry: MarkEntry, *, commit: bool = True) -> None:
        claim = int(entry.claim)
        where = {"sid": SID, "topic": TOPIC, "topic_id": TOPIC_ID}
        self.come(steps.S9Storing, **where, mark=entry.mark, claim=claim)
        if commit:
            self.entry = entry
            self.come(steps.S10Hearing, key=mark_key(SID, TOPIC_ID), value=to_map(entry))

    def give_up(self, *numbers: int) -> None:
        """It is committed that these messages are dead letters 0, 1, and so on."""
        letters = [LetterEntry(self.offsets[one], at, 2) for at, one in enumerate(numbers)]
        sequence = LetterSequence(TopicId("0b" * 8), 1, 0)
        self.store(letters=letters, letter_count=len(numbers), sequence=sequence)

    def deal(self, *dealt: tuple[int, int], to: int = ANN) -> None:
        """Numbers of messages, and attempts."""
        some = [[self.offsets[one], self.offsets[one + 1], attempt] for one, attempt in dealt]
        self.come(steps.S6Dealing, sid=SID, topic_id=TOPIC_ID, session=to, dealt=some)

    def answer(
        self,
        *acknowledged: tuple[int, int],
        by: int = ANN,
        released: Some[tuple[int, int]] = (),
        rejected: Some[tuple[int, int]] = (),
        extended: Some[tuple[int, int]] = (),
        confirm: int | None = None,
        at: float = 0.0,
    ) -> None:
        def plain(some: Some[tuple[int, int]]) -> list[list[int]]:
            return [[self.offsets[one], attempt] for one, attempt in some]

        self.come(
            steps.S7Answering,
            sid=SID,
            session=by,
            acknowledge=confirm,
            acknowledged=plain(acknowledged),
            released=plain(released),
            rejected=plain(rejected),
            extended=plain(extended),
            at=at,
        )

    def leave(self, member: int, *seen: tuple[int, int], at: float = 0.0) -> None:
        """A member leaves, whose program was given these deliveries."""
        pairs = [[self.offsets[one], attempt] for one, attempt in seen]
        self.come(steps.S7Leaving, sid=SID, session=member, seen=pairs, at=at)

    def tell(self, number: int, *stale: int, to: int = ANN, confirmed: bool = True) -> None:
        offsets = [self.offsets[one] for one in stale]
        facts = {"acknowledge": number, "stale": offsets, "confirmed": confirmed}
        self.come(steps.S7Telling, sid=SID, session=to, **facts)

    def bury(
        self,
        number: int,
        sequence: int = 0,
        *,
        value: bytes | None = None,
        epoch: int = 1,
    ) -> None:
        """A dead letter is committed."""
        offset = self.offsets[number]
        data = self.logs[TOPIC].read(offset, self.offsets[number + 1])
        [message] = decode(data, offset, TOPIC, PARTITION)
        if value is not None:
            message = Message(*message)._replace(value=value)
        effect = AppendLetter(
            SID, TOPIC_ID, offset, message.next_offset, 0, 2, "", DEAD, TopicId(""), epoch, sequence
        )
        log = self.logs[DEAD]
        log.data += letter_records(effect, message, TOPIC_ID, NO_ANCHOR, 0)
        self.come(steps.P6Committed, topic=DEAD, topic_id="0b" * 8, highwater=log.end)


def test_messages_that_are_acknowledged_released_rejected_and_given_up_break_no_rule() -> None:
    queue = Judged()
    queue.deal((0, 1), (1, 1), (2, 1))
    queue.say(ACKNOWLEDGED, 0)
    queue.answer((0, 1), confirm=1, released=[(1, 1)], rejected=[(2, 1)])
    letter = LetterEntry(queue.offsets[2], 0, 1)
    sequence = LetterSequence(TopicId(""), 1, 0)
    counted = [queue.offsets[1], 1]
    queue.store(0, attempts=counted, letters=[letter], letter_count=1, sequence=sequence)
    queue.tell(1)
    queue.say(CONFIRMED, 0)
    queue.come(steps.S14Appending, sid=SID, topic_id=TOPIC_ID, offset=queue.offsets[2], letter=0)
    queue.bury(2)
    queue.deal((1, 2), (3, 1), to=BOB)
    queue.change_leader()
    queue.deal((1, 2), (3, 1))
    queue.say(ACKNOWLEDGED, 3)
    queue.answer((3, 1))
    assert queue.broken == []


def test_a_message_that_is_settled_and_that_nobody_acknowledged_is_found() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.store(0)
    assert queue.broken == ["queue-passed-over"]


def test_a_message_that_no_program_acknowledged_is_found() -> None:
    queue = Judged()
    queue.deal((0, 1), (1, 1))
    queue.say(ACKNOWLEDGED, 0)
    queue.answer((0, 1), (1, 1))
    assert queue.broken == ["queue-passed-over"]


def test_a_message_that_is_settled_before_its_dead_letter_is_there_is_found() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.give_up(0)
    queue.store(0)
    assert queue.broken == ["queue-passed-over"]


def test_an_acknowledgement_of_an_older_delivery_that_counts_is_found() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.store(attempts=[0, 1])
    queue.deal((0, 2), to=BOB)
    queue.answer((0, 1), confirm=1)
    queue.store(0)
    queue.tell(1)
    assert queue.broken == ["queue-passed-over", "answer-lost"]


def test_an_answer_that_is_told_to_be_stale_does_not_count() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.answer((0, 1))
    queue.tell(0, 0, confirmed=False)
    queue.store(0)
    assert queue.broken == ["queue-passed-over"]


def test_the_answer_to_a_newer_delivery_counts_though_one_to_an_older_is_told_to_be_stale() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.store(attempts=[0, 1])
    queue.answer((0, 1), confirm=1)
    queue.deal((0, 2))
    queue.answer((0, 2))
    queue.tell(1, 0)
    queue.store(0)
    assert not queue.broken


def test_one_of_two_answers_that_came_together_is_told_to_be_stale() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.store(attempts=[0, 1])
    queue.deal((0, 2))
    queue.answer((0, 1), (0, 2))
    queue.tell(0, 0, confirmed=False)
    queue.store(0)
    assert not queue.broken


def test_an_answer_is_told_to_be_stale_after_its_message_was_dealt_again() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.store(attempts=[0, 1])
    queue.answer((0, 1), confirm=1)
    queue.deal((0, 2))
    queue.tell(1, 0)
    assert not queue.broken


def test_a_settled_message_that_is_dealt_again_is_found() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.answer((0, 1))
    queue.store(0)
    queue.change_leader()
    queue.deal((0, 1))
    assert queue.broken == ["settled-dealt-again"]


def test_a_reset_has_settled_messages_dealt_again() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.answer((0, 1))
    queue.store(0)
    queue.put(attrs.evolve(queue.entry, claim=Claim(1), queue=QueueEntry()))
    queue.deal((0, 1))
    queue.answer((0, 1))
    queue.store(0)
    assert queue.broken == []


def test_a_reset_may_set_the_mark_again_as_long_as_its_end_is_not_heard_of() -> None:
    queue = Judged(attempts=1)
    queue.come(steps.S11Freeing, sid=SID, log=PARTITION, claim=1, reset_to=0)
    queue.deal((0, 1))
    queue.answer((0, 1))
    for _ in range(2):
        queue.deal((0, 1), to=BOB)
    queue.come(steps.S11Freeing, sid=SID, log=PARTITION, claim=1, reset_to=None)
    queue.deal((0, 1))
    assert queue.broken == []
    queue.deal((0, 1), to=BOB)
    assert queue.broken == ["attempt-miscounted", "dealt-too-often"]


def test_a_message_that_is_dealt_too_often_is_found() -> None:
    queue = Judged(attempts=1)
    queue.deal((0, 1))
    queue.change_leader()
    queue.deal((0, 1))
    assert queue.broken == []
    queue.store(attempts=[0, 1])
    queue.deal((0, 2))
    assert queue.broken == ["dealt-too-often"]


def test_a_delivery_that_ended_for_an_earlier_message_of_its_key_is_not_counted() -> None:
    queue = Judged("aa--", attempts=1)
    queue.deal((0, 1), (1, 1))
    queue.answer(released=[(0, 1)])
    queue.give_up(0)
    queue.bury(0)
    queue.deal((1, 2))
    assert queue.broken == []


def test_a_message_that_is_dealt_again_before_that_is_counted_is_found() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.answer(released=[(0, 1)])
    queue.deal((0, 2))
    assert queue.broken == ["dealt-uncounted"]


def test_a_message_behind_the_window_is_found() -> None:
    queue = Judged()
    queue.deal((0, 1), (1, 1), (2, 1))
    queue.answer((1, 1))
    queue.deal((3, 1))
    assert queue.broken == ["window-passed"]


@pytest.mark.parametrize("is_open", [False, True])
def test_messages_of_a_key_at_two_members_are_found(is_open: bool) -> None:
    queue = Judged("aba-")
    if is_open:
        queue.deal((0, 1))
    queue.deal((1, 1), to=BOB)
    assert queue.broken == []
    queue.deal((2, 1), to=BOB)
    assert queue.broken == ["key-split"]


def test_a_message_that_is_settled_before_an_earlier_one_of_its_key_is_found() -> None:
    queue = Judged("aa--")
    queue.deal((0, 1), (1, 1))
    queue.answer((1, 1))
    queue.store(1)
    assert queue.broken == ["key-disordered", "queue-passed-over"]


def test_a_delivery_from_before_an_earlier_one_was_dealt_again_is_found() -> None:
    queue = Judged("aa--")
    queue.deal((0, 1), (1, 1))
    queue.store(attempts=[0, 1])
    queue.deal((0, 2))
    queue.answer((0, 2), (1, 1))
    queue.store(0, 1)
    assert queue.broken == ["key-disordered"]


def test_a_dead_letter_without_a_number_is_found() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.come(steps.S14Appending, sid=SID, topic_id=TOPIC_ID, offset=queue.offsets[0], letter=0)
    queue.bury(0)
    assert queue.broken == ["letter-unnumbered"] * 2


def test_two_dead_letters_of_one_message_are_found() -> None:
    queue = Judged(attempts=1)
    queue.deal((0, 1))
    queue.give_up(0)
    queue.bury(0)
    queue.bury(0)
    assert queue.broken == ["letter-doubled"]


def test_a_dead_letter_of_an_acknowledged_message_is_found() -> None:
    queue = Judged(attempts=1)
    queue.deal((0, 1))
    queue.answer((0, 1))
    queue.store(0)
    letter = LetterEntry(queue.offsets[0], 0, 1)
    queue.store(0, letters=[letter], letter_count=1, sequence=LetterSequence(TopicId(""), 1, 0))
    queue.bury(0)
    assert queue.broken == ["letter-doubled"]


def test_a_dead_letter_with_another_value_is_found() -> None:
    queue = Judged(attempts=1)
    queue.deal((0, 1))
    queue.give_up(0)
    queue.bury(0, value=b"another")
    assert queue.broken == ["letter-altered"]


def test_a_message_that_is_given_up_too_early_is_found() -> None:
    queue = Judged(attempts=2)
    queue.deal((0, 1))
    queue.give_up(0)
    queue.bury(0)
    assert queue.broken == ["letter-too-early"]


def test_an_acknowledgement_that_is_confirmed_in_memory_is_found() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.answer((0, 1), confirm=1)
    queue.store(0, commit=False)
    queue.tell(1)
    queue.say(CONFIRMED, 0)
    assert queue.broken == ["answer-lost"] * 2


@pytest.mark.parametrize("is_stored", [False, True])
def test_an_answer_that_is_left_behind_by_an_orderly_change_of_leaders_is_found(
    is_stored: bool,
) -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.answer((0, 1))
    queue._take(step_event(steps.E23Preparing, partition=0))
    if is_stored:
        queue.store(0)
    queue._take(step_event(steps.E23Prepared, partition=0))
    assert queue.broken == ([] if is_stored else ["answer-left-behind"])


def test_deliveries_of_a_replaced_leader_are_not_checked() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.answer((0, 1))
    queue.store(0)
    queue.change_leader()
    queue.epoch = 1
    queue.deal((0, 5))
    assert queue.broken == []


def test_a_message_that_no_program_saw_is_dealt_again_as_the_same_attempt() -> None:
    queue = Judged(attempts=1)
    for member in range(1, 5):
        queue.deal((0, 1), (1, 1), to=member)
        queue.leave(member)
    queue.deal((0, 1))
    assert queue.broken == []


def test_a_message_whose_delivery_counts_though_no_program_saw_it_is_found() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.leave(ANN)
    queue.store(attempts=[0, 1])
    queue.deal((0, 2), to=BOB)
    assert queue.broken == ["attempt-miscounted"]


def test_a_message_whose_delivery_does_not_count_though_a_program_saw_it_is_found() -> None:
    queue = Judged()
    queue.deal((0, 1))
    queue.leave(ANN, (0, 1))
    queue.deal((0, 1), to=BOB)
    assert queue.broken == ["attempt-miscounted"]


def test_a_message_that_was_acknowledged_in_vain_was_seen() -> None:
    queue = Judged("aa--", attempts=1)
    queue.deal((0, 1), (1, 1))
    queue.say(ACKNOWLEDGED, 1)
    queue.answer((1, 1))
    queue.say(ACKNOWLEDGED, 0)
    queue.answer((0, 1))
    queue.store(0)
    queue.leave(ANN)
    queue.give_up(1)
    queue.bury(1)
    assert queue.broken == []


def test_a_dead_letter_of_a_message_that_no_program_saw_is_found() -> None:
    queue = Judged(attempts=1)
    queue.deal((0, 1))
    queue.leave(ANN)
    queue.give_up(0)
    queue.bury(0)
    assert queue.broken == ["letter-too-early"]


def test_a_delivery_that_may_have_timed_out_before_its_member_left_may_count() -> None:
    for attempt in (1, 2):
        queue = Judged(attempts=2)
        queue.deal((0, 1))
        queue.leave(ANN, at=29.0)
        queue.store(attempts=[0, 1])
        queue.deal((0, attempt), to=BOB)
        assert queue.broken == []
    queue = Judged(attempts=2)
    queue.deal((0, 1))
    queue.answer(extended=[(0, 1)], at=29.0)
    queue.leave(ANN, at=30.0)
    queue.store(attempts=[0, 1])
    queue.deal((0, 2), to=BOB)
    assert queue.broken == ["attempt-miscounted"]
