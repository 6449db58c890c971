"""One simulated machine: its processes, its clock, and how they end.

A host has a disk that survives its processes.  A process is one run of a program on the host, with
an `Environment` of its own.  When the process has ended, every call to that environment raises
`NodeDead`, because cancelling a task runs its cleanup, and the cleanup of a dead process must not
change anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

import trio

from octopi.environment import Environment, Machine, Net, TraceEvent, Watch
from octopi.simulation.disk.device import SYNCS_ALONE
from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.image import Fate
from octopi.simulation.invariants.queue_bounds import Sizes
from octopi.simulation.kernel import driver
from octopi.simulation.kernel.owners import OWNER
from octopi.simulation.kernel.world import World

EPOCH_MS: Final = 1_767_225_600_000
"""2026-01-01 UTC, when every run begins, in milliseconds since 1970."""

_TICK_S: Final = 1e-9
"""The least time that a wait of a clock takes, so that a wait for the rest of an instant doesn't
spin."""

KILL: Final = "kill"
"""The name of the event when a process is killed; the machine's disk is unchanged at that time."""

LOSE_POWER: Final = "lose power"
"""The name of the event when a machine loses power."""

RESUME: Final = "resume"
"""The name of the event when a paused process continues."""

LONG_TURN: Final = "long turn"
"""The name of the event when a task reads too much before other tasks run."""

OUT_OF_BOUNDS: Final = "out of bounds"
"""The name of the event when something in a node grows beyond its bound."""

Program = Callable[[Environment], Awaitable[None]]
"""A program of a host: an async function that returns when it has stopped."""


class NodeDead(BaseException):  # not an error: the process has ended
    """The process of the caller has ended.  Not an `Exception`, so that no code handles it."""


class HostClock:
    """The `octopi.environment.Clock` of one host, which may run fast or slow."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rate = 1.0
        self._rate_since = 0.0
        """In the world's time."""
        self._shown_then = 0.0
        self.wall_jump_ms = 0
        """By how much the wall clock was set; `now` never jumps."""
        self._frozen_ms: int | None = None

    def set_rate(self, rate: float) -> None:
        """From now on *rate* seconds of the host pass in a second of the world.  Waits that have
        begun keep the old rate."""
        self._shown_then, self._rate_since = self.now(), self._world.now
        self._rate = rate

    def freeze_wall(self) -> None:
        """Have the wall clock stand still until `thaw_wall`."""
        self._frozen_ms = self.wall_ms()

    def thaw_wall(self) -> None:
        """Have the wall clock show the time that it would show without `freeze_wall`."""
        self._frozen_ms = None

    def now(self) -> float:
        return self._shown_then + (self._world.now - self._rate_since) * self._rate

    def wall_ms(self) -> int:
        if self._frozen_ms is not None:
            return self._frozen_ms
        return EPOCH_MS + int(self.now() * 1000) + self.wall_jump_ms

    def wall_s(self) -> float:
        """What the wall clock shows, in seconds since 1970; finer than `wall_ms`."""
        if self._frozen_ms is not None:
            return self._frozen_ms / 1000
        return (EPOCH_MS + self.wall_jump_ms) / 1000 + self.now()

    async def sleep_until(self, deadline: float) -> None:
        while True:
            await self._world.sleep(self._waiting_s(deadline - self.now()))
            if self.now() >= deadline:  # else the clock was slowed meanwhile, or rounded
                return

    def timeout(self, seconds: float) -> trio.CancelScope:
        return trio.move_on_after(self._waiting_s(seconds))

    def _waiting_s(self, seconds: float) -> float:
        """The world's time for *seconds* of the host; always above 0, also where rounding would
        make it 0."""
        return max(seconds / self._rate, _TICK_S) if seconds > 0 else 0.0


class HostRandomness:
    """The `octopi.environment.Randomness` of one process."""

    def __init__(self, world: World, host: str, life: int) -> None:
        self._random = world.random("chance", host, life)

    def random(self) -> float:
        return self._random.random()

    def token_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


class ProcessLife:
    """One run of a program on a host; its tasks have it as their `OWNER`."""

    def __init__(self, host: SimulatedHost, number: int) -> None:
        self.host = host
        self.number = number
        self.is_over = False
        self.is_paused = False
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.error: BaseException | None = None
        """The exception with which the program ended, if that was a fault of the program."""

    def check(self) -> None:
        """Raise `NodeDead` if this process has ended."""
        if self.is_over:
            raise NodeDead(self.host.name)

    def trace(self, step: TraceEvent) -> None:
        """The `octopi.environment.Trace` of this process."""
        if self.is_over:
            raise NodeDead(self.host.name)
        self.host.world.record_step(step, self.host.name, self.number)
        if self.is_over:  # an observer may have ended it
            raise NodeDead(self.host.name)

    def effect(self, operation: str, edge: str, path: str) -> None:
        """Note the edge of an effect: it is about to happen, or has just happened."""
        if self.is_over:
            raise NodeDead(self.host.name)
        host = self.host
        host.effects[operation, edge] += 1
        for observer in host.effect_observers:
            observer(self, operation, edge, path)
        if self.is_over:
            raise NodeDead(host.name)


class HostNetwork(Protocol):
    """The interface of a host to its network."""

    def add(self, host: SimulatedHost) -> None:
        """Connect *host*."""

    def net(self, life: ProcessLife, tasks: trio.Nursery) -> Net:
        """The network as a process sees it; *tasks* owns the tasks of its connections."""

    def booted(self, life: ProcessLife) -> None:
        """Note that a process begins."""

    def closed(self, life: ProcessLife) -> None:
        """Close the connections of an ended process, as its operating system does."""

    def vanished(self, life: ProcessLife) -> None:
        """Note that the machine lost power."""


