"""Dead letters of a queue: those that wait are listed, sent again once, or dropped."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.cli.dead_letters import (
    as_fields,
    deal_with_letters,
    read_letters,
    send_again,
    waiting_letters,
)
from tests.cli.conftest import Program, RunningCluster
from tests.kit.world import read_all, running_world

LETTERS = "orders.billing.dead"


def told(number: int) -> Mapping[str, bytes]:
    return {
        "colour": b"red",
        "octopi-origin": b"v1:orders@0123456789abcdef:0=%d" % number,
        "octopi-attempts": b"5",
        "octopi-reason": b"too late",
    }


async def write_letters(client: octopi.Client, first: int, count: int) -> None:
    """As the leaders of a queue's logs write them."""
    await client.create_topic("orders", 2, exist_ok=True)
    places = (await client.describe_topic("orders")).partitions
    ids = [one.partition for one in places]
    await client.create_topic(LETTERS, partition_ids=ids, exist_ok=True)
    async with client.producer() as producer:
        for number in range(first, first + count):
            await producer.submit(
                LETTERS,
                b"%d" % number,
                key=b"k",
                headers=told(number),
                partition=ids[number % len(ids)],
            )


async def replay(client: octopi.Client, count_max: int | None = None) -> int:
    waiting = await waiting_letters(client, "orders", "billing", from_the_first=False)
    return await deal_with_letters(
        client, waiting, count_max, lambda letters: send_again(client, "orders", letters)
    )


async def waiting_values(client: octopi.Client, *, from_the_first: bool = False) -> list[int]:
    waiting = await waiting_letters(client, "orders", "billing", from_the_first=from_the_first)
    return sorted(int(one.value) for one in await read_letters(client, waiting, 1_000))


async def test_each_letter_is_sent_again_once_as_it_was_and_to_its_partition(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await write_letters(client, 0, 10)
        assert await waiting_values(client) == list(range(10))
        assert await replay(client) == 10
        assert await waiting_values(client) == []
        assert await replay(client) == 0
        sent = await read_all(client, "orders")
        assert sorted(int(one.value) for one in sent) == list(range(10))
        letters = {one.value: one for one in await read_all(client, LETTERS)}
        for one in sent:
            assert (one.key, dict(one.headers)) == (b"k", {"colour": b"red"})
            assert one.partition == letters[one.value].partition
        assert await waiting_values(client, from_the_first=True) == list(range(10))
        await write_letters(client, 10, 2)
        assert await waiting_values(client) == [10, 11]
        assert await replay(client) == 2
        assert len(await read_all(client, "orders")) == 12


async def test_some_letters_are_replayed_and_the_rest_waits(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await write_letters(client, 0, 10)
        assert await replay(client, 3) == 3
        assert len(await waiting_values(client)) == 7
        assert len(await read_all(client, "orders")) == 3
        assert await replay(client, 100) == 7
        assert sorted(int(one.value) for one in await read_all(client, "orders")) == list(range(10))


async def test_letters_that_were_sent_and_not_marked_are_sent_again(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await write_letters(client, 0, 4)

        async def fail(letters: list[octopi.Message]) -> None:
            await send_again(client, "orders", letters)
            raise ZeroDivisionError

        waiting = await waiting_letters(client, "orders", "billing", from_the_first=False)
        with pytest.raises(ZeroDivisionError):
            await deal_with_letters(client, waiting, None, fail)
        assert await waiting_values(client) == [0, 1, 2, 3]
        assert await replay(client) == 4


async def test_letters_that_come_during_a_replay_wait_for_the_next_one(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await write_letters(client, 0, 2)

        async def more(letters: list[octopi.Message]) -> None:
            await write_letters(client, 10 * int(letters[0].value) + 10, 2)

        waiting = await waiting_letters(client, "orders", "billing", from_the_first=False)
        assert await deal_with_letters(client, waiting, None, more) == 2
        assert await waiting_values(client) == [10, 11, 20, 21]


async def test_a_replay_does_not_wait_for_letters_that_another_one_has_replayed(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await write_letters(client, 0, 4)
        waiting = await waiting_letters(client, "orders", "billing", from_the_first=False)
        assert await replay(client) == 4

        async def fail(letters: list[octopi.Message]) -> None:
            raise AssertionError(letters)

        with trio.fail_after(60):
            assert await deal_with_letters(client, waiting, None, fail) == 0


async def test_two_replays_do_not_run_at_the_same_time(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client, world.client() as second:
        await write_letters(client, 0, 4)
        async with client.subscription(LETTERS, "replay", mark="manual", expires=None):
            with pytest.raises(octopi.SubscriptionBusyError):
                await replay(second)
        assert await replay(second) == 4


async def test_a_letter_has_its_attempts_its_reason_and_where_it_came_from(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await write_letters(client, 7, 1)
        (letter,) = await read_all(client, LETTERS)
        fields = as_fields(letter)
        assert fields["attempts"] == "5"
        assert fields["reason"] == "too late"
        assert octopi.Position.parse(fields["origin"]).topic == "orders"
        assert (fields["key"], fields["value"]) == ("k", "7")


async def test_a_subscription_without_letters_is_told_apart(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        with pytest.raises(octopi.UnknownTopicError, match="no dead letters"):
            await waiting_letters(client, "orders", "billing", from_the_first=False)


@pytest.mark.process
def test_letters_are_listed_replayed_and_dropped_on_the_command_line(
    program: Program, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTOPI_TIMEOUT_S", "20")

    async def write() -> None:
        async with octopi.connect(cluster.url, request_timeout_s=20) as client:
            await write_letters(client, 0, 5)

    trio.run(write)

    def run(command: str, *arguments: str) -> tuple[int, str, str]:
        result = program(
            "dead-letters",
            command,
            "billing",
            "--topic",
            "orders",
            "--server",
            cluster.url,
            *arguments,
        )
        return result.exit_code, result.stdout, result.stderr

    code, table, note = run("list", "-n", "2")
    assert (code, note) == (0, "these are the first 2; --count has more\n")
    heading, *rows = table.splitlines()
    columns = ["PARTITION", "OFFSET", "TIME", "ATTEMPTS", "KEY", "VALUE", "REASON", "ORIGIN"]
    assert heading.split() == columns
    assert len(rows) == 2
    letters = json.loads(run("list", "--json")[1])
    assert sorted(one["value"] for one in letters) == ["0", "1", "2", "3", "4"]

    code, _, why = run("replay")
    assert (code, "--yes" in why) == (2, True)
    assert run("replay", "-n", "2", "--yes") == (0, "", "replayed 2 dead letters of billing\n")
    code, dropped, _ = run("drop", "--yes", "--json")
    assert (code, json.loads(dropped)) == (
        0,
        {"subscription": "billing", "topic": "orders", "from": LETTERS, "dropped": 3},
    )
    assert run("drop") == (0, "", "dropped 0 dead letters of billing\n")
    assert json.loads(run("list", "--json")[1]) == []
    assert len(json.loads(run("list", "--json", "--all")[1])) == 5
    code, _, why = run("list", "--topic", "nothing")
    assert (code, "no dead letters" in why) == (4, True)
