"""Makes a run fail that accesses the real world, and names the code that did so.

Within a run, real time, threads, sockets, processes, files and entropy are forbidden, because their
results differ from run to run.  Some accesses are detected by Python's audit events, others by
replacing well-known functions.  This guards against mistakes, not against malice: a function that
was imported by name before is not replaced.

Not guarded: imports, what a debugger, a profiler or a test framework does for itself, and time
stamps of log records, which get the world's time.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType, ModuleType
from typing import Any, Final, NoReturn, Protocol, TypeVar

import trio

from octopi.simulation.kernel.entropy import seeded
from octopi.simulation.kernel.owners import OWNER
from octopi.simulation.kernel.wall_dates import virtual_dates
from octopi.simulation.kernel.world import World

EPOCH_S: Final = 1_767_225_600
"""2026-01-01 UTC, when every run begins, in seconds since 1970."""

_T = TypeVar("_T")

_ALWAYS: Final = frozenset({"socket", "subprocess", "_thread"})
"""Audit events, by the part before their dot, that can't be made repeatable."""

_STRICT: Final = frozenset(
    {"open", "os", "shutil", "tempfile", "fcntl", "mmap", "glob", "pathlib", "sqlite3"}
)
"""Audit events of files: programs under test may read files; nodes have a simulated disk."""

_TOOLS: Final = frozenset(
    {
        "_pytest", "bdb", "coverage", "cProfile", "faulthandler", "hypothesis", "linecache", "pdb",
        "pluggy", "pydevd", "pytest", "pytest_timeout", "traceback", "tracemalloc",
    }
)  # fmt: skip
"""Modules that may access the real world for their own purposes."""

_IMPORTS: Final = frozenset({"importlib", "zipimport", "pkgutil"})

_OUTERMOST: Final = frozenset({"octopi.simulation.kernel.driver", "trio._core._run"})
"""Callers of these functions run the simulation, so their accesses are allowed."""

_ENTROPY_USERS: Final = frozenset({"wsproto", "trio_websocket"})
_ENTROPY_WRAPPERS: Final = frozenset({"random", "secrets", "uuid", "tempfile"})


class HostTime(Protocol):
    """The clock of a host."""

    def wall_s(self) -> float:
        """What its wall clock shows, in seconds since 1970."""

    def now(self) -> float:
        """What its monotonic clock shows (s)."""


class OutsideReachedError(Exception):
    """Code in a simulation accessed the real world."""


class Sandbox:
    """Guards one run."""

    def __init__(self, world: World, *, strict: bool) -> None:
        self.world = world
        self.is_strict = strict
        self.is_watching = False
        """Whether the program runs, and not Trio's own preparations."""
        self._thread = threading.get_ident()

    def concerns_us(self, caller: FrameType | None) -> bool:
        """Whether a call from *caller* belongs to the run."""
        return (
            self.is_watching
            and threading.get_ident() == self._thread
            and _root(caller) not in _TOOLS
        )

    def watch_entropy(self, what: str, caller: FrameType) -> bool:
        """See `entropy.Watch`."""
        if not self.concerns_us(caller):
            return False
        frame: FrameType | None = caller
        while frame is not None and _root(frame) in _ENTROPY_WRAPPERS:
            frame = frame.f_back
        if self.is_strict and _root(frame) not in _ENTROPY_USERS:
            self.fail(what, frame, "ask the Environment's chance")
        return True

    def audit(self, event: str) -> None:
        """Handle an audit event of Python."""
        kind = event.partition(".")[0]
        if kind not in _ALWAYS and not (self.is_strict and kind in _STRICT):
            return
        if not self.is_watching or threading.get_ident() != self._thread:
            return
        caller = sys._getframe(2)
        frame: FrameType | None = caller
        while frame is not None and frame.f_globals.get("__name__") not in _OUTERMOST:
            if _root(frame) in _TOOLS or _root(frame) in _IMPORTS:
                return
            frame = frame.f_back
        self.fail(event, caller, "ask the Environment's net and disk")

    def fail(self, what: str, caller: FrameType | None, instead: str) -> NoReturn:
        """Give up the run."""
        where = f"{caller.f_code.co_filename}:{caller.f_lineno}" if caller is not None else "?"
        error = OutsideReachedError(f"{what} was called by {where} in a simulation; {instead}")
        self.world.fail(error)
        raise error


_guard: Sandbox | None = None
_is_installed = False


def _root(frame: FrameType | None) -> str:
    """The outermost package of the code that *frame* runs."""
    name: str = frame.f_globals.get("__name__", "") if frame is not None else ""
    return name.partition(".")[0]