class SimulatedHost:
    """A machine in *world*; `boot` starts a process."""

    def __init__(self, world: World, network: HostNetwork, name: str) -> None:
        self.world = world
        self.network = network
        self.name = name
        self.disk = SimulatedDisk()
        self.disk.syncs_alone_max = world.random("syncs", name).choice(SYNCS_ALONE)
        self.disk.turns.on_long_turn = self._note_long_turn
        self.clock = HostClock(world)
        self.life: ProcessLife | None = None
        """The present process; None while the host is down."""
        self.life_count = 0
        self.may_end_with: Callable[[BaseException], bool] = is_ordinary
        """Whether a program that ends with this error leaves the run as it is."""
        self.effects: Counter[tuple[str, str]] = Counter()
        """How many times each effect reached each of its edges."""
        self.effect_observers: list[Callable[[ProcessLife, str, str, str], None]] = []
        network.add(self)

    @property
    def is_up(self) -> bool:
        """Whether a program runs, even if it is paused."""
        return self.life is not None

    def boot(self, program: Program, nursery: trio.Nursery) -> ProcessLife:
        """Start *program*; its tasks run in *nursery*.  The host must be down."""
        assert self.life is None, f"{self.name} runs"
        self.life_count += 1
        life = self.life = ProcessLife(self, self.life_count)
        self.world.note("boot", self.name, life.number)
        self.network.booted(life)
        nursery.start_soon(self._live, life, program, name=f"{self.name} life {life.number}")
        return life

    async def _live(self, life: ProcessLife, program: Program) -> None:
        OWNER.set(life)
        try:
            with life.scope:
                async with trio.open_nursery() as tasks:
                    life.check()  # it may have been killed before it began
                    await program(self._environment(life, tasks))
                    tasks.cancel_scope.cancel()
        except BaseException as error:  # handled below
            self._ended_with(life, error)
        finally:
            if not life.is_over:
                self.world.note("exit", self.name, life.number, error=repr(life.error))
                self.disk.end_life()
                self.network.closed(life)
                self._end(life)
            driver.forget(life)
            life.ended.set()

    def _ended_with(self, life: ProcessLife, error: BaseException) -> None:
        _, others = (
            error.split((NodeDead, trio.Cancelled))
            if isinstance(error, BaseExceptionGroup)
            else (None, None if isinstance(error, NodeDead | trio.Cancelled) else error)
        )
        if others is None or life.is_over:
            return  # the process was killed: errors from unwinding its tasks are ignored
        if not (self.world.outlives_crashes or self.may_end_with(others)):
            self.world.fail(others)
        life.error = others

    def _environment(self, life: ProcessLife, tasks: trio.Nursery) -> Environment:
        return Environment(
            clock=self.clock,
            net=self.network.net(life, tasks),
            disk=self.disk.attach(life.effect, self.world.after),
            randomness=HostRandomness(self.world, self.name, life.number),
            trace=life.trace,
            audit=_check if self.world.checks_invariants else None,
            watch=self._watch(life) if self.world.checks_invariants else None,
        )

    def _note_long_turn(self, task: str, read_bytes: int) -> None:
        number = self.life.number if self.life is not None else self.life_count
        self.world.note(LONG_TURN, self.name, number, task=task, read_bytes=read_bytes)

    def _watch(self, life: ProcessLife) -> Watch:
        def tell(name: str, size: int, bound: int) -> None:
            facts = {"queue": name, "size": size, "bound": bound}
            self.world.note(OUT_OF_BOUNDS, self.name, life.number, **facts)

        sizes = Sizes(tell)
        self.world.looks.at_look[self] = sizes.look
        return sizes.watch

    # --- ways to end -----------------------------------------------------------------

    def kill(self) -> None:
        """End the process as SIGKILL does: the page cache, and what was sent, survive."""
        life = self._running(KILL)
        self.disk.end_life()
        self.network.closed(life)
        self._end(life)

    def lose_power(self, fates: Sequence[Fate] = tuple(Fate)) -> None:
        """Cut the power of the machine: data that was not synced may be lost, and peers aren't
        told.  *fates*: what may become of the unsynced end of a file."""
        life = self._running(LOSE_POWER)
        self.disk.lose_power(self.world.random("power", self.name, life.number), fates)
        self.network.vanished(life)
        self._end(life)

    def pause(self) -> None:
        """Stop all tasks as SIGSTOP does.  If one of them calls this, it continues until it
        waits."""
        driver.pause(self._running("pause"))

    def resume(self) -> None:
        """Continue after `pause`."""
        driver.resume(self._running(RESUME))

    def _running(self, what: str) -> ProcessLife:
        assert self.life is not None, f"{self.name} is down"
        self.world.note(what, self.name, self.life.number)
        return self.life

    def _end(self, life: ProcessLife) -> None:
        life.is_over = True
        self.world.looks.at_look.pop(self, None)
        driver.end(life, partial(NodeDead, self.name))
        life.scope.cancel()
        if life.is_paused:  # its tasks have to run to learn that they have ended
            driver.resume(life)
        self.life = None


def is_ordinary(error: BaseException) -> bool:
    """Whether *error* is a usual end of a process, as on a broken disk, and not a fault of the
    program."""
    from octopi.errors import OctopiError

    if isinstance(error, BaseExceptionGroup):
        return all(is_ordinary(one) for one in error.exceptions)
    return isinstance(error, OctopiError)


def _check(machine: Machine) -> None:
    """The `octopi.environment.Audit` of a world that checks invariants."""
    machine.check_invariants()
