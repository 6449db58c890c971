"""What the machine of a queue decides, request by request."""

from __future__ import annotations

from typing import Any

import pytest

from octopi.errors import Status
from octopi.identifiers import Claim, MemberId, Offset, PartitionId, SubscriptionId, TopicId
from octopi.limits import LETTER_REASON_BYTES_MAX, LETTERS_PENDING_MAX
from octopi.model import SubscriptionMode, SubscriptionOptions
from octopi.subscriptions import effects as e
from octopi.subscriptions.entries import (
    LostSpan,
    StoredSubscriptions,
    UnreadableEntryError,
    to_map,
)
from octopi.subscriptions.log_queue import Answers
from octopi.subscriptions.queued_messages import ReadMessage
from tests.subscriptions.group_world import RECORD_BYTES, SteadyLog
from tests.subscriptions.leader import RecordingLeader

LETTERS = TopicId("d" * 16)


class QueueLeader(RecordingLeader):
    """Leads a partition with one queue, and feeds it all that it wants."""

    def __init__(
        self,
        count: int = 100,
        *,
        mode: str = SubscriptionMode.SHARED,
        keys: str = "",
        **options: Any,  # noqa: ANN401
    ) -> None:
        """*keys*: that of each message; they come again and again."""
        super().__init__(log=SteadyLog(count))
        self.keys = keys
        self.takes_letters = True
        self.taken: list[e.AppendLetter] = []
        self.sid = self.ready(mode=mode, options=SubscriptionOptions(**options))

    def perform(self, effects: list[e.Effect], *, commit: bool = True) -> None:
        super().perform(effects, commit=commit)
        while commit and (self.letters or self.wanting):
            letters, self.letters = self.letters, []
            for one in letters:
                super().perform(self.append_letter(one))
            if self.wanting:
                self.wanting.clear()
                if found := self.next_messages():
                    super().perform(self.machine.feed(self.sid, found, self.now))

    def append_letter(self, letter: e.AppendLetter) -> list[e.Effect]:
        at = (self.sid, letter.number)
        if not self.takes_letters:
            return self.machine.letter_failed(*at, "it is away", self.now)
        if letter.letter_topic_id != LETTERS:
            return self.machine.begin_letters(*at, LETTERS, self.now)
        self.taken.append(letter)
        return self.machine.letter_committed(*at, self.now)

    def next_messages(self) -> list[ReadMessage]:
        queue = self.machine.queue(self.sid)
        assert queue is not None
        assert self.log is not None
        at, found, count = queue.queue.read_end, list[ReadMessage](), queue.queue.wanted_count
        while len(found) < count and at < self.log.end:
            key = self.keys[at // RECORD_BYTES % len(self.keys)] if self.keys else "-"
            end = Offset(at + RECORD_BYTES)
            found.append(ReadMessage(at, end, None if key == "-" else key.encode()))
            at = end
        return found

    def take(self, count: int, size_bytes: int = 1_000_000, claim: int = 0) -> int:
        """Attach, with credit for so much."""
        session = self.session()
        self.perform(
            self.machine.attach(
                session, self.sid, MemberId("m"), Claim(claim), self.now, (count, size_bytes)
            )
        )
        return session

    def grant(self, session: int, count: int) -> None:
        self.perform(self.machine.queue_credit(session, count, 1_000_000, self.now))

    def dealt(self, session: int) -> list[tuple[int, int]]:
        """The numbers of the messages that a member was dealt, with their attempts."""
        told = [one for one in self.told.get(session, []) if isinstance(one, e.DealMessages)]
        return [(one.offset // RECORD_BYTES, one.attempt) for deal in told for one in deal.messages]

    def settle(
        self,
        session: int,
        *acknowledged: tuple[int, int],
        released: tuple[tuple[int, int, float], ...] = (),
        rejected: tuple[tuple[int, int, str], ...] = (),
        extended: tuple[tuple[int, int], ...] = (),
        confirm: bool = False,
        commit: bool = True,
    ) -> None:
        size = RECORD_BYTES
        answers = Answers(
            [(Offset(number * size), attempt) for number, attempt in acknowledged],
            [(Offset(number * size), attempt, delay) for number, attempt, delay in released],
            [(Offset(number * size), attempt, why) for number, attempt, why in rejected],
            [(Offset(number * size), attempt) for number, attempt in extended],
        )
        found = self.machine.settle(session, answers, 7, self.now, confirm=confirm)
        self.perform(found, commit=commit)

    def stale(self, session: int) -> list[int]:
        told = [one for one in self.told[session] if isinstance(one, e.TellSettled)]
        return [offset // RECORD_BYTES for one in told for offset in one.stale]

    def change_leader(self) -> None:
        self.letters.clear()
        self.wanting.clear()
        self.change()


def test_members_have_turns_by_what_they_take_and_a_slow_one_stops_nobody() -> None:
    leader = QueueLeader()
    slow, fast = leader.take(2), leader.take(2)
    for number in range(10):
        for one in leader.dealt(fast)[number : number + 1]:
            leader.settle(fast, one)
        leader.grant(fast, 3 + number)
    assert len(leader.dealt(slow)) == 2
    assert len(leader.dealt(fast)) == 12
    assert leader.marked(leader.sid).mark == min(leader.dealt(slow))[0] * RECORD_BYTES


def test_a_member_is_dealt_what_it_takes_in_messages_and_in_bytes() -> None:
    leader = QueueLeader()
    assert len(leader.dealt(leader.take(3))) == 3
    assert len(leader.dealt(leader.take(100, size_bytes=2 * RECORD_BYTES + 1))) == 3
    session = leader.take(1)
    leader.grant(session, 0)
    assert len(leader.dealt(session)) == 1


def test_a_full_window_stops_what_is_new_and_not_what_is_dealt_again() -> None:
    leader = QueueLeader(window=3)
    session = leader.take(10)
    assert leader.dealt(session) == [(0, 1), (1, 1), (2, 1)]
    leader.settle(session, (1, 1), (2, 1))
    assert len(leader.dealt(session)) == 3
    leader.settle(session, released=((0, 1, 0.0),))
    assert leader.dealt(session)[3:] == [(0, 2)]
    leader.settle(session, (0, 2))
    assert leader.dealt(session)[4:] == [(3, 1), (4, 1), (5, 1)]


def test_a_poison_message_is_dealt_as_often_as_it_may_and_is_a_dead_letter_once() -> None:
    leader = QueueLeader(1, attempts=3)
    session = leader.take(10)
    for attempt in (1, 2, 3):
        assert leader.dealt(session)[-1] == (0, attempt)
        leader.settle(session, released=((0, attempt, 0.0),))
    assert [one for one, _ in leader.dealt(session)] == [0, 0, 0]
    [letter] = leader.taken
    assert (letter.offset, letter.number, letter.attempts, letter.sequence) == (0, 0, 3, 0)
    assert letter.letter_topic == "orders.billing.dead"
    leader.pass_time(1)
    marked = leader.marked(leader.sid)
    assert (marked.mark, marked.dead_count, marked.waiting_count) == (RECORD_BYTES, 1, 0)
    leader.change_leader()
    leader.take(10)
    assert len(leader.taken) == 1


def test_a_message_is_not_given_up_for_an_earlier_one_of_its_key() -> None:
    leader = QueueLeader(2, attempts=3, mode=SubscriptionMode.KEY_SHARED, keys="aa")
    session = leader.take(20)
    for attempt in (1, 2, 3):
        leader.settle(session, released=((0, attempt, 0.0),))
    [letter] = leader.taken
    assert letter.offset == 0
    assert leader.dealt(session)[-1] == (1, 4)
    leader.change_leader()
    session = leader.take(20)
    assert leader.dealt(session) == [(1, 1)], "no delivery of it counts"
    leader.settle(session, (1, 1))
    leader.pass_time(1)
    assert leader.marked(leader.sid).mark == 2 * RECORD_BYTES


def test_a_rejected_message_is_a_dead_letter_at_once_with_a_short_reason() -> None:
    leader = QueueLeader(1)
    session = leader.take(1)
    leader.settle(session, rejected=((0, 1, "é" * LETTER_REASON_BYTES_MAX),))
    [letter] = leader.taken
    assert letter.reason == "é" * (LETTER_REASON_BYTES_MAX // 2)


def test_a_dead_letter_that_is_not_taken_is_tried_again_less_and_less_often() -> None:
    leader = QueueLeader(1, attempts=1, expires_ms=None)
    session = leader.take(1)
    leader.takes_letters = False
    leader.settle(session, released=((0, 1, 0.0),))
    marked = leader.marked(leader.sid)
    assert (marked.letter_fault, marked.waiting_count, marked.mark) == ("it is away", 1, 0)
    leader.takes_letters = True
    leader.pass_time(0.9)
    assert leader.taken == []
    leader.takes_letters = False
    leader.pass_time(0.2)
    leader.takes_letters = True
    leader.pass_time(1.8)
    assert leader.taken == []
    leader.pass_time(0.3)
    assert len(leader.taken) == 1
    assert leader.marked(leader.sid).letter_fault == ""


def test_few_messages_become_dead_letters_at_a_time() -> None:
    leader = QueueLeader(100, attempts=1, expires_ms=None)
    session = leader.take(100)
    leader.takes_letters = False
    leader.settle(session, released=tuple((number, 1, 0.0) for number in range(100)))
    [entry] = (
        leader.committed.values()
        if len(leader.committed) == 1
        else [one for key, one in leader.committed.items() if key.startswith("k/")]
    )
    assert len(entry["queue"]["letters"]) == LETTERS_PENDING_MAX
    leader.takes_letters = True
    leader.pass_time(70)
    assert [one.number for one in leader.taken] == list(range(100))
    assert [one.offset for one in leader.taken] == [n * RECORD_BYTES for n in range(100)]


def test_a_new_leader_goes_on_with_what_is_settled_and_how_often_messages_were_dealt() -> None:
    leader = QueueLeader(1_000, attempts=2, ack_timeout_ms=1_000)
    session = leader.take(1_000)
    leader.settle(session, *((number, 1) for number in range(0, 1_000, 2)), confirm=True)
    assert leader.last(session, e.TellSettled).acknowledge == 7
    leader.settle(session, released=((1, 1, 0.0),))
    assert leader.dealt(session)[-1] != (1, 2), "it has no more credit"
    leader.change_leader()
    session = leader.take(2_000)
    expected = [(1, 2), *((number, 1) for number in range(3, 1_000, 2))]
    assert leader.dealt(session) == expected


def test_a_storm_of_time_outs_is_taken_in_parts_and_each_message_is_dealt_again() -> None:
    leader = QueueLeader(5_000, window=10_000, ack_timeout_ms=1_000, mark_interval_ms=60_000)
    first = leader.take(5_000)
    leader.pass_time(0)
    assert len(leader.dealt(first)) == 5_000
    second = leader.take(5_000)
    before = leader.append_count
    leader.pass_time(2)
    assert sorted(leader.dealt(second)) == [(number, 2) for number in range(5_000)]
    assert leader.append_count - before <= 8


def test_only_the_newest_delivery_can_be_answered() -> None:
    leader = QueueLeader(3, ack_timeout_ms=1_000)
    old = leader.take(3)
    leader.pass_time(1)
    new = leader.take(3)
    leader.settle(old, (0, 1), released=((1, 1, 0.0),), rejected=((2, 1, "bad"),))
    leader.settle(old, extended=((1, 2), (99, 1)))
    assert leader.stale(old) == [0, 1, 2, 1, 99]
    assert leader.taken == []
    leader.settle(new, (0, 2), (1, 2), (2, 2), confirm=True)
    assert leader.stale(new) == []


def test_a_member_that_needs_longer_keeps_its_message() -> None:
    leader = QueueLeader(1, ack_timeout_ms=1_000)
    session = leader.take(5)
    for _ in range(5):
        leader.pass_time(0.9)
        leader.settle(session, extended=((0, 1),))
    assert leader.dealt(session) == [(0, 1)]
    leader.pass_time(1.1)
    assert leader.dealt(session) == [(0, 1), (0, 2)]


def test_an_extension_that_comes_together_with_the_answer_is_not_too_late() -> None:
    leader = QueueLeader(3)
    session = leader.take(3)
    leader.settle(
        session,
        (0, 1),
        released=((1, 1, 0.0),),
        rejected=((2, 1, "bad"),),
        extended=((0, 1), (1, 1), (2, 1)),
        confirm=True,
    )
    assert leader.stale(session) == []


def test_a_released_message_waits_as_long_as_it_was_asked_for() -> None:
    leader = QueueLeader(1)
    session = leader.take(5)
    leader.settle(session, released=((0, 1, 3.0),))
    leader.pass_time(2.9)
    assert len(leader.dealt(session)) == 1
    leader.pass_time(0.2)
    assert leader.dealt(session) == [(0, 1), (0, 2)]


def test_keys_stay_in_order_among_three_members_that_come_and_go() -> None:
    leader = QueueLeader(300, mode=SubscriptionMode.KEY_SHARED, keys="abc-de")
    members = [leader.take(5) for _ in range(3)]
    settled: dict[str, list[int]] = {}
    done = dict.fromkeys(members, 0)
    for turn in range(2_000):
        session = members[turn % 3]
        if turn % 97 == 0:
            leader.perform(leader.machine.session_ended(session, leader.now))
            members[turn % 3] = session = leader.take(5)
            done[session] = 0
        for one in leader.dealt(session)[done[session] : done[session] + 1]:
            leader.settle(session, one)
            if one[0] not in leader.stale(session) if session in leader.told else True:
                settled.setdefault(leader.keys[one[0] % 6], []).append(one[0])
            done[session] += 1
            leader.grant(session, 5 + done[session])
    leader.pass_time(1)
    assert leader.marked(leader.sid).mark == 300 * RECORD_BYTES
    assert all(numbers == sorted(set(numbers)) for key, numbers in settled.items() if key != "-")


def test_a_key_waits_for_the_member_that_has_it_and_others_go_on() -> None:
    leader = QueueLeader(4, mode=SubscriptionMode.KEY_SHARED, keys="aaab")
    first, second = leader.take(1), leader.take(4)
    everything = leader.dealt(first) + leader.dealt(second)
    assert leader.dealt(second) in ([(0, 1), (1, 1), (2, 1), (3, 1)], [(3, 1)])
    assert len({number for number, _ in everything}) == len(everything)


def test_a_reset_forgets_what_is_open_and_fences_its_members() -> None:
    leader = QueueLeader(10)
    session = leader.take(5)
    leader.settle(session, (0, 1), (2, 1))
    reset = leader.session()
    leader.perform(leader.machine.set_mark(reset, leader.sid, Claim(1), Offset(0), leader.now))
    assert leader.is_done(reset)
    assert leader.refusal(session) is Status.MEMBER_FENCED
    assert leader.dealt(leader.take(3)) == [(0, 1), (1, 1), (2, 1)]
    leader.settle(session, (1, 1))
    assert leader.marked(leader.sid).mark == 0


def test_a_reset_that_is_asked_for_again_takes_nothing_from_those_that_went_on() -> None:
    leader = QueueLeader(10)
    leader.perform(
        leader.machine.set_mark(leader.session(), leader.sid, Claim(1), Offset(0), leader.now)
    )
    session = leader.take(3)
    leader.settle(session, (0, 1), confirm=True)
    again = leader.session()
    leader.perform(leader.machine.set_mark(again, leader.sid, Claim(1), Offset(0), leader.now))
    assert leader.is_done(again)
    leader.settle(session, (1, 1), confirm=True)
    assert leader.dealt(leader.take(2)) == [(3, 1), (4, 1)]
    assert leader.marked(leader.sid).mark == 20


def test_a_deleted_queue_ends_its_members_with_messages_open() -> None:
    leader = QueueLeader(10)
    session = leader.take(5)
    leader.perform(leader.machine.delete_marks(leader.session(), leader.sid))
    assert leader.refusal(session) is Status.UNKNOWN_SUBSCRIPTION
    leader.settle(session, (0, 1), confirm=True)
    leader.grant(session, 100)
    leader.perform(leader.machine.session_ended(session, leader.now))
    assert not any(key.startswith("k/") for key in leader.committed)


def test_only_claim_0_with_credit_attaches_to_a_queue() -> None:
    leader = QueueLeader(10)
    for session in (leader.take(5, claim=1), leader.take(0), leader.take(1, size_bytes=0)):
        assert leader.refusal(session) is Status.INVALID_OPTION


def test_a_mark_is_no_answer_in_a_queue_and_an_answer_is_no_mark() -> None:
    leader = QueueLeader(10)
    session, other = leader.take(5), leader.take(5)
    leader.mark(session, 10)
    assert leader.refusal(session) is Status.WRONG_MODE
    leader.grant(other, 10)
    assert leader.dealt(other)[-5:] == [(number, 2) for number in range(5)]
    failover = RecordingLeader()
    sid = failover.ready()
    attached = failover.attach(sid, 1)
    failover.perform(failover.machine.settle(attached, Answers(), 1, 0.0))
    assert failover.refusal(attached) is Status.WRONG_MODE


def test_a_member_of_a_queue_joins_and_is_assigned_nothing() -> None:
    leader = QueueLeader(10)
    session = leader.join(leader.sid)
    assert leader.logs(session) == []
    asked = leader.session()
    ask: Any = (asked, leader.sid, PartitionId(0), Offset(0), leader.now)
    leader.perform(leader.machine.reset_subscription(*ask))
    assert leader.refusal(asked) is Status.SUBSCRIPTION_BUSY
    leader.perform(leader.machine.reset_subscription(*ask, force=True))
    assert leader.last(asked, e.TellResetBegun).claim == 1


def test_what_retention_took_is_told_and_the_queue_goes_on_behind_it() -> None:
    leader = QueueLeader(10)
    assert leader.log is not None
    leader.take(2)
    leader.pass_time(1)
    leader.change_leader()
    leader.log.start = Offset(5 * RECORD_BYTES)
    session = leader.take(2)
    lost = leader.last(session, e.TellAttached).lost
    assert lost is not None
    assert (lost.begin, lost.end) == (0, 5 * RECORD_BYTES)
    assert leader.dealt(session) == [(5, 1), (6, 1)]
    leader.pass_time(1)
    assert leader.marked(leader.sid).skipped == (lost,)


def test_what_is_settled_in_another_history_is_dealt_anew() -> None:
    leader = QueueLeader(10)
    assert leader.log is not None
    session = leader.take(10)
    leader.settle(session, *((number, 1) for number in (1, 2, 5, 8)), released=((6, 1, 0.0),))
    leader.pass_time(1)
    leader.change_leader()
    leader.log.forked_at = Offset(4 * RECORD_BYTES)
    again = leader.take(20)
    assert leader.dealt(again) == [(number, 1) for number in (0, 3, 4, 5, 6, 7, 8, 9)]


def test_messages_that_are_lost_under_a_queue_are_passed() -> None:
    leader = QueueLeader(20, attempts=1, mode=SubscriptionMode.KEY_SHARED, keys="ab")
    session = leader.take(5)
    leader.takes_letters = False
    leader.settle(session, released=((0, 1, 0.0), (1, 1, 9.0)))
    end = Offset(10 * RECORD_BYTES)
    leader.perform(leader.machine.lose(leader.sid, end, leader.now))
    leader.settle(session, (2, 1), (3, 1), (4, 1))
    leader.takes_letters = True
    leader.pass_time(20)
    marked = leader.marked(leader.sid)
    assert marked.mark == marked.skipped[-1].end == end
    leader.grant(session, 6)
    assert leader.dealt(session)[-1] == (10, 1)


def test_a_delivery_that_can_not_be_sent_costs_neither_credit_nor_an_attempt() -> None:
    leader = QueueLeader(2, attempts=1)
    session = leader.take(1)
    unsent = e.Dealt(Offset(0), Offset(RECORD_BYTES), 1)
    leader.perform(leader.machine.take_back(leader.sid, session, unsent, 5.0, leader.now))
    assert leader.dealt(session) == [(0, 1), (1, 1)]
    leader.grant(session, 2)
    leader.pass_time(6)
    assert leader.dealt(session) == [(0, 1), (1, 1), (0, 2)]
    assert not leader.taken


def test_an_older_delivery_that_can_not_be_sent_leaves_the_message_to_its_member() -> None:
    leader = QueueLeader(2, ack_timeout_ms=1000)
    ann = leader.take(1)
    bob = leader.take(1)
    leader.pass_time(1.5)
    leader.grant(bob, 3)
    assert (0, 2) in leader.dealt(bob)
    unsent = e.Dealt(Offset(0), Offset(RECORD_BYTES), 1)
    leader.perform(leader.machine.take_back(leader.sid, ann, unsent, 0.0, leader.now))
    leader.settle(bob, (0, 2), confirm=True)
    assert leader.stale(bob) == []


def test_a_message_that_is_gone_before_it_was_sent_is_passed() -> None:
    leader = QueueLeader(2)
    session = leader.take(1)
    unsent = e.Dealt(Offset(0), Offset(RECORD_BYTES), 1)
    leader.perform(leader.machine.take_back(leader.sid, session, unsent, 5.0, leader.now))
    leader.perform(leader.machine.lose_message(leader.sid, Offset(0), leader.now))
    leader.settle(session, (1, 1), confirm=True)
    assert leader.marked(leader.sid).mark == 2 * RECORD_BYTES
    assert leader.marked(leader.sid).skipped == (LostSpan(Offset(0), Offset(RECORD_BYTES)),)


def test_a_letter_topic_that_was_made_again_begins_with_sequence_0() -> None:
    leader = QueueLeader(2, attempts=1)
    session = leader.take(2)
    leader.settle(session, released=((0, 1, 0.0),))
    leader.perform([])
    queue = leader.machine.queue(leader.sid)
    assert queue is not None
    assert queue.queue.letters.sequence.topic_id == LETTERS
    leader.takes_letters = False
    leader.settle(session, released=((1, 1, 0.0),))
    leader.takes_letters = True
    leader.pass_time(2)
    first, second = leader.taken
    assert (first.producer_epoch, first.sequence) == (1, 0)
    assert (second.producer_epoch, second.sequence) == (1, 1)


def test_facts_about_nothing_change_nothing() -> None:
    leader = QueueLeader(2)
    other = SubscriptionId("0" * 16)
    machine, now = leader.machine, leader.now
    assert machine.feed(other, [], now) == []
    assert machine.lose(other, Offset(5), now) == []
    assert machine.letter_committed(leader.sid, 5, now) == []
    assert machine.letter_failed(leader.sid, 5, "no", now) == []
    assert machine.begin_letters(leader.sid, 5, LETTERS, now) == []
    assert machine.queue(other) is None


ENTRY = {"name": "billing", "topic": "orders", "mark": 10, "mode": "shared"}
KEY = f"k/{'5' * 16}/{'7' * 16}"


def test_what_is_stored_of_a_queue_is_read_as_it_was() -> None:
    queue = {
        "settled": [10, 20, 30, 10],
        "attempts": [0, 1, 40, 3],
        "letters": [[10, 3, 5, "bad"], [90, 4, 5, ""]],
        "letter_count": 5,
        "sequence": {"topic_id": "d" * 16, "epoch": 2, "first_number": 1},
        "end": 200,
    }
    [entry] = StoredSubscriptions.read({KEY: {**ENTRY, "queue": queue}}).marks.values()
    assert to_map(entry) == {**ENTRY, "queue": queue}


@pytest.mark.parametrize(
    "changed",
    [
        {"mode": "failover", "queue": {"letter_count": 1}},
        {"mode": "failover", "window": 5},
        {"window": 0},
        {"queue": {"settled": [1]}},
        {"queue": {"settled": [1, 0]}},
        {"queue": {"settled": [-1, 5]}},
        {"queue": {"settled": [1, "2"]}},
        {"queue": {"settled": [1, 1 << 63]}},
        {"queue": {"attempts": [5, 1, 0, 1]}},
        {"queue": {"attempts": [5, 1, 2]}},
        {"queue": {"letters": [[1, 0, 1, ""]]}},
        {"queue": {"letters": [[1, 0, 1, ""], [1, 1, 1, ""]], "letter_count": 2}},
        {"queue": {"letters": [[1, 1, 1, ""], [2, 1, 1, ""]], "letter_count": 2}},
        {"queue": {"letters": [[1, 0, 1, "x" * 201]], "letter_count": 1}},
        {"queue": {"letters": [[1, 0]], "letter_count": 1}},
        {"queue": {"letters": [[n, n, 1, ""] for n in range(33)], "letter_count": 40}},
        {"queue": {"sequence": {"topic_id": "x"}}},
        {"queue": {"sequence": {"epoch": -1}}},
        {"queue": {"other": 1}},
        {"queue": {"settled": [1] * 20_000}},
        {"queue": 5},
    ],
)
def test_what_no_queue_stores_is_an_error_that_names_its_key(changed: dict[str, Any]) -> None:
    with pytest.raises(UnreadableEntryError) as caught:
        StoredSubscriptions.read({KEY: {**ENTRY, **changed}})
    assert caught.value.key == KEY


# --- leaving -----------------------------------------------------------------------------


def left(leader: QueueLeader, session: int, *seen: tuple[int, int]) -> None:
    """A member leaves, whose program was given these deliveries."""
    pairs = {(Offset(number * RECORD_BYTES), attempt) for number, attempt in seen}
    leader.perform(leader.machine.detach(leader.session(), session, leader.now, pairs))


def test_what_no_program_saw_before_its_member_left_is_dealt_again_and_counts_no_attempt() -> None:
    leader = QueueLeader(count=3, attempts=1)
    for _ in range(5):
        left(leader, leader.take(3))
    member = leader.take(3)
    assert leader.dealt(member) == [(0, 1), (1, 1), (2, 1)]
    left(leader, member, (1, 1))
    assert [one.offset for one in leader.taken] == [RECORD_BYTES]
    assert leader.dealt(leader.take(3)) == [(0, 1), (2, 1)]


def test_what_was_counted_before_a_member_that_did_not_see_it_stays_counted() -> None:
    leader = QueueLeader(count=1, attempts=3)
    member = leader.take(1)
    leader.settle(member, released=((0, 1, 0.0),))
    leader.grant(member, 2)
    assert leader.dealt(member) == [(0, 1), (0, 2)]
    left(leader, member, (0, 1))
    leader.change_leader()
    assert leader.dealt(leader.take(1)) == [(0, 2)]


def test_the_messages_of_a_member_whose_connection_breaks_count_as_attempts() -> None:
    leader = QueueLeader(count=2, attempts=1)
    leader.perform(leader.machine.session_ended(leader.take(2), leader.now))
    assert len(leader.taken) == 2


def test_a_member_that_does_not_say_what_its_program_saw_has_seen_all() -> None:
    leader = QueueLeader(count=2, attempts=1)
    leader.perform(leader.machine.detach(leader.session(), leader.take(2), leader.now))
    assert len(leader.taken) == 2


def test_what_timed_out_before_its_member_left_counts() -> None:
    leader = QueueLeader(count=1, attempts=1)
    member = leader.take(1)
    leader.pass_time(31.0)
    left(leader, member)
    assert len(leader.taken) == 1


def test_what_was_answered_in_vain_before_its_member_left_was_seen() -> None:
    leader = QueueLeader(count=2, mode=SubscriptionMode.KEY_SHARED, keys="a", attempts=1)
    member = leader.take(2)
    leader.settle(member, (1, 1))
    assert leader.stale(member) == [1]
    leader.settle(member, (0, 1))
    left(leader, member)
    assert [one.offset for one in leader.taken] == [RECORD_BYTES]


def test_the_messages_of_a_key_that_no_program_saw_are_dealt_again_in_their_order() -> None:
    leader = QueueLeader(count=4, mode=SubscriptionMode.KEY_SHARED, keys="aab", attempts=1)
    member = leader.take(4)
    assert leader.dealt(member) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    left(leader, member)
    other = leader.take(4)
    assert leader.dealt(other) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    leader.settle(other, (0, 1))
    left(leader, other, (1, 1))
    assert [one.offset for one in leader.taken] == [RECORD_BYTES]
    assert leader.dealt(leader.take(4)) == [(2, 1), (3, 1)]
