"""The programs of a test: the hosts that they run on, and their state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

import attrs
import trio

from octopi.clients.client import Client
from octopi.environment import Disk, Environment
from octopi.limits import REQUEST_TIMEOUT_S
from octopi.simulation.cluster import Node


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

    def __init__(self, node: Node, restart_s: float | None) -> None:
        self.restart_s = restart_s
        """The time after which it is started again when it ended with an `OctopiError` (s)."""
        self.errors: list[BaseException] = []
        """The errors with which it has ended."""
        self._node = node
        self._done = trio.Event()

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
