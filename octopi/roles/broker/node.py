"""The broker's shell: data directory, logs, server, membership.

Tasks of the broker's nursery: the server (and below it one nursery per connection), the
flusher, retention, and the membership.
"""

from __future__ import annotations

import attrs
import trio

from octopi import steps
from octopi.environment import Environment
from octopi.errors import StorageError
from octopi.limits import CATCH_UP_SLOWDOWN_MAX, RETENTION_CHECK_INTERVAL_S
from octopi.logger import get_logger
from octopi.roles.broker.broker_log import FlushOptions
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.follow_session import FollowSession
from octopi.roles.broker.logs import Logs
from octopi.roles.broker.membership import Identity, Membership
from octopi.roles.broker.sessions import ClientSession
from octopi.storage import checkpoint
from octopi.storage.directories import lock_directory, make_durable_directory
from octopi.transport.server import serve
from octopi.wire.endpoints import CLIENT, FOLLOW

_log = get_logger(__name__)


@attrs.frozen
class BrokerOptions:
    """How a broker runs."""

    listen: str
    """``host:port``; port 0 picks a free one."""
    data_directory: str
    registers: list[str]
    """Addresses of the register (``ws://host:port``)."""
    advertise: str = ""
    """The address that clients are sent to; empty: the one that was taken."""
    broker: int | None = None
    """The id to have; None: what the data directory says, else one from the register."""
    flush: FlushOptions = attrs.field(factory=FlushOptions)
    catch_up_slowdown_max: float = CATCH_UP_SLOWDOWN_MAX
    """The share of their rate that producers may lose while followers catch up; 1: all."""
    retention_check_interval_s: float = RETENTION_CHECK_INTERVAL_S
    agent: str = "octopi-node"


async def run_broker(
    environment: Environment,
    options: BrokerOptions,
    *,
    stop: trio.Event,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker until *stop* is set; ``started`` gives its url once it has joined.

    Raises:
      DirectoryInUseError: if another process has the data directory.
      StorageError: if the directory can't be read or written.
      UnreachableError: if the address can't be had.
      RefusedError: if the register will not have this broker.
    """
    disk, data_directory = environment.disk, options.data_directory
    await make_durable_directory(disk, data_directory)
    lock = lock_directory(disk, data_directory)
    try:
        identity, lost_power = await _begin_life(environment, options)
        flusher = Flusher(environment.clock)
        async with trio.open_nursery() as nursery:
            logs = Logs(
                environment,
                data_directory,
                flusher,
                nursery,
                options.flush,
                options.agent,
                lost_power=lost_power,
                catch_up_slowdown_max=options.catch_up_slowdown_max,
            )
            await logs.open_all()
            _log.info("logs opened", logs=len(logs), incarnation=identity.incarnation)
            nursery.start_soon(flusher.run)
            nursery.start_soon(logs.keep_time)
            nursery.start_soon(_retain, environment, logs, options.retention_check_interval_s)
            await _serve(environment, options, logs, identity, stop, task_status)
            await logs.close()
            nursery.cancel_scope.cancel()
    finally:
        lock.release()


async def _serve(
    environment: Environment,
    options: BrokerOptions,
    logs: Logs,
    identity: Identity,
    stop: trio.Event,
    task_status: trio.TaskStatus[str],
) -> None:
    """Serve and stay joined until *stop*."""

    async def remember(changed: Identity) -> None:
        await _store_identity(environment, options.data_directory, changed)

    async with trio.open_nursery() as nursery:
        served = trio.Event()

        async def serve_clients(*, task_status: trio.TaskStatus[str]) -> None:
            await serve(
                environment,
                options.listen,
                role="broker",
                agent=options.agent,
                sessions={
                    CLIENT: lambda connection, tasks: ClientSession(
                        environment, logs, connection, tasks
                    ),
                    FOLLOW: lambda connection, tasks: FollowSession(
                        environment, logs, connection, tasks
                    ),
                },
                stop=stop,
                task_status=task_status,
            )
            served.set()

        url = await nursery.start(serve_clients)
        address = options.advertise or url
        membership = Membership(
            environment,
            options.registers,
            address,
            options.agent,
            identity,
            logs,
            remember,
        )
        logs.membership = membership
        nursery.start_soon(_join, nursery, membership, task_status, address)
        await served.wait()
        nursery.cancel_scope.cancel()


async def _join(
    nursery: trio.Nursery,
    membership: Membership,
    task_status: trio.TaskStatus[str],
    address: str,
) -> None:
    await nursery.start(membership.run)
    task_status.started(address)


async def _begin_life(environment: Environment, options: BrokerOptions) -> tuple[Identity, bool]:
    """Read who this broker is and count up its incarnation, durably.  Say, too, whether the
    machine may have lost what was not flushed since the last life."""
    stored = checkpoint.load(environment.disk, f"{options.data_directory}/identity") or {}
    broker = stored.get("broker")
    if options.broker is not None:
        if broker is not None and broker != options.broker:
            raise StorageError(
                f"{options.data_directory} belongs to broker {broker}, not to {options.broker}; "
                "leave the id out, or choose another data directory"
            )
        broker = options.broker
    page_cache = environment.disk.page_cache_id()
    identity = Identity(stored.get("cluster", ""), broker, int(stored.get("incarnation", 0)) + 1)
    await _store_identity(environment, options.data_directory, identity)
    return identity, bool(stored) and stored.get("page_cache") != page_cache


async def _store_identity(
    environment: Environment, data_directory: str, identity: Identity
) -> None:
    known = {**attrs.asdict(identity), "page_cache": environment.disk.page_cache_id()}
    if (trace := environment.trace) is not None:
        trace(steps.J1_IDENTIFYING, **attrs.asdict(identity))
    await checkpoint.store(environment.disk, f"{data_directory}/identity", known)
    if trace is not None:
        trace(steps.J1_IDENTIFIED, **attrs.asdict(identity))


async def _retain(environment: Environment, logs: Logs, interval_s: float) -> None:
    """Apply every log's retention now and then."""
    clock = environment.clock
    while True:
        await clock.sleep_until(clock.now() + interval_s)
        for log in logs:
            log.apply_retention()
            await trio.lowlevel.checkpoint()
