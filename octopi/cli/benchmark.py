"""Measures what a running cluster does for one client: the workloads of `octopi-node bench`."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio

import octopi
from octopi.cli.client_request import connected
from octopi.cli.config import ClientSettings
from octopi.cli.failures import CommandError
from octopi.cli.output import say
from octopi.cli.rate_meter import RateMeter
from octopi.cli.running import run
from octopi.limits import BENCH_SAMPLES_MAX

_CLIENT_BUSY: Final = 0.9
"""From this share of a processor core on, the client itself is taken to be the bottleneck."""
_SAMPLE_INTERVAL: Final = 997
"""One of so many produced messages is timed: a prime, so that it doesn't fall into step with
batches."""
_CHUNK_COUNT: Final = 100
"""Messages that are submitted between two looks at the clock."""
_MARK_BYTES: Final = 8
_NUMBER_BYTES: Final = 8
_DELETE_TIMEOUT_S: Final = 10.0
_OVERDUE_S: Final = 30.0
"""How long the workload latency waits for its last messages."""


def scratch_topic() -> str:
    """The name of a topic for one run."""
    return f"octopi-bench-{secrets.token_hex(4)}"


@attrs.frozen
class Load:
    """What a run does."""

    topic: str
    is_scratch: bool
    """Whether the topic is made for the run, and deleted in the end."""
    partition_count: int
    flush_before_ack: bool
    message_count_max: int
    seconds_max: float
    value_bytes: int
    rate: float
    """Messages per second of the workload latency."""


@attrs.frozen
class Times:
    """How long messages took, in ms."""

    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Times:
        """The times of some messages; there is at least one."""
        in_order = sorted(seconds)
        last = len(in_order) - 1
        return cls(*(round(in_order[round(share * last)] * 1e3, 3) for share in (0.5, 0.99, 1.0)))


@attrs.frozen
class Result:
    """What one workload measured."""

    messages: int
    bytes: int
    """Bytes of values."""
    seconds: float
    client_share: float
    """The share of one processor core that this program used."""
    times: dict[str, Times]
    """What was timed: ``acknowledged``, ``delivered`` or ``first message``."""
    can_client_limit: bool
    """Whether the rate depends on how fast the client is."""

    @property
    def messages_per_s(self) -> float:
        """The rate."""
        return self.messages / max(self.seconds, 1e-9)

    @property
    def bytes_per_s(self) -> float:
        """The rate, in bytes of values."""
        return self.bytes / max(self.seconds, 1e-9)

    @property
    def is_client_busy(self) -> bool:
        """Whether this client, and not the cluster, limited the rate."""
        return self.can_client_limit and self.client_share >= _CLIENT_BUSY

    def as_json(self) -> dict[str, Any]:
        """The result as it is printed for programs."""
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 6),
            "messages_per_s": round(self.messages_per_s, 1),
            "bytes_per_s": round(self.bytes_per_s, 1),
            "client_core_share": round(self.client_share, 3),
            "client_is_bottleneck": self.is_client_busy,
            **{
                f"{what.replace(' ', '_')}_ms": {
                    "p50": one.p50_ms,
                    "p99": one.p99_ms,
                    "max": one.max_ms,
                }
                for what, one in self.times.items()
            },
        }


class _Clocks:
    """Time and processor time since the beginning of a workload."""

    def __init__(self) -> None:
        self._began, self._used = time.perf_counter(), time.process_time()

    def result(
        self, meter: RateMeter, times: dict[str, Times], *, can_client_limit: bool = True
    ) -> Result:
        """The result of the workload, which has just ended."""
        seconds = time.perf_counter() - self._began
        used_s = time.process_time() - self._used
        return Result(
            meter.messages,
            meter.bytes,
            seconds,
            used_s / max(seconds, 1e-9),
            times,
            can_client_limit,
        )


class Benchmark:
    """One run of some workloads, one after the other."""

    def __init__(self, settings: ClientSettings, load: Load) -> None:
        self._settings = settings
        self._load = load
        self._results: dict[str, Result] = {}

    def run(self, workloads: Sequence[str]) -> dict[str, Result]:
        """The results by workload.  The topic of the run is deleted, also after an error and after
        Ctrl-C.

        Raises:
          OctopiError: if the cluster can't be reached, or refuses something.
          InterruptedByUserError: on Ctrl-C.
        """

        async def body() -> None:
            async with connected(self._settings) as client, self._topic(client):
                if "produce" in workloads or ("consume" in workloads and self._load.is_scratch):
                    produced = await self._produce(client)
                    if "produce" in workloads:
                        self._results["produce"] = produced
                if "consume" in workloads:
                    self._results["consume"] = await self._consume(client)
                if "latency" in workloads:
                    self._results["latency"] = await self._latency(client)

        run(body, self._summary)
        return self._results

    def _summary(self) -> str:
        done = ", ".join(self._results) or "no workload"
        return f"interrupted; {done} had been measured"

    @asynccontextmanager
    async def _topic(self, client: octopi.Client) -> AsyncIterator[None]:
        """The topic is there for the block.  One that is made for the run is made and deleted as a
        whole, also if Ctrl-C comes meanwhile: by a client that isn't cancelled then."""
        load = self._load
        if not load.is_scratch:
            await client.describe_topic(load.topic)
            yield
            return
        with trio.CancelScope(shield=True):
            async with connected(self._settings) as lasting:
                await lasting.create_topic(
                    load.topic, load.partition_count, flush_before_ack=load.flush_before_ack
                )
        try:
            yield
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(_DELETE_TIMEOUT_S) as late:
                try:
                    async with connected(self._settings) as lasting:
                        await lasting.delete_topic(load.topic)
                except octopi.OctopiError as error:
                    self._left_behind(str(error))
            if late.cancelled_caught:
                self._left_behind(f"no answer within {_DELETE_TIMEOUT_S:g} s")

    def _left_behind(self, why: str) -> None:
        topic = self._load.topic
        say(
            f"the topic {topic} could not be deleted: {why}; delete it with "
            f"`octopi-node topics delete {topic} --yes`",
            err=True,
        )

    # --- workloads ---------------------------------------------------------------------

    async def _produce(self, client: octopi.Client) -> Result:
        """Produce as fast as messages are taken; time some of them from the moment in which the
        producer took them."""
        load, meter = self._load, RateMeter()
        value = secrets.token_bytes(load.value_bytes)
        times: list[float] = []
        send, receive = trio.open_memory_channel[tuple[float, octopi.PendingReceipt]](
            BENCH_SAMPLES_MAX
        )

        async def take_times() -> None:
            async for taken_at, receipt in receive:
                await receipt
                times.append(time.perf_counter() - taken_at)

        with meter.shown("produce", load.message_count_max * load.value_bytes):
            async with client.producer(create_topics=False) as producer:
                await producer.send(load.topic, value)  # so that it is connected to the leader
                clocks = _Clocks()
                meter.start()
                deadline = time.perf_counter() + load.seconds_max
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(take_times)
                    submitted = 0
                    async with send:
                        while submitted < load.message_count_max and time.perf_counter() < deadline:
                            count = min(_CHUNK_COUNT, load.message_count_max - submitted)
                            for number in range(submitted, submitted + count):
                                receipt = await producer.submit(load.topic, value)
                                if number % _SAMPLE_INTERVAL == 0:
                                    await send.send((time.perf_counter(), receipt))
                            submitted += count
                            meter.add(count, count * load.value_bytes)
                        await producer.flush()
        return clocks.result(meter, {"acknowledged": Times.of(times)})

    async def _consume(self, client: octopi.Client) -> Result:
        """Consume from the first message of the topic to its end."""
        load, meter = self._load, RateMeter()
        clocks = _Clocks()
        began = time.perf_counter()
        first_s = 0.0
        with meter.shown("consume", load.message_count_max * load.value_bytes):
            meter.start()
            async with client.consumer(load.topic, start="earliest", stop_at_end=True) as consumer:
                count = size_bytes = 0
                async for message in consumer:
                    if not meter.messages and not count:
                        first_s = time.perf_counter() - began
                    count += 1
                    size_bytes += len(message.value)
                    if count == _CHUNK_COUNT or meter.messages + count == load.message_count_max:
                        meter.add(count, size_bytes)
                        count = size_bytes = 0
                        if (
                            meter.messages == load.message_count_max
                            or time.perf_counter() - began >= load.seconds_max
                        ):
                            break
                meter.add(count, size_bytes)
        if not meter.messages:
            raise CommandError(
                f"the topic {load.topic} is empty: fill it with `octopi-node bench produce "
                f"--topic {load.topic}`"
            )
        return clocks.result(meter, {"first message": Times.of([first_s])})

    async def _latency(self, client: octopi.Client) -> Result:
        """Send at a steady rate.  Times count from the moment for which a message was planned, so
        they include waiting behind slow messages."""
        load, meter = self._load, RateMeter()
        mark = secrets.token_bytes(_MARK_BYTES)
        rest = bytes(load.value_bytes - _MARK_BYTES - _NUMBER_BYTES)
        count = max(1, min(load.message_count_max, round(load.rate * load.seconds_max)))
        acknowledged: list[float] = []
        delivered: list[float] = []
        with meter.shown("latency", count * load.value_bytes):
            async with (
                client.producer(create_topics=False) as producer,
                client.consumer(load.topic, start="latest") as consumer,
            ):
                await producer.send(load.topic, bytes(load.value_bytes))
                await anext(consumer)  # from now on both are connected to the leader
                clocks = _Clocks()
                meter.start()
                began = time.perf_counter()
                limit = trio.CapacityLimiter(BENCH_SAMPLES_MAX)

                def planned(number: int) -> float:
                    return began + number / load.rate

                async def send(number: int) -> None:
                    value = mark + number.to_bytes(_NUMBER_BYTES, "big") + rest
                    try:
                        await producer.send(load.topic, value)
                    finally:
                        limit.release_on_behalf_of(number)
                    acknowledged.append(time.perf_counter() - planned(number))
                    meter.add(1, load.value_bytes)

                async def take() -> None:
                    async for message in consumer:
                        if message.value.startswith(mark):
                            at = message.value[_MARK_BYTES : _MARK_BYTES + _NUMBER_BYTES]
                            number = int.from_bytes(at, "big")
                            delivered.append(time.perf_counter() - planned(number))
                            if len(delivered) == count:
                                return

                with trio.move_on_after(load.seconds_max + _OVERDUE_S):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(take)
                        for number in range(count):
                            await trio.sleep(max(0.0, planned(number) - time.perf_counter()))
                            await limit.acquire_on_behalf_of(number)
                            nursery.start_soon(send, number)
                result = clocks.result(
                    meter,
                    {
                        what: Times.of(times)
                        for what, times in (
                            ("acknowledged", acknowledged),
                            ("delivered", delivered),
                        )
                        if times
                    },
                    can_client_limit=False,
                )
        if len(delivered) < count:
            say(f"latency: {count - len(delivered)} of {count} messages did not come", err=True)
        return result
