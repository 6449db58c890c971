"""A simulated cluster, as a test uses it: programs on hosts, faults, and conditions to check.

This module has the parts that belong to the test: its programs, its clients and its conditions.
`octopi.testing.faults` has the faults, and `octopi.testing.running` the virtual time.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeVar, overload

import trio

from octopi.clients.client import Client, connect
from octopi.environment import Environment
from octopi.limits import REQUEST_TIMEOUT_S
from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.history.checker import check
from octopi.simulation.history.events import History
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.kernel.host import Program as LifeProgram
from octopi.simulation.kernel.world import Event, Violation
from octopi.simulation.run import RESTART_S
from octopi.testing.errors import HistoryViolation, MisuseError, StuckError, alone
from octopi.testing.fault_blocks import FaultBlocks
from octopi.testing.program import Host, Program, Run, check_restarts
from octopi.testing.random_faults import (
    FaultsOfRun,
)
from octopi.testing.recorded_clients import HistoryRecorder, recorded
from octopi.testing.settling import Settling
from octopi.testing.setup import Setup
from octopi.testing.stuck_tasks import who_waits

T = TypeVar("T")

SETTLE_S: Final = 120.0
EVENTUALLY_S: Final = 60.0
_LOOK_S: Final = 0.02
_LOOK_S_MAX: Final = 1.0
_OPERATOR: Final = "operator"


class Cluster(FaultBlocks):
    """A whole cluster in one test.  `octopi.testing.cluster`, `run` and `simulated` make it."""

    def __init__(
        self, simulated: SimulatedCluster, setup: Setup, faults: FaultsOfRun, *, can_pause: bool
    ) -> None:
        super().__init__(simulated, faults, can_pause=can_pause)
        self.history = History()
        """The operations and results of clients: noted by the test, or automatically with
        ``record=True``."""
        self.programs: dict[str, Program] = {}
        """All programs that were started, by the names of their hosts."""
        self._setup = setup
        self._scribe = HistoryRecorder(self.history, lambda: self.now)
        self._environments: dict[str, Environment] = {}
        self._client_count = 0
        self._always: list[tuple[Callable[[], object], str]] = []
        self._oracle = Oracle(simulated) if setup.oracle else None

    # --- time and chance -----------------------------------------------------------------

    @property
    def seed(self) -> int:
        """The seed of all random choices of this run."""
        return self._world.seed

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self._world.now

    @property
    def random(self) -> random.Random:
        """A source of randomness for the test, made from the seed.  It doesn't change the random
        choices of other parts of the run."""
        return self._world.random("test")

    async def sleep(self, seconds: float) -> None:
        """Wait for *seconds* of virtual time."""
        await trio.sleep(seconds)

    # --- clients and programs ------------------------------------------------------------

    @property
    def address(self) -> str:
        """The address for `octopi.connect`, to be used with the environment of a host."""
        return self._simulated.address

    @asynccontextmanager
    async def client(
        self, name: str = "", *, request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> AsyncIterator[Client]:
        """A client on a host of its own, for the test itself.

        The host's network can fail, but the host can't be killed, because that would end the test.
        *name* is the name of the host, which may have other clients already; by default
        ``client-1`` and so on.

        Raises:
          MisuseError: if a program or a node runs on a host of that name.
        """
        if not name:
            self._client_count += 1
            name = f"client-{self._client_count}"
        environment = self._environments.get(name) or await self.environment(name)
        async with self._connect(name, environment, request_timeout_s) as client:
            yield client

    async def environment(self, name: str) -> Environment:
        """Add a host without a program, and return its clock, network, disk and randomness, for
        code of the test that needs more than a client.

        Raises:
          MisuseError: if there is a host of that name.
        """
        opened = trio.Event()

        async def program(environment: Environment) -> None:
            self._environments[name] = environment
            opened.set()
            await trio.sleep_forever()

        self._add(name, program)
        self._immortal.add(name)
        self._simulated.boot(name)
        await opened.wait()
        return self._environments[name]

    def program(
        self,
        name: str,
        run: Run,
        *,
        restart_s: float | None = 1.0,
        restart_on: tuple[type[Exception], ...] = (),
    ) -> Program:
        """Start *run* on a host of its own, which may be killed and started again.

        *run* is called with a `Host` each time that it is started.  If it ends with an
        `OctopiError`, or with one of *restart_on*, it is started again *restart_s* seconds later,
        as by a supervisor.  If *restart_s* is None, or if it ends with another exception, the test
        fails; so it does if it was started again `RESTARTS_MAX` times because of *restart_on*.

        Raises:
          MisuseError: if there is a host of that name, *run* is no async function, or *restart_on*
            makes no sense.
        """
        if inspect.iscoroutine(run):
            run.close()
            raise MisuseError(
                f"program {name!r} was called already: give the function itself, without (), "
                "or a lambda that takes the host"
            )

        async def program(environment: Environment) -> None:
            life = node.host.life_count
            running = run(Host(name, life, environment, self._connect))
            if not inspect.isawaitable(running):
                raise MisuseError(f"program {name!r} is no async function: it returned {running!r}")
            await running

        check_restarts(name, restart_s, restart_on)
        self._add(name, program)
        node = self._simulated.nodes[name]
        started = self.programs[name] = Program(node, restart_s, restart_on)
        self._simulated.boot(name)
        return started

    def _add(self, name: str, program: LifeProgram) -> None:
        if name in self._simulated.nodes:
            raise MisuseError(f"there is a host {name!r} already: give this one another name")
        self._simulated.add_client(name, program)
        if self._waits is not None:
            self._waits.watch_sends(self._node(name).host)

    def _connect(
        self, host: str, environment: Environment, request_timeout_s: float
    ) -> AbstractAsyncContextManager[Client]:
        opened = connect(
            self._simulated.addresses,
            request_timeout_s=request_timeout_s,
            environment=environment,
        )
        return recorded(opened, host, self._scribe) if self._setup.record else opened

    # --- what has to hold ----------------------------------------------------------------

    def always(self, holds: Callable[[], object], what: str) -> None:
        """Fail the test as soon as *holds* returns something false; *what* describes the condition.

        *holds* is called after each step of the cluster, so it can't wait.  An exception that it
        raises fails the test, too.

        Raises:
          MisuseError: if *holds* is async.
        """
        if inspect.iscoroutinefunction(holds):
            raise MisuseError(
                f"what always holds is asked for in the middle of steps, and {holds.__name__} "
                "would wait: give a plain function, or use cluster.eventually"
            )
        self._always.append((holds, what))

    @overload
    async def eventually(
        self, holds: Callable[[], Awaitable[T]], what: str = ..., *, within_s: float = ...
    ) -> T: ...

    @overload
    async def eventually(
        self, holds: Callable[[], T], what: str = ..., *, within_s: float = ...
    ) -> T: ...

    async def eventually(
        self,
        holds: Callable[[], T | Awaitable[T]],
        what: str = "what the test waits for",
        *,
        within_s: float = EVENTUALLY_S,
    ) -> T:
        """Wait until *holds*, which may be async, returns something true, and return that.

        Raises:
          StuckError: if that takes more than *within_s* seconds of virtual time.
          MisuseError: if *holds* is not a function.
        """
        if inspect.iscoroutine(holds):
            holds.close()
        if not callable(holds):
            raise MisuseError(
                "what holds eventually is asked for again and again: give a function, without ()"
            )
        deadline, look_s = self.now + within_s, _LOOK_S
        while True:
            found = holds()
            value = await found if isinstance(found, Awaitable) else found
            if value:
                return value
            if self.now >= deadline:
                raise StuckError(f"not within {within_s:g} s: {what}; it is {value!r}", what)
            await trio.sleep(look_s)
            look_s = min(2 * look_s, _LOOK_S_MAX)  # *holds* may be expensive

    async def settle(self, *, within_s: float = SETTLE_S) -> None:
        """`heal`, then wait until the cluster is at rest: all brokers serve, and all replicas are
        in sync and equal.  No producer should send any more.

        With ``record=True`` the contents of all logs are noted, so that `check` knows what is
        missing.

        Raises:
          StuckError: if that takes more than *within_s* seconds of virtual time.
        """
        self.heal()
        settling = Settling(self._simulated, self._operator, self._healed.replace_unfit)
        deadline = self.now + within_s
        while problem := await settling.problem():
            if self.now >= deadline:
                raise StuckError(
                    f"the cluster has come to rest not within {within_s:g} s: {problem}; stop "
                    "what still sends, or give it more time with within_s",
                    "the healed cluster comes to rest",
                )
            await trio.sleep(_LOOK_S)
        if self._oracle is not None:
            self._oracle.at_rest()
        if self._setup.record:
            for log, messages in settling.logs():
                self._scribe.note_final(log, messages)

    @asynccontextmanager
    async def _operator(self) -> AsyncIterator[Client]:
        """A client for what an operator does."""
        environment = self._environments.get(_OPERATOR) or await self.environment(_OPERATOR)
        async with connect(self._simulated.addresses, environment=environment) as client:
            yield client

    def check(self) -> None:
        """Check the notes in `history` against the guarantees of the cluster to its clients.

        Raises:
          HistoryViolation: if a guarantee is broken; the text has the events in conflict.
          HistoryError: if the notes contradict themselves, because the test noted them wrongly.
        """
        faults = check(self.history)
        if faults:
            raise HistoryViolation(faults[0], self.history)

    # --- for `running` -------------------------------------------------------------------

    def observe(self) -> None:
        """Observe the world's events from now on."""
        if self._oracle is not None:
            self._world.observers.append(self._oracle)
        self._world.observers += [self._see, self._act]

    def ends(self) -> None:
        """Ask no more for what always holds: the end of the test ends all processes."""
        self._always.clear()

    def _see(self, event: Event) -> None:
        if event.what == "exit":
            self._ended(event.host)
        for holds, what in self._always:
            try:
                is_kept = holds()
                if inspect.iscoroutine(is_kept):
                    is_kept.close()
                    raise MisuseError(f"{what}: what always holds can't be async")
            except Exception as error:  # kept as the verdict
                self._world.fail(error)
            else:
                if not is_kept:
                    self._world.fail(Violation("always", f"{what}, at {event}", (event,)))

    def _act(self, event: Event) -> None:
        try:
            self.came(event)
        except Exception as error:  # kept as the verdict: it isn't an error of the step
            self._world.fail(error)

    def _ended(self, host: str) -> None:
        """Handle the end of a process that ended by itself."""
        node = self._simulated.nodes[host]
        assert node.life is not None
        error, program = node.life.error, self.programs.get(host)
        if program is None:
            if not node.stop.is_set() and host not in self._immortal:
                self._simulated.boot_after(host, RESTART_S)
            return
        if node.stop.is_set() and error is None:
            return
        program.ended(error)
        if error is None:
            return
        restart_s = program.next_restart_s(error)
        if restart_s is not None:
            self._simulated.boot_after(host, restart_s)
        else:
            error.add_note(f"raised by program {host!r}, life {node.life.number}")
            self._world.fail(error)

    def stuck(self) -> StuckError:
        """The error for a test that exceeds its time."""
        lines = [f"the test has not ended after {self._setup.timeout_s:g} s of virtual time"]
        waiting = who_waits()
        lines += ["who waits:", *(f"  {line}" for line in waiting)] if waiting else []
        down = [name for name in self.hosts if not self.is_up(name)]
        down = [one for one in down if one not in self.programs or not self.programs[one].is_done]
        if down:
            lines.append(f"down: {', '.join(down)}")
        for program in self.programs.values():
            if program.errors:
                lines.append(
                    f"{program.name} ended with an error {len(program.errors)} times, last with "
                    f"{alone(program.errors[-1])!r}"
                )
        lines.append("if it only takes longer, give it more time with timeout_s")
        return StuckError("\n".join(lines), f"the test ends within {self._setup.timeout_s:g} s")
