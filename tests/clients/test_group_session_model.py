"""Members of a subscription against a coordinator and leaders that forget, repeat and lose.

Whatever happens to connections, a member reads a log with a claim that was assigned to it and that
it has not given back, no message is passed over, what was confirmed stays, and once all is quiet
each log has the member that the coordinator thinks it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any

import attrs
import pytest

from octopi.clients.subscribing.group_session import (
    AbandonLog,
    BeginLog,
    FinishLog,
    GroupEffect,
    GroupSession,
    JoinRemedy,
    ReportReleased,
    join_remedy,
)
from octopi.clients.subscribing.mark_session import (
    AttachRemedy,
    MarkSession,
    SendMark,
    attach_remedy,
)
from octopi.errors import (
    ConnectionLostError,
    HistoryForkedError,
    MemberFencedError,
    NotLeaderError,
    OctopiError,
    ProtocolError,
    Status,
    UnknownSubscriptionError,
    UnreachableError,
    refused,
)
from octopi.identifiers import NO_CLAIM, Claim, MemberId, Offset, PartitionId
from octopi.position import Anchor

TIMEOUT_S = 1.0
LOGS = [PartitionId(0), PartitionId(1)]
ANN = MemberId("ann")
MEMBERS = [ANN, MemberId("bob")]


@attrs.define
class Wire:
    """A connection: in order both ways, until it breaks."""

    is_open: bool = False
    up: deque[Any] = attrs.field(factory=deque)
    down: deque[Any] = attrs.field(factory=deque)

    def open(self) -> None:
        self.is_open = True

    def cut(self) -> None:
        self.is_open = False
        self.up.clear()
        self.down.clear()


@attrs.define(eq=False)
class Work:
    """What a member's program does with one log."""

    claim: Claim
    marks: MarkSession
    wire: Wire = attrs.field(factory=Wire)
    has_in_hand: bool = False
    position: int = -1
    is_finishing: bool = False
    waits_for: int = 0
    """The program waits for the commit of a mark there."""

    def __repr__(self) -> str:
        return f"claim {self.claim}"


@attrs.define
class Member:
    session: GroupSession
    wire: Wire = attrs.field(factory=Wire)
    works: dict[PartitionId, Work] = attrs.field(factory=dict)


@attrs.define
class Assignment:
    """What the coordinator knows of a log."""

    claim: Claim = NO_CLAIM
    member: MemberId | None = None
    is_releasing: bool = False


