"""What a command with something to finish does at Ctrl-C: members of subscriptions above all."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from typing import Literal

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.cli.consuming import Output, values_as_lines
from octopi.cli.failures import InterruptedByUserError
from octopi.cli.rate_meter import RateMeter
from octopi.cli.running import Interruption, run_to_finish
from tests.clients.test_subscriptions import send
from tests.kit.world import running_world

Mode = Literal["exclusive", "failover", "shared", "key_shared"]
MODES: list[Mode] = ["exclusive", "failover", "shared", "key_shared"]


class Reader:
    """What reads the output of a member; it may stop reading."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines = 0
        self.is_reading = True
        self.news = trio.Event()

        async def in_this_thread(write: Callable[[], None], *, abandon_on_cancel: bool) -> None:
            await trio.lowlevel.checkpoint()
            if not self.is_reading:
                self.news.set()
                await trio.sleep_forever()
            write()
            self.lines += 1
            self.news.set()

        monkeypatch.setattr(trio.to_thread, "run_sync", in_this_thread)

    async def next_write(self) -> None:
        """Until something is written, or can't be written."""
        await self.news.wait()
        self.news = trio.Event()


async def member(client: octopi.Client, mode: Mode, interruption: Interruption) -> None:
    """`octopi-node consume --subscription`, at its core."""
    output = Output(os.open(os.devnull, os.O_WRONLY), values_as_lines, RateMeter())
    try:
        if mode == "shared" or mode == "key_shared":
            async with client.subscription("orders", "billing", mode=mode, prefetch=1) as queue:
                await output.copy_queue(queue, interruption)
        else:
            async with client.subscription(
                "orders", "billing", mode=mode, mark="manual"
            ) as subscription:
                await output.copy_subscription(subscription, interruption)
    finally:
        os.close(output.descriptor)


async def next_value(client: octopi.Client, mode: Mode) -> int:
    """What the next member is given first."""
    if mode == "shared" or mode == "key_shared":
        async with (
            client.subscription("orders", "billing", mode=mode) as queue,
            await anext(queue) as dealt,
        ):
            return int(dealt.value)
    async with client.subscription("orders", "billing", mode=mode) as subscription:
        return int((await anext(subscription)).value)


@pytest.mark.parametrize("mode", MODES)
async def test_an_interrupted_member_leaves_with_all_marked_that_was_written(
    mode: Mode, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, interruption = Reader(monkeypatch), Interruption()
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        with trio.fail_after(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(member, client, mode, interruption)
                await send(client, "orders", 0, 1)
                await reader.next_write()
                interruption.come()
            await send(client, "orders", 1, 2)
            assert await next_value(client, mode) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_what_can_not_be_written_any_more_goes_to_the_next_member(
    mode: Mode, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, interruption = Reader(monkeypatch), Interruption()
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(member, client, mode, interruption)
                await send(client, "orders", 0, 1)
                await reader.next_write()
                reader.is_reading = False
                await send(client, "orders", 1, 2)
                await reader.next_write()
                interruption.come()
            assert await next_value(client, mode) == 1


# --- signals -----------------------------------------------------------------------------


def interrupted(grace_s: float, *signals: signal.Signals) -> str:
    """What is said when these signals come to a command that never ends by itself."""

    async def body(interruption: Interruption) -> None:
        interruption.grace_s = grace_s
        for one in signals:
            signal.raise_signal(one)
        await trio.sleep_forever()

    with pytest.raises(InterruptedByUserError) as raised:
        run_to_finish(body, lambda: "interrupted; 7 messages")
    return str(raised.value)


CUT_OFF = "interrupted; 7 messages; not all is confirmed, so the last of it may come again"


def test_a_command_with_nothing_to_finish_is_cancelled() -> None:
    assert interrupted(0.0, signal.SIGTERM) == CUT_OFF


def test_a_command_that_does_not_finish_in_time_is_cancelled() -> None:
    assert interrupted(0.01, signal.SIGINT) == CUT_OFF


def test_a_second_signal_cancels_a_command_that_finishes() -> None:
    assert interrupted(math.inf, signal.SIGINT, signal.SIGTERM) == CUT_OFF


def test_a_command_that_finishes_in_time_has_nothing_in_doubt() -> None:
    async def body(interruption: Interruption) -> None:
        interruption.grace_s = math.inf
        with interruption.bounds(0.0):
            signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()
        assert interruption.has_come

    with pytest.raises(InterruptedByUserError, match=r"^7 messages$"):
        run_to_finish(body, lambda: "7 messages")
