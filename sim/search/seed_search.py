"""A campaign over seeds: runs them, and reports failures and marks that were never hit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from octopi.cli.rendering import counted
from sim.generate import groups, relays, rings, scenario_plans, swarm
from sim.run.coverage_marks import MARKS
from sim.run.plan import Plan, Tier, to_token
from sim.search.parallel_runs import Outcome, replay_line, run_plan, spread
from sim.search.progress_bar import ProgressBar

AGAIN_EVERY: Final = 20
"""One of this many seeds is run twice."""
AGAIN_BEHIND: Final = 12
"""How many other runs there are between the two runs of a seed."""

PAGES_COUNT_MAX: Final = 50
"""How many pages are written, at most: many failures mostly have few causes."""

DIFFERS: Final = "determinism"
"""The rule that is broken when two runs of one plan differ."""


@attrs.frozen
class SearchOptions:
    """Which seeds are run, and how."""

    first: int = 1
    count: int | None = 100
    """How many seeds; None: as many as fit into `time_s`."""
    source: str = "swarm"
    """A key of `SOURCES`."""
    tier: Tier | None = None
    """None: drawn from the seed."""
    time_s: float | None = None
    """No run begins after this time; None: all seeds are run."""
    jobs: int = 1
    pages: Path | None = None
    """A directory for the pages of failures."""


def _draw_scenario(seed: int, tier: Tier | None) -> Plan:
    return scenario_plans.draw(seed, tier or "message")


def _draw_pipes(seed: int, tier: Tier | None) -> Plan:
    return scenario_plans.draw_of_pipes(seed, tier or "message")


SOURCES: Final[dict[str, Callable[[int, Tier | None], Plan]]] = {
    "swarm": swarm.draw,
    "scenarios": _draw_scenario,
    "registers": groups.draw,
    "ring": rings.draw,
    "relay": relays.draw,
    "pipes": _draw_pipes,
}
"""By the name of a source of plans: the function that draws a plan from a seed."""


def run_seed(source: str, tier: Tier | None, seed: int) -> tuple[int, Outcome]:
    """Run the plan that *source* draws from *seed*."""
    return seed, run_plan(f"seed {seed}", SOURCES[source](seed, tier))


class SeedSearch:
    """The runs of a campaign; *tell* is called with a few lines for each failure."""

    def __init__(self, options: SearchOptions, tell: Callable[[str], object]) -> None:
        self.failed_count = 0
        self._options = options
        self._tell = tell
        self._began = time.monotonic()
        self._seconds = 0.0
        self._done_count = 0
        self._again_count = 0
        self._cpu_s = 0.0
        self._virtual_s = 0.0
        self._digests: dict[int, str] = {}
        """The digests of seeds that are run twice, after the first run."""
        self._rules: Counter[str] = Counter()
        self._marks: Counter[str] = Counter()
        self._struck: Counter[str] = Counter()

    def run(self) -> None:
        """Run all seeds."""
        options = self._options
        work = partial(run_seed, options.source, options.tier)
        try:
            with ProgressBar("seed", options.count) as progress:
                for seed, outcome in spread(work, self._seeds(), options.jobs):
                    self._take(seed, outcome)
                    progress.set(self._done_count, self.failed_count)
        finally:
            self._seconds = time.monotonic() - self._began

    def _seeds(self) -> Iterator[int]:
        """The seeds to run, with repetitions of some earlier ones."""
        options = self._options
        seed = options.first
        waiting: int | None = None
        while options.count is None or seed < options.first + options.count:
            if options.time_s is not None and time.monotonic() - self._began > options.time_s:
                break
            yield seed
            if seed % AGAIN_EVERY == 0:
                waiting = seed
            if waiting is not None and seed == waiting + AGAIN_BEHIND:
                yield waiting
                waiting = None
            seed += 1
        if waiting is not None:
            yield waiting

    # --- outcomes --------------------------------------------------------------------------

    def _take(self, seed: int, outcome: Outcome) -> None:
        self._cpu_s += outcome.cpu_s
        if seed % AGAIN_EVERY == 0 and not self._is_first(seed, outcome):
            return
        self._done_count += 1
        self._virtual_s += outcome.seconds
        self._marks.update(outcome.marks)
        self._struck.update(outcome.struck)
        if outcome.rule:
            self._fail(seed, outcome.rule, outcome.text, outcome.token)

    def _is_first(self, seed: int, outcome: Outcome) -> bool:
        """Whether this is the first run of *seed*; the second has to be the same."""
        first = self._digests.get(seed)
        if first is None:
            self._digests[seed] = outcome.digest
            return True
        self._again_count += 1
        if first != outcome.digest:
            text = f"its two runs have the digests {first} and {outcome.digest}"
            token = to_token(SOURCES[self._options.source](seed, self._options.tier))
            self._fail(seed, DIFFERS, text, token)
        return False

    def _fail(self, seed: int, rule: str, text: str, token: str) -> None:
        self.failed_count += 1
        self._rules[rule] += 1
        lines = [f"seed {seed} broke {rule}: {' '.join(text.split())}"]
        pages = self._options.pages
        if pages is not None and self.failed_count <= PAGES_COUNT_MAX:
            lines.append(f"  {self._write_page(seed, token, pages)}")
        lines.append(f"  {replay_line(token)}")
        self._tell("\n".join(lines))

    def _write_page(self, seed: int, token: str, pages: Path) -> Path:
        from sim.run.plan import from_token
        from sim.search.pages import record, write

        path = pages / f"seed-{seed}.html"
        _, recording = record(from_token(token), f"Seed {seed}")
        write(recording, path)
        return path

    # --- at the end ------------------------------------------------------------------------

    def summary(self) -> str:
        """How much was done, in one line."""
        rate = self._done_count / self._seconds * 60 if self._seconds else 0.0
        of_cpu = self._done_count / self._cpu_s * 60 if self._cpu_s else 0.0
        return (
            f"{counted(self._done_count, 'seed')}, {self.failed_count:,} failed, in "
            f"{self._seconds:.1f} s: {rate:,.0f} a minute, {of_cpu:,.0f} in a minute of a core; "
            f"{self._again_count:,} of them twice"
        )

    def report(self) -> str:
        """The report as text: how much was done, the broken rules, and the marks never hit."""
        lines = [self.summary()]
        lines += [f"broken: {rule} ({count})" for rule, count in self._rules.most_common()]
        unseen = [mark for mark in MARKS if mark not in self._marks]
        lines.append(f"never seen: {', '.join(unseen) or 'nothing'}")
        return "\n".join(lines)

    def numbers(self) -> dict[str, Any]:
        """The report as data, for programs."""
        return {
            **attrs.asdict(attrs.evolve(self._options, pages=None)),
            "seeds": self._done_count,
            "failed": self.failed_count,
            "run_twice": self._again_count,
            "wall_s": round(self._seconds, 3),
            "cpu_s": round(self._cpu_s, 3),
            "virtual_s": round(self._virtual_s, 3),
            "broken": dict(self._rules),
            "marks": {mark: self._marks[mark] for mark in MARKS},
            "faults": dict(sorted(self._struck.items())),
        }