@attrs.define
class Leader:
    """Of one log."""

    claim: Claim = NO_CLAIM
    mark: int = 0
    stored: int = 0
    processed: set[int] = attrs.field(factory=set)


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.trace: list[str] = []
        self.now = 100.0
        self.end = 3
        """Of each log: its records are numbered."""
        self.members = {name: Member(GroupSession(name)) for name in MEMBERS}
        self.known: set[MemberId] = set()
        self.logs = {log: Assignment() for log in LOGS}
        self.leaders = {log: Leader() for log in LOGS}
        self.given: set[tuple[MemberId, PartitionId, Claim]] = set()
        self.replaced_at: dict[tuple[PartitionId, Claim], float] = {}
        """When the leader of a log took a newer claim than that."""
        self.given_back: set[tuple[MemberId, PartitionId, Claim]] = set()

    # --- a member and its coordinator --------------------------------------------------

    def join(self, name: MemberId) -> None:
        member = self.members[name]
        member.wire.cut()
        member.wire.open()
        member.wire.up.append(("join", member.session.joining()))

    def coordinator_hears(self, name: MemberId) -> None:
        wire = self.members[name].wire
        kind, claims = wire.up.popleft()
        if kind == "join":
            self.known.add(name)
            add = [(log, one.claim) for log, one in self.logs.items() if one.member == name]
            release = [(log, claim) for log, claim in add if self.logs[log].is_releasing]
            wire.down.append(("assignment", add, release))
        else:
            for log, claim in claims:
                one = self.logs[log]
                if (one.member, one.claim) == (name, claim):
                    one.member, one.is_releasing = None, False

    def member_hears(self, name: MemberId) -> None:
        wire, session = self.members[name].wire, self.members[name].session
        match wire.down.popleft():
            case "expired":
                effects = session.expired()
                wire.cut()
            case ("assignment", add, release):
                effects = session.assigned(name, add, release)
        self.perform(name, effects)

    def assign(self, log: PartitionId, name: MemberId) -> None:
        one = self.logs[log]
        one.member, one.claim = name, Claim(one.claim + 1)
        self.given.add((name, log, one.claim))
        self.tell(name, [(log, one.claim)], [])

    def ask_for_release(self, log: PartitionId) -> None:
        one = self.logs[log]
        assert one.member is not None
        one.is_releasing = True
        self.tell(one.member, [], [(log, one.claim)])

    def release_times_out(self, log: PartitionId) -> None:
        self.logs[log] = Assignment(self.logs[log].claim)

    def give_up(self, name: MemberId) -> None:
        """The coordinator takes a member for dead, perhaps wrongly."""
        self.known.discard(name)
        for log, one in self.logs.items():
            if one.member == name:
                self.logs[log] = Assignment(one.claim)
        if self.members[name].wire.is_open:
            self.members[name].wire.down.append("expired")

    def tell(self, name: MemberId, add: list[Any], release: list[Any]) -> None:
        if self.members[name].wire.is_open:
            self.members[name].wire.down.append(("assignment", add, release))

    def perform(self, name: MemberId, effects: Iterable[GroupEffect]) -> None:
        member = self.members[name]
        for effect in effects:
            match effect:
                case BeginLog(log, claim):
                    assert log not in member.works, "two claims at once"
                    assert (name, log, claim) in self.given, "it was never assigned"
                    assert (name, log, claim) not in self.given_back, "it was given back"
                    member.works[log] = Work(claim, MarkSession(TIMEOUT_S))
                case FinishLog(log, claim):
                    assert member.works[log].claim == claim
                    member.works[log].is_finishing = True
                case AbandonLog(log, claim):
                    self.given_back.add((name, log, claim))
                    assert member.works.pop(log).claim == claim
                case ReportReleased(claims):
                    if member.wire.is_open:
                        member.wire.up.append(("released", claims))

    # --- a member and the leader of a log ----------------------------------------------

    def works(self) -> list[tuple[MemberId, PartitionId, Work]]:
        return [
            (name, log, work)
            for name, member in self.members.items()
            for log, work in member.works.items()
        ]

    def attach(self, work: Work) -> None:
        work.wire.cut()
        work.wire.open()
        work.marks.attaching(self.now)
        work.wire.up.append("attach")

    def leader_hears(self, log: PartitionId, work: Work) -> None:
        leader, message = self.leaders[log], work.wire.up.popleft()
        if work.claim < leader.claim:
            work.wire.down.append("fenced")
        elif message == "attach":
            if work.claim > leader.claim:
                self.replaced_at[log, leader.claim] = self.now
            leader.claim = work.claim
            leader.stored = leader.mark
            work.wire.down.append(("attached", leader.mark))
        else:
            assert isinstance(message, SendMark)
            leader.mark = max(leader.mark, message.offset)
            assert leader.processed >= set(range(leader.mark)), "messages were passed over"
            if message.acknowledge is not None:
                leader.stored = leader.mark
                work.wire.down.append(("marked", message.acknowledge))

    def member_hears_leader(self, name: MemberId, log: PartitionId, work: Work) -> None:
        match work.wire.down.popleft():
            case "fenced":
                self.perform(name, self.members[name].session.lost(log, work.claim))
            case ("attached", mark):
                work.wire.up.extend(work.marks.attached(Offset(mark), self.now))
                if work.position < 0:
                    work.position = mark
            case ("marked", number):
                work.marks.acknowledged(number)

    def break_attachment(self, work: Work) -> None:
        work.wire.cut()
        work.marks.disconnected()

    def change_leader(self, log: PartitionId) -> None:
        """The new one knows what is stored."""
        self.leaders[log].mark = self.leaders[log].stored
        for member in self.members.values():
            if log in member.works:
                self.break_attachment(member.works[log])

    # --- the program -------------------------------------------------------------------

    def ask(self, log: PartitionId, work: Work) -> None:
        """The program asks for the next message."""
        if work.has_in_hand:
            work.has_in_hand = False
            self.leaders[log].processed.add(work.position)
            work.position += 1
            work.wire.up.extend(work.marks.mark(Offset(work.position), self.now))
        work.marks.is_wanted = work.position < self.end
        if not work.is_finishing and work.marks.is_wanted and work.marks.may_hand_out(self.now):
            replaced_at = self.replaced_at.get((log, work.claim), self.now)
            assert self.now <= replaced_at + TIMEOUT_S / 2, "it was replaced long ago"
            work.has_in_hand = True

    def commit(self, work: Work) -> None:
        work.waits_for = work.marks.marked
        work.wire.up.extend(work.marks.commit(self.now))

    def finish(self, name: MemberId, log: PartitionId, work: Work) -> None:
        self.ask(log, work)
        if work.marks.is_committed(work.marks.marked):
            assert self.leaders[log].stored >= work.position or work.position < 0
            del self.members[name].works[log]
            self.given_back.add((name, log, work.claim))
            self.perform(name, self.members[name].session.finished(log, work.claim))
        else:
            self.commit(work)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for _, _, work in self.works():
            work.wire.up.extend(work.marks.tick(self.now))

    # --- walking -----------------------------------------------------------------------

    def choices(self, *, is_quiet: bool) -> list[Callable[[], None]]:
        """What can happen next; the same thing several times if it is to happen often."""
        found: list[Callable[[], None]] = []
        for name, member in self.members.items():
            if member.wire.up:
                found += [partial(self.coordinator_hears, name)] * 4
            if member.wire.down:
                found += [partial(self.member_hears, name)] * 4
            if not member.wire.is_open or not is_quiet:
                found.append(partial(self.join, name))
            if not is_quiet:
                found.append(member.wire.cut)
                if name in self.known:
                    found.append(partial(self.give_up, name))
        for log, one in self.logs.items():
            if one.member is None:
                found += [partial(self.assign, log, name) for name in sorted(self.known)]
            elif not is_quiet:
                found += [partial(self.ask_for_release, log)] * 2
            if one.is_releasing and not is_quiet:
                found.append(partial(self.release_times_out, log))
            if not is_quiet:
                found.append(partial(self.change_leader, log))
        for name, log, work in self.works():
            if work.wire.up:
                found += [partial(self.leader_hears, log, work)] * 4
            if work.wire.down:
                found += [partial(self.member_hears_leader, name, log, work)] * 4
            if not work.wire.is_open:
                found += [partial(self.attach, work)] * 4
            if work.position >= 0:
                found += [partial(self.ask, log, work)] * 3
                if not is_quiet:
                    found.append(partial(self.commit, work))
            if work.is_finishing:
                found += [partial(self.finish, name, log, work)] * 2
            if not is_quiet:
                found.append(partial(self.break_attachment, work))
        found.append(partial(self.pass_time, self.random.choice([0.05, 0.2, 1.0])))
        return found

    def walk(self, steps: int) -> None:
        for _ in range(steps):
            self.step(is_quiet=False)
            if self.random.random() < 0.1:
                self.end += 1

    def step(self, *, is_quiet: bool) -> None:
        chosen = self.random.choice(self.choices(is_quiet=is_quiet))
        self.trace.append(_told(chosen))
        chosen()
        self.check()

    def check(self) -> None:
        for member in self.members.values():
            member.session.check_invariants()
            held = {log: work.claim for log, work in member.works.items()}
            assert dict(member.session.held) == held
        for name, log, work in self.works():
            work.marks.check_invariants()
            assert (name, log, work.claim) in self.given
            assert work.marks.confirmed <= self.leaders[log].stored, "confirmed and not stored"

    def is_settled(self) -> bool:
        """Whether each log is read by the member that the coordinator knows, up to its end."""
        for log, one in self.logs.items():
            if one.member is None or one.is_releasing:
                return False
            work = self.members[one.member].works.get(log)
            if work is None or work.claim != one.claim or self.leaders[log].mark < self.end:
                return False
            if not work.marks.is_committed(Offset(work.waits_for)):
                return False
        return not any(member.wire.up or member.wire.down for member in self.members.values())

    def settle(self) -> None:
        """Nothing fails any more: in the end all is read."""
        for name in MEMBERS:
            self.join(name)
        for _ in range(5_000):
            if self.is_settled():
                return
            self.step(is_quiet=True)
        raise AssertionError("not all is read")


