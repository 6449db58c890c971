"""A producer of a run: sends messages, waits for receipts, and notes both."""

from __future__ import annotations

import contextlib
import math
from random import Random
from typing import Final

import attrs
import trio

from octopi.clients.client import Client
from octopi.clients.producing.producer import Producer
from octopi.clients.producing.receipts import PendingReceipt
from octopi.environment import Clock, Environment
from octopi.errors import (
    DeliveryError,
    NotDeliveredError,
    OctopiError,
    ProducerFencedError,
)
from octopi.limits import FETCH_WAIT_S_MAX
from octopi.record import NO_HEADERS
from octopi.retry import may_pass
from octopi.simulation.history.events import (
    Failed,
    Invoked,
    LogName,
    unique_value,
)
from sim.run.client_log import ClientLog

_LINGERS_S: Final = (0.0, 0.002, 0.02)
_AGAIN_S: Final = 0.1
_PROMPT_S: Final = 5.0
"""How long a receipt may take when everything is healed, and the connection is known to work."""


@attrs.frozen
class _Sent:
    value: bytes
    pending: PendingReceipt
    due_at: float
    """The time-out of the message, by the producer's clock; it may not be given up before.  All
    messages of a burst have the time-out of the first one."""


class _LeftError(Exception):
    """The producer is to be closed without waiting for messages on their way."""


