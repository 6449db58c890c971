"""The simulated world: its sleepers, its observers and its digest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from math import inf

import attrs
import trio

from octopi.simulation.kernel import driver, schedule
from octopi.simulation.kernel.world import Event, World


def run(main: Callable[[World], Awaitable[None]]) -> World:
    world = World(1)
    driver.run(world, lambda: main(world), schedule.Random(world.random("schedule")))
    return world


def test_sleepers_wake_when_their_time_has_come() -> None:
    woken: list[tuple[float, str]] = []

    async def main(world: World) -> None:
        async def sleep(name: str, seconds: float) -> None:
            await world.sleep(seconds)
            woken.append((world.now, name))

        async with trio.open_nursery() as nursery:
            for name, seconds in (("late", 2.0), ("never", 0.0), ("soon", 0.5)):
                nursery.start_soon(sleep, name, seconds)

    run(main)
    assert woken == [(0.0, "never"), (0.5, "soon"), (2.0, "late")]


def test_a_sleeper_that_is_cancelled_leaves_nothing_behind() -> None:
    async def main(world: World) -> None:
        with trio.move_on_after(1.0) as scope:
            await world.sleep(60.0)
        assert scope.cancelled_caught
        assert world.next_due() == inf

    assert run(main).now == 1.0


def test_an_observer_of_some_kinds_of_events_hears_of_no_others() -> None:
    world = World(1)
    heard: list[tuple[str, str]] = []

    def note(who: str) -> Callable[[Event], None]:
        return lambda event: heard.append((who, event.what))

    world.observe(note("some"), {"one", "two"})
    world.note("one")
    world.observe(note("all"))
    world.observers.insert(0, note("first"))
    world.note("two")
    del world.observers[0]
    world.note("three")
    assert heard == [
        ("some", "one"),
        ("first", "two"),
        ("some", "two"),
        ("all", "two"),
        ("all", "three"),
    ]


class Colour(Enum):
    RED = 1
    BLUE = 2


@attrs.frozen
class Part:
    colour: Colour
    sizes: list[int]


def digest(parts: list[Part | int], *, looked_at: int | None = None) -> str:
    world = World(1)
    for number, part in enumerate(parts):
        world.note("told", part=part)
        world.fold(b"between")
        if number == looked_at:
            assert world.digest
    return world.digest


def test_the_digest_stands_for_every_part_of_every_event() -> None:
    parts: list[Part | int] = [7] * 100
    parts[40] = Part(Colour.RED, [1, 2])
    other: dict[int, list[Part | int]] = {
        40: [Part(Colour.BLUE, [1, 2]), Part(Colour.RED, [1, 3]), 7],
        99: [8, Part(Colour.RED, [])],
    }
    digests = {
        digest([*parts[:place], one, *parts[place + 1 :]])
        for place, ones in other.items()
        for one in ones
    }
    assert len(digests | {digest(parts)}) == 6


def test_looking_at_the_digest_does_not_change_it() -> None:
    parts: list[Part | int] = [7, Part(Colour.RED, [1])] * 50
    assert {digest(parts, looked_at=number) for number in (None, 0, 31, 98)} == {digest(parts)}