def _told(chosen: object) -> str:
    if not isinstance(chosen, partial):
        return "cut"
    return f"{chosen.func.__name__} {chosen.args}"


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_no_random_walk_breaks_a_promise_of_a_group(first: int) -> None:
    for seed in range(first, first + 50):
        world = World(seed)
        try:
            world.walk(400)
            world.settle()
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}\n" + "\n".join(world.trace[-40:]))


HELD = (PartitionId(0), Claim(4))
OLD, NEW = Anchor("1-0"), Anchor("2-12.1-0")


def test_a_released_claim_is_not_taken_again_and_its_release_is_reported_again() -> None:
    session = GroupSession(ANN)
    assert session.assigned(ANN, [HELD], []) == [BeginLog(*HELD)]
    assert session.finished(*HELD) == [ReportReleased((HELD,))]
    assert session.assigned(ANN, [HELD], []) == [ReportReleased((HELD,))]
    assert session.held == []
    session.joining()
    assert session.assigned(ANN, [], []) == [ReportReleased((HELD,))]
    assert session.assigned(ANN, [], []) == []


def test_a_release_that_comes_before_its_assignment_is_answered() -> None:
    session = GroupSession(ANN)
    assert session.assigned(ANN, [], [HELD]) == [ReportReleased((HELD,))]
    assert session.assigned(ANN, [HELD], []) == [ReportReleased((HELD,))]


