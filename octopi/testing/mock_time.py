"""Virtual time in an event loop that Trio runs itself: a world moves a `trio.testing.MockClock`.

Where possible `octopi.simulation.kernel.driver` runs the loop itself; this module is for loops that
a test runner has started.  An instrument is called whenever Trio is about to wait, and moves the
clock and the world to the next moment at which something is due.  It uses only Trio's public
interface.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Final
from weakref import WeakSet

import trio
from trio.testing import MockClock

from octopi.simulation.kernel.driver import TickCounter
from octopi.simulation.kernel.world import World
from octopi.testing.errors import MisuseError

_REAL: Final = (
    "a cluster lives in virtual time, and this loop runs on real time: use "
    "@octopi.testing.simulated, or give the loop a clock that jumps: "
    "trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0)); with pytest-trio the "
    "test itself has to take the fixture autojump_clock"
)
_STANDS: Final = (
    "this MockClock moves only when a test moves it, and a cluster would stand still: "
    "give it autojump_threshold=0 and no rate (with pytest-trio: the fixture autojump_clock)"
)

_in_use: WeakSet[MockClock] = WeakSet()


def mock_clock() -> MockClock:
    """The clock of the running loop.

    Raises:
      MisuseError: if the clock is not usable for a cluster.
    """
    try:
        clock = trio.lowlevel.current_clock()
    except RuntimeError:
        raise MisuseError(
            "a cluster needs a Trio loop: use @octopi.testing.simulated or octopi.testing.run"
        ) from None
    if not isinstance(clock, MockClock):
        raise MisuseError(_REAL)
    if clock in _in_use:
        raise MisuseError("there is a cluster in this loop already: leave its block first")
    if clock.autojump_threshold == inf or clock.rate:
        raise MisuseError(_STANDS)
    return clock


@contextmanager
def keeping_time(clock: MockClock, world: World) -> Iterator[None]:
    """Keep *clock* and *world* at the same time within the block."""
    world.now = clock.current_time()
    pump = _Pump(clock, world)
    threshold = clock.autojump_threshold
    # It would skip events that are due in the world.
    clock.autojump_threshold = inf
    trio.lowlevel.add_instrument(pump)
    _in_use.add(clock)
    try:
        yield
    finally:
        _in_use.discard(clock)
        trio.lowlevel.remove_instrument(pump)
        clock.autojump_threshold = threshold


class _Pump(trio.abc.Instrument):
    def __init__(self, clock: MockClock, world: World) -> None:
        self._clock = clock
        self._world = world
        self._ticks = TickCounter(world)

    def before_io_wait(self, timeout: float) -> None:
        """Called before Trio waits, also if tasks can run or wait for all others; *timeout* tells
        these cases apart."""
        try:
            if timeout == 0:
                if (spinning := self._ticks.count()) is not None:
                    raise spinning
            else:
                self._idle()
                # Makes the wait, which Trio has decided on, end at once.
                trio.lowlevel.current_trio_token().run_sync_soon(_do_nothing, idempotent=True)
        except BaseException as error:  # kept as the verdict; Trio would only log it
            self._world.fail(error)

    def _idle(self) -> None:
        world, clock = self._world, self._clock
        world.advance(clock.current_time())  # the test may have moved the clock
        while True:
            statistics = trio.lowlevel.current_statistics()
            if statistics.tasks_runnable:
                return
            deadline = clock.current_time() + max(0, statistics.seconds_to_next_deadline)
            when = min(world.next_due(), deadline)
            clock.jump(max(0.0, when - clock.current_time()))
            world.advance(clock.current_time())
            if when == deadline:
                return


def _do_nothing() -> None:
    pass
