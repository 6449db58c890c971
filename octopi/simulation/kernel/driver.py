"""Runs Trio on virtual time: the only module, with `octopi.simulation.kernel.task_watching`, that
uses Trio's private names; `octopi.simulation.kernel.trio_names` checks these.

Trio's own loop runs unchanged (`unrolled_run`, which Trio's guest mode drives in the same way);
this driver takes the place of the wait for the operating system.  Whenever no task can run, it
advances the world to the next moment at which something is due.  Tasks that can run at the same
time run in the order of a schedule.

If the private names differ from those that this module was written for, `run` falls back to Trio's
public interface (`trio.run` with a clock and an instrument).  That is slower, supports no pauses,
and leaves the order of tasks that could run at the same time to Trio.
"""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from octopi.simulation.kernel import sandbox
from octopi.simulation.kernel.owners import OWNER, Parkable
from octopi.simulation.kernel.schedule import OrderOfOneThread, Schedule
from octopi.simulation.kernel.task_watching import (
    Instruments,
    TaskWatcher,
    fail_task,
    is_cancelled,
    is_within,
)
from octopi.simulation.kernel.trio_names import private_problem as private_problem, trio_run as _run
from octopi.simulation.kernel.world import World

if TYPE_CHECKING:
    from trio.lowlevel import Task

T = TypeVar("T")

TICKS_WITHOUT_TIME_MAX: Final = 200_000
"""A run counts as spinning after this many turns of the loop in which time stands still."""

GARBAGE_COUNT: Final = 200_000
"""Python looks for cyclic garbage whenever a run has made this many objects more than it freed.
A run leaves few cycles, and the events that it keeps would be examined again and again."""


class How(Enum):
    """Ways to run Trio."""

    SCHEDULED = "scheduled"
    """This module turns Trio's loop, by private names."""
    PUBLIC = "public"
    """Trio turns its loop itself."""


class DeadlockError(Exception):
    """No task can run, no deadline is set, and nothing is due."""


class SpinningError(Exception):
    """Tasks keep running, and time stands still."""


class NoPausesError(Exception):
    """Tasks can't be paused, because the run is not `How.SCHEDULED`."""


def run(
    world: World,
    main: Callable[[], Awaitable[T]],
    schedule: Schedule,
    *,
    how: How | None = None,
    strict: bool = True,
) -> T:
    """Run *main* in *world* to its end, and return its result.  *how* (None): by private names if
    they are as expected.  *strict*: see `sandbox.armed`.

    Raises:
      DeadlockError: if every task waits, and nothing is due.
      SpinningError: if time stands still.
      OutsideReachedError: if code accessed the real world.
      BaseException: what *main* raised, or `World.failure` if the run was given up.
    """
    if how is None:
        how = How.SCHEDULED if private_problem() is None else How.PUBLIC
    results: list[T] = []

    async def guarded() -> None:
        guard.is_watching = True
        with world.scope:
            results.append(await main())
        guard.is_watching = False

    problem: BaseException | None = None
    run_by = _run_scheduled if how is How.SCHEDULED else _run_public
    with sandbox.armed(world, strict=strict) as guard, _collecting_seldom():
        try:
            run_by(world, guarded, schedule)
        except BaseException as error:  # raised below, unless the world has failed
            problem = error
    if world.failure is not None:
        raise world.failure from world.failure.__cause__ or problem
    if problem is not None:
        raise problem
    return results[0]


