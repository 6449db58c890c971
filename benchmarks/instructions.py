"""Counts the Python instructions that a message costs: ``python -m benchmarks.instructions``.

The count is the same in each run.  Each way of producing or consuming is one line.  A cluster on
virtual time carries some messages, and in a second run more.  The difference, divided by the number
of additional messages, is what one costs in the code of Octopi and Trio, on all sides together.
Instructions say nothing about C code, such as copies, checksums and the kernel.  But one check, one
wait or one loop too many shows here, on any machine, however busy.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import attrs
import trio

import octopi.testing

_OURS: Final = tuple(str(Path(str(one.__file__)).parent) for one in (octopi, trio))
_SIMULATED: Final = tuple(f"{_OURS[0]}/{one}" for one in ("simulation", "testing"))
_LOOP_INSTRUCTIONS: Final = 10_728
"""The instructions of `_loop` in Python 3.11, the version that the bounds are for."""
_TOPIC: Final = "topic"
_VALUE: Final = bytes(100)
_GROUP: Final = 1000
_TOPIC_COUNT: Final = 100


@attrs.frozen
class Cost:
    """The cost of one message."""

    instructions: float
    places: Counter[str]
    """The instructions of all additional messages, by function."""


@attrs.define
class _Meter:
    instructions: Counter[str] = attrs.field(factory=Counter)
    _is_ours: dict[str, bool] = attrs.field(factory=dict)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Count the instructions of all tasks within the block."""
        before = sys.gettrace()
        sys.settrace(self._begin)
        try:
            yield
        finally:
            sys.settrace(before)

    def _begin(self, frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if name not in self._is_ours:
            ours = name.startswith(_OURS) and not name.startswith(_SIMULATED)
            self._is_ours[name] = ours or name == __file__
        if not self._is_ours[name]:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._count

    def _count(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            self.instructions[frame.f_code.co_qualname] += 1
        return self._count


Carry = Callable[[octopi.testing.Cluster, _Meter, int], Awaitable[None]]


async def _produce(cluster: octopi.testing.Cluster, meter: _Meter, count: int) -> None:
    async with cluster.client() as client, client.producer() as producer:
        await producer.send(_TOPIC, b"connect")
        with meter.on():
            for _ in range(0, count, _GROUP):
                await producer.submit_many(_TOPIC, [_VALUE] * _GROUP)
            await producer.flush()


async def _submit(cluster: octopi.testing.Cluster, meter: _Meter, count: int) -> None:
    async with cluster.client() as client, client.producer() as producer:
        await producer.send(_TOPIC, b"connect")
        with meter.on():
            for _ in range(count):
                await producer.submit(_TOPIC, _VALUE)
            await producer.flush()


async def _request(cluster: octopi.testing.Cluster, meter: _Meter, count: int) -> None:
    async with cluster.client() as client, client.producer() as producer:
        await producer.send(_TOPIC, b"connect")
        with meter.on():
            for _ in range(count):
                await producer.send(_TOPIC, _VALUE)


async def _request_of_many(cluster: octopi.testing.Cluster, meter: _Meter, count: int) -> None:
    async with cluster.client() as client, client.producer() as producer:
        for number in range(_TOPIC_COUNT):
            await producer.send(f"{_TOPIC}-{number}", b"create")
        await producer.send(_TOPIC, b"connect")
        with meter.on():
            for _ in range(count):
                await producer.send(_TOPIC, _VALUE)


async def _consume(cluster: octopi.testing.Cluster, meter: _Meter, count: int) -> None:
    async with cluster.client() as client:
        async with client.producer() as producer:
            await producer.submit_many(_TOPIC, [_VALUE] * count)
        async with client.consumer(_TOPIC, start="earliest") as consumer:
            with meter.on():
                seen = 0
                while seen < count:
                    seen += len(list(await consumer.next_batch() or ()))


async def _subscribe(cluster: octopi.testing.Cluster, meter: _Meter, count: int) -> None:
    """Send ten messages one by one to consumers at the tail, so that there are *count*
    deliveries."""
    got, consumer_count = 0, count // 10

    async def take(started: trio.Event) -> None:
        nonlocal got
        async with cluster.client() as client, client.consumer(_TOPIC, start="latest") as consumer:
            started.set()
            while True:
                batch = await consumer.next_batch()
                got += len(list(batch or ()))

    async with (
        cluster.client() as client,
        client.producer() as producer,
        trio.open_nursery() as consumers,
    ):
        await producer.send(_TOPIC, b"create")
        for _ in range(consumer_count):
            started = trio.Event()
            consumers.start_soon(take, started)
            await started.wait()
        with meter.on():
            for number in range(1, 11):
                await producer.send(_TOPIC, _VALUE)
                while got < number * consumer_count:
                    await cluster.sleep(0.01)
        consumers.cancel_scope.cancel()


WAYS: Final[dict[str, tuple[Carry, int, int, int]]] = {
    "produced in a batch": (_produce, 2_000, 6_000, 1),
    "produced in a batch, 3 replicas": (_produce, 2_000, 5_000, 3),
    "submitted by itself": (_submit, 1_000, 3_000, 1),
    "acknowledged by itself": (_request, 20, 60, 1),
    "acknowledged by itself, 3 replicas": (_request, 10, 30, 3),
    "acknowledged by itself, 3 replicas of 100 topics": (_request_of_many, 10, 30, 3),
    "consumed": (_consume, 10_000, 18_000, 1),
    "delivered to one more consumer": (_subscribe, 50, 150, 1),
}
"""For each way: the function that carries messages, how many it carries in the first run and in the
second, and the number of brokers."""


def cost(way: str) -> Cost:
    """The cost of one more message on *way*, a key of `WAYS`."""
    carry, some, more, brokers = WAYS[way]
    few, many = _carried(carry, some, brokers), _carried(carry, more, brokers)
    extra = more - some
    places = Counter({name: n - few.instructions[name] for name, n in many.instructions.items()})
    return Cost(places.total() / extra, places)


def _carried(carry: Carry, count: int, brokers: int) -> _Meter:
    meter = _Meter()

    async def main(cluster: octopi.testing.Cluster) -> None:
        await carry(cluster, meter, count)

    octopi.testing.run(
        main,
        seed=1,
        brokers=brokers,
        replicas=brokers,
        partitions=1,
        websocket=True,
        oracle=False,
    )
    return meter


def scale() -> float:
    """The number of instructions that this Python executes for one of Python 3.11."""
    meter = _Meter()
    with meter.on():
        _loop()
    return meter.instructions.total() / _LOOP_INSTRUCTIONS


def _loop() -> int:
    """Execute various instructions.  A change here would change `_LOOP_INSTRUCTIONS`."""
    seen: dict[int, list[int]] = {}
    for number in range(1000):
        if number & 7 == 3:
            seen.setdefault(number & 63, []).append(number)
    return sum(len(one) for one in seen.values())


def main() -> None:
    print(f"this Python executes {scale():.2f} instructions for one of Python 3.11")
    for way in WAYS:
        found = cost(way)
        print(f"{way}: {found.instructions:,.1f} instructions")
        for name, instructions in found.places.most_common(8):
            print(f"    {instructions / found.places.total():6.1%}  {name}")


if __name__ == "__main__":
    main()
