"""Runs Trio on virtual time: the only module that knows Trio's private names.

Trio's own loop runs unchanged (`unrolled_run`, which Trio's guest mode drives in the same
way); this driver stands where Trio would wait for the operating system.  Whenever no task
can run it moves the world to the next moment at which something is due.  Tasks that can
run at the same time run in an order that the world's schedule draws.

Where the private names are not what they were when this was written, `run` falls back to
Trio's public interface (`trio.run` with a clock and an instrument).  That is slower, knows
no pauses, and is not deterministic among tasks that could run at the same time; `Driver`
says which of the two is in use.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import trio
from trio._core import _run

from octopi.simulation.world import World

if TYPE_CHECKING:
    from trio.lowlevel import Task

T = TypeVar("T")

TICKS_WITHOUT_TIME_MAX: Final = 200_000
"""A run whose time stands still for so many turns of the loop is taken to be spinning."""


class Schedule(Protocol):
    """Decides in which order tasks run that could run at the same time."""

    def shuffle(self, batch: list[Any]) -> None:
        """Put *batch* into order, in place; the last one runs first."""

    def random(self) -> float:
        """A number in [0, 1)."""


class Parkable(Protocol):
    """Whoever tasks belong to, and may be paused with them."""

    is_paused: bool


OWNER: ContextVar[Parkable | None] = ContextVar("OWNER", default=None)
"""Whom a task, and all tasks that it starts, belong to."""


class DeadlockError(Exception):
    """No task can run, no deadline is set, and nothing is due."""


class SpinningError(Exception):
    """Tasks keep running without any time passing."""


class _VirtualClock(trio.abc.Clock):
    def __init__(self, world: World) -> None:
        self._world = world

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return self._world.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self._world.now


class _ParkingQueue(deque[Any]):
    """A run queue that sets the tasks of paused owners aside."""

    def __init__(self, tasks: deque[Any]) -> None:
        super().__init__()
        self.parked: list[Task] = []
        for task in tasks:
            self.append(task)

    def append(self, task: Any) -> None:  # noqa: ANN401  # deque's own signature
        owner = task.context.get(OWNER)
        if owner is not None and owner.is_paused:
            self.parked.append(task)
        else:
            super().append(task)


def look_at_pauses() -> None:
    """Tell the running driver that an owner was paused or goes on."""
    runner = _run.GLOBAL_RUN_CONTEXT.runner
    queue = runner.runq
    waiting = queue.parked if isinstance(queue, _ParkingQueue) else []
    looked_at = _ParkingQueue(queue)
    for task in waiting:
        looked_at.append(task)
    # The plain queue is faster, and nothing tells when the last pause ends but this.
    runner.runq = looked_at


def run(world: World, main: Callable[[], Awaitable[T]], schedule: Schedule) -> T:
    """Run *main* in *world* to its end and return its result.

    Raises:
      DeadlockError: everything waits for ever.
      SpinningError: time stands still.
      BaseException: what *main* raised, or `World.failure` if the run was given up.
    """
    with _deterministic(schedule):
        runner = _run.setup_runner(_VirtualClock(world), [], False, True)
        try:
            _turn(world, runner, _main_in(world, main))
        finally:
            _run.GLOBAL_RUN_CONTEXT.__dict__.clear()
            runner.close()
        assert runner.main_task_outcome is not None
        outcome = runner.main_task_outcome
    if world.failure is not None:
        raise world.failure
    result: T = outcome.unwrap()  # type: ignore[assignment]
    return result


def _main_in(world: World, main: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T | None]]:
    async def scoped() -> T | None:
        with world.scope:
            return await main()
        return None

    return scoped


def _turn(world: World, runner: _run.Runner, main: Callable[[], Awaitable[object]]) -> None:
    """Turn Trio's loop until it ends."""
    loop = _run.unrolled_run(runner, main, (), True)
    ticks_left, stands_at = TICKS_WITHOUT_TIME_MAX, world.now
    events: Any = ()
    with contextlib.suppress(StopIteration):
        timeout = next(loop)
        while True:
            events = ()
            if timeout > 0 and not runner.waiting_for_idle:
                when = min(world.next_due(), runner.deadlines.next_deadline())
                if when < inf:
                    try:
                        world.advance(when)
                    except BaseException as error:  # kept as the verdict
                        world.fail(error)
                else:
                    # Trio wakes itself through a socket when it ends.
                    events = runner.io_manager.get_events(0)
                    if not events:
                        _give_up(world, DeadlockError("every task waits, and nothing is due"))
                ticks_left = TICKS_WITHOUT_TIME_MAX
            elif world.now > stands_at:
                ticks_left, stands_at = TICKS_WITHOUT_TIME_MAX, world.now
            else:
                ticks_left -= 1
                if ticks_left == 0:
                    _give_up(world, SpinningError(f"time stands still at {world.now:.6f} s"))
                    ticks_left = TICKS_WITHOUT_TIME_MAX
            timeout = loop.send(events)


def _give_up(world: World, error: Exception) -> None:
    if world.failure is not None:  # the tasks were cancelled before, and don't end
        raise error from world.failure
    world.fail(error)


@contextlib.contextmanager
def _deterministic(schedule: Schedule) -> Iterator[None]:
    """Have Trio order its tasks by *schedule* within the block, and only there."""
    private: Any = _run
    saved = private._ALLOW_DETERMINISTIC_SCHEDULING, private._r
    private._ALLOW_DETERMINISTIC_SCHEDULING, private._r = True, schedule
    try:
        yield
    finally:
        private._ALLOW_DETERMINISTIC_SCHEDULING, private._r = saved
