"""One request that the leader of a log answers again and again, until either side ends it.

It is sent to the leader as the register names it, or as another broker does, and sent again when
the connection breaks or another broker leads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.leader_check import judge_leader
from octopi.clients.leader_route import LeaderRoute
from octopi.clients.suspicion import ReadingSuspicion, RequestSuspicion
from octopi.errors import (
    ClosedError,
    ConnectionLostError,
    OctopiError,
    RefusedError,
    Status,
    UnknownSubscriptionError,
    refused,
)
from octopi.identifiers import PartitionId, TopicName
from octopi.retry import Backoff, may_pass, reworded
from octopi.transport.connection import Connection
from octopi.transport.failures import refusal
from octopi.wire.messages import Detached, Done, Failure, FindOffset


class LeaderSession:
    """Keeps one such request open; for one task."""

    def __init__(
        self,
        cluster: ClusterHandle,
        topic: TopicName,
        partition: PartitionId,
        restore: Callable[[PartitionId], Awaitable[None]] | None = None,
    ) -> None:
        """*restore*: makes the mark of the log again if its replicas have lost it, or raises the
        error why it can't; None: the log is of the coordinator, and needs no mark."""
        self._cluster = cluster
        self._clock = cluster.environment.clock
        self._topic = topic
        self._partition = partition
        self._route = LeaderRoute(cluster.lookup, topic, partition, follows_generations=True)
        self._backoff = Backoff(cluster.environment.randomness)
        self._restore = restore
        self._open_until = self._clock.now()
        """When it was open last, or made."""
        self._is_told = False
        """Whether the last error said where to go on."""
        self._link: tuple[Connection, int] | None = None
        self.open_since: float | None = None
        """When the request was answered first; None: it is not open."""

    @property
    def is_open(self) -> bool:
        """Whether the request was sent on a connection that is there."""
        return self._link is not None

    def post(self, notice: Callable[[int], object]) -> None:
        """Send what *notice* makes of the request's number; nothing if it isn't open."""
        if self._link is not None:
            connection, request = self._link
            with contextlib.suppress(ConnectionLostError):
                connection.post(notice(request))

    async def run(
        self,
        question: Callable[[int], Any],
        take: Callable[[Any], None],
        farewell: Callable[[int], object],
    ) -> None:
        """Send what *question* makes of a number to the leader, and give *take* each answer.

        Cancelled, or after an error that *take* raised, *farewell* of the number is sent.

        Raises:
          ClosedError: if it ended since `post` sent a farewell.
          OctopiError: why it ended.
        """
        place = await self._route.find()
        judge = partial(judge_leader, place.address, place.epoch)
        check = self._cluster.leader_check
        async with check.unless_replaced(
            self._topic, self._partition, judge, RequestSuspicion(self._clock)
        ):
            connection = await self._cluster.connections.get(place.address)
        request = connection.next_request()
        accepted, ended = trio.Event(), trio.Event()
        errors: list[OctopiError] = []
        is_over = False

        def hear(message: object) -> None:
            nonlocal is_over
            try:
                if (error := _end_of(message)) is not None:
                    is_over = True
                    raise error
                take(message)
            except OctopiError as error:
                errors.append(error)
                connection.forget(request)
                ended.set()
            accepted.set()

        self._link = (connection, request)
        try:
            connection.ask(question(request), hear)
            with self._clock.timeout(self._cluster.request_timeout_s) as silent:
                async with check.unless_replaced(
                    self._topic, self._partition, judge, RequestSuspicion(self._clock)
                ):
                    await accepted.wait()
            if silent.cancelled_caught:
                text = f"{connection.peer} didn't answer for {self._topic}/{self._partition}"
                self._cluster.connections.discard(connection, text)
                raise ConnectionLostError(text)
            if not errors:
                self._route.arrived()
                self._backoff.reset()
                self.open_since = self._clock.now()
            suspicion = ReadingSuspicion(self._clock, connection, partial(self._probe, connection))
            async with check.unless_replaced(self._topic, self._partition, judge, suspicion):
                await ended.wait()
        finally:
            connection.forget(request)
            if not is_over:
                self.post(farewell)
            if self.open_since is not None:
                self._open_until = self._clock.now()
            self._link = self.open_since = None
        raise errors[0]

    def why_given_up(self, error: OctopiError, timeout_s: float | None) -> OctopiError | None:
        """The error to raise after *error*, if it hasn't been open for *timeout_s*; None: go on."""
        if timeout_s is None or self._clock.now() - self._open_until < timeout_s:
            return None
        error = self._route.reported(error)
        text = f"{self._topic}/{self._partition}: no leader for {timeout_s:g} s"
        return reworded(error, f"{text}; last: {error.args[0]}")

    async def before_again(self, error: OctopiError) -> None:
        """Do, and wait, what is good after *error*, which may pass.

        Raises:
          UnknownSubscriptionError: if the log has no mark because the subscription is gone.
          OctopiError: why it can't be made again.
        """
        if isinstance(error, UnknownSubscriptionError) and self._restore is not None:
            try:
                await self._restore(self._partition)
            except OctopiError as why:
                if not may_pass(why):
                    raise
            else:
                return
        if isinstance(error, RefusedError) and self._route.redirected(error):
            return
        await self._clock.sleep_until(self._clock.now() + self._backoff.next_s())

    def _probe(self, connection: Connection) -> None:
        request = connection.next_request()
        connection.probe(FindOffset(request, self._topic, self._partition, "latest", 0))


def _end_of(message: object) -> OctopiError | None:
    """The error for which a session ends with *message*; None: it goes on."""
    match message:
        case Failure():
            return refusal(message)
        case Detached(_, status, reason):
            return refused(Status(status), reason)
        case Done():
            return ClosedError("it was ended")
        case ConnectionLostError():
            return message
        case _:
            return None
