"""Passes produce requests on to the leader, for clients that reach this broker and not the leader
(`Produce.forward`); and takes those that other brokers pass on.

There is one connection to each leader, for nothing else.  Requests go out on it in the order in
which they came, so a producer's sequences stay in order.  The leader passes nothing on, so a
request takes one step at most.  One owner decides as ever: the leader, by the records' own producer
ids and sequences.

The broker that took the request from the client has checked the client's token, and answers for it:
the leader trusts it as a node of the cluster, at an endpoint that is for nodes alone.  A token with
a bound of stored bytes is not passed on, because leaders count those for the tokens of their own
connections.

If the connection to the leader ends before the answer, nobody here knows whether the records are
stored: the client is told so (`octopi.errors.Status.ANSWER_LOST`), and sends them again with the
same sequences.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Final

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    NotLeaderError,
    OctopiError,
    ProtocolError,
    RefusedError,
    Status,
)
from octopi.identifiers import PartitionId
from octopi.limits import (
    FORWARD_TIMEOUT_S,
    FORWARDS_IN_FLIGHT_BYTES_MAX,
    FORWARDS_IN_FLIGHT_MAX,
)
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.roles.broker.produced import answer_to_produce, append_produced
from octopi.roles.broker.redirects import redirect
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.ring.peers import RingPeers
from octopi.timers import TimerQueue
from octopi.transport.connection import Connection
from octopi.transport.failures import failure, failure_of
from octopi.transport.handshake import NodeCredentials
from octopi.transport.services import Service
from octopi.wire import messages as m
from octopi.wire.codec import EncodedAnswer, decode, encode
from octopi.wire.endpoints import PEER

FORWARDED: Final = frozenset({m.Produce})
"""The requests that are passed on."""


class ForwardedProduces:
    """Those of one broker that are on their way to leaders."""

    def __init__(
        self,
        environment: Environment,
        manager: ReplicaManager,
        nursery: trio.Nursery,
        agent: str,
        credentials: NodeCredentials,
    ) -> None:
        self._manager = manager
        self._clock = environment.clock
        self._timers = TimerQueue(environment.clock, nursery)
        self._sent: deque[_PassedOn] = deque()
        """In the order in which they were passed on; answered ones may be among them."""
        self._is_timed = False
        """Whether a timer is set for the first of them."""
        self._peers = RingPeers(
            environment, nursery, agent, credentials, lambda address, said: None, PEER
        )
        self._count = 0
        self._bytes = 0
        if environment.watch is not None:
            environment.watch(self)

    def sizes(self) -> dict[str, int]:
        """See `octopi.environment.Sized`."""
        return {"forwarded": self._count, "forwarded bytes": self._bytes}

    def leader_elsewhere(self, partition: PartitionId) -> str:
        """The address of the broker that leads *partition*; empty: this one does, or nobody is
        known to."""
        return redirect(self._manager, "", partition).address

    def pass_on(self, connection: Connection, message: m.Produce, address: str) -> None:
        """Have the leader at *address* answer *message*, which came on *connection*.

        Raises:
          RefusedError: TOO_MANY, if too many are under way; FORBIDDEN, if the client's token has a
              bound of stored bytes.
        """
        entry = connection.entry
        if entry is not None and entry.identity.quota.bytes is not None:
            raise RefusedError(
                "this token has a bound of stored bytes, so its messages are not passed on: "
                f"produce at the leader, {address}",
                Status.FORBIDDEN,
            )
        size_bytes = len(message.records)
        is_full = self._count >= FORWARDS_IN_FLIGHT_MAX or (
            self._count > 0 and self._bytes + size_bytes > FORWARDS_IN_FLIGHT_BYTES_MAX
        )
        if is_full:
            raise RefusedError(
                f"this broker has passed on {self._count} requests that are not answered yet",
                Status.TOO_MANY,
            )
        self._count += 1
        self._bytes += size_bytes
        until = self._clock.now() + FORWARD_TIMEOUT_S
        one = _PassedOn(self, connection, message.request, address, size_bytes, until)
        self._sent.append(one)
        self._set_timer()
        data = encode(attrs.evolve(message, forward=False))
        self._peers.ask(address, m.ForwardProduce(1, data), one.take)

    def answered(self, size_bytes: int) -> None:
        """A request of that size is answered."""
        self._count -= 1
        self._bytes -= size_bytes
        while self._sent and self._sent[0].is_answered:
            self._sent.popleft()

    def _set_timer(self) -> None:
        if self._sent and not self._is_timed:
            self._is_timed = True
            self._timers.set(self._sent[0].until, self._expire)

    def _expire(self, at: float) -> None:
        self._is_timed = False
        for one in [one for one in self._sent if one.until <= at]:
            one.take(ConnectionLostError(f"no answer within {FORWARD_TIMEOUT_S:g} s"))
        self._set_timer()


@attrs.define(eq=False)
class _PassedOn:
    """One request that was passed on."""

    _forwarded: ForwardedProduces
    _connection: Connection
    _request: int
    _address: str
    _size_bytes: int
    until: float
    """When the client is told that there is no answer, by the broker's clock."""
    is_answered: bool = False

    def take(self, answer: object) -> None:
        """Take what the leader says, or that the connection to it has ended."""
        if self.is_answered:
            return
        self.is_answered = True
        self._forwarded.answered(self._size_bytes)
        with contextlib.suppress(ConnectionLostError):  # the client asks again elsewhere
            self._connection.post(self._told(answer))

    def _told(self, answer: object) -> object:
        match answer:
            case m.Answer(message=data):
                return EncodedAnswer(self._request, data)
            case m.Failure(status=status, reason=reason):
                # It has not looked at the request.
                told = Status.TOO_MANY if status == Status.TOO_MANY else Status.NOT_READY
                why = f"the leader, {self._address}, does not take it from a broker: {reason}"
                return failure(self._request, told, why)
        why = (
            f"this broker passed it on to the leader, {self._address}, and has no answer: {answer}"
        )
        return failure(self._request, Status.ANSWER_LOST, why)


