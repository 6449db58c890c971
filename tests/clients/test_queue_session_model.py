"""A member of a queue, against a leader that deals by credit, and leaders that change.

Whatever happens to connections, no more is open at a member than it gave credit for, every message
is processed, what was confirmed is committed, and what was answered too late is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from random import Random
from typing import Any

import attrs
import pytest

from octopi.clients.subscribing.key_turns import OpenDelivery
from octopi.clients.subscribing.queue_answers import (
    QueueEffect,
    QueueRemedy,
    SendCredit,
    SendSettle,
    queue_remedy,
)
from octopi.clients.subscribing.queue_session import CONFIRMING_S, SETTLING_S, QueueSession
from octopi.errors import (
    ConnectionLostError,
    MemberFencedError,
    NotLeaderError,
    OctopiError,
    ProtocolError,
    Status,
    UnknownSubscriptionError,
    UnreachableError,
    refused,
)
from octopi.identifiers import Offset
from octopi.limits import SETTLE_COUNT_MAX

ACK_TIMEOUT_S = 30.0
SIZE = 100


def attached(prefetch: int = 10, prefetch_bytes: int = 1_000_000) -> QueueSession:
    session = QueueSession(ACK_TIMEOUT_S, prefetch, prefetch_bytes)
    assert session.attaching() == SendCredit(prefetch, prefetch_bytes)
    session.attached()
    return session


def deal(
    session: QueueSession, offsets: Iterable[int], now: float = 0.0, attempt: int = 1
) -> list[OpenDelivery]:
    numbers = [Offset(one) for one in offsets]
    return session.dealt(numbers, [attempt] * len(numbers), [SIZE] * len(numbers), now)


def take(session: QueueSession, now: float) -> OpenDelivery:
    delivery = session.take(now)
    assert delivery is not None
    return delivery


def settles(effects: Iterable[QueueEffect]) -> list[SendSettle]:
    return [one for one in effects if isinstance(one, SendSettle)]


# --- answers ---------------------------------------------------------------------------


def test_the_first_answer_goes_at_once_and_later_ones_together() -> None:
    session = attached()
    deal(session, [0, 100, 200, 300])
    first, second, third = (take(session, 1.0) for _ in range(3))
    assert session.acknowledge([first], 1.0) == [SendSettle(acknowledged=((Offset(0), 1),))]
    assert session.acknowledge([second], 1.01) == []
    assert session.release([third], 500, 1.02) == []
    assert session.due_at() == 1.0 + SETTLING_S
    assert session.tick(1.0 + SETTLING_S) == [
        SendSettle(acknowledged=((Offset(100), 1),), released=((Offset(200), 1, 500),))
    ]


def test_an_answer_counts_once() -> None:
    session = attached()
    deal(session, [0])
    one = take(session, 1.0)
    assert settles(session.reject(one, "no such order", 1.0)) == [
        SendSettle(rejected=((Offset(0), 1, "no such order"),))
    ]
    assert session.acknowledge([one], 2.0) == []
    assert session.release([one], 0, 2.0) == []
    assert session.extend(one, 2.0) == []
    assert session.stale_count == 0


def test_an_extension_begins_the_ack_timeout_anew() -> None:
    session = attached()
    deal(session, [0])
    one = take(session, 1.0)
    assert session.deadline(one) == ACK_TIMEOUT_S
    assert session.extend(one, 20.0) == [SendSettle(extended=((Offset(0), 1),))]
    assert session.deadline(one) == 20.0 + ACK_TIMEOUT_S


def test_more_answers_than_one_message_takes_are_sent_in_several() -> None:
    count = 2 * SETTLE_COUNT_MAX + 1
    session = attached(prefetch=10 * count)
    deal(session, range(0, 100 * count, 100))
    taken = session.take_all(1.0)
    assert session.take(1.0) is None
    sent = settles([*session.release(taken[:-1], 0, 1.0), *session.flush(1.0)])
    assert [len(one.released) for one in sent] == [SETTLE_COUNT_MAX, SETTLE_COUNT_MAX]
    (last,) = settles(session.acknowledge(taken[-1:], 2.0))
    assert last.acknowledged == ((taken[-1].offset, 1),)


# --- credit ----------------------------------------------------------------------------


def test_credit_for_one_message_gives_one_at_a_time() -> None:
    session = attached(prefetch=1)
    deal(session, [0])
    one = take(session, 1.0)
    assert session.tick(1.0) == []
    assert session.acknowledge([one], 2.0) == [
        SendSettle(acknowledged=((Offset(0), 1),)),
        SendCredit(2, 1_000_000 + SIZE),
    ]


def test_credit_is_given_by_halves_and_what_was_answered_goes_before_it() -> None:
    session = attached(prefetch=4)
    deal(session, [0, 100, 200, 300])
    first, second, third, fourth = session.take_all(1.0)
    assert settles(session.acknowledge([first], 1.0))
    assert session.acknowledge([second], 1.01) == [
        SendSettle(acknowledged=((Offset(100), 1),)),
        SendCredit(6, 1_000_000 + 2 * SIZE),
    ]
    assert session.acknowledge([third], 1.02) == []
    assert session.acknowledge([fourth], 1.03)[-1] == SendCredit(8, 1_000_000 + 4 * SIZE)


def test_credit_in_bytes_is_given_by_halves_too() -> None:
    session = attached(prefetch=100, prefetch_bytes=2 * SIZE)
    deal(session, [0, 100])
    first, _ = session.take_all(1.0)
    assert session.acknowledge([first], 1.0)[-1] == SendCredit(101, 3 * SIZE)


# --- waiting ---------------------------------------------------------------------------


def test_waiting_messages_are_extended_so_that_waiting_costs_no_attempt() -> None:
    session = attached()
    deal(session, [0, 100, 200])
    now = 0.0
    for _ in range(3):
        one = take(session, now)
        for _ in range(2):
            due_at = session.due_at()
            if due_at is None:
                break
            now = due_at
            for sent in settles(session.tick(now)):
                assert all(offset > one.offset for offset, _ in sent.extended)
        now += 5.0
        assert session.deadline(one) >= now
        session.acknowledge([one], now)
    assert session.stale_count == 0


def test_a_stuck_program_releases_its_waiting_messages_and_gets_more_when_it_goes_on() -> None:
    session = attached(prefetch=2)
    deal(session, [0, 100])
    stuck = take(session, 0.0)
    effects: list[QueueEffect] = []
    while (due_at := session.due_at()) is not None:
        effects += session.tick(due_at)
        assert due_at <= ACK_TIMEOUT_S + SETTLING_S
    assert effects[-1] == SendSettle(released=((Offset(100), 1, 0),))
    assert not any(isinstance(one, SendCredit) for one in effects)
    assert session.take(100.0) is None
    assert session.due_at() == 100.0
    assert session.tick(100.0) == [SendCredit(3, 1_000_000 + SIZE)]
    assert session.acknowledge([stuck], 101.0)[-1] == SendCredit(4, 1_000_000 + 2 * SIZE)


def test_a_program_that_was_paused_for_the_ack_timeout_gets_no_older_message() -> None:
    session = attached(prefetch=2)
    deal(session, [0, 100])
    in_hand = take(session, 0.0)
    assert session.take(ACK_TIMEOUT_S) is None
    assert session.open_count == 1
    deal(session, [200], now=ACK_TIMEOUT_S)
    assert take(session, ACK_TIMEOUT_S).offset == 200
    assert settles(session.acknowledge([in_hand], ACK_TIMEOUT_S))[0].acknowledged == ((0, 1),)
    deal(session, [300], now=ACK_TIMEOUT_S)
    session.tick(2 * ACK_TIMEOUT_S)
    assert session.take(2 * ACK_TIMEOUT_S) is None, "nor after a late look at what waits"


def test_a_message_that_waits_and_is_dealt_again_is_taken_once() -> None:
    session = attached()
    deal(session, [0])
    deal(session, [0], attempt=2)
    assert take(session, 1.0).attempt == 2
    assert session.take(1.0) is None


# --- what is stale ---------------------------------------------------------------------


def test_an_answer_to_an_older_attempt_is_counted_and_not_sent() -> None:
    session = attached(prefetch=2)
    deal(session, [0])
    older = take(session, 1.0)
    deal(session, [0], 40.0, attempt=2)
    newer = take(session, 41.0)
    assert settles(session.acknowledge([older], 42.0)) == []
    assert session.stale_count == 1
    assert settles(session.acknowledge([newer], 43.0))


def test_stale_answers_are_counted_and_a_stale_extension_ends_the_delivery() -> None:
    session = attached()
    deal(session, [0, 100, 200])
    first, second = take(session, 1.0), take(session, 1.0)
    session.acknowledge([first], 1.0)
    session.settled(0, [Offset(0)], 1.5)
    assert session.stale_count == 1
    session.extend(second, 2.0)
    assert session.settled(0, [Offset(100)], 2.5) == []
    assert session.acknowledge([second], 3.0) == []
    assert session.stale_count == 2
    assert take(session, 4.0).offset == 200


def test_messages_that_are_open_when_the_leader_changes_are_void() -> None:
    session = attached()
    deal(session, [0, 100])
    old = take(session, 1.0)
    session.disconnected()
    assert session.take(1.5) is None
    assert session.acknowledge([old], 2.0) == []
    assert session.due_at() is None
    assert session.tick(100.0) == []
    session.attaching()
    session.attached()
    deal(session, [0, 100], attempt=2)
    assert session.release([old], 0, 3.0) == []
    assert session.stale_count == 1
    assert take(session, 3.0).attempt == 2


def test_acknowledgements_that_were_not_confirmed_are_counted_when_the_leader_changes() -> None:
    session = attached()
    deal(session, [0, 100, 200])
    taken = session.take_all(1.0)
    session.acknowledge(taken[:1], 1.0)
    number, _ = session.confirm(1.0)
    session.acknowledge(taken[1:], 1.01)
    assert not session.is_confirmed(number)
    session.disconnected()
    assert session.is_confirmed(number)
    assert session.stale_count == 3
    assert session.confirm(2.0) == (number, [])


# --- keys ------------------------------------------------------------------------------


def keyed(session: QueueSession, keys: str, first: int = 0, attempt: int = 1) -> None:
    """Deal a message for each letter of *keys*, which is its key; ``-``: it has none."""
    offsets = [Offset(100 * (first + place)) for place in range(len(keys))]
    session.dealt(
        offsets,
        [attempt] * len(keys),
        [SIZE] * len(keys),
        0.0,
        [None if key == "-" else key.encode() for key in keys],
    )
    session.check_invariants()


def ordered() -> QueueSession:
    session = QueueSession(ACK_TIMEOUT_S, 10, 1_000_000, is_ordered=True)
    session.attaching()
    session.attached()
    return session


def test_messages_of_a_key_are_handed_out_when_those_before_are_answered() -> None:
    session = ordered()
    keyed(session, "aab-a")
    first, other, none = (take(session, 1.0) for _ in range(3))
    assert [first.offset, other.offset, none.offset] == [0, 200, 300]
    assert session.take(1.0) is None
    for offset in (100, 400):
        session.acknowledge([first], 1.0)
        session.check_invariants()
        first = take(session, 1.0)
        assert first.offset == offset
        assert session.take(1.0) is None
    keyed(session, "a", first=9)
    assert session.take(1.0) is None
    session.extend(first, 1.5)
    session.acknowledge([first], 2.0)
    assert take(session, 2.0).offset == 900


def test_a_batch_may_have_several_messages_of_a_key_and_keeps_them_from_other_tasks() -> None:
    session = ordered()
    keyed(session, "aab")
    one = take(session, 1.0)
    (second,) = session.take_all(1.0)
    assert (one.offset, second.offset) == (0, 200)
    session.acknowledge([one, second], 1.0)
    keyed(session, "aab", first=3)
    taken = session.take_all(1.0)
    assert [each.offset for each in taken] == [100, 300, 400, 500]
    keyed(session, "a", first=8)
    for each in taken[:3]:
        assert session.take(2.0) is None
        session.acknowledge([each], 2.0)
        session.check_invariants()
    assert take(session, 2.0).offset == 800


@pytest.mark.parametrize("answer", ["release", "reject"])
def test_a_message_that_is_released_or_rejected_voids_those_of_its_key_behind_it(
    answer: str,
) -> None:
    session = ordered()
    keyed(session, "aaba")
    first, other = take(session, 1.0), take(session, 1.0)
    if answer == "release":
        (told,) = settles(session.release([first], 0, 1.0))
    else:
        (told,) = settles(session.reject(first, "no", 1.0))
    session.check_invariants()
    assert session.take(1.0) is None
    assert told.confirm is not None
    session.settled(told.confirm, [], 2.0)
    keyed(session, "aa", attempt=2)
    again = take(session, 2.0)
    assert (again.offset, again.attempt) == (0, 2)
    assert session.take(2.0) is None
    session.acknowledge([other, again], 2.0)
    assert take(session, 2.0).attempt == 2
    assert session.stale_count == 0


@pytest.mark.parametrize("is_stale", [False, True])
def test_what_crosses_a_release_of_its_key_waits_until_the_leader_knows_of_that(
    is_stale: bool,
) -> None:
    session = ordered()
    keyed(session, "ab")
    first = take(session, 1.0)
    session.acknowledge([take(session, 1.0)], 1.0)
    (told,) = settles(session.release([first], 0, 1.05))
    keyed(session, "ab", first=2)
    assert take(session, 1.0).offset == 300
    assert session.take(1.0) is None
    assert told.released == ((Offset(0), 1, 0),)
    assert told.confirm is not None
    session.settled(told.confirm, [first.offset] if is_stale else [], 1.3)
    session.check_invariants()
    following = session.take(1.4)
    if is_stale:  # it was dealt since another member has settled the first one
        assert following is not None
        assert following.offset == 200
    else:  # it was given back together with the first one, and is dealt again behind it
        assert following is None
        keyed(session, "-", attempt=2)
        assert session.stale_count == 0


def test_what_is_given_back_unasked_keeps_its_key_waiting_too() -> None:
    session = ordered()
    keyed(session, "ab")
    take(session, 0.0)
    effects: list[QueueEffect] = []
    now = 0.0
    while not any(one.released for one in settles(effects)):
        now = session.due_at() or now
        effects += session.tick(now)
    session.dealt([Offset(500)], [1], [SIZE], now, [b"b"])
    assert session.take(now) is None
    session.check_invariants()


def test_a_message_that_is_dealt_again_waits_for_no_older_delivery() -> None:
    session = ordered()
    keyed(session, "aaa")
    older = take(session, 1.0)
    keyed(session, "aaa", attempt=2)
    newer = take(session, 9.0)
    assert newer.attempt == 2
    assert session.take(9.0) is None
    session.acknowledge([older], 9.5)
    assert session.take(9.5) is None
    session.acknowledge([newer], 9.5)
    assert take(session, 9.5).attempt == 2
    assert session.stale_count == 1


def test_messages_that_wait_for_their_key_are_extended_and_released_like_others() -> None:
    session = ordered()
    keyed(session, "aa")
    take(session, 0.0)
    assert session.take(0.0) is None
    effects: list[QueueEffect] = []
    while (due_at := session.due_at()) is not None:
        effects += session.tick(due_at)
        session.check_invariants()
    assert any(one.extended for one in settles(effects))
    assert effects[-1] == SendSettle(released=((Offset(100), 1, 0),), confirm=1)


# --- confirmations ---------------------------------------------------------------------


def test_a_commit_is_confirmed_by_the_leader_only() -> None:
    session = attached()
    assert session.confirm(0.0) == (0, [])
    assert session.is_confirmed(0)
    deal(session, [0, 100, 200])
    first, second, _ = session.take_all(1.0)
    session.acknowledge([first], 1.0)
    session.acknowledge([second], 1.01)
    number, effects = session.confirm(1.02)
    assert effects == [SendSettle(acknowledged=((Offset(100), 1),), confirm=number)]
    assert session.confirm(1.03) == (number, [])
    assert not session.is_confirmed(number)
    session.settled(number, [], 2.0)
    assert session.is_confirmed(number)
    session.disconnected()
    assert session.stale_count == 0


def test_a_member_now_and_then_asks_for_confirmation_by_itself() -> None:
    session = attached()
    deal(session, [0])
    session.acknowledge([take(session, 1.0)], 1.0)
    times = []
    while (due_at := session.due_at()) is not None:
        times.append(due_at)
        for sent in settles(session.tick(due_at)):
            assert sent == SendSettle(confirm=1)
            session.settled(1, [], due_at)
    assert 1.0 + CONFIRMING_S in times
    session.disconnected()
    assert session.stale_count == 0


def test_a_flush_sends_the_answers_that_wait() -> None:
    session = attached()
    deal(session, [0, 100, 200])
    first, second, _ = session.take_all(1.0)
    session.acknowledge([first], 1.0)
    session.acknowledge([second], 1.01)
    assert session.flush(1.02) == [SendSettle(acknowledged=((Offset(100), 1),))]
    assert session.flush(1.03) == []


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (MemberFencedError("reset"), QueueRemedy.ATTACH_AGAIN),
        (refused(Status.UNKNOWN_MEMBER, "who?"), QueueRemedy.ATTACH_AGAIN),
        (NotLeaderError("not here"), QueueRemedy.ATTACH_AGAIN),
        (ConnectionLostError("broken"), QueueRemedy.ATTACH_AGAIN),
        (UnreachableError("away"), QueueRemedy.ATTACH_AGAIN),
        (UnknownSubscriptionError("lost or deleted"), QueueRemedy.ATTACH_AGAIN),
        (refused(Status.LOG_CORRUPT, "damaged"), QueueRemedy.ATTACH_AGAIN),
        (ProtocolError("what?"), QueueRemedy.STOP),
    ],
)
def test_a_member_attaches_again_after_errors_that_this_can_cure(
    error: OctopiError, remedy: QueueRemedy
) -> None:
    assert queue_remedy(error) is remedy


# --- random walks ----------------------------------------------------------------------


@attrs.define
class Leader:
    """Deals to one member, as far as it may; what it acknowledges is committed at once."""

    pending: list[int]
    prefetch: int
    timeout_s: float
    credit: int = 0
    dealt_count: int = 0
    open: dict[int, tuple[int, float]] = attrs.field(factory=dict)
    attempts: dict[int, int] = attrs.field(factory=dict)
    settled: set[int] = attrs.field(factory=set)
    down: deque[Any] = attrs.field(factory=deque)

    def attach(self, credit: int) -> None:
        self.pending = sorted([*self.pending, *self.open])
        self.open.clear()
        self.down.clear()
        self.credit, self.dealt_count = credit, 0

    def deal(self, now: float) -> None:
        offsets = self.pending[: self.credit - self.dealt_count]
        del self.pending[: len(offsets)]
        for offset in offsets:
            self.attempts[offset] = self.attempts.get(offset, 0) + 1
            self.open[offset] = (self.attempts[offset], now)
        self.dealt_count += len(offsets)
        if offsets:
            numbers = [Offset(one) for one in offsets]
            self.down.append(("deal", numbers, [self.attempts[one] for one in offsets]))

    def time_out(self, now: float) -> None:
        for offset, (_, since) in list(self.open.items()):
            if now - since > self.timeout_s:
                del self.open[offset]
                self.pending.append(offset)

    def take(self, effect: QueueEffect, now: float) -> None:
        if isinstance(effect, SendCredit):
            self.credit = max(self.credit, effect.messages)
            return
        assert sum(map(len, attrs.astuple(effect, recurse=False)[:4])) <= SETTLE_COUNT_MAX
        stale = []
        for offset, attempt in effect.acknowledged:
            if self.open.get(offset, (0, 0.0))[0] == attempt:
                del self.open[offset]
                self.settled.add(offset)
            else:
                stale.append(offset)
        for offset, attempt, _ in effect.released:
            if self.open.get(offset, (0, 0.0))[0] == attempt:
                del self.open[offset]
                self.pending.append(offset)
            else:
                stale.append(offset)
        for offset, attempt in effect.extended:
            if self.open.get(offset, (0, 0.0))[0] == attempt:
                self.open[offset] = (attempt, now)
            else:
                stale.append(offset)
        if effect.confirm is not None or stale:
            self.down.append(("settled", effect.confirm or 0, stale))


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.prefetch = self.random.choice([1, 2, 5, 50])
        self.is_ordered = self.random.random() < 0.5
        self.session = QueueSession(
            ACK_TIMEOUT_S, self.prefetch, 1_000_000, is_ordered=self.is_ordered
        )
        self.leader = Leader([100 * one for one in range(40)], self.prefetch, ACK_TIMEOUT_S)
        self.now = 0.0
        self.hands: list[OpenDelivery] = []
        self.up: deque[QueueEffect] = deque()
        self.processed: set[int] = set()
        self.commits: list[tuple[int, set[int], int]] = []

    def send(self, effects: Iterable[QueueEffect]) -> None:
        assert self.session.is_attached
        self.up.extend(effects)

    def attach(self) -> None:
        self.up.clear()
        credit = self.session.attaching()
        self.leader.attach(credit.messages)
        self.session.attached()

    def carry(self) -> None:
        while self.up:
            self.leader.take(self.up.popleft(), self.now)
        self.leader.time_out(self.now)
        self.leader.deal(self.now)
        while self.leader.down:
            kind, *facts = self.leader.down.popleft()
            if kind == "settled":
                number, stale = facts
                self.send(self.session.settled(number, stale, self.now))
            else:
                offsets, attempts = facts
                keys = [b"%d" % (one // 100 % 3) for one in offsets]
                self.session.dealt(offsets, attempts, [SIZE] * len(offsets), self.now, keys)
        assert self.session.open_count <= self.prefetch

    def step(self) -> None:
        session, hands = self.session, self.hands
        match self.random.choice("taaarxcdtwwwbl"):
            case "t" if (one := session.take(self.now)) is not None:
                of_key = [each for each in hands if each.key == one.key and not each.is_void]
                current = [each for each in of_key if each.attachment == one.attachment]
                assert not (self.is_ordered and current), "two of a key at a time"
                hands.append(one)
            case "a" if hands:
                one = hands.pop(self.random.randrange(len(hands)))
                self.processed.add(one.offset)
                self.send(session.acknowledge([one], self.now))
            case "r" if hands:
                one = hands.pop()
                self.send(session.release([one], 0, self.now))
            case "x" if hands:
                self.send(session.extend(hands[0], self.now))
            case "c":
                stale = session.stale_count
                number, effects = session.confirm(self.now)
                self.send(effects)
                self.commits.append((number, set(self.processed), stale))
            case "d" if (due_at := session.due_at()) is not None:
                self.now = max(self.now, due_at)
                self.send(session.tick(self.now))
            case "w":
                self.carry()
            case "l":
                self.now += self.random.choice([0.01, 0.3, 4.0, 31.0])
            case "b" if self.random.random() < 0.2:
                session.disconnected()
                session.check_invariants()
                self.attach()
        session.check_invariants()
        for number, processed, stale in self.commits:
            if session.is_confirmed(number) and session.stale_count == 0 == stale:
                assert processed <= self.leader.settled, "a confirmed one was not committed"
        self.commits = [one for one in self.commits if not session.is_confirmed(one[0])]

    def finish(self) -> None:
        for _ in range(1_000):
            if len(self.leader.settled) == 40:
                return
            self.now += 0.3
            while (one := self.session.take(self.now)) is not None:
                self.hands.append(one)
            for one in self.hands:
                self.send(self.session.acknowledge([one], self.now))
            self.hands.clear()
            self.send(self.session.tick(self.now))
            self.carry()
        raise AssertionError("messages were passed over, or credit was lost")


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_every_message_is_processed_and_what_is_confirmed_is_committed(
    seed: int,
) -> None:
    walk = Walk(seed)
    walk.attach()
    for _ in range(300):
        walk.step()
    walk.finish()


# --- leaving ---------------------------------------------------------------------------


def test_a_member_knows_which_deliveries_its_program_was_given_and_the_leader_may_have_open() -> (
    None
):
    session = attached()
    deal(session, [0, 100, 200, 300])
    assert session.seen == []
    first, second, _third = (take(session, 1.0) for _ in range(3))
    assert session.seen == [(0, 1), (100, 1), (200, 1)]
    session.acknowledge([first], 1.0)
    assert session.seen == [(100, 1), (200, 1)], "that answer was sent"
    session.acknowledge([second], 1.01)
    assert session.seen == [(100, 1), (200, 1)], "this one was not"
    session.tick(2.0)
    assert session.seen == [(200, 1)]
    deal(session, [200], 40.0, attempt=2)
    assert session.seen == [(200, 1)]
    session.disconnected()
    assert session.seen == []
