"""A group of members and the leaders of the partitions that their subscription is in, driven at
random: messages are late, doubled and lost, leaders change and keep any part of what they had not
committed, members are silent, lose their connections, crash and come back.

After each step the rules are checked that durable subscriptions promise:

- *passed over*: the mark of a log never passes a message that no member processed;
- *went back*: a member is never told an older mark than one that was told or confirmed before,
  but by a reset, which takes effect once;
- *two owners*: at most one member of a log marks with the claim that is in force;
- *zombie*: no mark of a member counts once a member with a newer claim was told its mark;
- *untold*: what a member is told of its assignment is committed;
- *overlap*: while nobody is given up, no two members read one log at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import attrs

from octopi.identifiers import (
    Claim,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
    TopicId,
    TopicName,
)
from octopi.model import SubscriptionMode, SubscriptionOptions, SubscriptionStart
from octopi.position import NO_ANCHOR, Anchor
from octopi.subscriptions import effects as e
from octopi.subscriptions.entries import AssignmentPhase, assignment_key, mark_key
from octopi.subscriptions.log_mark import LogMark
from octopi.subscriptions.partition_subscriptions import PartitionSubscriptions

TOPIC = TopicName("orders")
TOPIC_ID = TopicId("77aa00c277aa00c2")
NAME = SubscriptionName("billing")
OPTIONS = SubscriptionOptions()
SESSION_TIMEOUT_S = OPTIONS.session_timeout_ms / 1000
RECORD_BYTES = 10
WALL_MS = 1_700_000_000_000
ZERO = Offset(0)
NO_CLAIM = Claim(0)
NOBODY = MemberId("")


class BrokenRuleError(AssertionError):
    """A rule that subscriptions promise does not hold."""


@attrs.define
class SteadyLog:
    """A log of a topic whose records all have one epoch and one size."""

    count: int
    start: Offset = ZERO
    forked_at: Offset | None = None
    """Up to where it agrees with what was read from it before."""

    @property
    def end(self) -> Offset:
        return Offset(self.count * RECORD_BYTES)

    @property
    def highwater(self) -> Offset:
        return self.end

    def held_bytes(self, begin: Offset) -> int:
        return 0

    def has_place(self, offset: Offset) -> bool:
        return offset % RECORD_BYTES == 0

    def anchor_before(self, offset: Offset) -> Anchor:
        return Anchor("1-0") if offset else NO_ANCHOR

    def fork(self, offset: Offset, anchor: Anchor) -> Offset | None:
        at = self.forked_at
        return at if anchor and at is not None and at < offset else None


@attrs.define
class InternalLog:
    """A replicated log: what is committed of it, and what its leader appended since."""

    committed: dict[str, Any] = attrs.field(factory=dict)
    appended: list[e.AppendState] = attrs.field(factory=list)

    def commit(self) -> e.AppendState:
        """The oldest entry that is not committed is committed."""
        state = self.appended.pop(0)
        if state.value is None:
            self.committed.pop(state.key, None)
        else:
            self.committed[state.key] = state.value
        return state


@attrs.define
class Holding:
    """What a member does with a log that it was assigned."""

    claim: Claim
    session: int | None = None
    """Of its attach; None: not sent yet."""
    position: Offset | None = None
    """What it processes next; None: not attached yet."""


@attrs.define
class Program:
    """A member: one program."""

    static: str
    """Its name; empty: it has none of its own."""
    is_alive: bool = True
    member: MemberId = NOBODY
    session: int | None = None
    """With the coordinator."""
    logs: dict[PartitionId, Holding] = attrs.field(factory=dict)
    ended: dict[PartitionId, Claim] = attrs.field(factory=dict)
    """The newest claim that it released: told of it again, late, it doesn't begin anew."""

    @property
    def label(self) -> str:
        return self.static or self.member or "?"


