"""Runs tests with a cluster, in virtual time.

There are two ways.  With `run`, `simulated` and `runner` the simulator drives Trio's event loop, so
a seed gives the same run each time.  `cluster` also works in a loop that runs already, if its clock
jumps; there, other tasks may do things that don't depend on the seed.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from contextvars import ContextVar
from functools import partial
from math import inf
from typing import Any, TypeVar, Unpack

import attrs
import trio

from octopi.properties import checked_by
from octopi.simulation.cluster import ClusterOptions, SimulatedCluster
from octopi.simulation.kernel import driver, sandbox
from octopi.simulation.kernel.world import Violation, World
from octopi.simulation.network.network import Network
from octopi.simulation.run import TIERS, LeftoverTasksError, running_cluster
from octopi.testing.cluster import Cluster
from octopi.testing.errors import MisuseError, StuckError, alone, is_verdict
from octopi.testing.mock_time import keeping_time, mock_clock
from octopi.testing.property_log import PropertyLog
from octopi.testing.property_sources import Place
from octopi.testing.replaying import RunOfTest, chosen_seed, pinned_seed
from octopi.testing.run_limits import RunLimit, shrink_s_of
from octopi.testing.setup import Options, Setup
from octopi.testing.shrunk_runs import shrunk
from octopi.testing.simulated_tcp import tcp_of_programs
from octopi.testing.stuck_tasks import is_of_test
from octopi.testing.unexpected_log_errors import sifted

T = TypeVar("T")

_RUN: ContextVar[RunOfTest | None] = ContextVar("_RUN", default=None)
"""The run whose event loop the simulator drives."""


def run(
    test: Callable[[Cluster], Awaitable[T]], *, seed: int | None = None, **options: Unpack[Options]
) -> T:
    """Run *test* with a cluster of its own in virtual time, and return its result.

    The same seed gives the same run.  If the variable OCTOPI_TEST_SEED is set, it overrides *seed*;
    without either the seed is 1.  For the *options* see `octopi.testing.Setup`.

    Raises:
      StuckError: if it takes more than ``timeout_s`` of virtual time.
      Violation: if the cluster broke one of its invariants, which is a fault of Octopi.
      octopi.simulation.kernel.sandbox.OutsideReachedError: if code accesses the real world.
      BaseException: any exception of *test* or of one of its programs.
    """
    __tracebackhide__ = True
    require_async(test)

    return _run(test, chosen_seed(seed), Setup(**options), PropertyLog())


def _run(
    test: Callable[[Cluster], Awaitable[T]], seed: int, setup: Setup, properties: PropertyLog
) -> T:
    __tracebackhide__ = True
    name = getattr(test, "__qualname__", "the test")
    here = RunOfTest(World(seed), name, properties=properties)

    def again(here: RunOfTest, brokers: int | None) -> T:
        made = setup if brokers is None else attrs.evolve(setup, brokers=brokers)
        return attempt(test, made, here)

    shrink_s = shrink_s_of(setup.shrink_s)
    try:
        return attempt(test, setup, here)
    except BaseException as error:  # raised below, where it doesn't become its own context
        problem = error
    if shrink_s and here.faults.struck and is_verdict(alone(problem)):
        raise trimmed(shrunk(here, problem, again, shrink_s))
    raise trimmed(here.told(problem))


def attempt(test: Callable[[Cluster], Awaitable[T]], setup: Setup, here: RunOfTest) -> T:
    """Run *test* once, in the world of *here*."""
    __tracebackhide__ = True

    async def main() -> T:
        async with _opened(here, setup, can_pause=driver.private_problem() is None) as opened:
            return await test(opened)

    return _turn(here, main)


def simulated(
    *,
    seed: int | None = None,
    seeds: int = 1,
    reaches: Collection[Place] = (),
    **options: Unpack[Options],
) -> Callable[[Callable[..., Awaitable[object]]], Callable[..., None]]:
    """Make a plain function, which any test runner can call, from an async test whose parameter
    ``cluster`` is a cluster::

        @octopi.testing.simulated(seeds=100)
        async def test_nothing_is_lost(cluster: octopi.testing.Cluster) -> None: ...

    The test is run with *seeds* seeds, from *seed* (or 1) on, until it fails.  If OCTOPI_TEST_SEED
    is set, it is run with that seed only; see also `octopi.testing.run_limits`.  Other parameters
    are fixtures of pytest, the same for all seeds.

    It also fails if a property `octopi.properties.sometimes` was asked and held with none of the
    seeds, or if something of *reaches* happened with none: names of `sometimes` and `reachable`, or
    modules, classes and functions whose source states some.

    Raises:
      MisuseError: if the test isn't async, or has no such parameter.
    """
    if seeds < 1:
        raise MisuseError(f"seeds is {seeds}; it has to be at least 1")

    def call(test: Callable[[Cluster], Awaitable[object]]) -> None:
        __tracebackhide__ = True
        pinned = pinned_seed()
        first = 1 if seed is None else seed
        setup, properties = Setup(**options), PropertyLog(reaches, test)
        limit = RunLimit.of(seeds) if pinned is None else RunLimit(1, inf)
        chosen: list[int] = []
        while not limit.is_over(len(chosen)):
            chosen.append(first + len(chosen) if pinned is None else pinned)
            _run(test, chosen[-1], setup, properties)
        report = properties.report(len(chosen))
        if report:
            sys.stdout.write(f"{report}\n")
        missing = properties.missing(seeds_words(chosen)) if pinned is None else None
        if missing is not None:
            raise missing

    return lambda test: plain_test(test, call)


def seeds_words(seeds: Sequence[int]) -> str:
    """*seeds*, one or a range, in words."""
    first, last = seeds[0], seeds[-1]
    return f"the seed {first}" if first == last else f"the seeds {first} to {last}"


def plain_test(
    test: Callable[..., Awaitable[object]],
    call: Callable[[Callable[[Cluster], Awaitable[object]]], None],
) -> Callable[..., None]:
    """A plain function with the parameters of *test* except ``cluster``, which has *call* run it.

    Raises:
      MisuseError: if the test isn't async, or has no such parameter.
    """
    require_async(test)
    signature = inspect.signature(test)
    if "cluster" not in signature.parameters:
        raise MisuseError(f"{test.__qualname__} needs a parameter that is called cluster")

    kept = [one for one in signature.parameters.values() if one.name != "cluster"]
    public = signature.replace(parameters=kept, return_annotation=None)

    @functools.wraps(test)
    def plain(*args: Any, **fixtures: Any) -> None:  # noqa: ANN401
        __tracebackhide__ = True
        given = public.bind(*args, **fixtures).arguments  # Hypothesis gives some by position

        async def with_cluster(made: Cluster) -> None:
            await test(**given, cluster=made)

        functools.update_wrapper(with_cluster, test)
        call(with_cluster)

    plain.__signature__ = public  # type: ignore[attr-defined]
    return plain


def runner(*, seed: int | None = None) -> Callable[..., Any]:
    """A replacement for `trio.run`, for tests of pytest-trio with all its fixtures, so that a seed
    gives the same run each time::

        @pytest.mark.trio(run=octopi.testing.runner(seed=7))
        async def test_nothing_is_lost() -> None:
            async with octopi.testing.cluster() as cluster: ...
    """

    def run_in_virtual_time(
        main: Callable[..., Awaitable[T]],
        *args: object,
        clock: trio.abc.Clock | None = None,
        instruments: object = (),
        **_: object,
    ) -> T:
        __tracebackhide__ = True
        if clock is not None or instruments:
            raise MisuseError("this runner has a clock of its own: leave the other one away")
        return _simulate(lambda: main(*args), chosen_seed(seed), "the test")

    return run_in_virtual_time


@asynccontextmanager
async def cluster(*, seed: int | None = None, **options: Unpack[Options]) -> AsyncIterator[Cluster]:
    """A cluster, up and serving, for a block::

        async with octopi.testing.cluster(brokers=3, seed=7) as cluster:
            async with cluster.client() as client: ...

    In a loop of `runner` the seed is that of the loop.  Another loop needs a
    `trio.testing.MockClock` that jumps by itself.  There *seed* (or OCTOPI_TEST_SEED, or 1) decides
    what the network, the disks and the tasks do, but hosts can't be paused, and the seed doesn't
    control other tasks of the loop.  For the *options* see `octopi.testing.Setup`.

    Raises:
      MisuseError: if the loop has a real clock, or a cluster already.
      And what `run` raises.
    """
    setup = Setup(**options)
    current = _RUN.get()
    if current is not None:
        if seed is not None:
            raise MisuseError("the seed is that of the run: give it to runner, run or simulated")
        can_pause = driver.private_problem() is None
        async with _opened(current, setup, can_pause=can_pause) as made:
            yield made
        return
    clock = mock_clock()
    world = World(chosen_seed(seed))
    here = RunOfTest(world, "the test")
    problem: BaseException | None = None
    try:
        with (
            keeping_time(clock, world),
            _in_order(world),
            world.scope,
            sandbox.armed(world, strict=False) as guard,
        ):
            async with _opened(here, setup, can_pause=False) as made:
                guard.is_watching = True
                yield made
    except BaseException as error:  # raised below, unless there is a better reason
        problem = error
    if world.failure is not None:
        problem = world.failure
    if problem is not None:
        raise here.told(problem)


def _simulate(main: Callable[[], Awaitable[T]], seed: int, name: str) -> T:
    __tracebackhide__ = True  # pytest shows the test instead
    here = RunOfTest(World(seed), name)
    try:
        return _turn(here, main)
    except BaseException as error:  # raised below, where it doesn't become its own context
        problem = error
    raise trimmed(here.told(problem))


def _turn(here: RunOfTest, main: Callable[[], Awaitable[T]]) -> T:
    """Have the simulator run *main* in the world of *here*."""
    __tracebackhide__ = True
    if trio.lowlevel.in_trio_run():
        raise MisuseError(
            "a Trio loop runs here already: use octopi.testing.cluster in it, or make the test a "
            "plain function"
        )

    async def known() -> T:
        _RUN.set(here)
        return await main()

    return driver.run(here.world, known, here.world.random("schedule"), strict=False)


def trimmed(error: BaseException) -> BaseException:
    """*error* without the part of its traceback between the test runner and the test itself."""
    trace = error.__traceback__
    while trace is not None and not is_of_test(trace.tb_frame):
        trace = trace.tb_next
    if trace is None and not isinstance(error, StuckError | Violation | MisuseError):
        return error  # no part of it is in the test
    return error.with_traceback(trace)


@asynccontextmanager
async def _opened(here: RunOfTest, setup: Setup, *, can_pause: bool) -> AsyncIterator[Cluster]:
    """A cluster in the world of *here*."""
    if here.has_cluster:
        raise MisuseError("there is a cluster in this loop already: leave its block first")
    here.has_cluster = True
    world = here.world
    observers = list(world.observers)
    network = Network(
        world,
        TIERS["websocket" if setup.websocket else "message"],
        latency_s=setup.latency_s,
        jitter_s=setup.jitter_s,
    )
    nodes = ClusterOptions(
        brokers=setup.brokers,
        registers=setup.registers,
        founders=setup.brokers if setup.ring else 0,
        partitions=setup.partitions,
        replicas=setup.replicas,
    )
    made: Cluster

    @contextmanager
    def around(simulated: SimulatedCluster) -> Iterator[None]:
        nonlocal made
        made = Cluster(simulated, setup, here.faults, can_pause=can_pause)
        here.watch(simulated)
        made.observe()
        servers = frozenset(node.name for node in simulated.servers)
        check = partial(here.properties.check, world)
        with (
            sifted(world, servers, here.on_line),
            _limited(world, setup.timeout_s, made),
            tcp_of_programs(network),
            checked_by(check),
        ):
            yield

    try:
        async with running_cluster(world, network, nodes, around=around) as simulated:
            try:
                yield made
                if setup.record:
                    made.check()
                made.check_planned()
            finally:
                here.ends()
                made.ends()
                simulated.kill_all()
    except LeftoverTasksError as error:
        raise MisuseError(
            f"tasks of {', '.join(error.lives)} don't end although their process did: "
            "they are shielded from being cancelled"
        ) from None
    finally:
        here.has_cluster = False
        world.observers[:] = observers


@contextmanager
def _limited(world: World, timeout_s: float, made: Cluster) -> Iterator[None]:
    """Give up the run if the block takes too long."""
    is_over = False

    def give_up() -> None:
        if not is_over:
            world.fail(made.stuck())

    world.after(timeout_s, give_up)
    try:
        yield
    finally:
        is_over = True


def _in_order(world: World) -> AbstractContextManager[None]:
    """Have tasks that could run at the same time run in an order that the seed decides."""
    if driver.private_problem() is not None:
        return nullcontext()
    return driver.deterministic(world.random("schedule"))


def require_async(test: Callable[..., object]) -> None:
    """Check that *test* is an async function."""
    if not inspect.iscoroutinefunction(inspect.unwrap(test)):
        raise MisuseError(f"{getattr(test, '__qualname__', test)!r} has to be an async function")
