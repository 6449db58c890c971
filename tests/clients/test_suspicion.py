"""When a client suspects a silent broker."""

from __future__ import annotations

import math

import attrs
import pytest
import trio
from trio.testing import MockClock

from octopi.clients.suspicion import ReadingSuspicion, RequestSuspicion
from octopi.limits import HEARTBEAT_INTERVAL_S, LEADER_SILENCE_S, READER_SILENCE_S
from tests.kit.world import VirtualClock


@attrs.define
class Connection:
    """To a broker that lives until it doesn't: it answers probes and sends heartbeats."""

    last_payload_at: float = attrs.field(factory=trio.current_time)
    last_received_at: float = attrs.field(factory=trio.current_time)
    probed_at: float = -math.inf
    end_reason: str | None = None
    is_alive: bool = True
    probes: list[float] = attrs.Factory(list)

    def probe(self) -> None:
        self.probed_at = trio.current_time()
        self.probes.append(self.probed_at)
        if self.is_alive:
            self.last_received_at = self.probed_at

    def deliver(self) -> None:
        self.last_payload_at = self.last_received_at = trio.current_time()

    async def beat(self) -> None:
        while self.is_alive:
            await trio.sleep_until(self.last_received_at + HEARTBEAT_INTERVAL_S)
            is_quiet = self.last_received_at + HEARTBEAT_INTERVAL_S <= trio.current_time()
            if is_quiet and self.is_alive:
                self.last_received_at = trio.current_time()


async def record_suspicions(reading: ReadingSuspicion, at: list[float]) -> None:
    """Note when the register would be asked."""
    while True:
        await reading.due()
        at.append(trio.current_time())


async def test_a_reader_of_a_live_broker_never_asks_the_register_and_soon_stops_probing(
    autojump_clock: MockClock,
) -> None:
    asked: list[float] = []
    connection = Connection()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.beat)
        for _ in range(3):  # logs that share the connection
            nursery.start_soon(
                record_suspicions,
                ReadingSuspicion(VirtualClock(), connection, connection.probe),
                asked,
            )
        began = trio.current_time()
        await trio.sleep(1000)
        assert 1 <= len(connection.probes) <= 3
        assert connection.probes[0] - began >= READER_SILENCE_S
        assert connection.probes[-1] - began <= HEARTBEAT_INTERVAL_S
        connection.deliver()
        before = len(connection.probes)
        await trio.sleep(1000)
        assert before < len(connection.probes) <= before + 3
        for _ in range(100):
            connection.deliver()
            await trio.sleep(0.9 * READER_SILENCE_S)
        assert len(connection.probes) <= before + 3
        assert asked == []
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("idle_s", [0.5, 1000.0])
async def test_a_broker_that_dies_between_deliveries_is_suspected_about_a_second_later(
    idle_s: float, autojump_clock: MockClock
) -> None:
    asked: list[float] = []
    connection = Connection()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.beat)
        nursery.start_soon(
            record_suspicions,
            ReadingSuspicion(VirtualClock(), connection, connection.probe),
            asked,
        )
        await trio.sleep(idle_s)
        probed = len(connection.probes)
        connection.deliver()
        connection.is_alive = False
        died_at = trio.current_time()
        await trio.sleep(15)
        nursery.cancel_scope.cancel()
    assert math.isclose(asked[0] - died_at, READER_SILENCE_S + LEADER_SILENCE_S, rel_tol=1e-3)
    assert 5 < len(asked) < 12
    assert len(connection.probes) == probed + 1  # once is enough while it gives no answer


async def test_a_broker_that_dies_while_there_is_nothing_new_owes_a_heartbeat(
    autojump_clock: MockClock,
) -> None:
    asked: list[float] = []
    connection = Connection()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.beat)
        nursery.start_soon(
            record_suspicions,
            ReadingSuspicion(VirtualClock(), connection, connection.probe),
            asked,
        )
        await trio.sleep(1000)
        connection.is_alive = False
        died_at = trio.current_time()
        await trio.sleep(HEARTBEAT_INTERVAL_S + LEADER_SILENCE_S + 0.001)
        assert asked
        assert asked[0] > died_at
        nursery.cancel_scope.cancel()


async def test_a_connection_that_ended_is_not_probed(autojump_clock: MockClock) -> None:
    connection = Connection()
    connection.end_reason = "gone"
    with trio.move_on_after(HEARTBEAT_INTERVAL_S):
        await ReadingSuspicion(VirtualClock(), connection, connection.probe).due()
    assert connection.probes == []


async def test_a_pending_request_is_suspicious_soon_and_sooner_while_no_broker_leads(
    autojump_clock: MockClock,
) -> None:
    began = trio.current_time()
    suspicion = RequestSuspicion(VirtualClock())
    await suspicion.due()
    first_s = trio.current_time() - began
    assert math.isclose(first_s, LEADER_SILENCE_S)
    for _ in range(5):
        before = trio.current_time()
        await suspicion.due()
        wait_s = trio.current_time() - before
    suspicion.no_leader()
    before = trio.current_time()
    await suspicion.due()
    assert trio.current_time() - before < wait_s / 2