class ProducerProgram:
    """Producer number *number*.  When it is replaced, the next producer continues behind the
    messages that were sent."""

    def __init__(self, client_log: ClientLog, number: int) -> None:
        self.host = f"producer-{number}"
        self.sent_count = 0
        self.is_done = False
        """Whether it has sent all messages, and knows their outcomes."""
        self.is_heard = False
        """Whether a message of it was acknowledged in each log after healing."""
        self._client_log = client_log
        self._number = number
        self._life = 0
        self._heard_end = 0
        """The end of the last message for which it got a receipt."""

    @property
    def _name(self) -> str:
        return f"p{self._number}.{self._life}"

    async def run(self, environment: Environment) -> None:
        """See `octopi.simulation.kernel.host.Program`."""
        client_log, workload = self._client_log, self._client_log.plan.workload
        await client_log.topics_made.wait()
        connect = client_log.forwarded if self._is_forwarding else client_log.connected
        async with connect(environment) as client:
            while self.sent_count < workload.records:
                self._life += 1
                randomness = client_log.cluster.world.random("producer", self._number, self._life)
                on_its_way: list[_Sent] = []
                begun_in: list[str] = []
                if self._is_named and randomness.random() < 0.7:
                    begun_in = client_log.topics
                try:
                    async with client.producer(
                        linger_s=randomness.choice(_LINGERS_S),
                        batch_bytes=workload.batch_bytes,
                        delivery_timeout_s=workload.delivery_timeout_s,
                        name=self.host if self._is_named else None,
                        topics=begun_in,
                    ) as producer:
                        await self._send_some(environment, producer, randomness, on_its_way)
                        if self.sent_count == workload.records:
                            self.is_done = True
                            await self._have_last_word(environment.clock, client, producer)
                        elif begun_in and randomness.random() < 0.5:
                            await self._send_late(environment.clock, client, producer, on_its_way)
                except (_LeftError, DeliveryError, ProducerFencedError):
                    pass  # the outcome of each message is noted
                except OctopiError as error:
                    if not self._is_named or not may_pass(error):
                        raise
                    # The name could not be opened in time.
                    await environment.clock.sleep_until(environment.clock.now() + _AGAIN_S)
                for sent in on_its_way:
                    await self._note_outcome(sent)
        self.is_done = self.is_heard = True

    @property
    def _is_named(self) -> bool:
        return self._number <= self._client_log.plan.workload.named_producers

    @property
    def _is_forwarding(self) -> bool:
        load = self._client_log.plan.workload
        return self._number > load.producers - load.forwarding_producers and not self._is_named

    async def _send_some(
        self,
        environment: Environment,
        producer: Producer,
        randomness: Random,
        on_its_way: list[_Sent],
    ) -> None:
        """Send until this producer is to be replaced by another one, or all messages were sent."""
        client_log, clock = self._client_log, environment.clock
        workload = client_log.plan.workload
        until = workload.records
        if workload.reopen_count:
            until = min(until, self.sent_count + randomness.randint(1, 2 * workload.reopen_count))
        while self.sent_count < until:
            burst = min(randomness.randint(1, workload.burst_count), until - self.sent_count)
            due_at = clock.now() + workload.delivery_timeout_s
            for _ in range(burst):
                await self._submit(producer, due_at, randomness, on_its_way)
            if self.sent_count == until < workload.records and randomness.random() < 0.5:
                raise _LeftError
            while on_its_way:
                error = await self._note_outcome(on_its_way[0])
                if error is not None and clock.now() < on_its_way[0].due_at:
                    client_log.complain_of_haste(self._name, error)
                del on_its_way[0]
            if workload.pause_s:
                await clock.sleep_until(clock.now() + randomness.expovariate(1 / workload.pause_s))

    async def _send_late(
        self, clock: Clock, client: Client, former: Producer, on_its_way: list[_Sent]
    ) -> None:
        """Begin another life, and then have the *former* one send a message."""
        client_log = self._client_log
        randomness = client_log.cluster.world.random("late", self._number, self._life)
        due_at = clock.now() + client_log.plan.workload.delivery_timeout_s
        async with client.producer(name=self.host, topics=client_log.topics):
            await self._submit(former, due_at, randomness, on_its_way)
            await self._note_outcome(on_its_way[-1])
            del on_its_way[-1]

    async def _have_last_word(self, clock: Clock, client: Client, producer: Producer) -> None:
        """After healing, have one message acknowledged in each log."""
        await self._client_log.all_well.wait()
        for log in [*self._client_log.logs, *self._client_log.streams]:
            # A connection may still turn out to be dead, later than some producers wait.
            while (error := await self._say(producer, log)) is not None:
                if isinstance(error, ProducerFencedError):
                    raise error
                await clock.sleep_until(clock.now() + _AGAIN_S)
            if self._client_log.plan.workload.polls:
                await self._speak_beside_polls(clock, client, producer, log)

    async def _speak_beside_polls(
        self, clock: Clock, client: Client, producer: Producer, log: LogName
    ) -> None:
        """Check that a connection that has just worked takes a message while many fetches on it
        wait."""
        async with trio.open_nursery() as nursery:
            for _ in range(self._client_log.plan.workload.polls):
                nursery.start_soon(self._poll, client, log)
            await clock.sleep_until(clock.now() + _AGAIN_S)
            began_at = clock.now()
            error = await self._say(producer, log)
            waited_s = clock.now() - began_at
            if error is not None or waited_s > _PROMPT_S:
                what = f"{self._name} waited {waited_s:.1f} s beside fetches that wait: {error!r}"
                self._client_log.complaints.append(what)
            nursery.cancel_scope.cancel()

    async def _poll(self, client: Client, log: LogName) -> None:
        """Fetch messages, until cancelled or refused."""
        with contextlib.suppress(OctopiError):
            offset = self._heard_end
            while True:
                found = await client.fetch(
                    log.topic, offset, partition=log.partition, wait_s=FETCH_WAIT_S_MAX
                )
                if found.messages:
                    offset = found.messages[-1].next_offset

    async def _say(self, producer: Producer, log: LogName) -> OctopiError | None:
        client_log = self._client_log
        self.sent_count += 1
        value = unique_value(self._name, self.sent_count)
        client_log.note(Invoked(client_log.now, self._name, *log, value))
        try:
            pending = await producer.submit(log.topic, value, partition=log.partition)
        except OctopiError as error:
            client_log.note(Failed(client_log.now, value, str(error)))
            return error
        return await self._note_outcome(_Sent(value, pending, math.inf))

    async def _submit(
        self, producer: Producer, due_at: float, randomness: Random, on_its_way: list[_Sent]
    ) -> None:
        client_log = self._client_log
        self.sent_count += 1
        name = self._name
        size_bytes = randomness.choice((0, 30, client_log.plan.workload.value_bytes_max))
        value = unique_value(name, self.sent_count, size_bytes)
        if self._number == self.sent_count == 1:
            value = b""  # only one message can have it, as values identify messages
        log = randomness.choice([*client_log.logs, *client_log.streams])
        partition, key = None, None
        way = randomness.random()
        if way < 0.5:
            partition = log.partition
        elif way < 0.8:
            key = b"key-%d" % randomness.randrange(5)
        headers = {"of": name.encode()} if randomness.random() < 0.2 else NO_HEADERS
        client_log.note(Invoked(client_log.now, name, log.topic, partition, value, key, headers))
        try:
            pending = await producer.submit(
                log.topic, value, partition=partition, key=key, headers=headers
            )
        except OctopiError as error:
            is_over = self._is_named and isinstance(error, ProducerFencedError)
            if not isinstance(error, NotDeliveredError) and not may_pass(error) and not is_over:
                client_log.complain(name, error)
            client_log.note(Failed(client_log.now, value, str(error)))
            if is_over:
                raise
        else:
            on_its_way.append(_Sent(value, pending, due_at))

    async def _note_outcome(self, sent: _Sent) -> DeliveryError | None:
        """Wait for the outcome of *sent*, and note it; return the error if there is no receipt."""
        client_log = self._client_log
        try:
            receipt = await sent.pending
        except DeliveryError as error:
            client_log.settled(sent.value, error)
            return error
        self._heard_end = receipt.next_offset
        client_log.settled(sent.value, receipt)
        return None
