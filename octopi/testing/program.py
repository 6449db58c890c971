"""The programs of a test: the hosts that they run on, and their state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeAlias

import attrs
import trio

from octopi.clients.client import Client
from octopi.environment import Disk, Environment
from octopi.limits import REQUEST_TIMEOUT_S
from octopi.simulation.cluster import Node
from octopi.simulation.kernel.host import is_ordinary
from octopi.testing.errors import MisuseError

RESTARTS_MAX: Final = 100
"""How often one program is started again because of the errors that the test named for it."""

_VERDICTS: Final = (AssertionError, MisuseError)
"""Errors that say something about the test itself: they always fail it."""


class Connect(Protocol):
    """Makes a client on a host."""

    def __call__(
        self, host: str, environment: Environment, request_timeout_s: float
    ) -> AbstractAsyncContextManager[Client]: ...


@attrs.frozen
class Host:
    """A simulated machine, as a program on it sees it.  Each start of a program gets a `Host` of
    its own.

    The disk survives the program; data that was not synced may be lost in a power failure.
    """

    name: str
    life: int
    """1 when the program is started for the first time, then 2, and so on."""
    environment: Environment
    """The machine's clock, network, disk and randomness, for a program that needs more than a
    client. After the program was killed, every call to it ends the program."""
    _connect: Connect

    @property
    def disk(self) -> Disk:
        """The machine's files."""
        return self.environment.disk

    def connect(
        self, *, request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> AbstractAsyncContextManager[Client]:
        """A client of the cluster on this machine, for a block, as `octopi.connect` elsewhere."""
        return self._connect(self.name, self.environment, request_timeout_s)

    def step(self, what: str, **facts: Any) -> None:  # noqa: ANN401
        """Take a step of the program's own.

        The page shows the step, and faults may strike there (`Cluster.at`).  *facts* must look the
        same in each run, so they can't be objects that show their address.
        """
        trace = self.environment.trace
        assert trace is not None, "a simulated host traces"
        trace(ProgramStep(what, facts))


@attrs.frozen
class ProgramStep:
    """A step of a program's own; see `octopi.environment.TraceEvent`."""

    text: str
    facts: dict[str, Any]

    def values(self) -> tuple[Any, ...]:
        """The values of its facts, without their names."""
        return tuple(self.facts.values())


Run: TypeAlias = Callable[[Host], Awaitable[object]]
"""A program: an async function that returns when it is done."""


class Program:
    """A program that the test started on a host."""

    def __init__(
        self, node: Node, restart_s: float | None, restart_on: tuple[type[Exception], ...] = ()
    ) -> None:
        self.restart_s = restart_s
        """The time after which it is started again when it ended with an `OctopiError`, or with
        one of *restart_on* (s)."""
        self.restart_on = restart_on
        """The other errors after which it is started again."""
        self.errors: list[BaseException] = []
        """The errors with which it has ended."""
        self._node = node
        self._done = trio.Event()
        self._restart_count = 0
        node.host.may_end_with = self.may_end_with

    @property
    def name(self) -> str:
        """The name of its host."""
        return self._node.name

    @property
    def is_up(self) -> bool:
        """Whether it runs now, even if it is paused."""
        return self._node.host.is_up

    @property
    def is_done(self) -> bool:
        """Whether it has returned."""
        return self._done.is_set()

    @property
    def life_count(self) -> int:
        """The number of times it was started."""
        return self._node.host.life_count

    async def wait(self) -> None:
        """Wait until the program has returned.  A kill doesn't count."""
        await self._done.wait()

    def ended(self, error: BaseException | None) -> None:
        """Called by the cluster when the program has ended by itself."""
        if error is None:
            self._done.set()
        else:
            self.errors.append(error)

    def may_end_with(self, error: BaseException) -> bool:
        """Whether *error* is one after which a supervisor starts it again: in a group, all are."""
        if isinstance(error, BaseExceptionGroup):
            return all(self.may_end_with(one) for one in error.exceptions)
        is_named = isinstance(error, self.restart_on) and not isinstance(error, _VERDICTS)
        return is_named or is_ordinary(error)

    def next_restart_s(self, error: BaseException) -> float | None:
        """When it is started again after it ended with *error* (s); None: not any more, and the
        test fails."""
        if not self.may_end_with(error):
            return None
        if not is_ordinary(error):
            self._restart_count += 1
            if self._restart_count > RESTARTS_MAX:
                error.add_note(
                    f"{self.name} was started again {RESTARTS_MAX} times because of errors of "
                    "restart_on; no supervisor would go on: see Program.errors"
                )
                return None
        return self.restart_s


def check_restarts(name: str, restart_s: float | None, restart_on: tuple[object, ...]) -> None:
    """Check what a test says about the restarts of a program.

    Raises:
      MisuseError: if *restart_on* has something else than kinds of errors, or is given for a
        program that isn't started again.
    """
    for one in restart_on:
        if not (isinstance(one, type) and issubclass(one, Exception)):
            raise MisuseError(
                f"restart_on of program {name!r} has {one!r}: give classes of exceptions, such as "
                "(trio.TooSlowError,)"
            )
        if issubclass(one, _VERDICTS):
            raise MisuseError(
                f"restart_on of program {name!r} has {one.__name__}, which always fails the test: "
                "leave it out"
            )
    if restart_on and restart_s is None:
        raise MisuseError(
            f"program {name!r} is not started again with restart_s=None: leave restart_on out, or "
            "give a time"
        )
