"""Requests that are expensive for a broker: look-ups of offsets by time and by count, which may
read much of a log, and many fetches that wait for records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import trio

from octopi.clients.client import Client
from octopi.clients.consuming.start_position import OffsetSpec, last
from octopi.environment import Environment
from octopi.errors import OctopiError
from octopi.limits import WAITING_FETCHES_MAX
from octopi.transport.handshake import open_connection
from octopi.wire.endpoints import CLIENT
from octopi.wire.messages import Fetch, FindOffset, FoundOffset

_LONG_AGO: Final = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
"""One second after the time at which every run begins."""

_PLACES: Final[tuple[OffsetSpec, ...]] = (last(3), last(10**6), _LONG_AGO)

_TOO_MANY: Final = 8
"""How many more fetches are sent than may wait."""
_WAIT_MS: Final = 400
_ANSWER_S: Final = 3.0


async def ask_for_offsets(client: Client, topic: str) -> None:
    """Look up the start of a consumer in every log of *topic*, by each of `_PLACES`.

    Raises:
      OctopiError: if a look-up fails.
    """
    for place in _PLACES:
        async with client.consumer(topic, start=place, reconnect_timeout_s=1.0):
            pass


async def have_fetches_wait(environment: Environment, client: Client, topic: str) -> None:
    """Send one broker more fetches that wait for records than it takes; it refuses those beyond.

    Raises:
      OctopiError: if the topic can't be described, or the broker doesn't answer.
    """
    (place, *_) = (await client.describe_topic(topic)).partitions
    if place.leader is None or not place.leader_address:
        return
    connection = await open_connection(environment, place.leader_address, CLIENT, "poller")
    left = WAITING_FETCHES_MAX + _TOO_MANY
    done = trio.Event()

    def take(_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    problem: OctopiError | None = None
    async with trio.open_nursery() as tasks:
        await tasks.start(connection.run, lambda _: None)
        try:
            latest = FindOffset(connection.next_request(), topic, place.partition, "latest", 0)
            end = (await connection.request(latest, FoundOffset, _ANSWER_S)).offset
            for _ in range(left):
                number = connection.next_request()
                connection.ask(Fetch(number, topic, place.partition, end, 1, _WAIT_MS), take)
            with environment.clock.timeout(_ANSWER_S):
                await done.wait()
        except OctopiError as error:
            problem = error  # raised below, as it is: a nursery would put it into a group
        finally:
            with trio.CancelScope(shield=True):
                await connection.close()
            tasks.cancel_scope.cancel()
    if problem is not None:
        raise problem
