"""A member of a run's queue: works messages off, fails at some, and is late now and then."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final
from zlib import crc32

import trio

from octopi.clients.subscribing.dealt import DealtMessage
from octopi.clients.subscribing.queue_subscription import QueueSubscription
from octopi.environment import Clock, Environment
from octopi.errors import OctopiError
from octopi.simulation.history.events import LogName
from sim.run.client_log import ClientLog
from sim.run.group_notes import NAME
from sim.run.member_lives import SESSION_TIMEOUT_S, CancelledWorkError, MemberLives
from sim.run.queue_notes import QueueNotes, TakenMessage

_POISON_SHARE: Final = 9
"""One message of so many fails whenever it is worked on."""
_WORKERS: Final = (1, 1, 2, 3)


class _FailedWorkError(Exception):
    """The program can't process a message."""


class QueueMemberProgram(MemberLives):
    """See `MemberLives`."""

    def __init__(self, client_log: ClientLog, notes: QueueNotes, number: int) -> None:
        super().__init__(client_log, number)
        self._notes = notes

    async def live(self, environment: Environment, randomness: Random) -> None:
        """Join, and work messages off in several tasks."""
        workload, began_at = self.client_log.plan.workload, self.client_log.now
        prefetch = randomness.choice((1, workload.queue_prefetch, workload.queue_prefetch))
        async with (
            self.client_log.connected(environment) as client,
            client.subscription(
                self._notes.topic,
                NAME,
                mode="key_shared" if workload.member_mode == "key_shared" else "shared",
                member=self.static_name,
                attempts=workload.queue_attempts,
                ack_timeout_s=workload.queue_ack_timeout_s,
                window=workload.queue_window,
                prefetch=prefetch,
                session_timeout_s=SESSION_TIMEOUT_S,
                reconnect_timeout_s=None,
            ) as queue,
        ):
            shift = _Shift(self, self._notes, queue, environment.clock, randomness, began_at)
            try:
                await shift.work(randomness.choice(_WORKERS))
            finally:
                shift.note_losses()
            stale_count = queue.stale_count
        if queue.stale_count == stale_count == shift.stale_count:
            shift.confirm()  # leaving has waited for that


class _Shift:
    """The work of one life."""

    def __init__(
        self,
        member: QueueMemberProgram,
        notes: QueueNotes,
        queue: QueueSubscription,
        clock: Clock,
        randomness: Random,
        began_at: float,
    ) -> None:
        self._member = member
        self._notes = notes
        self._queue = queue
        self._clock = clock
        self._randomness = randomness
        self._began_at = began_at
        self._error: Exception | None = None
        self._told_count = 0
        """Losses that the notes have."""
        self._unconfirmed: list[TakenMessage] = []
        """What was acknowledged since it was confirmed last."""
        self._committing = trio.Lock()
        self.stale_count = 0
        """When it was confirmed last."""

    async def work(self, count: int) -> None:
        """Work in so many tasks, until one of them has enough.

        Raises:
          CancelledWorkError: if the work is given up.
          OctopiError: why it can't go on.
        """
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(self._work, nursery.cancel_scope)
        if self._error is not None:
            raise self._error

    async def _work(self, scope: trio.CancelScope) -> None:
        randomness = self._randomness
        take_all = randomness.random() < 0.25
        try:
            while True:
                some: Sequence[DealtMessage]
                some = await self._queue.next_batch() if take_all else [await anext(self._queue)]
                taken = [self._handed(one) for one in some]
                for message, one in zip(some, taken, strict=True):
                    await self._treat(message, one)
                if randomness.random() < 0.15:
                    await self._commit()
                if self._member.is_over(len(some), randomness):
                    break
        except (CancelledWorkError, OctopiError) as error:
            self._error = self._error or error
        scope.cancel()

    def note_losses(self) -> None:
        """Note of which losses the member was told since the last call."""
        for fork in self._queue.forks[self._told_count :]:
            self._notes.told_of_loss(fork)
        self._told_count = len(self._queue.forks)

    def _handed(self, message: DealtMessage) -> TakenMessage:
        self.note_losses()
        taken = TakenMessage(
            self._queue.sid,
            self._member.host,
            self._member.life,
            self._began_at,
            LogName(message.topic, message.partition),
            message.offset,
            message.attempt,
            message.key,
            self._member.client_log.now,
        )
        self._notes.handed(taken)
        return taken

    # --- one message -------------------------------------------------------------------

    async def _treat(self, message: DealtMessage, taken: TakenMessage) -> None:
        """Work on a message, and answer it: in time or late, well or not."""
        workload, randomness = self._member.client_log.plan.workload, self._randomness
        await self._member.spend_time(self._clock, randomness)
        is_poison = workload.queue_attempts is not None and not crc32(message.value) % _POISON_SHARE
        luck = randomness.random()
        if is_poison:
            await self._fail(message, luck)
        elif self._member.is_late or luck < 0.75:
            self._acknowledge(message, taken)
        elif luck < 0.85:
            message.extend()
            await self._member.spend_time(self._clock, randomness)
            self._acknowledge(message, taken)
        elif luck < 0.9:
            await self._be_late()
            self._acknowledge(message, taken)
        elif luck < 0.92:
            message.reject("it is of no use")
        else:
            await self._fail(message, randomness.random())

    async def _fail(self, message: DealtMessage, luck: float) -> None:
        """Give a message back."""
        if luck < 0.4:
            message.release()
        elif luck < 0.6:
            message.release(delay_s=0.2)
        elif luck < 0.7:
            await self._be_late()
            message.release()
        else:
            try:
                async with message:
                    raise _FailedWorkError
            except _FailedWorkError:
                pass

    async def _be_late(self) -> None:
        """Take longer than the ack timeout."""
        if not self._member.is_late:
            timeout_s = self._member.client_log.plan.workload.queue_ack_timeout_s
            await self._clock.sleep_until(self._clock.now() + 1.2 * timeout_s)

    def _acknowledge(self, message: DealtMessage, taken: TakenMessage) -> None:
        self._notes.acknowledged(taken)
        self._unconfirmed.append(taken)
        message.acknowledge()

    # --- confirming --------------------------------------------------------------------

    async def _commit(self) -> None:
        async with self._committing:
            asked, self._unconfirmed = self._unconfirmed, []
            stale = await self._queue.commit()
            if stale:  # nobody knows which of them, nor whether it is one of those since then
                self._unconfirmed = []
            else:
                self._notes.confirmed(asked)
            self.stale_count = self._queue.stale_count

    def confirm(self) -> None:
        """All answers are committed."""
        self._notes.confirmed(self._unconfirmed)
