"""A queue whose leader deals the messages of one log, driven at random: answers are late, doubled
and lost, deliveries time out, members come and go, leaders change and keep any part of what they
had not committed, the dead-letter topic is deleted and made again.

After each step the rules are checked that queues promise:

- *passed over*: what is settled is acknowledged, or is a dead letter;
- *doubled*: a message is in the dead-letter topic at most once, and not if it was acknowledged;
- *too early*, *too late*: it is there after as many deliveries as the subscription allows, and it
  was dealt no more often than that, and once more for each change of the leader;
- *redelivered*: what is known to be settled is never dealt again;
- *key order*: no two members hold messages of one key, and they are settled in order;
- *zombie*: only the newest delivery of a message can be acknowledged;
- *credit*: a member is dealt no more than it takes;
- *unbounded*: no more than the window is dealt and remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import attrs

from octopi.identifiers import Claim, MemberId, Offset, PartitionId, SubscriptionId, TopicId
from octopi.model import SubscriptionMode, SubscriptionOptions, SubscriptionStart
from octopi.subscriptions import effects as e
from octopi.subscriptions.entries import StoredSubscriptions, mark_key
from octopi.subscriptions.log_queue import Answers, LogQueue
from octopi.subscriptions.partition_subscriptions import PartitionSubscriptions
from octopi.subscriptions.queue_entries import settled_ranges
from octopi.subscriptions.queued_messages import ReadMessage
from tests.subscriptions.group_world import (
    NAME,
    RECORD_BYTES,
    TOPIC,
    TOPIC_ID,
    WALL_MS,
    BrokenRuleError,
    InternalLog,
    SteadyLog,
)

SID = SubscriptionId("5f0c2a1b5f0c2a1b")
KEY = mark_key(SID, TOPIC_ID)


@attrs.frozen
class DealtOnce:
    """What a member was sent."""

    session: int
    offset: Offset
    attempt: int
    leader: int


@attrs.define
class LetterLog:
    """The log of the dead-letter topic."""

    topic_id: TopicId
    exists: bool = True
    letters: list[tuple[int, int, Offset]] = attrs.field(factory=list)
    """Committed: producer epoch, sequence, and the original message."""
    appended: list[tuple[int, int, Offset]] = attrs.field(factory=list)

    @property
    def last(self) -> tuple[int, int]:
        """Epoch and sequence of the newest letter."""
        return [(-1, -1, Offset(0)), *self.letters, *self.appended][-1][:2]


class QueueWorld:
    """One queue; steps are drawn from *seed*."""

    def __init__(
        self,
        seed: int,
        *,
        keys: str = "aab",
        attempts: int | None = 2,
        window: int = 3,
        is_ordered: bool = True,
        members: int = 2,
        fails_over: bool = True,
    ) -> None:
        """Each character of *keys* is a message, and its key; ``-``: none."""
        self.random = Random(seed)
        self.trace: list[str] = []
        self.now = 0.0
        self.options = SubscriptionOptions(
            attempts=attempts, window=window, expires_ms=None, mark_interval_ms=1_000
        )
        self.mode = SubscriptionMode.KEY_SHARED if is_ordered else SubscriptionMode.SHARED
        self.is_ordered, self.fails_over = is_ordered, fails_over
        self.log = SteadyLog(len(keys))
        size = RECORD_BYTES
        self.messages = [
            ReadMessage(Offset(n * size), Offset((n + 1) * size), None if k == "-" else k.encode())
            for n, k in enumerate(keys)
        ]
        self.internal = InternalLog()
        self.letter_log = LetterLog(TopicId("d" * 16))
        self.ever_letters: set[Offset] = set()
        self.network: list[tuple[str, Callable[[], None]]] = []
        self.held: list[DealtOnce] = []
        self.leader = 0
        self._numbers = 0
        self.sessions: dict[int, list[int]] = {}
        """Attached ones: credit, and how much was dealt."""
        self._members_max = members
        self.dealt: Counter[Offset] = Counter()
        self.uncounted: dict[tuple[int, Offset], int] = {}
        """By leader: deliveries that are not counted."""
        self.acknowledged: list[Offset] = []
        """Those that counted, in order, but for those that a change of the leader took back."""
        self.settled_for_good: set[Offset] = set()
        self._rejected: set[Offset] = set()
        self.newest: dict[Offset, DealtOnce] = {}
        self.machine = self._machine()
        found = self.machine.open_marks(
            self._number(),
            SID,
            name=NAME,
            mode=self.mode,
            options=self.options,
            start=SubscriptionStart.EARLIEST,
            topic=TOPIC,
            topic_id=TOPIC_ID,
            now=0.0,
        )
        self._perform(found)
        self._commit()

    def _machine(self) -> PartitionSubscriptions:
        return PartitionSubscriptions(
            PartitionId(0),
            self.internal.committed,
            log_of=lambda _: self.log,
            new_id=lambda: f"{self._number():016x}",
            now=self.now,
            wall_ms=WALL_MS + round(self.now * 1000),
        )

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    @property
    def queue(self) -> LogQueue:
        found = self.machine.queue(SID)
        assert found is not None
        return found

    # --- driving -------------------------------------------------------------------------

    def walk(self, steps: int) -> None:
        """Take so many steps."""
        actions = [
            (self._deliver, 20),
            (self._commit, 14),
            (self._commit_letter, 8),
            (self._answer, 16),
            (self._feed, 10),
            (self._attach, 6),
            (self._detach, 2),
            (self._time, 4),
            (self._remake_letter_topic, 1),
            (self._change_leader, 1),
        ]
        for _ in range(steps):
            self.random.choices([one for one, _ in actions], [n for _, n in actions])[0]()
            self.check()

    def _perform(self, found: list[e.Effect]) -> None:
        for effect in found:
            self.trace.append(f"{self.now:6.2f} {effect}")
            match effect:
                case e.AppendState():
                    self.internal.appended.append(effect)
                case e.AppendLetter():
                    self._append_letter(effect)
                case e.DealMessages(session, _, _, messages):
                    for one in messages:
                        self._dealt(DealtOnce(session, one.offset, one.attempt, self.leader))
                case e.TellSettled(_, number, stale):
                    self._settled(number, stale)

    def _append_letter(self, effect: e.AppendLetter) -> None:
        log, number = self.letter_log, effect.number

        def fail() -> None:
            self._perform(self.machine.letter_failed(SID, number, "it is away", self.now))

        def begin() -> None:
            self._perform(self.machine.begin_letters(SID, number, log.topic_id, self.now))

        if not log.exists:
            self._send(f"letter {number} fails", fail, once=True)
        elif effect.letter_topic_id != log.topic_id:
            self._send(f"letter {number} begins a sequence", begin, once=True)
            return
        epoch, last = log.last
        asked = effect.producer_epoch, effect.sequence
        if (epoch < asked[0] and asked[1] == 0) or asked == (epoch, last + 1):
            log.appended.append((*asked, effect.offset))
        elif asked[0] == epoch and asked[1] <= last:
            if any(one[:2] == asked for one in log.letters):
                # Else it is told when that is committed.
                self._send(f"letter {number} was there", lambda: self._letter_known(number))
        else:
            self._send(f"letter {number} begins a sequence", begin, once=True)

    def _letter_known(self, number: int) -> None:
        self._perform(self.machine.letter_committed(SID, number, self.now))

    def _dealt(self, delivery: DealtOnce) -> None:
        self.dealt[delivery.offset] += 1
        if delivery.offset in self.settled_for_good:
            raise BrokenRuleError(f"redelivered: {delivery}")
        credit = self.sessions[delivery.session]
        credit[1] += 1
        if credit[1] > credit[0]:
            raise BrokenRuleError(f"credit: {delivery} is more than {credit[0]}")
        self.newest[delivery.offset] = delivery
        self.held.append(delivery)
        holders = {one.session for one in self._open() if self._same_key(one, delivery)}
        if len(holders) > 1:
            raise BrokenRuleError(f"key order: {holders} hold messages of one key")

    def _open(self) -> list[DealtOnce]:
        """The deliveries that can still be acknowledged."""
        found = []
        for member, offset, attempt in _open_in(self.queue):
            one = self.newest.get(offset)
            if one is not None and (one.session, one.attempt) == (member, attempt):
                found.append(one)
        return found

    def _same_key(self, one: DealtOnce, other: DealtOnce) -> bool:
        key = self._key(one.offset)
        return self.is_ordered and key is not None and key == self._key(other.offset)

    def _send(self, text: str, arrive: Callable[[], None], *, once: bool = False) -> None:
        leader, done = self.leader, list[bool]()

        def arrives() -> None:
            if leader == self.leader and not (once and done):
                done.append(True)
                arrive()

        self.network.append((text, arrives))

    def _deliver(self) -> None:
        if self.network:
            at = self.random.randrange(len(self.network))
            text, arrive = self.network[at]
            if self.random.random() < 0.9:
                del self.network[at]
            self.trace.append(f"{self.now:6.2f} arrives: {text}")
            arrive()

    def _commit(self) -> None:
        if self.internal.appended:
            state = self.internal.commit()
            self._note_settled()
            self.trace.append(f"{self.now:6.2f} committed")
            self._perform(list(state.then))
            self._perform(self.machine.committed(state.key, self.now))

    def _note_settled(self) -> None:
        stored = StoredSubscriptions.read(self.internal.committed).marks.get((SID, TOPIC_ID))
        if stored is None:
            return
        ranges = list(settled_ranges(stored.mark, stored.queue.settled))
        for one in self.messages:
            if one.offset < stored.mark or any(a <= one.offset < b for a, b in ranges):
                self.settled_for_good.add(one.offset)

    def _commit_letter(self) -> None:
        log = self.letter_log
        if log.appended:
            letter = log.appended.pop(0)
            offset = letter[2]
            log.letters.append(letter)
            self.ever_letters.add(offset)
            found = self.queue.queue.letters.get(offset)
            if found is not None:
                self._letter_known(found.number)

    def _answer(self) -> None:
        if not self.held:
            return
        delivery = self.random.choice(self.held)
        if self.random.random() < 0.7:
            self.held.remove(delivery)
        kind = self.random.choices(["acknowledge", "release", "reject", "extend"], [8, 2, 1, 1])[0]
        confirm, number = self.random.random() < 0.3, self._number()
        pair = (delivery.offset, delivery.attempt)
        answers = Answers(
            acknowledged=[pair] if kind == "acknowledge" else [],
            released=[(*pair, 0.0)] if kind == "release" else [],
            rejected=[(*pair, "bad")] if kind == "reject" else [],
            extended=[pair] if kind == "extend" else [],
        )

        def arrive() -> None:
            if delivery.leader != self.leader or delivery.session not in self.sessions:
                return
            before = set(_open_in(self.queue))
            self._asked = number, delivery, kind, confirm
            found = self.machine.settle(
                delivery.session, answers, number, self.now, confirm=confirm
            )
            told = [one for one in found if isinstance(one, e.TellSettled)]
            stale = any(delivery.offset in one.stale for one in told)
            counts = (delivery.session, *pair) in before and not stale
            if kind == "reject" and counts:
                self._rejected.add(delivery.offset)
            if kind == "acknowledge" and self._is_settled(delivery.offset):
                self._acknowledged(delivery)
            for one in told:
                if confirm and not one.stale and kind == "acknowledge":
                    self._confirmed(delivery)
            self._perform(found)

        self._send(f"{kind} {delivery}", arrive)

    _asked: tuple[int, DealtOnce, str, bool] | None = None

    def _is_settled(self, offset: Offset) -> bool:
        """Whether an acknowledgement that just came is what settled the message."""
        if offset in self.acknowledged or offset in self.settled_for_good:
            return False
        ranges = settled_ranges(self.queue.queue.mark, self.queue.queue.entry().settled)
        below = offset < self.queue.queue.mark
        gone = below or any(a <= offset < b for a, b in ranges)
        return gone and offset not in self.ever_letters

    def _confirmed(self, delivery: DealtOnce) -> None:
        if delivery.offset not in self.settled_for_good:
            raise BrokenRuleError(f"confirmed, and not committed: {delivery}")

    def _settled(self, number: int, stale: tuple[Offset, ...]) -> None:
        if self._asked is not None and self._asked[0] == number:
            _, delivery, kind, confirm = self._asked
            if kind == "acknowledge" and confirm and not stale:
                self._confirmed(delivery)

    def _acknowledged(self, delivery: DealtOnce) -> None:
        if self.newest[delivery.offset] != delivery:
            raise BrokenRuleError(f"zombie: {delivery} counted")
        key = self._key(delivery.offset)
        if self.is_ordered and key is not None:
            for one in self.messages:
                if one.offset >= delivery.offset:
                    break
                gone = one.offset in self.acknowledged or one.offset in self.ever_letters
                if one.key == key and not gone:
                    raise BrokenRuleError(f"key order: {delivery} before {one.offset}")
        self.acknowledged.append(delivery.offset)

    def _key(self, offset: Offset) -> bytes | None:
        return self.messages[offset // RECORD_BYTES].key

    def _feed(self) -> None:
        queue = self.queue.queue
        if count := queue.wanted_count:
            new = [one for one in self.messages if one.offset >= queue.read_end][:count]
            if new:
                self.trace.append(f"{self.now:6.2f} read {[one.offset for one in new]}")
                self._perform(self.machine.feed(SID, new, self.now))

    def _attach(self) -> None:
        if len(self.sessions) < self._members_max:
            session, credit = self._number(), self.random.randint(1, 3)
            self.sessions[session] = [credit, 0]
            self._perform(
                self.machine.attach(
                    session, SID, MemberId("m"), Claim(0), self.now, (credit, 1_000_000)
                )
            )
        else:
            session = self.random.choice(list(self.sessions))
            credit = self.sessions[session][1] + self.random.randint(0, 2)
            self.sessions[session][0] = max(self.sessions[session][0], credit)
            self._perform(self.machine.queue_credit(session, credit, 1_000_000, self.now))

    def _detach(self) -> None:
        if self.sessions:
            session = self.random.choice(list(self.sessions))
            del self.sessions[session]
            if self.random.random() < 0.5:
                self.trace.append(f"{self.now:6.2f} session {session} ends")
                self._perform(self.machine.session_ended(session, self.now))
                return
            some = [one for one in self._open() if one.session == session]
            seen = {one for one in some if self.random.random() < 0.5}
            pairs = {(one.offset, one.attempt) for one in seen}
            self.trace.append(f"{self.now:6.2f} session {session} leaves, and saw {pairs}")
            answered = {one.offset for one in self.queue.queue._order if one.is_answered}
            for one in some:
                if one not in seen and one.offset not in answered:
                    self.dealt[one.offset] -= 1
            self._perform(self.machine.detach(self._number(), session, self.now, pairs))

    def _time(self) -> None:
        self.now += self.random.choice([0.3, 1.0, 31.0])
        self._perform(self.machine.tick(self.now))

    def _remake_letter_topic(self) -> None:
        log = self.letter_log
        if log.exists:
            log.exists, log.appended = False, []
        else:
            self.letter_log = LetterLog(TopicId(f"{self._number():016x}"))

    def _change_leader(self) -> None:
        if not self.fails_over:
            return
        keep = self.random.randint(0, len(self.internal.appended))
        letters = self.random.randint(0, len(self.letter_log.appended))
        for _ in range(keep):
            self.internal.commit()
        self.internal.appended = []
        log = self.letter_log
        kept, log.appended = log.appended[:letters], []
        log.letters += kept
        self.ever_letters |= {offset for _, _, offset in kept}
        self._note_settled()
        self.leader += 1
        self.sessions, self.held = {}, []
        self.acknowledged = [o for o in self.acknowledged if o in self.settled_for_good]
        self.trace.append(f"{self.now:6.2f} another leader, keeping {keep} and {letters} letters")
        self.machine = self._machine()

    # --- rules ---------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `BrokenRuleError` where a promise does not hold."""
        self.queue.queue.check_invariants()
        log = self.letter_log
        letters = [offset for _, _, offset in [*log.letters, *log.appended]]
        if len(set(letters)) < len(letters):
            raise BrokenRuleError(f"doubled: {letters}")
        for offset in self.settled_for_good:
            if offset not in self.acknowledged and offset not in self.ever_letters:
                raise BrokenRuleError(f"passed over: {offset}")
        for offset in letters:
            if offset in self.acknowledged:
                raise BrokenRuleError(f"doubled: {offset} is acknowledged and a dead letter")
            limit = self.options.attempts
            count = self.dealt[offset] - self._uncounted_of(offset)
            if limit and count < limit and offset not in self._rejected:
                raise BrokenRuleError(f"too early: {offset} after {count}")
        for one in self.queue.queue._order:
            self.uncounted[self.leader, one.offset] = one.uncounted
        for offset, dealt in self.dealt.items():
            count = dealt - self._uncounted_of(offset)
            if self.options.attempts and count > self.options.attempts + self.leader:
                raise BrokenRuleError(f"too late: {offset} was dealt {count} times")
        mark = self.queue.queue.mark
        remembered = [one for one in self.dealt if one >= mark]
        if len(remembered) > self.options.window and not self.leader:
            raise BrokenRuleError(f"unbounded: {remembered} behind {mark}")

    def _uncounted_of(self, offset: Offset) -> int:
        """Deliveries that ended because an earlier message of its key was given back."""
        return sum(count for (_, at), count in self.uncounted.items() if at == offset)


def _open_in(queue: LogQueue) -> list[tuple[int, Offset, int]]:
    members: Any = queue.queue.members
    return [
        (one.session, one.offset, one.attempt)
        for message in queue.queue._order
        for one in [message]
        if one.state.name == "OPEN" and members.get(one.session) is not None
    ]
