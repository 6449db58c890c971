"""Relays of a static list as processes: topics in memory through the usual clients."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import NodeProcess, NodeProcesses
from octopi.cli.failures import ExitCode
from octopi.cli.free_ports import free_port
from tests.cli.conftest import Program

pytestmark = pytest.mark.process

RELAYS = 3
EACH = 60
"""Messages of each producer."""


def start_relays(nodes: NodeProcesses) -> list[NodeProcess]:
    listens = [f"127.0.0.1:{free_port()}" for _ in range(RELAYS)]
    peers = ",".join(f"{number}=ws://{one}" for number, one in enumerate(listens, 1))
    relays = [
        nodes.node(
            f"relay-{number}", "broker", "--listen", listen, "--id", str(number),
            "--relay-peers", peers, "--partitions", "1",
        )
        for number, listen in enumerate(listens, 1)
    ]  # fmt: skip
    for one in relays:
        one.launch()
    for one in relays:
        one.wait_ready()
    return relays


def files_of(relay: NodeProcess) -> dict[str, tuple[int, int]]:
    """Each file of a relay's data directory, with its size and the time of its last change."""
    found = sorted(one for one in Path(relay.data_dir).rglob("*") if one.is_file())
    return {one.name: (one.stat().st_size, one.stat().st_mtime_ns) for one in found}


def test_three_relays_lose_and_double_nothing_when_the_sequencer_is_killed(
    nodes: NodeProcesses,
) -> None:
    relays = start_relays(nodes)
    trio.run(kill_the_sequencer_under_load, relays)


async def kill_the_sequencer_under_load(relays: list[NodeProcess]) -> None:
    acknowledged: dict[int, list[bytes]] = {one: [] for one in range(RELAYS)}
    seen: list[list[bytes]] = [[] for _ in relays]
    are_under_way = trio.Event()

    def entrances(first: int) -> list[str]:
        return [relays[(first + step) % RELAYS].url for step in range(RELAYS)]

    async def produce(number: int) -> None:
        async with octopi.connect(entrances(number)) as client, client.producer() as producer:
            for count in range(EACH):
                value = b"%d/%d" % (number, count)
                receipt = await producer.send("prices", value)
                assert receipt.id is not None
                acknowledged[number].append(value)
                if count == EACH // 3:
                    are_under_way.set()
                await trio.sleep(0.005)  # so that it goes on while the sequencer is away

    async def consume(number: int) -> None:
        async with (
            octopi.connect(entrances(number)) as client,
            client.consumer("prices", start="earliest", create=True) as consumer,
        ):
            while len(seen[number]) < RELAYS * EACH:
                seen[number].append((await consumer.__anext__()).value)

    async with octopi.connect(entrances(0)) as client:
        topic = await client.describe_topic("prices", create=True)
    [place] = topic.partitions
    assert place.leader is not None
    sequencer = relays[place.leader - 1]
    others = [one for one in relays if one is not sequencer]
    before = [files_of(one) for one in others]
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for number in range(RELAYS):
                nursery.start_soon(produce, number)
                nursery.start_soon(consume, number)
            await are_under_way.wait()
            sequencer.kill9()
            await trio.to_thread.run_sync(sequencer.start)
    assert [files_of(one) for one in others] == before, "what is produced touches no disk"
    assert seen[0] == seen[1] == seen[2], "one order for all"
    for number, values in acknowledged.items():
        mine = [one for one in seen[0] if one.startswith(b"%d/" % number)]
        assert mine == values == [b"%d/%d" % (number, count) for count in range(EACH)]
    # The one that was killed has everything from the others.
    async with (
        octopi.connect(sequencer.url) as client,
        client.consumer("prices", start="earliest") as consumer,
    ):
        with trio.fail_after(30):
            assert [(await consumer.__anext__()).value for _ in seen[0]] == seen[0]


def test_commands_show_how_relays_take_part_and_that_they_hold_the_same(
    nodes: NodeProcesses, program: Program
) -> None:
    relays = start_relays(nodes)
    server = ["--server", relays[0].url]
    assert program("produce", "prices", "one", "two", *server).exit_code == 0
    shown = program("relay", "status", *server)
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert lines[0][:4] == ["PARTITION", "RELAY", "STATE", "SEQUENCER"]
    assert [line[:3] for line in lines[1:]] == [["0", str(one), "normal"] for one in (1, 2, 3)]
    until = time.monotonic() + 30
    while True:  # a relay that has just begun may not answer in time on a busy machine
        verified = program("relay", "verify", "prices", *server)
        if "3 relays" in verified.stdout or time.monotonic() > until:
            break
        time.sleep(0.2)  # nothing announces it
    assert verified.exit_code == 0
    assert "3 relays hold the same up to offset" in verified.stdout
    assert "up to offset 0" not in verified.stdout
    told = json.loads(program("relay", "verify", "prices", "--json", *server).stdout)
    assert len(set(told["digests"].values())) == 1
    assert told["differs"] is None


def test_consume_begins_behind_the_message_with_an_id(
    nodes: NodeProcesses, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    relays = start_relays(nodes)

    async def send() -> bytes:
        async with octopi.connect(relays[0].url) as client, client.producer() as producer:
            receipts = [await producer.send("prices", one) for one in (b"one", b"two", b"three")]
            assert receipts[0].id is not None
            return receipts[0].id

    identity = trio.run(send).hex()
    server = ["--server", relays[1].url]
    shown = program("consume", "prices", "--from-id", identity, "--exit", *server)
    assert (shown.exit_code, capfd.readouterr().out.split()) == (0, ["two", "three"])
    unknown = program("consume", "prices", "--from-id", "0" * 32, "--exit", *server)
    assert unknown.exit_code == ExitCode.REFUSED
    assert "none of this topic" in unknown.stderr
    for options in (["--from-id", "12"], ["--from-id", identity, "-o", "latest"]):
        refused = program("consume", "prices", *options, *server)
        assert refused.exit_code == ExitCode.USAGE
        assert "--from-id" in refused.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--relay-peers", "1=ws://a:1,2=ws://b:1"], "--id"),
        (["--relay-peers", "1=ws://a:1,1=ws://b:1", "--id", "1"], "an id of its own"),
        (["--relay-peers", "ws://a:1", "--id", "1"], "is no relay"),
        (["--relay-peers", "1=ws://a:1", "--id", "1", "--relay-place", "a*"], "places no topics"),
        (["--relay-place", "a*=1+2+3", "--join", "ws://a:1"], "--relay-place is not an option"),
        (["--relay-peers", "1=ws://a:1", "--id", "1", "--relay-memory", "9"], "33554432"),
        (["--relay-place", "a*=1+2+3"], "--relay-place is not an option of a broker without"),
        (
            ["--relay-peers", "1=ws://127.0.0.1:1,2=ws://b:1", "--id", "1"],
            "relays are 3 to 9, not 2",
        ),
        (["--relay-peers", "1=ws://a:1", "--join", "ws://b:1"], "--join is not an option"),
    ],
)
def test_a_relay_that_can_not_be_one_says_why(
    program: Program, tmp_path: Path, options: list[str], why: str
) -> None:
    secret = tmp_path / "secret"
    assert program("secret", str(secret)).exit_code == 0
    result = program(
        "serve", "--role", "broker", "--data-dir", str(tmp_path / "data"),
        "--join-secret", str(secret), *options,
    )  # fmt: skip
    assert result.exit_code != 0
    assert why in result.stderr
    assert result.exit_code == ExitCode.USAGE or "not 2" in why
