"""Topics get other partitions while programs of the library write to them and leaders are killed.

The producers are those of the client.  What they have stored is read log by log, and put together
as a consumer that follows generations does (`tests.testing.test_growing_topics`).
"""

from __future__ import annotations

import pytest
import trio

from octopi.clients.producing.producer import Producer
from octopi.roles.register.node import RegisterNode
from octopi.testing import Cluster, simulated
from tests.testing.test_growing_topics import Growing, killing_leaders

PROGRAMS = 4
KEYS = 3
"""Of each program."""
ROUNDS = 25
MESSAGES = PROGRAMS * KEYS * ROUNDS

_registers: list[RegisterNode] = []
"""All that were started, the newest last."""


@pytest.fixture(autouse=True)
def _registers_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    original = RegisterNode.__init__
    _registers.clear()

    def noted(self: RegisterNode, *arguments: object, **named: object) -> None:
        _registers.append(self)
        original(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(RegisterNode, "__init__", noted)


def key_of(program: int, number: int) -> bytes:
    return f"key-{program}-{number}".encode()


async def write(growing: Growing, producer: Producer, program: int) -> None:
    """Submit messages in turn for several keys; wait for a receipt now and then."""
    for message in range(ROUNDS):
        for number in range(KEYS):
            key = key_of(program, number)
            pending = await producer.submit("orders", b"%d" % message, key=key)
            growing.receipts += 1
        if growing.cluster.random.random() < 0.3:
            receipt = await pending
            assert receipt.partition in growing.topic.log_partitions
        await growing.cluster.sleep(growing.cluster.random.random() * 0.1)
    await producer.flush()
    assert producer.acknowledged_count == KEYS * ROUNDS


async def check_stored(growing: Growing) -> None:
    logs = await growing.logs(await growing.cluster.environment("reader"))
    read = growing.as_read(logs)
    for program in range(PROGRAMS):
        for number in range(KEYS):
            got = [one for key, one in read if key == key_of(program, number)]
            assert got == list(range(ROUNDS))
    assert sum(map(len, logs.values())) == MESSAGES


async def grow(growing: Growing, count: int, after: int) -> None:
    while growing.receipts < after:
        await growing.cluster.sleep(0.05)
    await growing.grow(count)


async def grow_twice(
    cluster: Cluster, step: str, skip: int, name: str | None = None, **options: float
) -> None:
    """Let the topic grow from 2 to 4 to 8 partitions, while programs write."""
    async with cluster.client() as client, trio.open_nursery() as tasks:
        await client.create_topic("orders", partition_ids=[0, 1])
        growing = Growing(cluster, _registers, tasks)
        with killing_leaders(growing, step, skip):
            async with trio.open_nursery() as programs:
                programs.start_soon(grow, growing, 4, MESSAGES // 4)
                programs.start_soon(grow, growing, 8, MESSAGES // 2)
                for program in range(PROGRAMS):
                    programs.start_soon(run_program, growing, program, name, options)
        await check_stored(growing)
        tasks.cancel_scope.cancel()
    assert len(growing.topic.partitions) == 8


async def run_program(
    growing: Growing, program: int, name: str | None, options: dict[str, float]
) -> None:
    named = None if name is None else f"{name}-{program}"
    async with (
        growing.cluster.client(f"program-{program}") as client,
        client.producer(name=named, **options) as producer,  # type: ignore[arg-type]
    ):
        await write(growing, producer, program)


@simulated(seeds=2, partitions=8, brokers=3, replicas=3)
@pytest.mark.parametrize(
    ("step", "skip"), [("_make_logs", 0), ("_seal", 0), ("_seal", 1), ("_advanced", 1)]
)
async def test_a_leader_killed_while_a_topic_grows_costs_no_message_and_no_order(
    cluster: Cluster, step: str, skip: int
) -> None:
    await grow_twice(cluster, step, skip)
