"""`demo --relay`: shared cursors on three relays, of which the sequencer is killed.

Everybody who opens the page has a cursor, whose positions are messages of a topic in memory.  Two
robots have one as well.  One reader reads all of them, and counts what is missing and what comes
twice, while the relay that is the sequencer is killed again and again.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

import trio

import octopi
from octopi.cli import output
from octopi.cli.cursor_counts import CursorCounts, CursorPosition, whose
from octopi.cli.demo_relays import RELAY_COUNT, DemoRelays
from octopi.cli.demonstration import say, until
from octopi.cli.failures import CommandError
from octopi.cli.node_processes import node_processes
from octopi.cli.rendering import counted

CURSORS: Final = "cursors"
NEWS: Final = "cursors.news"
"""What happened, for people: texts."""
KILLS: Final = "cursors.kills"
"""A message here asks for a kill."""

_ROBOTS: Final = ("robot 1", "robot 2")
_TICK_S: Final = 0.05
"""Between two positions of a robot."""
_ROUND_S: Final = 6.0
"""A robot is back where it was."""
_PEACE_S: Final = 20.0
"""The longest time between two kills."""
_AWAY_S: Final = 4.0
"""The time between a kill and the restart of the relay."""
_PATIENCE_S: Final = 30.0


class SharedCursors:
    """One run, with the data of the relays in *directory*."""

    def __init__(self, directory: Path, seconds: float | None) -> None:
        """*seconds*: how long it goes on, a kill included; None: until it is cancelled."""
        self._directory = directory
        self._seconds = seconds
        third = math.inf if seconds is None else seconds / 3
        self._peace_s = min(_PEACE_S, third)
        self._away_s = min(_AWAY_S, third)
        self._counts = CursorCounts()
        self._news = trio.Event()  # set, and replaced, when a position was counted
        self._is_asked = trio.Event()  # set, and replaced, when somebody asks for a kill
        self._has_killed = trio.Event()
        self._kills = 0
        self._longest_s = 0.0

    async def run(self) -> None:
        """Run until the time is over; all processes have ended when this returns or raises.

        Raises:
          CommandError: if a relay failed, or a position is missing or came twice.
          OctopiError: any error of producing or consuming.
        """
        async with node_processes(self._directory) as nodes:
            relays = DemoRelays(nodes)
            await relays.start_all()
            say("started", f"{RELAY_COUNT} relays, each a process of its own; nothing is on a disk")
            for relay, address in enumerate(relays.addresses, 1):
                where = f"{address.replace('ws', 'http', 1)}/console/cursors.html"
                say("page", where + ("  (open it in several tabs)" if relay == 1 else ""))
            if self._seconds is None:
                say("going on", "until Ctrl-C")
            await self._play(relays)
            await nodes.stop()
        say("stopped", "every process")

    def interrupted(self) -> str:
        """What to say if it was cancelled."""
        return f"interrupted; every process was stopped; {self._counts}"

    def report(self) -> None:
        """Print the verdict."""
        output.say()
        output.say(
            f"OK: {self._counts}, through {counted(self._kills, 'kill')} of the sequencer; "
            f"the longest silence was {self._longest_s:.2f} s"
        )

    async def _play(self, relays: DemoRelays) -> None:
        # The reader and the robots each begin at another relay.
        async with octopi.connect(relays.from_relay(3), name="demo") as client:
            for topic in (CURSORS, NEWS, KILLS):
                await client.describe_topic(topic, create=True)
            async with _until_cancelled() as nursery:
                await nursery.start(self._count, client)
                await nursery.start(self._hear_wishes, client)
                nursery.start_soon(self._kill_and_restart, client, relays)
                sent = await self._move_robots(relays)
                await self._until_counted(sent)
        if self._counts.missing or self._counts.twice:
            raise CommandError(f"{self._counts}: none should be")

    # --- cursors -------------------------------------------------------------------------

    async def _move_robots(self, relays: DemoRelays) -> dict[str, int]:
        """Move all robots until the time is over and a relay was killed; return how many positions
        each has sent, all of which are acknowledged."""
        stop = trio.Event()
        sent: dict[str, int] = {}

        async def move(number: int, who: str) -> None:
            addresses = relays.from_relay(number + 1)
            async with (
                octopi.connect(addresses, name=who) as client,
                client.producer() as producer,
            ):
                for step in count():
                    position = _robot_at(number, who, step)
                    await producer.submit(CURSORS, position.encode())
                    sent[who] = step + 1
                    if stop.is_set():
                        return
                    with trio.move_on_after(_TICK_S):
                        await stop.wait()

        async with trio.open_nursery() as nursery:
            for number, who in enumerate(_ROBOTS):
                nursery.start_soon(move, number, who)
            await trio.sleep(math.inf if self._seconds is None else self._seconds)
            await self._has_killed.wait()
            stop.set()
        return sent

    async def _count(
        self,
        client: octopi.Client,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Read all positions, and count them."""
        async with client.consumer(CURSORS, start="earliest") as consumer:
            task_status.started()
            heard_at = math.inf
            async for message in consumer:
                found = whose(message.value)
                if found is None:
                    continue
                now = time.perf_counter()
                self._longest_s = max(self._longest_s, now - heard_at)
                heard_at = now
                self._counts.take(*found)
                news, self._news = self._news, trio.Event()
                news.set()

    async def _until_counted(self, sent: dict[str, int]) -> None:
        """Wait until what the robots *sent* was read.

        Raises:
          CommandError: if that takes too long.
        """
        with trio.move_on_after(_PATIENCE_S):
            while any(self._counts.taken(who) < number for who, number in sent.items()):
                await self._news.wait()
            return
        raise CommandError(f"{self._counts}: the last ones did not come within {_PATIENCE_S:g} s")

    # --- kills ---------------------------------------------------------------------------

    async def _hear_wishes(
        self,
        client: octopi.Client,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        async with client.consumer(KILLS, start="latest") as consumer:
            task_status.started()
            async for _ in consumer:
                asked, self._is_asked = self._is_asked, trio.Event()
                asked.set()

    async def _kill_and_restart(self, client: octopi.Client, relays: DemoRelays) -> None:
        """Kill the sequencer when somebody asks for it, or nobody did for long; repeatedly."""

        async def place() -> octopi.PartitionInfo:
            (only,) = (await client.describe_topic(CURSORS)).partitions
            return only

        async def all_take_part() -> octopi.PartitionInfo | None:
            found = await place()
            return found if len(found.in_sync) == RELAY_COUNT else None

        async def other_than_the_victim() -> int | None:
            leader = (await place()).leader
            return leader if leader != victim else None

        async with client.producer() as producer:

            async def tell(what: str, facts: str) -> None:
                say(what, facts)
                await producer.submit(NEWS, f"{what} {facts}".encode())

            while True:
                with trio.move_on_after(self._peace_s):
                    await self._is_asked.wait()
                victim = (await until("all relays", all_take_part)).leader
                assert victim is not None, "a relay partition in which all take part has one"
                killed_at = time.perf_counter()
                await relays.kill(victim)
                self._kills += 1
                await tell("killed", f"relay {victim}, the sequencer, with SIGKILL")
                successor = await until("another sequencer", other_than_the_victim)
                after_s = time.perf_counter() - killed_at
                await tell("took over", f"relay {successor}, after {after_s:.2f} s")
                self._has_killed.set()
                await trio.sleep(self._away_s)
                await relays.start(victim)
                await tell("restarted", f"relay {victim}")


def _robot_at(number: int, who: str, step: int) -> CursorPosition:
    """Where robot *number* is: on a figure of eight, each half a round behind the other."""
    angle = 2 * math.pi * (step * _TICK_S / _ROUND_S + number / len(_ROBOTS))
    x, y = 0.5 + 0.35 * math.sin(angle), 0.5 + 0.3 * math.sin(2 * angle + number)
    return CursorPosition(who, step, round(x, 4), round(y, 4))


@asynccontextmanager
async def _until_cancelled() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks are cancelled when the block ends."""
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()