@contextlib.contextmanager
def _collecting_seldom() -> Iterator[None]:
    usual = gc.get_threshold()
    gc.set_threshold(GARBAGE_COUNT, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def pause(owner: Parkable) -> None:
    """Keep the tasks of *owner* from running, from now on.

    The task that calls this goes on until it waits.

    Raises:
      NoPausesError: if the run is not `How.SCHEDULED`.
    """
    if _turning is None:
        raise NoPausesError("tasks can be paused only where Trio's private names are known")
    owner.is_paused = True
    _turning.park()


def resume(owner: Parkable) -> None:
    """Let the tasks of *owner* run again; what was due meanwhile is due now."""
    owner.is_paused = False
    if _turning is not None:
        _turning.park()


def end(owner: Parkable, error: Callable[[], BaseException]) -> None:
    """Have the tasks of *owner* run no further, as those of a killed process: each of them that is
    about to run gets an *error* in place of what it waited for.

    The caller cancels the scope of *owner* next, for the tasks that wait, and calls `forget` when
    they have ended.  Where Trio turns its loop itself, a task that is about to run goes on until it
    waits.
    """
    if _turning is not None:
        _turning.end(owner, error)


def forget(owner: Parkable) -> None:
    """Note that all tasks of *owner* have ended."""
    if _turning is not None:
        _turning.ended.pop(owner, None)


def watch_tasks(watcher: TaskWatcher) -> None:
    """Tell *watcher* of the tasks of the run, from now on.

    Raises:
      NoPausesError: if the run is not `How.SCHEDULED`.
    """
    if _turning is None:
        raise NoPausesError("tasks can be watched only where Trio's private names are known")
    _turning.instruments.watch(watcher)


# --- by private names ----------------------------------------------------------------


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

    def __init__(self) -> None:
        super().__init__()
        self.parked: list[Task] = []

    def append(self, task: Any) -> None:  # noqa: ANN401  # deque's own signature
        owner = task.context.get(OWNER)
        if owner is not None and owner.is_paused:
            self.parked.append(task)
        else:
            super().append(task)


class _Turning:
    """A run whose loop this module turns.  It is also Trio's source of randomness meanwhile."""

    def __init__(self, world: World, schedule: Schedule) -> None:
        self._world = world
        self._schedule = schedule
        self._batch: list[Task] = []
        """The tasks that have yet to run in this turn; Trio takes them from the end."""
        self._is_parking = False
        self._is_unshielded = False
        self.ended: dict[Parkable, Callable[[], BaseException]] = {}
        """Owners that have ended while some of their tasks still have to: with what these end."""
        self._runner = _run.setup_runner(_VirtualClock(world), [], False, True)
        self.instruments = Instruments()
        instruments: Any = self.instruments
        self._runner.instruments = instruments

    def shuffle(self, batch: list[Task]) -> None:
        """Called by Trio for each turn, with its tasks."""
        self._batch = batch
        if self.ended:
            for task in batch:
                # One that was cancelled ends by that.
                if not is_cancelled(task):
                    self._end_task(task)
        if len(batch) > 1:
            waiting = self._schedule.shuffle(batch)
            if waiting:
                for task in waiting:
                    self._runner.runq.append(task)

    def random(self) -> float:
        """Called by Trio if its order is not deterministic, and perhaps by pytest plug-ins."""
        return self._schedule.random()

    def park(self) -> None:
        """Sort all waiting tasks again, because an owner was paused or resumed."""
        old, new = self._runner.runq, _ParkingQueue()
        waiting = [*old, *(old.parked if isinstance(old, _ParkingQueue) else ())]
        for task in waiting:
            new.append(task)
        kept = _ParkingQueue()
        for task in self._batch:
            kept.append(task)
        self._batch[:] = kept
        new.parked += kept.parked
        # Also if no task is parked: those of a paused owner may be able to run only later.
        self._runner.runq = new
        self._is_parking = True

    def end(self, owner: Parkable, error: Callable[[], BaseException]) -> None:
        """See the function."""
        self.ended[owner] = error
        queue = self._runner.runq
        parked = queue.parked if isinstance(queue, _ParkingQueue) else ()
        for task in (*queue, *parked, *self._batch):
            self._end_task(task)

    def _end_task(self, task: Any) -> None:  # noqa: ANN401
        """If *task*, which is about to run, is of an owner that has ended, have it end, too."""
        owner = task.context.get(OWNER)
        error = self.ended.get(owner) if owner is not None else None
        if owner is None or error is None or not is_within(task, owner.scope):
            return
        fail_task(task, error())

    def _release(self) -> None:
        """Let paused tasks run in a run that was given up: they have to end, too."""
        queue = self._runner.runq
        self._runner.runq = deque(queue)
        if isinstance(queue, _ParkingQueue):
            self._runner.runq.extend(queue.parked)
        self._is_parking = False

    def turn(self, main: Callable[[], Awaitable[None]]) -> None:
        """Turn Trio's loop until it ends."""
        loop = _run.unrolled_run(self._runner, main, (), True)
        try:
            self._turn(loop)
        finally:
            with warnings.catch_warnings():
                # A loop that has not ended by itself is closed in its middle.
                warnings.simplefilter("ignore", RuntimeWarning)
                loop.close()
            _run.GLOBAL_RUN_CONTEXT.__dict__.clear()
            self._runner.close()
        outcome = self._runner.main_task_outcome
        if outcome is not None:
            outcome.unwrap()

    def _turn(self, loop: Any) -> None:  # noqa: ANN401
        world, runner = self._world, self._runner
        ticks_left, stands_at = TICKS_WITHOUT_TIME_MAX, world.now
        with contextlib.suppress(StopIteration):
            timeout = next(loop)
            while True:
                events: Any = ()
                if timeout > 0 and not runner.waiting_for_idle:
                    events = self._idle()
                    ticks_left = TICKS_WITHOUT_TIME_MAX
                elif world.now > stands_at:
                    ticks_left, stands_at = TICKS_WITHOUT_TIME_MAX, world.now
                else:
                    ticks_left -= 1
                    if ticks_left == 0:
                        _give_up(world, SpinningError(f"time stands still at {world.now:.6f} s"))
                        ticks_left = TICKS_WITHOUT_TIME_MAX
                timeout = loop.send(events)

    def _idle(self) -> Any:  # noqa: ANN401
        """Advance the world until a task can run; called when none can."""
        world, runner = self._world, self._runner
        if self._is_parking and world.failure is not None:
            self._release()
        while not runner.runq:
            deadline = runner.deadlines.next_deadline()
            is_over = runner.main_task_outcome is not None
            when = inf if is_over else min(world.next_due(), deadline)
            if when == inf:
                # At its end Trio wakes itself through a socket, whatever is due in the world.
                events = runner.io_manager.get_events(0)
                if not events:
                    self._end_deadlock()
                return events
            try:
                world.advance(when)
            except BaseException as error:  # it becomes the failure of the run
                world.fail(error)
            if when == deadline:
                break
        return ()

    def _end_deadlock(self) -> None:
        world, queue = self._world, self._runner.runq
        parked = len(queue.parked) if isinstance(queue, _ParkingQueue) else 0
        paused = f"; {parked} tasks of paused owners could run" if parked else ""
        error = DeadlockError(f"every task waits, and nothing is due{paused}")
        if world.failure is not None and not self._is_unshielded:
            # All tasks were cancelled, and one that is shielded would wait for ever.
            self._is_unshielded = True
            for task in list(self._runner.tasks):
                status: Any = task._cancel_status
                while status is not None:
                    status._scope.shield = False
                    status = status._parent
        else:
            _give_up(world, error)


_turning: _Turning | None = None


def _give_up(world: World, error: Exception) -> None:
    if world.failure is not None:  # the tasks were cancelled then, and don't end
        raise error
    world.fail(error)


def _run_scheduled(world: World, main: Callable[[], Awaitable[None]], schedule: Schedule) -> None:
    global _turning
    assert _turning is None, "another run is in progress"
    _turning = _Turning(world, schedule)
    try:
        with deterministic(_turning):
            _turning.turn(main)
    finally:
        _turning = None


@contextlib.contextmanager
def deterministic(order: Schedule) -> Iterator[None]:
    """Within the block, have Trio run the tasks of this thread in the order of *order*."""
    private: Any = _run
    saved = private._ALLOW_DETERMINISTIC_SCHEDULING, private._r
    private._ALLOW_DETERMINISTIC_SCHEDULING = True
    private._r = OrderOfOneThread(order, saved[1])
    try:
        yield
    finally:
        private._ALLOW_DETERMINISTIC_SCHEDULING, private._r = saved


# --- by public names -----------------------------------------------------------------

_NOT_ZERO_S: Final = 1e-9
"""The time to sleep of an idle loop: 0 would mean that tasks can run."""

_BARREN_WAITS_MAX: Final = 3
"""More consecutive waits that nothing can end are a deadlock.  Trio ends some by itself."""


class _AbandonedError(Exception):
    """The run doesn't end although it was given up."""


class TickCounter:
    """Counts the turns of the loop while the time of *world* stands still."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ticks_left, self._stands_at = TICKS_WITHOUT_TIME_MAX, world.now

    def count(self) -> SpinningError | None:
        """Count a turn; return the error to raise if there were too many, or else None."""
        now = self._world.now
        self._ticks_left -= 1
        if now > self._stands_at:
            self._ticks_left, self._stands_at = TICKS_WITHOUT_TIME_MAX, now
        elif self._ticks_left == 0:
            self._ticks_left = TICKS_WITHOUT_TIME_MAX
            return SpinningError(f"time stands still at {now:.6f} s")
        return None


class _VirtualPump(_VirtualClock, trio.abc.Instrument):
    """A clock, and an instrument that advances it whenever Trio is about to wait."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._deadline = inf
        self._barren_waits = 0
        self._ticks = TickCounter(world)
        self._is_stuck = False

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Called by Trio when no task can run.  The result never lets Trio wait."""
        if self._is_stuck:
            raise _AbandonedError
        self._deadline = deadline
        return _NOT_ZERO_S if deadline > self._world.now else 0.0

    def before_io_wait(self, timeout: float) -> None:
        """Called by Trio before each wait.  *timeout* is 0 if tasks can run."""
        try:
            if timeout == 0.0:
                if (spinning := self._ticks.count()) is not None:
                    _give_up(self._world, spinning)
            else:
                self._idle()
                # Trio is going to wait in any case; this ends the wait at once.
                token = trio.lowlevel.current_trio_token()
                token.run_sync_soon(_do_nothing, idempotent=True)
        except (DeadlockError, SpinningError):
            self._is_stuck = True
        except BaseException as error:  # it becomes the failure of the run; Trio would only log it
            self._world.fail(error)

    def _idle(self) -> None:
        world = self._world
        while trio.lowlevel.current_statistics().tasks_runnable == 0:
            when = min(world.next_due(), self._deadline)
            if when == inf:
                self._barren_waits += 1
                if self._barren_waits > _BARREN_WAITS_MAX:
                    self._barren_waits = 0
                    _give_up(world, DeadlockError("every task waits, and nothing is due"))
                return
            self._barren_waits = 0
            world.advance(when)
            if when == self._deadline:
                return


def _do_nothing() -> None:
    pass


def _run_public(world: World, main: Callable[[], Awaitable[None]], schedule: Schedule) -> None:
    pump = _VirtualPump(world)
    trio.run(main, clock=pump, instruments=[pump], strict_exception_groups=True)
