"""The oracle finds registers that break the rules of their journal."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from octopi.coordination.journal_entries import ClusterFormed
from octopi.roles.register.register_journal import encode
from octopi.simulation.cluster import WIPE, ClusterOptions, SimulatedCluster
from octopi.simulation.invariants.registers import RegisterRules
from octopi.simulation.kernel.world import Event, World
from octopi.simulation.network.message_links import FrameNet
from octopi.simulation.network.network import Network
from octopi.tracing import steps
from octopi.tracing.step import Step
from octopi.wire.registers import JournalEntry, RegisterId
from tests.simulation.told import step_event

A, B, C = "register", "register-2", "register-3"
VOTERS = tuple(RegisterId(f"ws://{host}:7000", host) for host in (A, B, C))
FIRST = JournalEntry(1, voters=VOTERS)
FORMED = JournalEntry(1, encode(ClusterFormed("one", 1)))
OTHER = JournalEntry(1, encode(ClusterFormed("other", 1)))


@attrs.define
class Observed:
    """Registers with empty disks that do nothing, and the rules, which are told of their steps."""

    rules: RegisterRules
    broken: list[str]

    def tell(self, step: type[Step], host: str, life: int = 1, **facts: Any) -> None:  # noqa: ANN401
        """Have the rules hear that *host* came to *step*."""
        event = step_event(step, host, life, **facts)
        handler = self.rules.handlers.of(event)
        assert handler is not None
        handler(event)

    def commits(self, host: str, start: int, *entries: JournalEntry, snapshot: bytes = b"") -> None:
        """*host* takes *entries* from *start* on, behind a *snapshot*, for committed."""
        folded = (snapshot,) if snapshot else ()
        end = start + len(entries)
        self.tell(
            steps.G5Committed, host, term=1, start=start, end=end, entries=entries, snapshot=folded
        )


@pytest.fixture
async def observed() -> Observed:
    world = World(1)
    broken: list[str] = []
    async with trio.open_nursery() as nursery:
        network = Network(world, FrameNet)
        cluster = SimulatedCluster(world, network, nursery, ClusterOptions(registers=3, brokers=0))
    rules = RegisterRules(cluster, lambda rule, text, event, *others: broken.append(rule))
    return Observed(rules, broken)


async def test_two_registers_that_are_elected_in_one_term_break_a_rule(observed: Observed) -> None:
    observed.tell(steps.G2Elected, A, term=1, end=0)
    observed.tell(steps.G2Elected, B, term=2, end=1)
    assert observed.broken == []
    observed.tell(steps.G2Elected, C, term=2, end=1)
    assert observed.broken == ["two-active"]


async def test_a_register_that_is_elected_again_after_a_restart_in_its_term_breaks_a_rule(
    observed: Observed,
) -> None:
    observed.tell(steps.G2Elected, A, term=1, end=0)
    observed.tell(steps.G2Elected, A, life=2, term=1, end=0)
    assert observed.broken == ["two-active"]


async def test_a_vote_that_is_not_on_the_device_breaks_a_rule(observed: Observed) -> None:
    observed.tell(steps.G1Voted, B, term=1, candidate="ws://register:7000")
    assert observed.broken == ["vote-unheld"]


async def test_acknowledged_entries_that_are_not_on_the_device_break_a_rule(
    observed: Observed,
) -> None:
    observed.tell(steps.G4Stored, B, term=0, end=1)
    assert observed.broken == ["entries-unheld"]


async def test_other_entries_than_those_that_are_committed_break_a_rule(observed: Observed) -> None:
    observed.commits(A, 0, FIRST, FORMED)
    observed.commits(B, 0, FIRST)
    observed.commits(C, 0, FIRST, FORMED)
    assert observed.broken == []
    observed.commits(B, 1, OTHER)
    assert observed.broken == ["journals-differ"]


async def test_a_snapshot_of_other_entries_breaks_a_rule(observed: Observed) -> None:
    observed.commits(A, 0, FIRST, FORMED, FORMED)
    observed.commits(B, 2, FORMED, snapshot=FORMED.content)
    assert observed.broken == []
    observed.commits(C, 2, FORMED, snapshot=OTHER.content)
    assert observed.broken == ["journals-differ"]


async def test_entries_that_nobody_has_committed_before_break_a_rule(observed: Observed) -> None:
    observed.commits(A, 0, FIRST)
    observed.commits(B, 2, FORMED)
    assert observed.broken == ["journals-differ"]


async def test_a_second_journal_breaks_a_rule_unless_all_registers_have_lost_their_disks(
    observed: Observed,
) -> None:
    observed.commits(A, 0, FIRST)
    for host in (A, B):
        _wipe(observed, host)
    observed.tell(steps.G2Elected, A, term=5, end=0)
    assert observed.broken == ["journals-differ"]
    _wipe(observed, C)
    observed.tell(steps.G2Elected, B, term=6, end=0)
    assert observed.broken == ["journals-differ"]
    observed.commits(B, 0, FIRST, OTHER)
    assert observed.broken == ["journals-differ"]


def _wipe(observed: Observed, host: str) -> None:
    hear(observed, WIPE, host)


def hear(observed: Observed, what: str, host: str, **facts: object) -> None:
    event = Event(0, 0.0, host, 1, what, facts)
    handler = observed.rules.handlers.of(event)
    assert handler is not None
    handler(event)


async def test_an_active_register_without_what_was_told_breaks_a_rule(observed: Observed) -> None:
    observed.tell(steps.R3Flushed, A, log_end=3)
    observed.tell(steps.R3Flushed, A, log_end=2)
    observed.tell(steps.G3Active, B, term=2, end=3)
    assert observed.broken == []
    observed.tell(steps.G3Active, C, term=3, end=2)
    assert observed.broken == ["decision-undone"]


async def test_a_register_that_appends_and_is_not_active_breaks_a_rule(observed: Observed) -> None:
    observed.tell(steps.G3Active, A, term=1, end=1)
    observed.tell(steps.R2Appending, A, entries=[])
    assert observed.broken == []
    observed.tell(steps.G6Deposed, A, term=1)
    observed.tell(steps.R2Appending, A, entries=[])
    observed.tell(steps.R2Appending, B, entries=[])
    assert observed.broken == ["standby-decides", "standby-decides"]
