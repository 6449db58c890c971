"""How a client that doesn't reach all brokers has its messages passed on to leaders.

It sends each produce request to a broker among the servers that it was given.  That one passes it
on to the leader (`forward` of `octopi.wire.producers.Produce`).  So redirects are not followed: a
broker that is named there may be out of reach.  If a request fails, the next server is tried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from octopi.clients.connections import Connections
from octopi.clients.leader_check import LeaderVerdict, judge_leader
from octopi.clients.leader_lookup import LeaderLookup, generation_of, place_of
from octopi.clients.leader_route import LeaderCandidate, LeaderRoute, check_generation
from octopi.errors import (
    ConnectionLostError,
    InvalidOptionError,
    NotReadyError,
    OctopiError,
    UnreachableError,
)
from octopi.identifiers import PartitionId, TopicName
from octopi.retry import may_pass
from octopi.transport.connection import Connection
from octopi.wire.messages import PartitionInfo, TopicInfo, Welcome

_VERSION_MIN: Final = 2
"""The first version of the protocol in which brokers pass produces on."""


class ForwardedRoute(LeaderRoute):
    """The way to the leader of one log through a broker of *servers*."""

    def __init__(
        self,
        lookup: LeaderLookup,
        topic: TopicName,
        partition: PartitionId,
        on_described: Callable[[TopicInfo], None],
        servers: Sequence[str],
        connections: Connections,
    ) -> None:
        super().__init__(lookup, topic, partition, on_described, follows_generations=True)
        self._servers = deque(servers)
        self._connections = connections

    def redirected(self, error: OctopiError | None) -> bool:
        """False: redirects are not followed.  After an error another server is tried first."""
        if error is not None:
            self._servers.rotate(-1)
        return False

    def judge(self, address: str, epoch: int, place: PartitionInfo) -> LeaderVerdict:
        """See `LeaderRoute.judge`.  The broker that passes messages on finds out by itself that a
        leader is gone."""
        return judge_leader(place.leader_address, place.epoch, place)

    async def find(self, *, create: bool = False, generation: int = 1) -> LeaderCandidate:
        """A broker that passes messages on, in the leader's epoch.

        Raises:
          NotReadyError: if what is known of the topic is older than *generation*.
          InvalidOptionError: if no server is a broker that does.
          OctopiError: if none can be reached now, or the topic can't be looked up.
        """
        info = await self._described(create=create)
        check_generation(info, generation)
        place = place_of(info, self._partition)
        failed: OctopiError | None = None
        for _ in range(len(self._servers)):
            address = self._servers[0]
            try:
                connection = await self._connections.get(address)
            except OctopiError as error:
                if not may_pass(error):
                    raise
                failed = error
            else:
                if _passes_on(connection):
                    return LeaderCandidate(address, place.epoch, generation_of(info))
            self._servers.rotate(-1)
        if failed is not None:
            raise failed
        raise InvalidOptionError(
            "on_wrong_node is 'forward', and none of the servers is a broker that passes messages "
            f"on to leaders: name one ({', '.join(self._servers)} are registers, or of an earlier "
            "version)"
        )

    async def _described(self, *, create: bool) -> TopicInfo:
        """The topic; the last answer, if the register can't be asked now."""
        try:
            info = await self._lookup.topic(
                self._topic, create=create, other_than=self._info, follows_generations=True
            )
        except (UnreachableError, ConnectionLostError, NotReadyError):
            if self._info is None:
                raise
            return self._info
        self._info = info
        self._on_described(info)
        return info


def _passes_on(connection: Connection) -> bool:
    greeting = connection.greeting
    is_register = isinstance(greeting, Welcome) and greeting.role == "register"
    return not is_register and connection.version >= _VERSION_MIN
