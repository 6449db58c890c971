"""Small worlds for tests: some hosts on a network, and what happens there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import TypeVar

import attrs
import trio

from octopi.environment import Environment, Link
from octopi.simulation.kernel import driver
from octopi.simulation.kernel.host import ProcessLife, SimulatedHost
from octopi.simulation.kernel.world import World
from octopi.simulation.network.network import Network, Tier

T = TypeVar("T")

PATH = "/v1/client"
PORT = 7000


@attrs.define
class Small:
    """A world with a network and the hosts ``here`` and ``there``, both booted."""

    world: World
    network: Network
    nursery: trio.Nursery
    hosts: dict[str, SimulatedHost] = attrs.Factory(dict)
    environments: dict[str, Environment] = attrs.Factory(dict)
    """Of each host's latest life."""
    tasks: dict[str, trio.Nursery] = attrs.Factory(dict)
    """The nursery of each host's latest life."""
    _contexts: dict[str, Context] = attrs.Factory(dict)

    @property
    def here(self) -> Environment:
        return self.environments["here"]

    @property
    def there(self) -> Environment:
        return self.environments["there"]

    def add(self, *names: str) -> None:
        for name in names:
            self.hosts[name] = SimulatedHost(self.world, self.network, name)

    async def boot(self, name: str) -> ProcessLife:
        """Boot the host with a program that only waits."""

        async def program(environment: Environment) -> None:
            async with trio.open_nursery() as tasks:
                self.environments[name], self.tasks[name] = environment, tasks
                self._contexts[name] = copy_context()
                booted.set()
                await trio.sleep_forever()

        booted = trio.Event()
        life = self.hosts[name].boot(program, self.nursery)
        await booted.wait()
        return life

    def start(self, name: str, task: Callable[[], Awaitable[object]]) -> None:
        """Run *task* as a part of the host's program."""
        self._contexts[name].run(self.tasks[name].start_soon, task)

    async def serve(
        self,
        handler: Callable[[Link], Awaitable[None]],
        *,
        name: str = "there",
        port: int = PORT,
    ) -> str:
        """Listen on the host; returns the url."""

        async def listen(*, task_status: trio.TaskStatus[str]) -> None:
            await self.environments[name].net.listen(
                f"{name}:{port}",
                handler,
                paths=frozenset({PATH}),
                handler_nursery=self.tasks[name],
                task_status=task_status,
            )

        # Started by a task of the host, so that what it accepts belongs to the host.
        urls: list[str] = []
        listening = trio.Event()

        async def start() -> None:
            urls.append(await self.tasks[name].start(listen))
            listening.set()

        self.start(name, start)
        await listening.wait()
        return urls[0]

    async def pair(self) -> tuple[Link, Link]:
        """A link from ``here`` to ``there``: the opener's end and the other one."""
        accepted, waiting = trio.open_memory_channel[Link](1)

        async def hold(link: Link) -> None:
            accepted.send_nowait(link)
            await trio.sleep_forever()

        url = await self.serve(hold, port=0)
        return await self.here.net.connect(url, PATH), await waiting.receive()


def run_small(
    tier: Tier,
    main: Callable[[Small], Awaitable[T]],
    *,
    seed: int = 1,
    more_hosts: tuple[str, ...] = (),
    within_s: float = 1000.0,
) -> tuple[T, World]:
    """Run *main*; returns its result and the world."""
    world = World(seed)
    network = Network(world, tier)

    async def scenario() -> T:
        with trio.fail_after(within_s):
            async with trio.open_nursery() as nursery:
                small = Small(world, network, nursery)
                small.add("here", "there", *more_hosts)
                for name in list(small.hosts):
                    await small.boot(name)
                result = await main(small)
                nursery.cancel_scope.cancel()
                return result
        raise AssertionError

    return driver.run(world, scenario, world.random("schedule")), world