@attrs.define
class PartitionLeader:
    """The leader of a partition, and what is known of the subscription's log there."""

    partition: PartitionId
    internal: InternalLog
    machine: PartitionSubscriptions
    processed: set[int] = attrs.field(factory=set)
    """Since the last reset."""
    confirmed: Offset = ZERO
    told: Offset = ZERO
    """The greatest mark that a member was told."""
    told_claim: Claim = NO_CLAIM
    resets: set[Claim] = attrs.field(factory=set)
    """Claims of resets that are appended and not committed."""
    reset_claim: Claim = NO_CLAIM
    """Of the last reset that is in force."""
    is_read: bool = False
    """Whether a member was told its mark since then."""


class GroupWorld:
    """One subscription; its steps are drawn from *seed*."""

    def __init__(
        self,
        seed: int,
        *,
        members: int = 3,
        logs: int = 2,
        messages: int = 60,
        is_calm: bool = False,
        mode: SubscriptionMode = SubscriptionMode.FAILOVER,
        marks_on_receipt: bool = False,
    ) -> None:
        """*is_calm*: nobody is silent or crashes, no mark is reset: then no two members read a
        log at the same time.  *marks_on_receipt*: the members are wrong, and mark a message before
        they process it."""
        self.random = Random(seed)
        self.is_calm = is_calm
        self.messages = messages
        self.marks_on_receipt = marks_on_receipt
        self.now = 0.0
        self.trace: list[str] = []
        self._numbers = 0
        self._hearing: dict[int, Callable[[e.Told], None]] = {}
        self.network: list[tuple[str, Callable[[], None], bool]] = []
        self._marked: dict[int, Offset] = {}
        """The offset of each mark that asked for a confirmation."""
        self.programs = [Program("worker" if n == 0 and seed % 2 else "") for n in range(members)]
        self.log = SteadyLog(messages)
        self._answered: PartitionLeader | None = None
        """Who has just told a member its mark."""
        self.leaders: list[PartitionLeader] = []
        for n in range(logs):
            internal = InternalLog()
            machine = self._machine(PartitionId(n), internal)
            self.leaders.append(PartitionLeader(PartitionId(n), internal, machine))
        self.sid = self._created(mode)

    def _machine(self, partition: PartitionId, internal: InternalLog) -> PartitionSubscriptions:
        return PartitionSubscriptions(
            partition,
            internal.committed,
            log_of=lambda _: self.log,
            new_id=lambda: f"{self._number():016x}",
            now=self.now,
            wall_ms=WALL_MS + round(self.now * 1000),
        )

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _created(self, mode: SubscriptionMode) -> SubscriptionId:
        """Create the subscription, undisturbed."""
        first = self.leaders[0]
        found: list[e.Told] = []
        created = first.machine.create_subscription(
            self._session(found.append),
            name=NAME,
            topic=TOPIC,
            topic_id=TOPIC_ID,
            partitions=[one.partition for one in self.leaders],
            mode=mode,
            options=OPTIONS,
            start=SubscriptionStart.EARLIEST,
            create="create",
            now=self.now,
        )
        self._settle(first, created)
        assert isinstance(found[0], e.TellDescription)
        sid = found[0].definition.sid
        for leader in self.leaders:
            opened = leader.machine.open_marks(
                self._number(),
                sid,
                name=NAME,
                mode=mode,
                options=OPTIONS,
                start=SubscriptionStart.EARLIEST,
                topic=TOPIC,
                topic_id=TOPIC_ID,
                now=self.now,
            )
            self._settle(leader, opened)
        self._settle(first, first.machine.finish_subscription(self._number(), sid))
        return sid

    def _settle(self, leader: PartitionLeader, effects: list[e.Effect]) -> None:
        self._perform(leader, effects)
        while leader.internal.appended:
            self._commit_of(leader)
        while self.network:
            self.network.pop(0)[1]()

    # --- driving -------------------------------------------------------------------------

    def walk(self, steps: int) -> None:
        """Take so many steps."""
        work = [
            (self._deliver, 40),
            (self._commit, 24),
            (self._process, 16),
            (self._send_mark, 10),
            (self._beat, 12),
            (self._join, 8),
        ]
        trouble = [(self._break_connection, 1.0), (self._change_leader, 1.0)]
        if not self.is_calm:
            trouble += [
                (self._pass_time, 4.0),
                (self._release, 2.0),
                (self._cut_off, 1.0),
                (self._leave, 0.5),
                (self._crash, 0.5),
                (self._reset, 0.5),
            ]
        functions = [one for one, _ in [*work, *trouble]]
        weights = [float(weight) for _, weight in work]
        # Each walk has other troubles: what one kind leads to is not undone by all the others.
        weights += [weight * self.random.choice([0.0, 0.3, 1.0, 3.0]) for _, weight in trouble]
        # In some walks leaders mostly die just when they have answered.
        strike = self.random.choice([0.0, 0.0, 0.5])
        for action in self.random.choices(functions, weights, k=steps):
            answered, self._answered = self._answered, None
            if answered is not None and self.random.random() < strike:
                self._replace(answered)
            else:
                action()
            self.check()

    def _note(self, text: str) -> None:
        self.trace.append(f"{self.now:6.2f} {text}")

    def _session(self, hear: Callable[[e.Told], None]) -> int:
        session = self._number()
        self._hearing[session] = hear
        return session

    def _send(self, text: str, arrive: Callable[[], None], *, may_double: bool = False) -> None:
        self.network.append((text, arrive, may_double))

    def _deliver(self) -> None:
        if self.network:
            at = self.random.randrange(len(self.network))
            text, arrive, may_double = self.network[at]
            if not may_double or self.random.random() < 0.9:
                del self.network[at]
            self._note(f"arrives: {text}")
            arrive()

    # --- leaders -------------------------------------------------------------------------

    def _perform(self, leader: PartitionLeader, found: list[e.Effect]) -> None:
        for effect in found:
            match effect:
                case e.AppendState():
                    leader.internal.appended.append(effect)
                    self._note(f"appended {leader.partition} {effect.key} {effect.value}")
                    continue
                case e.TellAttached():
                    self._told_mark(leader, effect)
                case e.TellMarked():
                    leader.confirmed = max(leader.confirmed, self._marked[effect.acknowledge])
                case e.TellAssigned():
                    self._told_assignment(effect)
                case e.AppendLetter() | e.WantMessages():
                    raise AssertionError(f"a group has no queue: {effect}")
            self._tell(effect)

    def _tell(self, effect: e.Told) -> None:
        def arrive() -> None:
            if (hear := self._hearing.get(effect.session)) is not None:
                hear(effect)

        self._send(f"{effect}", arrive)

    def _commit(self) -> None:
        busy = [one for one in self.leaders if one.internal.appended]
        if busy:
            self._commit_of(self.random.choice(busy))

    def _commit_of(self, leader: PartitionLeader) -> None:
        state = leader.internal.commit()
        self._note(f"committed {leader.partition} {state.key} {state.value}")
        self._in_force(leader, state)
        self._perform(leader, list(state.then))
        self._perform(leader, leader.machine.committed(state.key, self.now))

    def _in_force(self, leader: PartitionLeader, state: e.AppendState) -> None:
        claim = state.value.get("claim") if state.value and state.key[0] == "k" else None
        if claim in leader.resets:
            assert state.value is not None
            leader.resets.discard(claim)
            if leader.is_read and claim == leader.reset_claim:
                raise BrokenRuleError(f"went back: reset {claim} took effect again")
            leader.reset_claim, leader.is_read = claim, False
            leader.processed = set(range(state.value["mark"] // RECORD_BYTES))
            leader.confirmed = leader.told = Offset(0)

    def _told_mark(self, leader: PartitionLeader, effect: e.TellAttached) -> None:
        if effect.mark < max(leader.told, leader.confirmed):
            raise BrokenRuleError(f"went back: told {effect.mark}, before it was {leader.told}")
        leader.told, leader.is_read = effect.mark, True
        self._answered = leader
        leader.told_claim = max(leader.told_claim, effect.claim)

    def _told_assignment(self, effect: e.TellAssigned) -> None:
        for log, claim in effect.logs:
            kept = self.leaders[0].internal.committed.get(assignment_key(self.sid, log), {})
            if kept.get("claim", 0) < claim:
                raise BrokenRuleError(f"untold: claim {claim} of log {log} is not committed")

    def _change_leader(self) -> None:
        self._replace(self.random.choice(self.leaders))

    def _replace(self, leader: PartitionLeader) -> None:
        keep = self.random.randint(0, len(leader.internal.appended))
        self._note(f"another leader of {leader.partition}, keeping {keep}")
        for _ in range(keep):
            self._in_force(leader, leader.internal.commit())
        leader.internal.appended.clear()
        leader.resets.clear()
        leader.machine = self._machine(leader.partition, leader.internal)
        for program in self.programs:
            if leader.partition == 0:
                self._end(program.session)
                program.session = None
            if (holding := program.logs.get(leader.partition)) is not None:
                self._end(holding.session)
                holding.session = holding.position = None

    def _end(self, session: int | None) -> None:
        """Nobody hears of this session any more."""
        if session is not None:
            self._hearing.pop(session, None)

    def _pass_time(self) -> None:
        self.now += self.random.choice([0.1, 0.3, 1.0, SESSION_TIMEOUT_S / 2, SESSION_TIMEOUT_S])
        if self.random.random() < 0.02:
            self.now += 60.0
        for leader in self.leaders:
            due_at = leader.machine.due_at
            if due_at is not None and due_at <= self.now:
                self._perform(leader, leader.machine.tick(self.now))

    def _reset(self) -> None:
        first, leader = self.leaders[0], self.random.choice(self.leaders)

        def hear(effect: e.Told) -> None:
            if isinstance(effect, e.TellResetBegun):
                self._send(
                    f"set mark of {leader.partition}, claim {effect.claim}",
                    lambda: self._set(leader, effect.claim),
                    may_double=True,
                )

        found = first.machine.reset_subscription(
            self._session(hear), self.sid, leader.partition, Offset(0), self.now, force=True
        )
        self._perform(first, found)

    def _set(self, leader: PartitionLeader, claim: Claim) -> None:
        first = self.leaders[0]

        def hear(effect: e.Told) -> None:
            if isinstance(effect, e.TellDone):
                self._send(
                    f"the reset {claim} of {leader.partition} is done",
                    lambda: self._perform(
                        first,
                        first.machine.finish_reset(
                            self._number(), self.sid, leader.partition, claim, self.now
                        ),
                    ),
                    may_double=True,
                )

        session = self._session(hear)
        found = leader.machine.set_mark(session, self.sid, claim, Offset(0), self.now)
        if any(isinstance(one, e.AppendState) for one in found):
            leader.resets.add(claim)
        self._perform(leader, found)

    # --- members -------------------------------------------------------------------------

    def _join(self) -> None:
        program = self.random.choice(self.programs)
        if not program.is_alive:
            program.is_alive = True
            self._note(f"{program.label} starts again")
        is_deaf = program.session not in self._hearing
        if program.session is None or (is_deaf and self.random.random() < 0.3):
            self._join_as(program)

    def _join_as(self, program: Program) -> None:
        first = self.leaders[0]

        def hear(effect: e.Told) -> None:
            match effect:
                case e.TellAssigned(_, member, _, logs):
                    program.member = member
                    for log, claim in logs:
                        mine = program.logs.get(log)
                        newest = mine.claim if mine else program.ended.get(log, 0)
                        if newest < claim:
                            self._end(mine.session if mine else None)
                            program.logs[log] = Holding(claim)
                case e.TellRevoked(_, _, _, logs):
                    for log, claim in logs:
                        self._give_up(program, log, claim)
                case e.TellDetached() | e.TellRefused():
                    self._end(session)
                    program.session = None
                    for holding in program.logs.values():
                        self._end(holding.session)
                    program.logs.clear()
                    program.member = MemberId("")
                case _:
                    pass

        session = program.session = self._session(hear)
        held = [(log, holding.claim) for log, holding in program.logs.items()]
        machine = first.machine
        take_over = self.random.random() < 0.3 and not self.is_calm

        def arrive() -> None:
            if machine is first.machine and session in self._hearing:
                found = machine.join_group(
                    session,
                    self.sid,
                    MemberId(program.static) if program.static else program.member,
                    static=bool(program.static),
                    held=held,
                    take_over=take_over,
                    now=self.now,
                )
                self._perform(first, found)

        self._send(f"{program.label} joins with session {session}, holding {held}", arrive)

    def _beat(self) -> None:
        program = self.random.choice(self.programs)
        if program.session is not None and program.session in self._hearing:
            found = self.leaders[0].machine.holding(program.session, [], self.now)
            self._perform(self.leaders[0], found)

    def _cut_off(self) -> None:
        """A member hears nothing of the coordinator for a while, and goes on with what it has."""
        program = self.random.choice(self.programs)
        self._note(f"{program.label} is cut off")
        self._end(program.session)

    def _break_connection(self) -> None:
        """With the coordinator, or with the leader of a log."""
        program = self.random.choice(self.programs)
        if program.session is not None and self.random.random() < 0.5:
            self._lose(self.leaders[0], program.session)
            program.session = None
        elif program.logs:
            log = self.random.choice([*program.logs])
            holding = program.logs[log]
            if holding.session is not None:
                self._lose(self.leaders[log], holding.session)
                holding.session = holding.position = None

    def _lose(self, leader: PartitionLeader, session: int) -> None:
        self._note(f"session {session} at {leader.partition} breaks")
        self._end(session)
        self._perform(leader, leader.machine.session_ended(session, self.now))

    def _leave(self) -> None:
        program = self.random.choice(self.programs)
        if program.session is not None and program.is_alive:
            self._note(f"{program.label} leaves")
            self._forget_logs(program)
            found = self.leaders[0].machine.leave_group(self._number(), program.session, self.now)
            self._perform(self.leaders[0], found)
            self._end(program.session)
            program.session, program.member = None, MemberId("")

    def _crash(self) -> None:
        program = self.random.choice(self.programs)
        self._note(f"{program.label} crashes")
        self._forget_logs(program)
        if program.session is not None:
            self._lose(self.leaders[0], program.session)
        program.session, program.member = None, MemberId("")
        program.is_alive = False
        program.ended = {}

    def _forget_logs(self, program: Program) -> None:
        for log, holding in program.logs.items():
            if holding.session is not None:
                self._lose(self.leaders[log], holding.session)
        program.logs.clear()

    def _attach(self, program: Program, log: PartitionId, holding: Holding) -> None:
        leader, claim = self.leaders[log], holding.claim
        machine = leader.machine

        def hear(effect: e.Told) -> None:
            if program.logs.get(log) is not holding or holding.session != session:
                return
            match effect:
                case e.TellAttached(_, mark):
                    holding.position = mark
                case e.TellDetached() | e.TellRefused():
                    program.logs.pop(log)
                    program.ended[log] = claim
                case _:
                    pass

        session = holding.session = self._session(hear)

        def arrive() -> None:
            if machine is leader.machine and session in self._hearing:
                found = machine.attach(session, self.sid, program.member, claim, self.now)
                self._perform(leader, found)

        self._send(f"{program.label} attaches to {log} with claim {claim}", arrive)

    def _some_log(self) -> tuple[Program, PartitionId, Holding] | None:
        held = [(one, *item) for one in self.programs for item in one.logs.items()]
        return self.random.choice(held) if held else None

    def _process(self) -> None:
        if (some := self._some_log()) is None:
            return
        program, log, holding = some
        if holding.session is None:
            self._attach(program, log, holding)
        elif holding.position is not None and holding.position < self.log.end:
            if self.marks_on_receipt:
                self._mark(program, log, holding, beyond=RECORD_BYTES)
                if self.random.random() < 0.5:
                    return
            leader = self.leaders[log]
            self._note(f"{program.label} processes {log}@{holding.position}")
            if holding.claim >= max([leader.reset_claim, *leader.resets]):
                leader.processed.add(holding.position // RECORD_BYTES)
            holding.position = Offset(holding.position + RECORD_BYTES)

    def _send_mark(self) -> None:
        if (some := self._some_log()) is not None and some[2].position is not None:
            self._mark(*some)

    def _mark(self, program: Program, log: PartitionId, holding: Holding, beyond: int = 0) -> None:
        leader, session = self.leaders[log], holding.session
        assert session is not None
        assert holding.position is not None
        offset, claim = Offset(holding.position + beyond), holding.claim
        confirm = self._number() if self.random.random() < 0.5 else None
        if confirm is not None:
            self._marked[confirm] = offset
        machine = leader.machine

        def arrive() -> None:
            if machine is not leader.machine:
                return
            before = self._mark_of(leader).entry
            found = machine.mark(session, offset, self.now, confirm=confirm)
            if self._mark_of(leader).entry.mark > before.mark and claim < leader.told_claim:
                raise BrokenRuleError("zombie: a mark of an older claim counted")
            self._perform(leader, found)

        self._send(f"{program.label} marks {log}@{offset} claim {claim}", arrive, may_double=True)

    def _release(self) -> None:
        if (some := self._some_log()) is not None:
            self._give_up(some[0], some[1], some[2].claim)

    def _give_up(self, program: Program, log: PartitionId, claim: Claim) -> None:
        holding, session, first = program.logs.get(log), program.session, self.leaders[0]
        if holding is None or holding.claim != claim or session is None:
            return
        if holding.position is not None:
            self._mark(program, log, holding)
        del program.logs[log]
        program.ended[log] = claim
        machine = first.machine

        def arrive() -> None:
            if machine is first.machine:
                self._perform(first, machine.holding(session, [(log, claim)], self.now))

        self._send(f"{program.label} releases {log}", arrive, may_double=True)

    # --- rules ---------------------------------------------------------------------------

    def _mark_of(self, leader: PartitionLeader) -> LogMark:
        mark = leader.machine._marks.get(self.sid)
        assert mark is not None
        return mark

    def check(self) -> None:
        """Raise `BrokenRuleError` where a promise does not hold."""
        for leader in self.leaders:
            leader.machine.check_invariants()
            if leader.resets:
                continue
            committed = leader.internal.committed[mark_key(self.sid, TOPIC_ID)]
            entry = self._mark_of(leader).entry
            first = next(n for n in range(self.messages + 1) if n not in leader.processed)
            if entry.mark > first * RECORD_BYTES:
                raise BrokenRuleError(f"passed over: {entry.mark}, processed {first}")
            if committed["mark"] < leader.confirmed:
                raise BrokenRuleError(f"went back: {committed} is below {leader.confirmed}")
            log = leader.partition
            readers = [
                one.logs[log]
                for one in self.programs
                if one.is_alive and log in one.logs and one.logs[log].position is not None
            ]
            if sum(one.claim == entry.claim for one in readers) > 1:
                raise BrokenRuleError(f"two owners of {log}")
            if self.is_calm and len(readers) > 1:
                raise BrokenRuleError(f"overlap: {readers}")

    def owners(self) -> dict[PartitionId, str]:
        """Who has which log, as committed."""
        return {
            PartitionId(int(key.split("/")[2])): value["member"]
            for key, value in self.leaders[0].internal.committed.items()
            if key[0] == "a" and value.get("phase") == AssignmentPhase.ASSIGNED
        }
