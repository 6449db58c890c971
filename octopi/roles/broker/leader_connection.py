"""The follower's side of replication: a stream to the leader, opened again whenever it ends."""

from __future__ import annotations

from collections.abc import Callable

import trio

from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    OctopiError,
    ProtocolError,
    UnreachableError,
)
from octopi.identifiers import BrokerId, TopicId
from octopi.limits import BACKOFF_S_MAX, MEMBERSHIP_HEARTBEAT_TIMEOUT_S
from octopi.logger import get_logger
from octopi.retry import backoff_s
from octopi.roles.broker.log_fields import log_fields
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.tracing import steps
from octopi.transport.connection import Connection
from octopi.transport.handshake import NodeCredentials, open_node_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import FOLLOW

_log = get_logger(__name__)


class LeaderConnection:
    """Keeps one replica following one leader; `run` is a task of the broker's nursery."""

    def __init__(
        self,
        environment: Environment,
        replica: ReplicaDriver,
        leader: BrokerId,
        address_of: Callable[[BrokerId], str],
        agent: str,
        credentials: NodeCredentials,
    ) -> None:
        self.leader = leader
        self.scope = trio.CancelScope()
        self._environment = environment
        self._replica = replica
        self._address_of = address_of
        self._agent = agent
        self._credentials = credentials
        self._connection: Connection | None = None
        self._session = trio.CancelScope()

    def reopen(self) -> None:
        """End this session; another one begins after the usual pause."""
        self._session.cancel()

    def post(self, message: m.Follow | m.Acknowledge) -> None:
        """Send *message* on the stream.  If the stream is down, *message* is lost, and the next
        session makes up for it."""
        connection = self._connection
        if connection is not None and connection.end_reason is None:
            connection.post(message)

    async def run(self) -> None:
        """Follow the leader until cancelled."""
        clock, randomness = self._environment.clock, self._environment.randomness
        failures = 0
        with self.scope:
            while True:
                why: BaseException | None = None
                began = clock.now()
                try:
                    await self._follow_once()
                except* OctopiError as group:
                    why = group.exceptions[0]
                if clock.now() - began > BACKOFF_S_MAX:
                    failures = 0
                failures += 1
                if why is not None and failures in {1, 10}:
                    _log.info(
                        "stream_lost",
                        partition=self._replica.partition,
                        leader=self.leader,
                        why=str(why),
                    )
                await clock.sleep_until(clock.now() + backoff_s(randomness, failures))

    async def _follow_once(self) -> None:
        """Run one stream, from its opening to its end.

        Raises:
          OctopiError: when the stream ends.
        """
        address = self._address_of(self.leader)
        if not address:
            raise UnreachableError(f"the address of broker {self.leader} is not known yet")
        connection = await open_node_connection(
            self._environment, address, FOLLOW, self._agent, self._credentials
        )
        self._connection = connection
        agreed = trio.Event()
        async with trio.open_nursery() as nursery:
            self._session = nursery.cancel_scope
            await nursery.start(self._run_connection, connection, nursery, agreed)
            if (trace := self._environment.trace) is not None:
                partition = self._replica.partition
                trace(steps.J7StreamOpened(partition=partition, leader=self.leader))
            self._replica.submit(self._replica.machine.stream_opened)
            with self._environment.clock.timeout(MEMBERSHIP_HEARTBEAT_TIMEOUT_S) as slow:
                await agreed.wait()
            if slow.cancelled_caught:
                nursery.cancel_scope.cancel()
        if slow.cancelled_caught:
            raise UnreachableError(f"broker {self.leader} does not answer as the leader")
        raise ConnectionLostError(connection.end_reason or "the stream ended")

    async def _run_connection(
        self,
        connection: Connection,
        nursery: trio.Nursery,
        agreed: trio.Event,
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        def take(message: object) -> None:
            replica = self._replica
            match message:
                case m.Followed():
                    log = replica.logs.get(TopicId(message.topic_id))
                    if (trace := self._environment.trace) is not None and log is not None:
                        trace(
                            steps.J10Parted(
                                *log_fields(log, message.epoch),
                                attempt=message.attempt,
                                keep=message.keep,
                                begin=message.begin,
                                leader=self.leader,
                            )
                        )
                    agreed.set()
                    replica.submit(lambda: replica.machine.followed(message))
                case m.Replicate():
                    replica.replicate(message)
                case m.FollowRefused(reason=reason):
                    raise ProtocolError(f"the leader refuses: {reason}")
                case _:
                    raise ProtocolError(f"{type(message).__name__} is no message of a leader")

        try:
            await connection.run(take, task_status=task_status)
        finally:
            self._connection = None
            nursery.cancel_scope.cancel()
