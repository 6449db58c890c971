"""Turns of tasks, in virtual time, with a stopwatch that only the test moves."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from octopi.errors import Status
from octopi.limits import (
    DENIAL_FRAMES,
    ROUND_S,
    TURN_S,
    USELESS_FRAMES_FREE,
    USELESS_FRAMES_PER_S,
    USELESS_FRAMES_PER_TURN,
)
from octopi.operating_system import SystemClock
from octopi.transport.turns import ConnectionTurn, ConnectionTurns
from octopi.wire import messages as m


@attrs.define
class Stopwatch:
    """Work takes as long as the test says."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@attrs.define
class Here:
    turns: ConnectionTurns
    watch: Stopwatch
    nursery: trio.Nursery
    done: list[str] = attrs.Factory(list)

    async def work(self, name: str, turn: ConnectionTurn, lengths_s: list[float]) -> None:
        """Do the work in so many turns."""
        for length_s in lengths_s:
            if not turn.begin():
                await turn.wait()
            self.watch.seconds += length_s
            self.done.append(name)
            turn.end()
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def loop() -> AsyncIterator[Here]:
    async with trio.open_nursery() as nursery:
        watch = Stopwatch()
        yield Here(ConnectionTurns(SystemClock(), watch, nursery), watch, nursery)
        nursery.cancel_scope.cancel()


async def test_a_turn_ends_after_its_length() -> None:
    async with loop() as here:
        turn = ConnectionTurn(here.turns)
        assert turn.begin()
        here.watch.seconds += TURN_S * 0.9
        turn.look()
        assert not turn.is_over
        here.watch.seconds += TURN_S * 0.2
        turn.look()
        assert turn.is_over
        await turn.give_way()
        turn.look()
        assert not turn.is_over


async def test_a_turn_ends_after_a_few_useless_frames_even_if_it_was_short() -> None:
    async with loop() as here:
        turn = ConnectionTurn(here.turns)
        assert turn.begin()
        for _ in range(USELESS_FRAMES_PER_TURN - 1):
            turn.took(m.Heartbeat)
            turn.look()
            assert not turn.is_over
        turn.took(m.Produce)
        turn.look()
        assert not turn.is_over
        turn.took(m.Heartbeat)
        turn.look()
        assert turn.is_over


async def test_without_contention_no_task_is_started_and_nobody_waits() -> None:
    async with loop() as here:
        turn = ConnectionTurn(here.turns)
        for _ in range(100):
            assert turn.begin()
            here.watch.seconds += ROUND_S * 0.6
            await turn.give_way()
            turn.end()
        assert not here.nursery.child_tasks


async def test_other_tasks_have_their_turn_between_two_turns_of_one_task() -> None:
    async with loop() as here:
        rounds = []

        async def other() -> None:
            while True:
                rounds.append(len(here.done))
                await trio.lowlevel.checkpoint()

        here.nursery.start_soon(other)
        await trio.lowlevel.checkpoint()
        turn = ConnectionTurn(here.turns)
        assert turn.begin()
        for _ in range(10):
            here.done.append("work")
            await turn.give_way()
        assert rounds[-1] >= 9


async def test_a_crowd_that_always_has_work_runs_one_task_at_a_time() -> None:
    async with loop() as here:
        used_in_round: list[float] = []

        async def bystander() -> None:
            before = here.watch.seconds
            while True:
                await trio.lowlevel.checkpoint()
                used_in_round.append(here.watch.seconds - before)
                before = here.watch.seconds

        here.nursery.start_soon(bystander)
        async with trio.open_nursery() as crowd:
            for number in range(50):
                crowd.start_soon(here.work, str(number), ConnectionTurn(here.turns), [TURN_S] * 5)
        assert len(here.done) == 250
        assert max(used_in_round[2:]) <= 2 * ROUND_S + TURN_S


async def test_a_member_that_uses_little_is_served_while_many_wait() -> None:
    async with loop() as here, trio.open_nursery() as crowd:
        for number in range(50):
            crowd.start_soon(here.work, str(number), ConnectionTurn(here.turns), [TURN_S] * 20)
        for _ in range(40):
            await trio.lowlevel.checkpoint()
        before = len(here.done)
        await here.work("small", ConnectionTurn(here.turns), [TURN_S / 10] * 3)
        assert len(here.done) - before < 20
        crowd.cancel_scope.cancel()


async def test_tasks_cancelled_while_they_wait_do_not_delay_others() -> None:
    async with loop() as here:
        greedy = ConnectionTurn(here.turns)
        assert greedy.begin()
        here.watch.seconds += ROUND_S
        greedy.end()
        with trio.CancelScope() as scope:
            scope.cancel()
            await here.work("cancelled", ConnectionTurn(here.turns), [TURN_S])
        assert here.done == []
        await here.work("next", ConnectionTurn(here.turns), [TURN_S])
        assert here.done == ["next"]


async def test_a_waiting_turn_tells_until_when_it_waits(
    autojump_clock: MockClock,
) -> None:
    async with loop() as here:
        turn = ConnectionTurn(here.turns)
        assert turn.waits_until == -math.inf
        assert turn.begin()
        turn.useless_count = USELESS_FRAMES_FREE + 10
        turn.end()
        assert not turn.begin()
        here.nursery.start_soon(turn.wait)
        await wait_all_tasks_blocked()
        assert turn.waits_until == math.inf
        await trio.sleep(10 / USELESS_FRAMES_PER_S + 0.001)
        assert math.isfinite(turn.waits_until)


async def test_a_pause_that_is_interrupted_is_not_begun_again(autojump_clock: MockClock) -> None:
    async with loop() as here:
        turn = ConnectionTurn(here.turns)
        assert turn.begin()
        turn.useless_count = USELESS_FRAMES_FREE + USELESS_FRAMES_PER_S
        turn.end()
        before = trio.current_time()
        while not turn.begin():
            with trio.move_on_after(0.3):
                await turn.wait()
        assert 0.99 <= trio.current_time() - before <= 1.01
        assert here.turns.pauses.pausing_count == 0


async def test_a_connection_with_many_refused_messages_has_to_pause(
    autojump_clock: MockClock,
) -> None:
    async with loop() as here:
        turn = ConnectionTurn(here.turns)
        denied_count = USELESS_FRAMES_FREE // DENIAL_FRAMES
        for number in range(denied_count + 1):
            assert turn.begin(), f"{number} refusals cost no pause"
            turn.refused(Status.FORBIDDEN)
            turn.refused(Status.UNKNOWN_TOPIC)
            turn.end()
        assert not turn.begin()
        before = trio.current_time()
        await turn.wait()
        assert trio.current_time() - before >= DENIAL_FRAMES / USELESS_FRAMES_PER_S * 0.99


async def test_many_tasks_of_one_connection_share_what_it_may_use() -> None:
    async with loop() as here, trio.open_nursery() as tasks:
        many, one = ConnectionTurn(here.turns), ConnectionTurn(here.turns)
        for _ in range(20):
            tasks.start_soon(
                here.work, "many", ConnectionTurn(here.turns, many.account), [TURN_S] * 100
            )
        tasks.start_soon(here.work, "one", one, [TURN_S] * 100)
        while len(here.done) < 100:
            await trio.lowlevel.checkpoint()
        assert here.done[20:].count("one") > 15, "it is one of two, not one of 21"
        tasks.cancel_scope.cancel()