class ForwardedProduceService(Service):
    """Answers, as the leader, the produce requests that another broker passes on."""

    def __init__(self, manager: ReplicaManager, connection: Connection) -> None:
        super().__init__({m.ForwardProduce: self._take})
        self._manager = manager
        self._connection = connection
        self._count = 0

    def _take(self, forward: m.ForwardProduce) -> None:
        """Answer at once or later.

        Raises:
          RefusedError: if this broker doesn't look at the request.
        """
        if self._count >= FORWARDS_IN_FLIGHT_MAX:
            raise RefusedError("too many requests came through this broker", Status.TOO_MANY)
        try:
            message = decode(forward.message, FORWARDED)
        except ProtocolError as error:  # the broker may be of another version
            raise RefusedError(str(error.args[0]), error.status) from error
        assert isinstance(message, m.Produce), "the codec takes nothing else here"
        self._count += 1
        self._connection.set_aside(forward.request)

        def answer(outcome: CommitReceipt | Refusal) -> None:
            self._tell(forward, answer_to_produce(self._manager, message, outcome))

        try:
            log = self._manager.store.find(message.topic, message.partition)
            append_produced(self._manager, log, message, answer)
        except OctopiError as error:
            self._refuse(forward, message, error)

    def _refuse(self, forward: m.ForwardProduce, message: m.Produce, error: OctopiError) -> None:
        if isinstance(error, NotLeaderError):
            error = redirect(self._manager, str(error.args[0]), message.partition)
        told = failure_of(message.request, error)
        if told is None:
            raise error
        self._tell(forward, told)

    def _tell(self, forward: m.ForwardProduce, message: object) -> None:
        self._count -= 1
        with contextlib.suppress(ConnectionLostError):  # the client sends it again
            self._connection.post(m.Answer(forward.request, encode(message)))
