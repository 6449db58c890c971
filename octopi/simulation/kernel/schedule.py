"""Schedules: the order of tasks that could run at the same time.

A schedule gets each batch of runnable tasks from the driver and orders it.  It doesn't know what
the tasks do; every order is one that Trio could have chosen.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from trio.lowlevel import Task

PCT_STEPS: Final = 5_000
"""The number of turns within which a `Pct` changes priorities: those of a run with a few hundred
messages."""


class Schedule(Protocol):
    """Decides the order of tasks that could run at the same time."""

    def shuffle(self, batch: list[Task]) -> Sequence[Task] | None:
        """Reorder *batch* in place, from the order in which its tasks were started to the order in
        which they run; the last one runs first.  Tasks that shall wait for another turn are removed
        from it, and returned."""

    def random(self) -> float:
        """A number in [0, 1)."""


class Random:
    """Any order, all equally likely."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def shuffle(self, batch: list[Task]) -> None:
        """See `Schedule`."""
        self._source.shuffle(batch)

    def random(self) -> float:
        """See `Schedule`."""
        return self._source.random()


class Fifo:
    """Runs tasks in the order in which they were started, which is the easiest to follow."""

    def shuffle(self, batch: list[Task]) -> None:
        """See `Schedule`."""
        batch.reverse()

    def random(self) -> float:
        """See `Schedule`."""
        return 0.0


class Pct:
    """Strict priorities, drawn for each task, that change at *depth* - 1 drawn moments.

    A bug that needs *depth* events in one order is found with a probability that can be computed
    (Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs",
    ASPLOS 2010).  The changes are drawn within the first *steps* turns.
    """

    def __init__(self, depth: int, source: random.Random, *, steps: int = PCT_STEPS) -> None:
        self._source = source
        self._priorities: dict[Task, float] = {}
        self._changes = sorted(source.randrange(steps) for _ in range(depth - 1))
        self._lowest = 0.0
        self._step = 0

    def shuffle(self, batch: list[Task]) -> Sequence[Task]:
        """See `Schedule`."""
        for task in batch:
            if task not in self._priorities:
                self._priorities[task] = self._source.random()
        batch.sort(key=self._priorities.__getitem__)
        self._step += 1
        if self._changes and self._step > self._changes[0]:
            del self._changes[0]
            self._lowest -= 1.0
            self._priorities[batch[-1]] = self._lowest
            batch.insert(0, batch.pop())
        waiting = batch[:-1]
        del batch[:-1]
        return waiting

    def random(self) -> float:
        """See `Schedule`."""
        return self._source.random()


class OrderOfOneThread:
    """A replacement for Trio's source of randomness: *order* in the thread that made this.  Other
    threads may run event loops of their own meanwhile, as Spark's client does.  They get the
    *usual* randomness, because draws from *order* would change the run."""

    def __init__(self, order: Schedule, usual: Any) -> None:  # noqa: ANN401  # of Trio's own kind
        self._order = order
        self._usual = usual
        self._thread = get_ident()

    def shuffle(self, batch: list[Task]) -> None:
        """Called by Trio for each turn of a loop."""
        (self._order if get_ident() == self._thread else self._usual).shuffle(batch)

    def random(self) -> float:
        """Called by Trio for each turn in its other mode."""
        drawn: float = (self._order if get_ident() == self._thread else self._usual).random()
        return drawn

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._usual, name)  # a new loop draws the offset of its real clock
