"""A member of a run's durable subscription with marks: processes, and confirms."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from octopi.clients.subscribing.subscription import Subscription
from octopi.environment import Clock, Environment
from octopi.limits import CONSUMER_WINDOW_BYTES
from octopi.record import Message
from octopi.simulation.history.events import LogName
from sim.run.client_log import ClientLog
from sim.run.group_notes import NAME, GroupNotes, HeldLog
from sim.run.member_lives import SESSION_TIMEOUT_S, MemberLives

_RELEASE_TIMEOUT_S: Final = 0.5
_WINDOWS_BYTES: Final = (CONSUMER_WINDOW_BYTES, CONSUMER_WINDOW_BYTES, 2_000)


class MemberProgram(MemberLives):
    """See `MemberLives`."""

    def __init__(self, client_log: ClientLog, notes: GroupNotes, number: int) -> None:
        super().__init__(client_log, number)
        self._notes = notes
        self._held: dict[int, HeldLog] = {}
        """By partition, in this life."""
        self._told_count = 0
        """Losses that the notes have, of this life."""

    async def live(self, environment: Environment, randomness: Random) -> None:
        """Join, process and mark."""
        workload = self.client_log.plan.workload
        self._held, self._told_count = {}, 0
        is_exclusive = workload.member_mode == "exclusive"
        async with (
            self.client_log.connected(environment) as client,
            client.subscription(
                self._notes.topic,
                NAME,
                mode="exclusive" if is_exclusive else "failover",
                member=self.static_name,
                take_over=is_exclusive and randomness.random() < 0.4,
                on_gap="skip",
                session_timeout_s=SESSION_TIMEOUT_S,
                release_timeout_s=_RELEASE_TIMEOUT_S,
                window_bytes=randomness.choice(_WINDOWS_BYTES),
                reconnect_timeout_s=None,
            ) as subscription,
        ):
            try:
                if randomness.random() < 0.3:
                    await self._work_in_batches(environment.clock, subscription, randomness)
                else:
                    await self._work(environment.clock, subscription, randomness)
            finally:
                self._note_losses(subscription)
        if is_exclusive:  # leaving succeeded, so all that was processed is confirmed
            for held in self._held.values():
                self._notes.confirmed(self.host, held)

    async def _work(self, clock: Clock, subscription: Subscription, randomness: Random) -> None:
        async for message in subscription:
            held = self._handed(subscription, message)
            await self.spend_time(clock, randomness)
            if held is not None:
                self._notes.processed(self.host, held, message)
            if randomness.random() < 0.1:
                await self._commit(subscription)
            if self.is_over(1, randomness):
                return

    async def _work_in_batches(
        self, clock: Clock, subscription: Subscription, randomness: Random
    ) -> None:
        async for batch in subscription.batches():
            handed = [(self._handed(subscription, one), one) for one in batch]
            for _ in batch:
                await self.spend_time(clock, randomness)
            for held, message in handed:
                if held is not None:
                    self._notes.processed(self.host, held, message)
            if randomness.random() < 0.3:
                await self._commit(subscription)
            if self.is_over(len(batch), randomness):
                return

    def _note_losses(self, subscription: Subscription) -> None:
        for fork in subscription.forks[self._told_count :]:
            self._notes.told_of_loss(fork)
        self._told_count = len(subscription.forks)

    def _handed(self, subscription: Subscription, message: Message) -> HeldLog | None:
        self._note_losses(subscription)
        claim = subscription.claims.get(message.partition)
        if claim is None:
            return None  # the member has just lost the log
        held = self._held.get(message.partition)
        if held is None or held.claim != claim:
            log = LogName(message.topic, message.partition)
            held = HeldLog(subscription.sid, subscription.member, log, claim)
            self._held[message.partition] = held
        self._notes.handed(self.host, held, message)
        return held

    async def _commit(self, subscription: Subscription) -> None:
        before = self._claimed(subscription)
        await subscription.commit()
        for held in self._claimed(subscription):
            if held in before:
                self._notes.confirmed(self.host, held)

    def _claimed(self, subscription: Subscription) -> Sequence[HeldLog]:
        claims = subscription.claims
        return [one for log, one in self._held.items() if claims.get(log) == one.claim]
