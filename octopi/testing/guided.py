"""Searches for a failure: each run of a test is chosen by what the runs before it have shown.

The first run draws its faults by chance, as `simulated` does.  After it, three of four runs take a
new seed, and their faults strike at moments that were tried least (`octopi.testing.guided_draws`);
every fourth one repeats the beginning of a run that showed something rare, and goes another way
shortly before that (`octopi.testing.rare_events`): with other faults, delays and orders of tasks.

All of it depends on the seed only, so the same failure is found in the same run each time.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection
from math import inf
from random import Random
from typing import Final, Unpack

import attrs

from octopi.simulation.kernel.world import Event, World
from octopi.testing.cluster import Cluster
from octopi.testing.errors import MisuseError, alone, is_verdict
from octopi.testing.guided_draws import GuidedDraws, TriedMoments
from octopi.testing.property_log import PropertyLog
from octopi.testing.property_sources import Place
from octopi.testing.random_faults import FaultsOfRun
from octopi.testing.rare_events import Corpus, RunSoFar, Sights
from octopi.testing.replaying import RunOfTest, chosen_seed
from octopi.testing.run_limits import RunLimit, shrink_s_of
from octopi.testing.running import attempt, plain_test, trimmed
from octopi.testing.setup import Options, Setup
from octopi.testing.shrunk_runs import shrunk

RUNS: Final = 100
"""How many runs a search has at most, if neither runs nor minutes are given."""

_SEEDS_TRIED: Final = 4
"""With so many seeds the faults of a failure are tried without chance, because those of a run that
repeated the beginning of another one have no seed of their own."""


def guided(
    *,
    runs: int | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    reaches: Collection[Place] = (),
    **options: Unpack[Options],
) -> Callable[[Callable[..., Awaitable[object]]], Callable[..., None]]:
    """Like `simulated`, but choose the random faults of each run by what the runs before it have
    shown, until one fails::

        @octopi.testing.guided(minutes=5)
        async def test_every_deposit_counts(cluster: octopi.testing.Cluster) -> None: ...

    At most *runs* runs, and no new one after *minutes* of real time; by default 100 runs.  The same
    *seed* makes the same runs in the same order.  *reaches* and *options*: see `simulated`.

    Raises:
      MisuseError: if the test isn't async, or has no parameter ``cluster``.
    """
    if runs is not None and runs < 1:
        raise MisuseError(f"runs is {runs}; it has to be at least 1")
    if minutes is not None and minutes <= 0:
        raise MisuseError(f"minutes is {minutes}; it has to be more than 0")
    runs_max = runs if runs is not None else inf if minutes is not None else RUNS

    def call(test: Callable[[Cluster], Awaitable[object]]) -> None:
        __tracebackhide__ = True
        limit = RunLimit.of(runs_max, minutes)
        properties = PropertyLog(reaches, test)
        search = Search(test, Setup(**options), chosen_seed(seed), properties)
        while not limit.is_over(search.run_count):
            error = search.run_next()
            if error is not None:
                raise trimmed(error)
        sys.stdout.write(f"{search.report()}\n")
        missing = properties.missing(f"these {search.run_count} runs")
        if missing is not None:
            raise missing

    return lambda test: plain_test(test, call)


@attrs.frozen
class Guidance:
    """What a search makes use of; all of it, except where it is measured what each part is for."""

    moments: bool = True
    """Faults strike where they were tried least."""
    beginnings: bool = True
    """Beginnings of runs that showed something rare are repeated."""


class Search:
    """The runs of one test."""

    def __init__(
        self,
        test: Callable[[Cluster], Awaitable[object]],
        setup: Setup,
        seed: int,
        properties: PropertyLog,
        guidance: Guidance = Guidance(),
    ) -> None:
        self.run_count = 0
        self.way = RunSoFar(seed)
        """How the last run began."""
        self._test, self._setup, self._seed = test, setup, seed
        self._shrink_s = shrink_s_of(setup.shrink_s)
        self._properties = properties
        self._guidance = guidance
        self._name = getattr(test, "__qualname__", "the test")
        self._tried = TriedMoments()
        self._corpus = Corpus()

    def run_next(self) -> BaseException | None:
        """Make the next run; return its failure, with all that is said about it."""
        number = self.run_count
        self.run_count += 1
        randomness = Random(f"{self._seed}|guided|{number}")
        way = RunSoFar(self._seed + number)
        if self._guidance.beginnings and number % 4 == 3:
            way = self._corpus.chosen(randomness, f"turn {number}") or way
        self.way = way
        here, problem = self._run(number, randomness)
        if problem is None:
            return None
        if self._shrink_s and here.faults.struck:
            error = shrunk(here, problem, self._again, self._shrink_s, _SEEDS_TRIED)
        else:
            error = here.told(problem)
        error.add_note(
            f"found in run {self.run_count} of a guided search with the seed {self._seed}"
        )
        return error

    def _run(self, number: int, randomness: Random) -> tuple[RunOfTest, BaseException | None]:
        """Run the test once; nothing is said about its failure yet."""
        way, world = self.way, World(self.way.seed)
        draws = GuidedDraws(
            self._tried,
            randomness,
            world,
            way.beginning,
            uses_moments=self._guidance.moments and number > 0,
            is_dense=self._guidance.moments and (number % 4 in {1, 2} or bool(way.beginning.draws)),
        )
        sights, turns = Sights(world), dict(way.turns)

        def see(event: Event) -> None:
            if event.number in turns:
                world.reseed(turns[event.number])
            sights.event(event)

        world.observers.insert(0, see)
        self._properties.on_property = sights.property
        here = RunOfTest(
            world,
            self._name,
            FaultsOfRun(draws=draws),
            self._properties,
            seed=self._seed,
            on_line=sights.line,
        )
        problem: BaseException | None = None
        try:
            attempt(self._test, self._setup, here)
        except BaseException as error:
            if not is_verdict(alone(error)):
                raise
            problem = error
        self._corpus.add(way, sights, draws.noted)
        return here, problem

    def _again(self, here: RunOfTest, brokers: int | None) -> object:
        setup = self._setup if brokers is None else attrs.evolve(self._setup, brokers=brokers)
        return attempt(self._test, setup, here)

    def report(self) -> str:
        """What was done, in words, and what was stated."""
        runs = "1 run" if self.run_count == 1 else f"{self.run_count} runs"
        lines = [
            f"guided search: {runs}; faults struck at {len(self._tried.struck)} "
            f"different moments; {len(self._corpus.counts)} different sights"
        ]
        stated = self._properties.report(self.run_count)
        return "\n".join([*lines, stated] if stated else lines)
