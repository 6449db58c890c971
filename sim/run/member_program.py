"""A member of a run's durable subscription: joins, processes, marks, leaves, and comes back."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import trio

from octopi.clients.subscribing.subscription import Subscription
from octopi.environment import Clock, Environment
from octopi.errors import (
    HistoryForkedError,
    HistoryLostError,
    MemberFencedError,
    OctopiError,
    SubscriptionBusyError,
    UnknownSubscriptionError,
)
from octopi.limits import CONSUMER_WINDOW_BYTES
from octopi.record import Message
from octopi.retry import may_pass
from octopi.simulation.history.events import LogName
from sim.run.client_log import ClientLog
from sim.run.group_notes import NAME, GroupNotes, HeldLog

_AGAIN_S: Final = 0.1
_SESSION_TIMEOUT_S: Final = 1.0
_RELEASE_TIMEOUT_S: Final = 0.5
_NAP_S: Final = 1.5
"""Longer than a session timeout."""
_WINDOWS_BYTES: Final = (CONSUMER_WINDOW_BYTES, CONSUMER_WINDOW_BYTES, 2_000)


class _CancelledError(Exception):
    """The program gives its work up: what it has in hand is not marked."""


class MemberProgram:
    """Member number *number*."""

    def __init__(self, client_log: ClientLog, notes: GroupNotes, number: int) -> None:
        self.name = f"m{number}"
        self.host = f"member-{number}"
        self._client_log = client_log
        self._notes = notes
        self._number = number
        self._life = 0
        self._held: dict[int, HeldLog] = {}
        """By partition, in this life."""
        self._left = 0
        """Messages until it leaves; negative: it stays."""

    async def run(self, environment: Environment) -> None:
        """`octopi.simulation.kernel.host.Program`."""
        client_log, clock = self._client_log, environment.clock
        await client_log.topics_made.wait()
        while True:
            self._life += 1
            randomness = client_log.cluster.world.random("member", self._number, self._life)
            try:
                await self._live(environment, randomness)
            except (_CancelledError, MemberFencedError, SubscriptionBusyError):
                pass
            except (HistoryLostError, HistoryForkedError):
                pass
            except UnknownSubscriptionError as error:
                may_go = "delete" in client_log.plan.workload.chores
                # A broker that leads without knowing what its disk lost doesn't know it, either.
                if not (may_go or client_log.plan.may_lose or client_log.unfit):
                    client_log.complain(self.name, error)
                    return
            except OctopiError as error:
                if not may_pass(error):
                    client_log.complain(self.name, error)
                    return
            await clock.sleep_until(clock.now() + _AGAIN_S)

    async def _live(self, environment: Environment, randomness: Random) -> None:
        workload = self._client_log.plan.workload
        self._held = {}
        stay = workload.member_stay_count
        self._left = randomness.randint(1, 2 * stay) if stay and not self._is_late else -1
        is_exclusive = workload.member_mode == "exclusive"
        async with (
            self._client_log.connected(environment) as client,
            client.subscription(
                self._notes.topic,
                NAME,
                mode=workload.member_mode,
                member=self.name if self._number <= workload.static_members else None,
                take_over=is_exclusive and randomness.random() < 0.4,
                on_gap="skip",
                session_timeout_s=_SESSION_TIMEOUT_S,
                release_timeout_s=_RELEASE_TIMEOUT_S,
                window_bytes=randomness.choice(_WINDOWS_BYTES),
                reconnect_timeout_s=None,
            ) as subscription,
        ):
            if randomness.random() < 0.3:
                await self._work_in_batches(environment.clock, subscription, randomness)
            else:
                await self._work(environment.clock, subscription, randomness)
        if is_exclusive:  # all that it had is confirmed, or leaving would have failed
            for held in self._held.values():
                self._notes.confirmed(self.host, held)

    @property
    def _is_late(self) -> bool:
        """Whether it is to stay and to come to the end."""
        return self._client_log.all_well.is_set()

    async def _work(self, clock: Clock, subscription: Subscription, randomness: Random) -> None:
        async for message in subscription:
            held = self._handed(subscription, message)
            await self._spend_time(clock, randomness)
            if held is not None:
                self._notes.processed(self.host, held, message)
            if randomness.random() < 0.1:
                await self._commit(subscription)
            if self._is_over(1, randomness):
                return

    async def _work_in_batches(
        self, clock: Clock, subscription: Subscription, randomness: Random
    ) -> None:
        async for batch in subscription.batches():
            handed = [(self._handed(subscription, one), one) for one in batch]
            for _ in batch:
                await self._spend_time(clock, randomness)
            for held, message in handed:
                if held is not None:
                    self._notes.processed(self.host, held, message)
            if randomness.random() < 0.3:
                await self._commit(subscription)
            if self._is_over(len(batch), randomness):
                return

    def _handed(self, subscription: Subscription, message: Message) -> HeldLog | None:
        claim = subscription.claims.get(message.partition)
        if claim is None:
            return None  # it was lost in this moment
        held = self._held.get(message.partition)
        if held is None or held.claim != claim:
            log = LogName(message.topic, message.partition)
            held = HeldLog(subscription.sid, subscription.member, log, claim)
            self._held[message.partition] = held
        self._notes.handed(self.host, held, message)
        return held

    async def _spend_time(self, clock: Clock, randomness: Random) -> None:
        pause_s = self._client_log.plan.workload.member_pause_s
        if self._is_late or not pause_s:
            await trio.lowlevel.checkpoint()
            return
        long_s = _NAP_S if randomness.random() < 0.02 else 0.0
        await clock.sleep_until(clock.now() + long_s + randomness.expovariate(1 / pause_s))

    async def _commit(self, subscription: Subscription) -> None:
        before = self._claimed(subscription)
        await subscription.commit()
        for held in self._claimed(subscription):
            if held in before:
                self._notes.confirmed(self.host, held)

    def _claimed(self, subscription: Subscription) -> Sequence[HeldLog]:
        claims = subscription.claims
        return [one for log, one in self._held.items() if claims.get(log) == one.claim]

    def _is_over(self, count: int, randomness: Random) -> bool:
        """Whether it is to leave.

        Raises:
          _CancelledError: if it is to give up what it has in hand.
        """
        if self._left < 0:
            return False
        self._left = max(0, self._left - count)
        if self._left:
            return False
        if randomness.random() < 0.5:
            raise _CancelledError
        return True
