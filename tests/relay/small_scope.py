"""All runs of three relays within a few steps, with the machines of the product.

A step is a whole exchange: a transaction reaches some of the others; some vote, and the epoch
begins for all of them or only for its sequencer; one crashes; one that is empty asks some of the
others.  Votes, starts and published transactions that were not delivered stay on their way for
ever, and may come at any time later, if both lives of their connection are still there.  So
suspicion, loss and delay are anybody's, at any moment.  Time stands still; a repair is one step.

The rules: no epoch begins without what was committed before it in its timeline, all that is
committed in a timeline is one sequence, and nothing is in it twice.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, combinations
from typing import Any

import attrs

from octopi.identifiers import BrokerId, Incarnation, Offset, PartitionId, TopicId
from octopi.relay.buffer import BufferBounds
from octopi.relay.effects import RelayEffect, SendToRelay
from octopi.relay.epoch import JoinAnswers, Votes
from octopi.relay.fence import Hearing, _Heard
from octopi.relay.incarnations import RelayLife
from octopi.relay.member import RelayMember
from octopi.relay.message_ids import MessageId, message_id
from octopi.relay.messages import (
    RelayAnswer,
    RelayAsk,
    RelayCompare,
    RelayCompared,
    RelayFetch,
    RelayIncoming,
    RelayPart,
    RelayStart,
    RelayStatus,
    RelaySubmit,
    RelayVote,
    RelayWritten,
)
from octopi.relay.relay_set import RelaySet
from octopi.relay.streams import RelayStreams
from octopi.relay.timelines import NEVER, RelayEpoch, Timeline
from tests.relay.parts import produced

SET = RelaySet(PartitionId(0), [BrokerId(1), BrokerId(2), BrokerId(3)])
TOPIC = TopicId("0" * 16)
LINE = Timeline(1, 1)
OUTSIDE = BrokerId(9)
NOW = 0.0
BOUNDS = BufferBounds()
Ids = tuple[MessageId, ...]


class Fault(Exception):
    """A rule is broken."""


@attrs.frozen
class Bounds:
    """How often what may happen."""

    orders: int = 1
    changes: int = 1
    crashes: int = 0
    repeats: bool = False
    """Whether a producer sends one thing again and again."""


@attrs.frozen
class Late:
    """A message that is on its way for ever, and the lives of its connection."""

    sender: BrokerId
    life: RelayLife
    to: BrokerId
    to_life: RelayLife
    message: Any


@attrs.define
class ScopeState:
    """Three members, what is on its way, and what was written."""

    members: dict[BrokerId, RelayMember]
    left: Bounds
    late: frozenset[Late] = frozenset()
    logs: dict[RelayEpoch, Ids] = attrs.field(factory=dict)
    """The longest history that anybody has written in an epoch."""
    wrote: dict[RelayEpoch, dict[BrokerId, int]] = attrs.field(factory=dict)
    """How many transactions a member has written in an epoch."""
    committed: Ids = ()
    owned: set[BrokerId] = attrs.field(factory=set)
    """The members that are no part of another state."""
    make: Callable[..., RelayMember] = RelayMember

    def copy(self, **left: int) -> ScopeState:
        bounds = attrs.evolve(
            self.left, **{name: getattr(self.left, name) - by for name, by in left.items()}
        )
        self.owned.clear()
        return ScopeState(
            dict(self.members),
            bounds,
            self.late,
            dict(self.logs),
            {epoch: dict(one) for epoch, one in self.wrote.items()},
            self.committed,
            make=self.make,
        )

    def own(self, number: BrokerId) -> RelayMember:
        """A member, to be changed."""
        if number not in self.owned:
            self.members[number] = _copied(self.members[number])
            self.owned.add(number)
        member = self.members[number]
        for other in SET.others(number):
            member.hearing._heard[other] = _Heard(NOW, self.members[other]._beat(NOW))
        return member

    def key(self) -> object:
        members = tuple(_key(one) for one in self.members.values())
        wrote = tuple(sorted((one, tuple(sorted(of.items()))) for one, of in self.wrote.items()))
        return (members, self.left, self.late, tuple(sorted(self.logs.items())), wrote)

    # --- messages ------------------------------------------------------------------------

    def do(
        self,
        number: BrokerId,
        act: Callable[[RelayMember], list[RelayEffect] | None],
        reach: frozenset[BrokerId] = frozenset(),
        *,
        hears: bool = True,
    ) -> None:
        """Have a member act; what it sends to the members *reach* arrives, and so on.  *hears*:
        also what is told to be written."""
        member = self.own(number)
        line = deque([(number, one) for one in act(member) or member._take()])
        while line:
            sender, effect = line.popleft()
            if isinstance(effect, SendToRelay) and effect.to in self.members:
                line.extend((effect.to, one) for one in self._sent(sender, effect, reach, hears))

    def _sent(
        self, sender: BrokerId, effect: SendToRelay, reach: frozenset[BrokerId], hears: bool
    ) -> list[RelayEffect]:
        message, to = effect.message, effect.to
        if isinstance(message, RelayWritten):
            self._count(sender, message)
        if to == sender:
            return []
        life = self.members[sender].life
        if isinstance(message, RelayCompare | RelayCompared | RelayFetch | RelayPart):
            return self.own(to).receive(sender, life, message, NOW)
        arrives = to in reach and (hears or not isinstance(message, RelayWritten))
        if isinstance(message, RelayWritten | RelayIncoming | RelayStart | RelayVote | RelayAnswer):
            if arrives:
                return self.own(to).receive(sender, life, message, NOW)
            if not isinstance(message, RelayWritten):
                self.late |= {Late(sender, life, to, self.members[to].life, message)}
        return []

    def tidy(self) -> None:
        """Forget what nobody can take any more."""
        self.late = frozenset(one for one in self.late if self.members[one.to].life == one.to_life)

    # --- rules ---------------------------------------------------------------------------

    def _count(self, sender: BrokerId, message: RelayWritten) -> None:
        stream = self.members[sender].streams.by_topic[message.topic_id]
        held = tuple(one.id for one in stream.buffer.read(Offset(0), message.point.end, 1 << 40))
        epoch = message.epoch
        known = self.logs.setdefault(epoch, held)
        shared = min(len(known), len(held))
        if known[:shared] != held[:shared]:
            raise Fault(f"two orders in one epoch: {known} and {held}")
        self.logs[epoch] = max(known, held, key=len)
        wrote = self.wrote.setdefault(epoch, {})
        wrote[sender] = max(wrote.get(sender, 0), len(held))

    def check(self) -> None:
        """Check the rules."""
        for epoch in sorted(self.logs):
            log = self.logs[epoch]
            if len({one[:8] for one in log}) < len(log):
                raise Fault("something is in the timeline twice")
            before = self._before(epoch)
            if log[: len(before)] != before:
                raise Fault(f"acknowledged and missing in epoch {epoch.number}")
            ends = sorted(self.wrote[epoch].values(), reverse=True)
            if len(ends) >= SET.quorum:
                committed = log[: ends[SET.quorum - 1]]
                shared = min(len(committed), len(self.committed))
                if committed[:shared] != self.committed[:shared]:
                    raise Fault("two histories are committed")
                self.committed = max(committed, self.committed, key=len)
        for number in self.owned:
            member = self.members[number]
            member.check_invariants()
            for stream in member.streams:
                delivered = stream.buffer.read(Offset(0), stream.highwater, 1 << 40)
                if tuple(one.id for one in delivered) != self.committed[: len(delivered)]:
                    raise Fault("delivered and not committed")

    def _before(self, epoch: RelayEpoch) -> Ids:
        """What was committed in earlier epochs."""
        found: Ids = ()
        for one, log in self.logs.items():
            if one < epoch:
                ends = sorted(self.wrote[one].values(), reverse=True)
                if len(ends) >= SET.quorum:
                    found = max(found, log[: ends[SET.quorum - 1]], key=len)
        return found


@attrs.frozen
class Explored:
    """What came of a search."""

    fault: str
    states: int
    steps: list[str]


class Scope:
    """Searches all runs within bounds, in order of their lengths."""

    def __init__(self, bounds: Bounds, make: Callable[..., RelayMember] = RelayMember) -> None:
        self.first = first_state(bounds, make)

    def run(self, states_max: int = 100_000) -> Explored:
        """The first fault, or none."""
        first = self.first
        came: dict[object, tuple[object, str] | None] = {first.key(): None}
        line = deque([(first, first.key())])
        while line:
            state, before = line.popleft()
            for label, after in self._steps(state):
                try:
                    after()
                    reached = after.state
                    reached.check()
                except (Fault, AssertionError) as error:
                    return Explored(
                        str(error) or "an invariant", len(came), [*_run_to(before, came), label]
                    )
                reached.tidy()
                key = reached.key()
                if key not in came:
                    came[key] = (before, label)
                    line.append((reached, key))
            if len(came) > states_max:
                raise AssertionError(f"more than {states_max} states")
        return Explored("", len(came), [])

    def _steps(self, state: ScopeState) -> Iterator[tuple[str, Step]]:
        for number, member in state.members.items():
            others = SET.others(number)
            groups = [frozenset(one) for one in _groups(others)]
            if member.is_sequencer and state.left.orders:
                for group in groups:
                    yield (
                        f"{number} orders, {set(group)} append",
                        Step(state, {"orders": 1}, order_step(number, group)),
                    )
            if state.left.changes and member.status in {RelayStatus.NORMAL, RelayStatus.CHANGING}:
                for ahead in (1, 2):
                    epoch = RelayEpoch(LINE, member.epoch.number + ahead)
                    sequencer = SET.sequencer(epoch)
                    yield (
                        f"{number} votes for {epoch.number}",
                        Step(state, {"changes": 1}, vote_step(number, epoch)),
                    )
                    if number == sequencer:
                        for group in groups:
                            for follows in (True, False):
                                yield (
                                    f"{number} and {set(group)} change to {epoch.number}, "
                                    f"follow: {follows}",
                                    Step(
                                        state,
                                        {"changes": 1},
                                        change_step(number, epoch, group, follows=follows),
                                    ),
                                )
            if state.left.crashes:
                yield f"{number} crashes", Step(state, {"crashes": 1}, crash_step(number))
            if member.status is RelayStatus.JOINING:
                for group in groups:
                    yield f"{number} asks {set(group)}", Step(state, {}, join_step(number, group))
        for one in state.late:
            if self._matters(state, one):
                yield (
                    f"{type(one.message).__name__} {one.sender} -> {one.to} comes late",
                    Step(state, {}, come_step(one)),
                )

    def _matters(self, state: ScopeState, one: Late) -> bool:
        to = state.members[one.to]
        if to.life != one.to_life:
            return False
        message = one.message
        if isinstance(message, RelayIncoming):
            return to.held != NEVER and message.offset >= _end(to)
        return True


@attrs.define
class Step:
    """A step that was not made yet."""

    before: ScopeState
    takes: dict[str, int]
    act: Callable[[ScopeState], None]
    state: ScopeState = attrs.field(default=None)

    def __call__(self) -> None:
        self.state = self.before.copy(**self.takes)
        self.act(self.state)


def _groups(numbers: list[BrokerId]) -> Iterator[tuple[BrokerId, ...]]:
    return chain.from_iterable(combinations(numbers, size) for size in range(len(numbers) + 1))


def order_step(
    number: BrokerId, group: frozenset[BrokerId], *, hears: bool = True
) -> Callable[[ScopeState], None]:
    def act(state: ScopeState) -> None:
        left = state.left.orders
        content = produced(0 if state.left.repeats else left + 1, [b"x"])
        sender = message_id(left + 1, b"node-a", 0)
        if state.left.repeats:
            sender = message_id(7, b"node-a", left)
        submit = RelaySubmit(TOPIC, sender, content)
        life = RelayLife(Incarnation(1))
        reach = group | {number}
        state.do(number, lambda one: one.receive(OUTSIDE, life, submit, NOW), reach, hears=hears)

    return act


def vote_step(number: BrokerId, epoch: RelayEpoch) -> Callable[[ScopeState], None]:
    def act(state: ScopeState) -> None:
        if _may_vote(state.members[number], epoch):
            state.do(number, lambda one: one._vote(epoch, NOW))

    return act


def _may_vote(member: RelayMember, epoch: RelayEpoch) -> bool:
    takes_part = member.status in {RelayStatus.NORMAL, RelayStatus.CHANGING}
    return takes_part and member.epoch < epoch


def change_step(
    number: BrokerId, epoch: RelayEpoch, group: frozenset[BrokerId], *, follows: bool
) -> Callable[[ScopeState], None]:
    def act(state: ScopeState) -> None:
        reach = frozenset({number}) | (group if follows else frozenset())
        for voter in [number, *sorted(group)]:
            if _may_vote(state.members[voter], epoch):
                state.do(voter, lambda one: one._vote(epoch, NOW), reach)

    return act


def crash_step(number: BrokerId) -> Callable[[ScopeState], None]:
    def act(state: ScopeState) -> None:
        member = state.members[number]
        state.members[number] = state.make(
            number,
            SET,
            Incarnation(member.life.incarnation + 1),
            member.generation,
            lambda: 0.5,
            NOW,
        )
        state.owned.add(number)

    return act


def empty_step(number: BrokerId) -> Callable[[ScopeState], None]:
    def act(state: ScopeState) -> None:
        state.do(number, lambda one: one._empty(keeps=False))

    return act


def join_step(
    number: BrokerId, group: frozenset[BrokerId], *, is_answered: bool = True
) -> Callable[[ScopeState], None]:
    def act(state: ScopeState) -> None:
        life = state.members[number].life
        reach = frozenset({number}) if is_answered else frozenset()
        ask = RelayAsk(is_joining=True)
        for other in group:
            state.do(other, lambda one: one.receive(number, life, ask, NOW), reach)

    return act


def come_step(late: Late) -> Callable[[ScopeState], None]:
    def act(state: ScopeState) -> None:
        state.late -= {late}
        state.do(late.to, lambda one: one.receive(late.sender, late.life, late.message, NOW))

    return act


def first_state(bounds: Bounds, make: Callable[..., RelayMember]) -> ScopeState:
    epoch = RelayEpoch(LINE, 0)
    members = {}
    for number in SET.ranked:
        member = make(number, SET, Incarnation(1), 1, lambda: 0.5, NOW)
        member.status, member.epoch, member.held = RelayStatus.NORMAL, epoch, epoch
        member.lives = {one: RelayLife(Incarnation(1)) for one in SET.ranked}
        member.streams.epoch = epoch
        member.streams.open(TOPIC)
        members[number] = member
    return ScopeState(members, bounds, make=make)


def _copied(member: RelayMember) -> RelayMember:
    one = copy.copy(member)
    one._effects = []
    one.lives = member.lives.copy()
    one.hearing = Hearing(member.me, SET, NOW)
    one._fence = copy.copy(member._fence)
    one._votes, one._answers = Votes(), JoinAnswers()
    one._votes._cast = member._votes._cast.copy()
    one._answers._answers = member._answers._answers.copy()
    one.adoption = None
    one.streams = _streams_copied(one, member.streams)
    return one


def _streams_copied(member: RelayMember, streams: RelayStreams) -> RelayStreams:
    copied = RelayStreams(member.me, SET, member.rules, member._effects.append)
    copied.epoch = streams.epoch
    for topic, stream in streams.by_topic.items():
        new = copied.open(topic)
        for one in stream.buffer.read(Offset(0), stream.buffer.end.end, 1 << 40):
            new.buffer.put(one, NOW)
        new.producers.__init__()  # type: ignore[misc]
        new.producers._producers.update(copy.deepcopy(stream.producers._producers))
        new.highwater = stream.highwater
        new.marks._same = stream.marks._same.copy()
        new.marks._ahead = {one: of.copy() for one, of in stream.marks._ahead.items()}
        new.marks._other = {end: of.copy() for end, of in stream.marks._other.items()}
    return copied


def _end(member: RelayMember) -> int:
    stream = member.streams.by_topic.get(TOPIC)
    return stream.buffer.end.end if stream is not None else 0


def _key(member: RelayMember) -> tuple[Any, ...]:
    stream = member.streams.by_topic.get(TOPIC)
    ids = (
        tuple(one.id for one in stream.buffer.read(Offset(0), stream.buffer.end.end, 1 << 40))
        if stream is not None
        else None
    )
    return (
        member.status,
        member.epoch,
        member.held,
        member.life,
        tuple(sorted(member.lives.items())),
        ids,
        stream.highwater if stream is not None else 0,
        tuple(sorted(stream.marks._same.items())) if stream is not None else (),
        tuple(
            sorted((one, cast.life, cast.vote.held) for one, cast in member._votes._cast.items())
        ),
        tuple(sorted((one, of.answer.epoch) for one, of in member._answers._answers.items())),
    )


def _run_to(key: object, came: dict[object, tuple[object, str] | None]) -> list[str]:
    labels = []
    while (before := came[key]) is not None:
        key, label = before
        labels.append(label)
    return labels[::-1]
