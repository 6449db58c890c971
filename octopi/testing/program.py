"""Hosts of the test's own: what programs on them are given, and what the test knows of them."""

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
    """A simulated machine, as a program sees it that runs there: each life of a program gets
    one of its own.

    The disk outlives the program; what was not synced doesn't outlive a loss of power.
    """

    name: str
    life: int
    """1 when the program is started for the first time, then 2, and so on."""
    environment: Environment
    """The machine's clock, network, disk and chance, for a program that wants more than a
    client.  Once the life is over, every call ends it for good."""
    _connect: Connect

    @property
    def disk(self) -> Disk:
        """The machine's files."""
        return self.environment.disk

    def connect(
        self, *, request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> AbstractAsyncContextManager[Client]:
        """A client of the cluster on this machine, for a block: what `octopi.connect` is
        elsewhere."""
        return self._connect(self.name, self.environment, request_timeout_s)

    def step(self, what: str, **facts: Any) -> None:  # noqa: ANN401
        """Say that the program has come to a step of its own.

        It is shown on the page, and faults may strike there (`Cluster.at`).  *facts* have to
        look the same in each run: no objects that show their address.
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
        """What it says, without the names."""
        return tuple(self.facts.values())


Run: TypeAlias = Callable[[Host], Awaitable[object]]
"""A program: returns when it is done."""


class Program:
    """A program that the test put on a host."""

    def __init__(self, node: Node, restart_s: float | None) -> None:
        self.restart_s = restart_s
        """It is started again so long after it ended with an `OctopiError`."""
        self.errors: list[BaseException] = []
        """What its lives ended with, where that was an error."""
        self._node = node
        self._done = trio.Event()

    @property
    def name(self) -> str:
        """Of its host."""
        return self._node.name

    @property
    def is_up(self) -> bool:
        """Whether it runs now, be it paused."""
        return self._node.host.is_up

    @property
    def is_done(self) -> bool:
        """Whether it has returned."""
        return self._done.is_set()

    @property
    def life_count(self) -> int:
        """How often it was started."""
        return self._node.host.life_count

    async def wait(self) -> None:
        """Return when it has returned.  Being killed doesn't count."""
        await self._done.wait()

    def ended(self, error: BaseException | None) -> None:
        """Called by the cluster when a life has ended by itself."""
        if error is None:
            self._done.set()
        else:
            self.errors.append(error)