def test_an_assignment_older_than_the_held_claim_is_released_until_a_newer_one_comes() -> None:
    """The coordinator forgot claims: all replicas of its partition lost what they had in memory."""
    session = GroupSession(ANN)
    partition = PartitionId(0)
    session.assigned(ANN, [HELD], [])
    older, newer = (partition, Claim(3)), (partition, Claim(5))
    assert session.assigned(ANN, [older], []) == [ReportReleased((older,))]
    assert session.held == [HELD]
    session.finished(*HELD)
    assert session.assigned(ANN, [HELD], []) == [ReportReleased((HELD,))]
    assert session.assigned(ANN, [newer], []) == [BeginLog(*newer)]


def test_an_expired_member_gives_up_all_its_logs() -> None:
    session = GroupSession(ANN)
    session.assigned(ANN, [HELD, (PartitionId(3), Claim(1))], [HELD])
    assert session.expired() == [AbandonLog(*HELD), AbandonLog(PartitionId(3), Claim(1))]
    assert session.held == []
    assert not session.is_ending(PartitionId(0))
    assert session.member == "ann"


def test_a_member_without_a_name_keeps_the_id_that_it_got_until_it_expires() -> None:
    session = GroupSession()
    assert session.member == ""
    session.assigned(MemberId("17"), [HELD], [])
    session.joining()
    assert session.member == "17"
    session.expired()
    assert session.member == ""


def test_a_new_leader_that_knows_an_older_mark_is_sent_the_newest() -> None:
    marks = MarkSession(TIMEOUT_S)
    marks.attaching(0.0)
    marks.attached(Offset(10), 0.0)
    assert marks.mark(Offset(20), 1.0) == [SendMark(Offset(20), None)]
    assert marks.commit(1.0) == [SendMark(Offset(20), 1)]
    marks.disconnected()
    assert marks.due_at() is None
    marks.attaching(2.0)
    assert marks.attached(Offset(10), 2.1) == [SendMark(Offset(20), 2)]
    marks.acknowledged(2)
    assert marks.is_committed(Offset(20))
    marks.attaching(3.0)
    assert marks.attached(Offset(15), 3.1) == [SendMark(Offset(20), None)]


def test_marks_carry_the_anchors_of_their_offsets() -> None:
    marks = MarkSession(TIMEOUT_S)
    marks.attaching(0.0)
    marks.attached(Offset(10), 0.0, OLD)
    assert marks.commit(0.0) == []
    assert marks.mark(Offset(20), 1.0, NEW) == [SendMark(Offset(20), None, NEW)]
    marks.attaching(2.0)
    assert marks.attached(Offset(15), 2.1, OLD) == [SendMark(Offset(20), None, NEW)]
    marks.attaching(3.0)
    assert marks.attached(Offset(20), 3.1, OLD) == []
    assert marks.anchor == NEW  # it read that there