_HARMLESS: Final = frozenset({"marshal.dumps", "builtins.id", "object.__getattr__"})
"""Events that happen thousands of times in a run, and aren't checked."""


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _guard is not None and event not in _HARMLESS:
        _guard.audit(event)


@contextmanager
def armed(world: World, *, strict: bool = True) -> Iterator[Sandbox]:
    """Prepare to guard the code within the block, whenever `Sandbox.is_watching`.

    If it is not *strict*, files are allowed, and entropy and time are virtual for all code instead
    of forbidden.
    """
    global _guard, _is_installed
    if not _is_installed:
        sys.addaudithook(_audit)  # permanent: an audit hook can't be removed
        _is_installed = True
    guard = Sandbox(world, strict=strict)
    with (
        seeded(world.random("entropy"), guard.watch_entropy),
        _replaced(time, _clocks(guard)),
        _replaced(trio.to_thread, {"run_sync": _no_trio_threads(guard)}),
        _replaced(threading.Thread, {"start": _no_threads(guard)}),  # not audited before 3.12
        nullcontext() if strict else virtual_dates(_dates(guard)),
    ):
        _guard = guard
        try:
            yield guard
        finally:
            guard.is_watching = False
            _guard = None


@contextmanager
def _replaced(owner: ModuleType | type, stand_ins: dict[str, Callable[..., Any]]) -> Iterator[None]:
    replaced = {name: getattr(owner, name) for name in stand_ins}
    for name, stand_in in stand_ins.items():
        setattr(owner, name, stand_in)
    try:
        yield
    finally:
        for name, function in replaced.items():
            setattr(owner, name, function)


def _host_clocks(guard: Sandbox) -> tuple[Callable[[bool], float], Callable[[bool], float]]:
    """What wall clocks and monotonic clocks show (s); with true: on the host of the running task,
    if there is one."""
    world = guard.world

    def clock(of_host: bool) -> HostTime | None:
        life: Any = OWNER.get() if of_host else None
        return None if life is None else life.host.clock

    def wall_s(of_host: bool) -> float:
        found = clock(of_host)
        return EPOCH_S + world.now if found is None else found.wall_s()

    def now_s(of_host: bool) -> float:
        found = clock(of_host)
        return world.now if found is None else found.now()

    return wall_s, now_s


def _dates(guard: Sandbox) -> Callable[[FrameType], float | None]:
    """See `octopi.simulation.kernel.wall_dates.Now`."""
    wall_s, _ = _host_clocks(guard)
    return lambda caller: wall_s(True) if guard.concerns_us(caller) else None


def _clocks(guard: Sandbox) -> dict[str, Callable[..., Any]]:
    """The replacements for the functions of `time`: a program sees its host's clock, everything
    else, such as a test itself and time stamps of log records, the world's."""
    wall_s, now_s = _host_clocks(guard)

    def clock(name: str, now: Callable[[bool], _T]) -> Callable[[], _T]:
        real: Callable[[], _T] = getattr(time, name)

        def read() -> _T:
            caller = sys._getframe(1)
            if not guard.concerns_us(caller):
                return real()
            if guard.is_strict and _root(caller) != "logging":
                guard.fail(f"time.{name}", caller, "ask the Environment's clock")
            return now(_root(caller) != "logging")

        return read

    def sleep(seconds: float, /) -> None:
        caller = sys._getframe(1)
        if guard.concerns_us(caller):
            guard.fail("time.sleep", caller, "wait by the Environment's clock")
        real_sleep(seconds)

    real_sleep = time.sleep
    return {
        "time": clock("time", wall_s),
        "time_ns": clock("time_ns", lambda of_host: int(wall_s(of_host) * 1e9)),
        "monotonic": clock("monotonic", now_s),
        "monotonic_ns": clock("monotonic_ns", lambda of_host: int(now_s(of_host) * 1e9)),
        "perf_counter": clock("perf_counter", now_s),
        "perf_counter_ns": clock("perf_counter_ns", lambda of_host: int(now_s(of_host) * 1e9)),
        "sleep": sleep,
    }


def _no_threads(guard: Sandbox) -> Callable[[threading.Thread], None]:
    real_start = threading.Thread.start

    def start(self: threading.Thread) -> None:
        caller = sys._getframe(1)
        if guard.concerns_us(caller):
            guard.fail("Thread.start", caller, "start a task in a nursery")
        real_start(self)

    return start


def _no_trio_threads(guard: Sandbox) -> Callable[..., Awaitable[object]]:
    real_run_sync: Callable[..., Awaitable[object]] = trio.to_thread.run_sync

    async def run_sync(*args: object, **options: object) -> object:
        caller = sys._getframe(1)
        if guard.concerns_us(caller):
            guard.fail("trio.to_thread.run_sync", caller, "do it in the task itself")
        return await real_run_sync(*args, **options)

    return run_sync
