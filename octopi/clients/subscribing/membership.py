"""The driver of a `GroupSession`: joins the coordinator of a subscription, and stays joined."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

import attrs
import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.subscribing.administration import SubscriptionAdministration
from octopi.clients.subscribing.group_session import (
    GroupEffect,
    GroupSession,
    HeldClaim,
    JoinRemedy,
    ReportReleased,
    join_remedy,
)
from octopi.clients.subscribing.leader_session import LeaderSession
from octopi.errors import (
    MemberFencedError,
    NotReadyError,
    OctopiError,
    ProtocolError,
    SubscriptionBusyError,
)
from octopi.identifiers import PartitionId, SubscriptionId, SubscriptionName, TopicName
from octopi.retry import reworded
from octopi.wire.messages import Assignment, Holding, JoinGroup, LeaveGroup, LogClaim

_SIGNS: Final = 3
"""Signs of life in a session timeout."""


@attrs.frozen
class MembershipOptions:
    """Of one member."""

    topic: TopicName
    coordinator: PartitionId
    """The topic's first partition, whose leader is the coordinator."""
    sid: SubscriptionId
    name: SubscriptionName
    take_over: bool
    session_timeout_s: float


class Membership:
    """One member, from its first join to its end."""

    def __init__(
        self,
        cluster: ClusterHandle,
        options: MembershipOptions,
        session: GroupSession,
        perform: Callable[[Iterable[GroupEffect]], None],
        why_replaced: Callable[[], Awaitable[OctopiError | None]] | None = None,
    ) -> None:
        """*perform* gets what the machine decides, but for reports, which are sent from here.

        *why_replaced* is asked before it joins again, and tells why it must not; None: it may
        always."""
        self.session = session
        self._options = options
        self._clock = cluster.environment.clock
        self._join_timeout_s = cluster.request_timeout_s
        self._administration = SubscriptionAdministration(cluster.router)
        self._link = LeaderSession(cluster, options.topic, options.coordinator)
        self._perform_logs = perform
        self._why_replaced = why_replaced
        self._has_joined = False
        self._is_leaving = False
        self._left = trio.Event()

    def perform(self, effects: Iterable[GroupEffect]) -> None:
        """Do what the machine decided."""
        for effect in effects:
            if isinstance(effect, ReportReleased):
                self._report(effect.claims)
            else:
                self._perform_logs([effect])

    async def run(
        self, *, task_status: trio.TaskStatus[OctopiError | None] = trio.TASK_STATUS_IGNORED
    ) -> OctopiError | None:
        """Join, again whenever the connection breaks; ``started`` comes with the first assignment,
        or with why there is none.

        Returns: why it is a member no more; None: it left.
        """
        began_at = self._clock.now()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._give_signs)

            def take(message: object) -> None:
                if not isinstance(message, Assignment):
                    raise ProtocolError(f"{type(message).__name__} is no part of a membership")
                if not self._has_joined:
                    self._has_joined = True
                    task_status.started(None)
                self.perform(
                    self.session.assigned(
                        message.member, _claims(message.add), _claims(message.release)
                    )
                )

            while True:
                try:
                    await self._link.run(self._question, take, LeaveGroup)
                except OctopiError as error:
                    why = self._why_not_again(error, began_at)
                    if why is None and self._has_joined and self._why_replaced is not None:
                        why = await self._why_replaced()
                    if why is None and not self._is_leaving:
                        await self._finish_creation(error)
                        await self._link.before_again(error)
                        continue
                    self._left.set()
                    nursery.cancel_scope.cancel()
                    if not self._has_joined:
                        task_status.started(why)
                    return None if self._is_leaving else why
        raise AssertionError("the loop above ends by returning")

    async def leave(self) -> None:
        """Tell the coordinator, and wait for a moment until it knows."""
        self._is_leaving = True
        if self._link.open_since is None:
            return
        self._link.post(LeaveGroup)
        with self._clock.timeout(self._options.session_timeout_s / _SIGNS):
            await self._left.wait()

    def _question(self, request: int) -> JoinGroup:
        options = self._options
        return JoinGroup(
            request,
            options.topic,
            options.coordinator,
            options.sid,
            self.session.member,
            self.session.static_member is not None,
            options.take_over and not self._has_joined,
            _on_wire(self.session.joining()),
        )

    def _why_not_again(self, error: OctopiError, began_at: float) -> OctopiError | None:
        """Why joining again can't help; None: it may."""
        remedy = join_remedy(error)
        if remedy is JoinRemedy.START_OVER:
            self.perform(self.session.expired())
            return None
        if self._has_joined:
            if isinstance(error, SubscriptionBusyError):
                return MemberFencedError(f"another member has it now: {error.args[0]}")
            return error if remedy is JoinRemedy.STOP else None
        waited_s = self._clock.now() - began_at
        if remedy is JoinRemedy.JOIN_AGAIN and waited_s < self._join_timeout_s:
            return None
        if remedy is JoinRemedy.STOP:
            return error
        return reworded(error, f"given up to join after {waited_s:.1f} s; last: {error.args[0]}")

    async def _finish_creation(self, error: OctopiError) -> None:
        """After *error*: if the coordinator has lost that the subscription, of which this was a
        member, was created to the end, do that again."""
        options = self._options
        if self._has_joined and isinstance(error, NotReadyError):
            with suppress(OctopiError):  # the next attempt to join is refused, too
                await self._administration.finish_creation(options.topic, options.name, options.sid)

    async def _give_signs(self) -> None:
        interval_s = self._options.session_timeout_s / _SIGNS
        while True:
            await self._clock.sleep_until(self._clock.now() + interval_s)
            self._report(())

    def _report(self, claims: Iterable[HeldClaim]) -> None:
        released = _on_wire(claims)
        if self._link.open_since is not None or released:
            self._link.post(lambda request: Holding(request, released))


def _claims(told: Iterable[LogClaim]) -> list[HeldClaim]:
    return [(one.partition, one.claim) for one in told]


def _on_wire(claims: Iterable[HeldClaim]) -> list[LogClaim]:
    return [LogClaim(partition, claim) for partition, claim in claims]
