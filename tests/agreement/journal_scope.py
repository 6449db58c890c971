"""All runs of a few terms of registers that keep one journal, with the machines of the product.

A step is a whole exchange of two registers, or is lost from some message on: exchanges that run
into one another lead to the same states, because each message says all that it depends on.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import attrs

from octopi.agreement.journal.effects import JournalEffect, SendNow, SendWhenDurable
from octopi.agreement.journal.replica import JournalReplica, RegisterRole
from octopi.agreement.journal.stored import StoredState
from octopi.identifiers import DirectoryId
from octopi.wire.registers import JournalEntry, RegisterId, ToRegister, VoteAnswer, VoteRequest

_NOW = 0.0


@attrs.frozen
class Bounds:
    """How often what may happen."""

    campaigns: int
    proposals: int
    restarts: int = 0
    wipes: int = 0


@attrs.define
class RunState:
    """The registers, what was decided, and what may still happen."""

    replicas: dict[str, JournalReplica]
    left: Bounds
    decided: tuple[bytes, ...] = ()
    active: tuple[tuple[int, RegisterId], ...] = ()
    fault: str = ""
    keys: dict[str, object] = attrs.field(factory=dict)
    """The parts of `key`, by address; those of registers that have changed are missing."""

    @property
    def key(self) -> object:
        """Equal for states that differ in nothing that matters."""
        for address, replica in self.replicas.items():
            if address not in self.keys:
                self.keys[address] = _key(replica)
        parts = tuple(self.keys[address] for address in self.replicas)
        return (parts, self.left, self.decided, self.active)

    def at(self, address: str) -> JournalReplica:
        """The register at *address*, to be changed."""
        if address in self.keys:
            del self.keys[address]
            self.replicas[address] = _copied(self.replicas[address])
        return self.replicas[address]

    def copy(self, **left: int) -> RunState:
        """A state that changes by itself; *left*: changes of the bounds."""
        assert len(self.keys) == len(self.replicas), "each part is shared with the copy"
        bounds = attrs.evolve(
            self.left, **{name: getattr(self.left, name) - by for name, by in left.items()}
        )
        return RunState(
            dict(self.replicas), bounds, self.decided, self.active, keys=dict(self.keys)
        )

    def check(self) -> None:
        """Note what is broken."""
        active = dict(self.active)
        changed = [one for address, one in self.replicas.items() if address not in self.keys]
        for replica in changed:
            replica.check_invariants()
            if replica.is_active and (
                active.setdefault(replica.term, replica.identity) != replica.identity
            ):
                self.fault = f"two are active in term {replica.term}"
        self.active = tuple(sorted(active.items()))
        for replica in changed:
            committed = tuple(replica.history.contents(replica.committed))
            both = min(len(committed), len(self.decided))
            if committed[:both] != self.decided[:both]:
                self.fault = "two histories are decided"
            self.decided += committed[both:]
        for replica in self.replicas.values():
            if replica.may_decide and replica.term == max(active):
                have = tuple(replica.history.contents(replica.committed))
                if have[: len(self.decided)] != self.decided:
                    self.fault = self.fault or "what was decided is lost"


@attrs.frozen
class Found:
    """What a search has found: a fault, if there is one, and the run that leads to it."""

    fault: str
    states: int
    steps: list[str]


class JournalSearch:
    """Searches all runs within *bounds*, in order of their lengths."""

    def __init__(self, bounds: Bounds, *, is_founded: bool = True) -> None:
        self._first = _first_state(bounds, is_founded=is_founded)

    def run(self) -> Found:
        """The first fault, or none."""
        came: dict[object, tuple[object, str] | None] = {self._first.key: None}
        line = deque([self._first])
        while line:
            state = line.popleft()
            for label, after in self._steps(state):
                try:
                    after.check()
                except AssertionError as error:
                    after.fault = str(error) or "an invariant"
                key = after.key
                if key in came:
                    continue
                came[key] = (state.key, label)
                if after.fault:
                    return Found(after.fault, len(came), _run_to(key, came))
                line.append(after)
        return Found("", len(came), [])

    def _steps(self, state: RunState) -> Iterator[tuple[str, RunState]]:
        for address, replica in state.replicas.items():
            others = [one for one in state.replicas if one != address]
            is_alike = not state.active and address != "r1"  # as long as nobody was active
            if state.left.campaigns and not replica.is_active and not is_alike:
                for count in range(len(others) + 1):
                    for group in combinations(others, count):
                        yield self._tried(state, f"{address} asks {group}", address, group)
            if replica.is_active:
                if state.left.proposals and replica.may_decide:
                    after = state.copy(proposals=1)
                    content = b"%d" % state.left.proposals + address.encode()
                    _exchange(after, address, after.at(address).propose([content], _NOW), ())
                    yield f"{address} proposes", after
                for other in others:
                    for is_heard in (True, False):
                        after = state.copy()
                        _send(after, address, other, is_heard=is_heard)
                        yield f"{address} sends to {other}, heard: {is_heard}", after
            if state.left.restarts:
                after = state.copy(restarts=1)
                del after.keys[address]
                after.replicas[address] = _restarted(replica)
                yield f"{address} restarts", after
            if state.left.wipes:
                after = state.copy(wipes=1)
                del after.keys[address]
                after.replicas[address] = new_disk(replica)
                yield f"{address} loses its disk", after

    def _tried(
        self, state: RunState, label: str, address: str, group: tuple[str, ...]
    ) -> tuple[str, RunState]:
        after = state.copy(campaigns=1)
        replica = after.at(address)
        if replica.is_founded and replica.identity not in replica.history.voters:
            return label, after
        replica._rest()
        replica._known = {one: after.replicas[one].identity for one in after.replicas}
        # A trial changes nothing, so all may be counted as if they had agreed.
        replica._founding = () if replica.is_founded else replica._founders
        replica._is_trial, replica._votes = True, set(replica._known.values())
        replica._votes |= set(replica.history.voters)
        _exchange(after, address, replica._count(_NOW), group)
        return label, after


def _exchange(
    state: RunState, address: str, effects: list[JournalEffect], group: tuple[str, ...]
) -> None:
    """Everything is stored; requests for votes reach *group*, and answers come back."""
    for effect in effects:
        match effect:
            case SendNow(to, VoteRequest() as message) if to in group:
                _answer(state, to, message)
            case SendWhenDurable(to, message) if to == address:
                more = state.at(address).receive(message, _NOW)
                _exchange(state, address, more, ())


def _answer(state: RunState, address: str, message: ToRegister) -> None:
    for effect in state.at(address).receive(message, _NOW):
        if isinstance(effect, SendNow | SendWhenDurable) and isinstance(effect.message, VoteAnswer):
            more = state.at(effect.address).receive(effect.message, _NOW)
            _exchange(state, effect.address, more, ())


def _send(state: RunState, address: str, other: str, *, is_heard: bool) -> None:
    """The active register at *address* sends all that *other* lacks, until that has it; the last
    answer is heard, or not."""
    sender, receiver = state.at(address), state.at(other)
    line = deque(sender._send(other, _NOW, beats=True))
    while line:
        one = line.popleft()
        if not isinstance(one, SendNow) or one.address != other:
            continue
        for effect in receiver.receive(one.message, _NOW):
            if isinstance(effect, SendNow):
                line += sender.receive(effect.message, _NOW)
            elif isinstance(effect, SendWhenDurable) and is_heard:
                more = sender.receive(effect.message, _NOW)
                _exchange(state, address, more, ())
                line += more


def _first_state(bounds: Bounds, *, is_founded: bool) -> RunState:
    voters = tuple(RegisterId(f"r{one}", DirectoryId("d1")) for one in (1, 2, 3))
    replicas = {}
    for one in voters:
        stored = StoredState()
        if is_founded:
            stored.history.put(0, JournalEntry(1, voters=voters))
            stored.term = 1
        replicas[one.address] = started(one, stored)
        if is_founded:
            replicas[one.address].committed = 1
    return RunState(replicas, bounds)


def started(identity: RegisterId, stored: StoredState) -> JournalReplica:
    """The register *identity* after a start."""
    return JournalReplica(identity, ["r1", "r2", "r3"], stored, lambda: 0.5, _NOW)


def _restarted(replica: JournalReplica) -> JournalReplica:
    return started(
        replica.identity, StoredState(replica.term, stored_vote(replica), replica.history.copy())
    )


def stored_vote(replica: JournalReplica) -> RegisterId | None:
    """The vote that is on the device."""
    return replica.vote


def new_disk(replica: JournalReplica) -> JournalReplica:
    """The register that comes back with an empty disk."""
    return started(RegisterId(replica.identity.address, DirectoryId("d2")), StoredState())


def _copied(replica: JournalReplica) -> JournalReplica:
    one = copy.copy(replica)
    one.history = replica.history.copy()
    one.progress = {address: copy.copy(known) for address, known in replica.progress.items()}
    one._known, one._votes = replica._known.copy(), replica._votes.copy()
    return one


def _key(replica: JournalReplica) -> tuple[Any, ...]:
    is_candidate = replica.role is RegisterRole.CANDIDATE
    return (
        replica.identity,
        replica.term,
        replica.vote,
        replica.role,
        replica.committed,
        tuple(replica.history.entries),
        replica._begins if replica.is_active else 0,
        frozenset(replica._votes) if is_candidate else None,
        tuple(
            (address, known.identity, known._stored) for address, known in replica.progress.items()
        ),
    )


def _run_to(key: object, came: dict[object, tuple[object, str] | None]) -> list[str]:
    labels = []
    while (before := came[key]) is not None:
        key, label = before
        labels.append(label)
    return labels[::-1]
