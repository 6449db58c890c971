"""Ends a program at each of its waits and steps, one run for each, and starts it again.

This finds without chance what `Cluster.random_faults` finds by luck.  The test is run once without
faults, to learn at which points the program can be struck: before and after each of its waits
(`octopi.testing.waits`), and at each of its steps.  Then it is run once for each point and fault.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Final, Unpack

import attrs

from octopi.simulation.faults.actions import STEPS, Kill, LosePower, Stop
from octopi.simulation.kernel.host import LONG_TURN, OUT_OF_BOUNDS
from octopi.simulation.kernel.world import Event, World
from octopi.simulation.report.recording import Cause, Causes
from octopi.testing.cluster import Cluster
from octopi.testing.crash_table import PointOutcome, table
from octopi.testing.errors import MisuseError, alone, is_verdict
from octopi.testing.planned_faults import PLAIN_FAULTS, PlannedFault
from octopi.testing.property_log import PropertyLog
from octopi.testing.property_sources import Place
from octopi.testing.random_faults import NOT_STEPS, FaultPlan, FaultsOfRun
from octopi.testing.replaying import RunOfTest, chosen_seed
from octopi.testing.running import attempt, plain_test, trimmed
from octopi.testing.setup import Options, Setup
from octopi.testing.waits import AFTER, SENDS

PAIRS_MAX: Final = 200
"""How many pairs of points are tried by default, if two are."""
_SHOWN_MAX: Final = 3
"""How many different failures are shown as code."""


def crash_points(
    *hosts: str,
    faults: Collection[str] = ("kill",),
    occurrences: int = 3,
    deep: int = 1,
    pairs_max: int = PAIRS_MAX,
    seed: int | None = None,
    reaches: Collection[Place] = (),
    **options: Unpack[Options],
) -> Callable[[Callable[..., Awaitable[object]]], Callable[..., None]]:
    """Like `simulated`, but run the test once for each point at which a program on one of the
    *hosts* can be struck, and fail if it fails in any of these runs::

        @octopi.testing.crash_points("account")
        async def test_every_deposit_counts(cluster: octopi.testing.Cluster) -> None: ...

    *faults*: "kill", "lose power" and "stop" end the program at each point, and start it again a
    second later; other kinds of `octopi.testing.KINDS`, except "cut", strike for a second at its
    steps of messages.  *occurrences*: at which of the times that the program comes to a point: 1
    means the first one, 2 also the last one, 3 also the second one.  *deep*: 2 ends it once more
    where it gets to after the first fault, in at most *pairs_max* runs.  A table of all points and
    outcomes is printed.  Blocks of random faults draw none.  *reaches*: see `simulated`.

    Raises:
      MisuseError: if there is no such fault, or a program takes no step.
    """
    for kind in faults:
        if kind not in PLAIN_FAULTS:
            raise MisuseError(f"there is no fault {kind!r}; there are {', '.join(PLAIN_FAULTS)}")
    if not hosts or not faults:
        raise MisuseError("name at least one host and one fault: crash_points('account')")
    if not 1 <= occurrences <= 3 or not 1 <= deep <= 2:
        raise MisuseError("occurrences is 1, 2 or 3, and deep is 1 or 2")

    def call(test: Callable[[Cluster], Awaitable[object]]) -> None:
        __tracebackhide__ = True
        properties = PropertyLog(reaches, test)
        exploring = _Exploring(
            test, Setup(**options), chosen_seed(seed), hosts, occurrences, properties
        )
        error = exploring.explore(tuple(faults), deep, pairs_max)
        if error is not None:
            raise trimmed(error)

    return lambda test: plain_test(test, call)


@attrs.frozen
class _Point:
    """A moment at which a program can be struck."""

    host: str
    step: str
    occurrence: int
    life: int


class _Exploring:
    """Runs one test again and again."""

    def __init__(
        self,
        test: Callable[[Cluster], Awaitable[object]],
        setup: Setup,
        seed: int,
        hosts: Collection[str],
        occurrences: int,
        properties: PropertyLog,
    ) -> None:
        self._properties, self._run_count = properties, 0
        self._test, self._setup, self._seed, self._hosts = test, setup, seed, hosts
        self._occurrences = occurrences
        self._name = getattr(test, "__qualname__", "the test")

    def explore(self, faults: Collection[str], deep: int, pairs_max: int) -> BaseException | None:
        """Run all of it, and print the table; return the first failure."""
        here, points, error = self._run(())
        if error is not None:
            return here.told(error)
        for host in self._hosts:
            if not any(point.host == host for point in points):
                raise MisuseError(
                    f"{host} takes no step in this test: start its program with "
                    f"cluster.program({host!r}, ...)"
                )
        outcomes: list[PointOutcome] = []
        pairs: list[tuple[PlannedFault, PlannedFault]] = []
        for fault in self._faults(points, faults):
            outcome, then = self._try((fault,))
            outcomes.append(outcome)
            if deep == 2 and outcome.error is None and isinstance(fault.action, Kill):
                lives = [point for point in then if point.life > 1]
                pairs += [(fault, one) for one in self._faults(lives, ["kill"], 1)]
        every = -(-len(pairs) // pairs_max) if pairs else 1
        outcomes += [self._try(pair)[0] for pair in pairs[::every]]
        text = table(outcomes, self._hosts, len(pairs))
        sys.stdout.write(f"{text}\n")
        failed = [one for one in outcomes if one.error is not None and not one.is_missed]
        if failed:
            return self._told(failed, text)
        report = self._properties.report(self._run_count)
        if report:
            sys.stdout.write(f"{report}\n")
        return self._properties.missing(f"these {self._run_count} runs")

    def _told(self, failed: list[PointOutcome], text: str) -> BaseException:
        """The first failure, with all that is said about it."""
        first = failed[0]
        here, _, error = self._run(first.faults, is_tried=False)
        assert error is not None, "a run repeats exactly"
        error = alone(error)
        options = f", with simulated(seed={self._seed})" if self._seed != 1 else ""
        error.add_note(
            f"at {len(failed)} points; this, at the beginning of the test, fails at one of them"
            f"{options}:"
        )
        lines = [fault.code() for fault in first.faults]
        for line in lines:
            error.add_note(f"    {line}")
        for line in text.splitlines():
            error.add_note(line)
        # The run without the last fault has passed: its points were tried because of that.
        outcomes = [""] * (len(lines) - 1) + ["passes"]
        causes = Causes(
            f"at {len(failed)} points the test fails; this, at the beginning of it, is one of them"
            f"{options}:",
            tuple(lines),
            tuple(map(Cause, lines, outcomes)),
        )
        return here.told(error, causes, first.faults)

    def _faults(
        self, points: list[_Point], kinds: Collection[str], occurrences: int = 0
    ) -> Iterator[PlannedFault]:
        """What is to be tried at *points*, which are in their order."""
        same: dict[tuple[str, str], list[int]] = {}
        for point in points:
            same.setdefault((point.host, point.step), []).append(point.occurrence)
        for kind in kinds:
            action = PLAIN_FAULTS[kind]
            for (host, step), counts in same.items():
                is_of_message = step in _OF_MESSAGES or step.startswith(SENDS)
                if is_of_message or isinstance(action, Kill | LosePower | Stop):
                    for count in _chosen(counts, occurrences or self._occurrences):
                        yield PlannedFault(action, host, step, count)

    def _try(self, faults: tuple[PlannedFault, ...]) -> tuple[PointOutcome, list[_Point]]:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            _, points, error = self._run(faults)
        return PointOutcome(faults, None if error is None else alone(error)), points

    def _run(
        self, faults: tuple[PlannedFault, ...], *, is_tried: bool = True
    ) -> tuple[RunOfTest, list[_Point], BaseException | None]:
        """Run the test once with *faults*; return the points that its programs came to."""
        points: list[_Point] = []
        plan = FaultsOfRun(FaultPlan(self._seed))
        is_tried = is_tried and bool(faults)
        here = RunOfTest(World(self._seed), self._name, plan, self._properties, is_tried=is_tried)
        self._run_count += 1

        async def watched(cluster: Cluster) -> object:
            _watch(cluster, here.world, self._hosts, points)
            for fault in faults:
                cluster.plan(fault)
            return await self._test(cluster)

        try:
            attempt(watched, self._setup, here)
        except BaseException as error:
            if not is_verdict(alone(error)):
                raise
            return here, points, error
        return here, points, None


_OF_MESSAGES: Final = frozenset(STEPS.values())
_NO_POINTS: Final = NOT_STEPS | {LONG_TURN, OUT_OF_BOUNDS}


def _watch(cluster: Cluster, world: World, hosts: Collection[str], points: list[_Point]) -> None:
    """Note in *points* to which points the programs on *hosts* come."""
    counts: Counter[tuple[str, str]] = Counter()
    lives: dict[str, int] = {}

    def see(event: Event) -> None:
        if event.life and event.host in hosts and event.what not in _NO_POINTS:
            lives[event.host] = event.life
            key = event.host, event.what
            counts[key] += 1
            if not event.what.startswith(AFTER):
                points.append(_Point(*key, counts[key], event.life))

    def done(host: str, step: str) -> None:
        if host in hosts and counts[host, step]:
            points.append(_Point(host, step, counts[host, step], lives[host]))

    world.observers.insert(0, see)
    cluster.watch_waits().on_done = done


def _chosen(counts: list[int], occurrences: int) -> list[int]:
    """The first one, the last one and the second one of *counts*, or fewer."""
    first, second, last = counts[:1], counts[1:2], counts[-1:]
    return sorted({1: {*first}, 2: {*first, *last}}.get(occurrences, {*first, *second, *last}))