def test_a_member_whose_messages_are_lost_begins_again_at_the_mark_of_the_leader() -> None:
    marks = MarkSession(TIMEOUT_S)
    marks.attaching(0.0)
    assert not marks.is_set_back(Offset(10), None)
    marks.attached(Offset(10), 0.0, OLD)
    marks.mark(Offset(20), 1.0, OLD)
    assert marks.commit(1.0) == [SendMark(Offset(20), 1, OLD)]
    marks.begin_again()
    assert (marks.start, marks.marked, marks.confirmed) == (None, 0, 0)
    assert marks.is_settled
    assert not marks.may_hand_out(1.0)
    assert marks.due_at() is None
    marks.acknowledged(1)  # too late
    marks.check_invariants()
    marks.attaching(2.0)
    assert marks.attached(Offset(5), 2.0, OLD) == []
    assert (marks.start, marks.marked, marks.confirmed) == (5, 5, 5)
    assert marks.mark(Offset(8), 3.0, NEW) == [SendMark(Offset(8), None, NEW)]


def test_a_member_is_set_back_by_a_new_loss_or_a_mark_older_than_the_confirmed_one() -> None:
    marks = MarkSession(TIMEOUT_S)
    marks.attaching(0.0)
    known = Offset(10), Offset(20)
    assert not marks.is_set_back(Offset(10), known)  # nothing was read
    marks.attached(Offset(10), 0.0)
    assert not marks.is_set_back(Offset(10), known)  # told again, until there is a newer mark
    assert marks.is_set_back(Offset(9), known)
    assert marks.is_set_back(Offset(10), (Offset(10), Offset(30)))
    assert not marks.is_set_back(Offset(10), None)


def test_marks_wait_a_moment_for_newer_ones() -> None:
    marks = MarkSession(10.0)
    marks.attaching(0.0)
    marks.attached(Offset(0), 0.0)
    assert marks.mark(Offset(1), 1.0) == [SendMark(Offset(1), None)]
    assert marks.mark(Offset(2), 1.01) == []
    assert marks.mark(Offset(3), 1.02) == []
    due_at = marks.due_at()
    assert due_at is not None
    assert marks.tick(due_at) == [SendMark(Offset(3), None)]
    assert marks.due_at() is None


def test_the_leader_is_asked_for_a_confirmation_while_messages_wait() -> None:
    marks = MarkSession(8.0)
    marks.attaching(0.0)
    marks.attached(Offset(0), 0.5)
    assert marks.silent_at == 4.0
    marks.is_wanted = True
    assert marks.due_at() == 2.0
    assert marks.tick(2.0) == [SendMark(Offset(0), 1)]
    assert marks.due_at() == 4.0
    marks.acknowledged(1)
    assert marks.silent_at == 6.0
    assert marks.may_hand_out(5.9)
    assert not marks.may_hand_out(6.0)


@pytest.mark.parametrize(
    ("error", "join", "attach"),
    [
        (ConnectionLostError("gone"), JoinRemedy.JOIN_AGAIN, AttachRemedy.ATTACH_AGAIN),
        (UnreachableError("gone"), JoinRemedy.JOIN_AGAIN, AttachRemedy.ATTACH_AGAIN),
        (NotLeaderError("no"), JoinRemedy.JOIN_AGAIN, AttachRemedy.ATTACH_AGAIN),
        (MemberFencedError("no"), JoinRemedy.STOP, AttachRemedy.LOST),
        (HistoryForkedError("no"), JoinRemedy.STOP, AttachRemedy.BEGIN_AGAIN),
        (
            refused(Status.UNKNOWN_MEMBER, "no"),
            JoinRemedy.START_OVER,
            AttachRemedy.STOP,
        ),
        (UnknownSubscriptionError("no"), JoinRemedy.STOP, AttachRemedy.ATTACH_AGAIN),
        (
            refused(Status.LOG_CORRUPT, "damaged"),
            JoinRemedy.JOIN_AGAIN,
            AttachRemedy.ATTACH_AGAIN,
        ),
        (ProtocolError("no"), JoinRemedy.STOP, AttachRemedy.STOP),
    ],
)
def test_each_error_that_ends_a_session_has_its_remedy(
    error: OctopiError, join: JoinRemedy, attach: AttachRemedy
) -> None:
    assert (join_remedy(error), attach_remedy(error)) == (join, attach)
