"""What a network can do to connections, and what TCP makes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
import trio

from octopi.environment import Link
from octopi.errors import ConnectionLostError, UnreachableError
from octopi.limits import CLOSE_TIMEOUT_S, CONNECT_TIMEOUT_S
from octopi.simulation.network.connection import WINDOW_BYTES, Arrival, Departure
from octopi.simulation.network.message_links import FrameNet
from octopi.simulation.network.network import Tier
from octopi.simulation.network.route import Mishap, Spread
from octopi.simulation.network.streams import WebSocketTier
from tests.simulation.worlds import PATH, PORT, Small, run_small

LONG_S = 100.0


@pytest.fixture(params=[FrameNet, WebSocketTier], ids=["frames", "streams"])
def tier(request: pytest.FixtureRequest) -> Tier:
    found: Tier = request.param
    return found


def run_in(
    tier: Tier,
    scenario: Callable[[Small], Awaitable[None]],
    more_hosts: tuple[str, ...] = (),
) -> None:
    run_small(tier, scenario, more_hosts=more_hosts)


@contextmanager
def takes(least_s: float, most_s: float) -> Iterator[None]:
    start = trio.current_time()
    yield
    assert least_s <= trio.current_time() - start <= most_s


async def arrives(link: Link, message: bytes, *, within_s: float = 1.0) -> None:
    with trio.fail_after(within_s):
        assert await link.receive() == message


async def nothing_comes(link: Link, seconds: float) -> None:
    with trio.move_on_after(seconds) as scope:
        message = await link.receive()
        raise AssertionError(f"{message!r} came")
    assert scope.cancelled_caught


async def breaks(link: Link, *, within_s: float = 1.0) -> None:
    why = ""
    with trio.fail_after(within_s):
        while not why:
            try:
                await link.receive()
            except ConnectionLostError as error:
                why = str(error)
    assert "broke" in why


# --- routes ---------------------------------------------------------------------------


def test_a_cut_keeps_messages_of_one_direction_and_mending_brings_them_in_order(
    tier: Tier,
) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        for number in range(20):
            await here.send(bytes([number]))
            if number == 10:
                small.network.cut("here", "there")
        await there.send(b"the other way is open")
        await arrives(here, b"the other way is open")
        got = []
        with trio.move_on_after(5):
            while True:
                got.append(await there.receive())
        small.network.mend("here", "there")
        for number in range(20, 40):  # these must not overtake what was held
            await here.send(bytes([number]))
        while len(got) < 40:
            with trio.fail_after(2):
                got.append(await there.receive())
        assert got == [bytes([number]) for number in range(40)]

    run_in(tier, scenario)


def test_a_connection_that_was_cut_several_times_keeps_its_order(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()

        async def send() -> None:
            for number in range(100):
                await here.send(bytes([number]))
                await trio.sleep(0.001)

        async def flap() -> None:
            for _ in range(20):
                undo = small.network.cut("here", "there")
                await trio.sleep(0.003)
                undo()
                await trio.sleep(0.002)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(flap)
            for number in range(100):
                await arrives(there, bytes([number]), within_s=3)

    run_in(tier, scenario)


def test_a_sender_whose_acknowledgements_are_lost_stops_at_its_window(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        small.network.cut("there", "here")
        sent = received = 0
        much = trio.Event()

        async def send() -> None:
            nonlocal sent
            while True:
                await here.send(bytes(10_000))
                sent += 10_000

        async def receive() -> None:
            nonlocal received
            while received < WINDOW_BYTES * 2:
                received += len(await there.receive())
            much.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(receive)
            await trio.sleep(10)
            assert WINDOW_BYTES / 2 < received <= sent < WINDOW_BYTES * 1.5
            small.network.mend("there", "here")
            with trio.fail_after(2):
                await much.wait()
            nursery.cancel_scope.cancel()

    run_in(tier, scenario)


def test_held_messages_arrive_as_soon_as_they_are_released(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        undo = small.network.hold("here", "there")
        await here.send(b"held")
        await nothing_comes(there, 30)
        undo()
        await arrives(there, b"held", within_s=0.01)
        small.network.clog("here", "there", 3)
        with takes(3, 3.01):
            await here.send(b"clogged")
            await arrives(there, b"clogged", within_s=LONG_S)

    run_in(tier, scenario)


def test_overlapping_faults_end_independently(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        undo_cut = small.network.cut("here", "there")
        undo_hold = small.network.hold("here", "there")
        undo_isolate = small.network.isolate("there")
        await here.send(b"message")
        for undo in (undo_cut, undo_isolate, undo_isolate):
            undo()
            await nothing_comes(there, 3)
        undo_hold()
        await arrives(there, b"message")

    run_in(tier, scenario)


def test_healing_ends_all_faults_and_their_later_ends_do_no_harm(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        network = small.network
        here, there = await small.pair()
        undos = [
            network.cut("here", "there"),
            network.refuse("there"),
            network.swallow("there"),
            network.split(["here"], ["there"]),
        ]
        network.clog("there", "here", 4)
        network.swizzle(["here", "there"], 10)
        network.route("here", "there").latency_s = 5.0
        network.route("here", "there").loss_chance = 0.9
        await trio.sleep(1)
        network.heal()
        for undo in undos:
            undo()
        for _ in range(20):
            await here.send(b"message")
            await arrives(there, b"message", within_s=2)
            await trio.sleep(0.5)
        await small.pair()

    run_in(tier, scenario)


def test_an_isolated_host_talks_to_nobody_or_only_in_one_direction(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        undo = small.network.isolate("here", sends=True)
        await here.send(b"out")
        await arrives(there, b"out")
        await there.send(b"in")
        await nothing_comes(here, 3)
        undo()
        await arrives(here, b"in")
        undo = small.network.isolate("here", receives=True)
        await here.send(b"out")
        await nothing_comes(there, 3)
        await there.send(b"in")
        await arrives(here, b"in")
        undo()
        await arrives(there, b"out")
        small.network.isolate("here")
        await here.send(b"out")
        await there.send(b"in")
        await nothing_comes(here, 3)
        await nothing_comes(there, 3)

    run_in(tier, scenario)


def test_a_bridge_reaches_both_groups_that_do_not_reach_each_other(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        async def echo(link: Link) -> None:
            await link.send(await link.receive())

        urls = {}
        for name in small.hosts:
            urls[name] = await small.serve(echo, name=name)

        async def reaches(source: str, target: str) -> bool:
            with trio.move_on_after(1):
                link = await small.environments[source].net.connect(urls[target], PATH)
                await link.send(b"hello")
                return await link.receive() == b"hello"
            return False

        undo = small.network.split(["here", "bridge"], ["there", "bridge"])
        assert await reaches("here", "bridge")
        assert await reaches("bridge", "there")
        assert await reaches("stranger", "here")
        assert await reaches("stranger", "there")
        assert not await reaches("here", "there")
        assert not await reaches("there", "here")
        undo()
        assert await reaches("here", "there")

    run_in(tier, scenario, ("bridge", "stranger"))


def test_a_swizzle_stops_half_of_the_hosts_for_a_while(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        names = sorted(small.hosts)
        small.network.swizzle(names, 10)
        held: list[set[str]] = []
        for _ in range(12):
            await trio.sleep(1)
            held.append(
                {
                    name
                    for name in names
                    if all(small.network.route(name, o).blockades for o in names if o != name)
                }
            )
        assert len(held[4]) == 2
        assert held[0] < held[4]
        assert held[8] < held[4]
        assert held[-1] == set()

    run_in(tier, scenario, ("c", "d"))


def test_a_slow_route_is_shared_by_its_connections(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        pairs = [await small.pair() for _ in range(2)]
        small.network.route("here", "there").bytes_per_s = 10_000
        with takes(2, 2.2):
            async with trio.open_nursery() as nursery:
                for here, there in pairs:
                    nursery.start_soon(here.send, bytes(10_000))
                    nursery.start_soon(there.receive)
        with takes(0, 0.1):  # the other direction is as fast as ever
            await pairs[0][1].send(bytes(10_000))
            await pairs[0][0].receive()

    run_in(tier, scenario)


def test_packet_losses_delay_messages_and_never_lose_them() -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        route = small.network.route("here", "there")
        route.loss_chance = 0.5
        delays = []
        for number in range(50):
            await here.send(bytes([number]))
            start = trio.current_time()
            await arrives(there, bytes([number]), within_s=3)
            delays.append(trio.current_time() - start)
        assert sum(delay > 0.2 for delay in delays) in range(10, 40)
        assert sum(delay > 0.6 for delay in delays) in range(3, 25)

    run_in(FrameNet, scenario)


def test_delays_can_have_a_long_tail() -> None:
    def longest_s(spread: Spread) -> float:
        async def scenario(small: Small) -> float:
            here, there = await small.pair()
            route = small.network.route("here", "there")
            route.jitter_s, route.spread = 0.1, spread
            longest = 0.0
            for _ in range(100):
                start = trio.current_time()
                await here.send(b"message")
                await there.receive()
                longest = max(longest, trio.current_time() - start)
            return longest

        return run_small(FrameNet, scenario)[0]

    assert longest_s(Spread.UNIFORM) <= 0.101
    assert longest_s(Spread.EXPONENTIAL) > 0.2


def test_a_fault_of_one_route_changes_no_delay_of_another(tier: Tier) -> None:
    def arrivals(is_faulty: bool) -> list[float]:
        async def scenario(small: Small) -> list[float]:
            if is_faulty:
                small.network.clog("other", "there", 1)
                small.network.route("other", "there").loss_chance = 0.5
            seen: list[float] = []

            async def note(link: Link) -> None:
                for _ in range(30):
                    await link.receive()
                    if link.peer.startswith("here"):
                        seen.append(trio.current_time())

            async def send(name: str) -> None:
                link = await small.environments[name].net.connect(url, PATH)
                for _ in range(30):
                    await link.send(b"message")
                    await trio.sleep(0.1)

            url = await small.serve(note)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send, "here")
                nursery.start_soon(send, "other")
            return seen

        return run_small(tier, scenario, more_hosts=("other",))[0]

    assert arrivals(False) == arrivals(True)


# --- connections ----------------------------------------------------------------------


def test_a_reset_tells_both_sides_at_once(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        other, _ = await small.pair()
        await here.send(b"had arrived")
        await trio.sleep(0.1)
        small.network.reset("here", "there")
        with takes(0, 0):
            for link in (here, other):
                await breaks(link)
                with pytest.raises(ConnectionLostError):
                    await link.send(b"too late")
            await arrives(there, b"had arrived")
            await breaks(there)

    run_in(tier, scenario)


@pytest.mark.parametrize("mishap", [Mishap.RESET, Mishap.FINISH])
def test_a_message_interrupted_in_its_middle_never_arrives(tier: Tier, mishap: Mishap) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        await here.send(b"before")
        await arrives(there, b"before")
        small.network.spoil("here", "there", mishap, 600)
        await here.send(bytes(500))
        await here.send(bytes(500))
        assert await there.receive() == bytes(500)
        with pytest.raises(ConnectionLostError, match="broke"):
            await there.receive()
        await there.aclose()
        await breaks(here, within_s=3)

    run_in(tier, scenario)


def test_a_connection_fault_can_strike_between_two_messages(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        small.network.spoil("here", "there", Mishap.RESET, 0)
        with takes(0, 0.001):
            await breaks(there)
            await breaks(here)

    run_in(tier, scenario)


def test_a_silenced_connection_delivers_nothing_and_others_go_on(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        small.network.spoil("here", "there", Mishap.SILENCE, 5000)
        for _ in range(100):
            await here.send(bytes(100))
        got = 0
        with trio.move_on_after(LONG_S):
            while True:
                got += len(await there.receive())
        assert 4000 < got <= 5000
        await there.send(b"but the other way works")
        await arrives(here, b"but the other way works")
        await here.aclose()
        await nothing_comes(there, LONG_S)
        await small.pair()

    run_in(tier, scenario)


def test_half_open_connections_are_not_noticed_by_those_who_only_listen(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        small.network.half_open("here", "there")
        await here.send(b"into the void")
        await there.send(b"into the void")
        await nothing_comes(here, LONG_S)
        await nothing_comes(there, LONG_S)
        with takes(CLOSE_TIMEOUT_S, CLOSE_TIMEOUT_S + 0.1):
            await here.aclose()

    run_in(tier, scenario)


def test_bytes_can_change_on_their_way(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        message = bytes(1000)
        await here.send(message)
        await arrives(there, message)
        small.network.spoil("here", "there", Mishap.CORRUPT, 500)
        await here.send(message)
        changed = await there.receive()
        assert len(changed) == 1000
        assert sum(changed.count(bytes([1 << bit])) for bit in range(8)) == 1
        await here.send(message)
        await arrives(there, message)

    run_in(tier, scenario)


def test_a_slow_drip_delivers_byte_by_byte() -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        route = small.network.route("here", "there")
        route.segment_bytes, route.bytes_per_s = 1, 100
        seen: list[Departure | Arrival] = []
        small.network.observers.append(seen.append)
        with takes(1, 1.2):
            await here.send(bytes(100))
            assert await there.receive() == bytes(100)
        assert {len(arrival.data) for arrival in seen} == {1}
        assert len(seen) > 100

    run_in(WebSocketTier, scenario)


def test_observers_see_what_is_sent_and_what_arrives(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        seen: list[Departure | Arrival] = []
        small.network.observers.append(seen.append)
        sent_at = trio.current_time()
        await here.send(b"message")
        await arrives(there, b"message")
        departure, arrival = seen
        assert isinstance(departure, Departure)
        assert (departure.source.host.name, departure.target) == ("here", "there")
        assert isinstance(arrival, Arrival)
        assert (arrival.source.host.name, arrival.target.host.name) == ("here", "there")
        assert departure.data == arrival.data
        assert departure.connection == arrival.connection
        assert sent_at == departure.at == arrival.sent_at < arrival.at <= trio.current_time()

    run_in(tier, scenario)


# --- hosts ----------------------------------------------------------------------------


def test_a_killed_process_is_told_to_its_peers(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        await there.send(b"last words")
        small.hosts["there"].kill()
        await arrives(here, b"last words")
        await breaks(here)
        with pytest.raises(UnreachableError, match="no node answers"):
            await small.here.net.connect(f"ws://there:{PORT}", PATH)

    run_in(tier, scenario)


def test_a_machine_without_power_says_nothing_until_it_is_back_and_is_asked(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, _ = await small.pair()
        idle, _ = await small.pair()
        small.hosts["there"].lose_power()
        await here.send(b"into the void")
        await nothing_comes(here, LONG_S)
        await small.boot("there")
        await breaks(here, within_s=2)
        await nothing_comes(idle, LONG_S)  # who asks nothing learns nothing
        await idle.send(b"are you there?")
        await breaks(idle)

    run_in(tier, scenario)


def test_messages_held_by_a_cut_are_lost_when_the_sending_machine_loses_power(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        small.network.cut("here", "there")
        await here.send(b"held")
        await trio.sleep(1)
        small.hosts["here"].lose_power()
        small.network.mend("here", "there")
        await nothing_comes(there, LONG_S)

    run_in(tier, scenario)


def test_messages_held_by_a_cut_outlive_the_process_that_sent_them(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        small.network.cut("here", "there")
        await here.send(b"held")
        await trio.sleep(1)
        small.hosts["here"].kill()
        await nothing_comes(there, 1)
        small.network.mend("here", "there")
        await arrives(there, b"held", within_s=2)
        await breaks(there, within_s=2)

    run_in(tier, scenario)


def test_a_side_that_missed_a_reset_learns_of_it_by_sending(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        _, there = await small.pair()
        await there.send(b"never read, so the end is a reset")
        await trio.sleep(0.1)
        small.network.cut("here", "there")
        small.hosts["here"].kill()
        await trio.sleep(1)
        small.network.mend("here", "there")
        if tier is FrameNet:  # trio-websocket's reader had read it, and sent a FIN
            await nothing_comes(there, LONG_S)
        with trio.fail_after(1), suppress(ConnectionLostError):
            while True:
                await there.send(b"are you there?")
                await trio.sleep(0.01)
        await breaks(there)

    run_in(tier, scenario)


def test_a_host_that_dies_while_somebody_connects_to_it_refuses(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        async def hold(link: Link) -> None:
            await trio.sleep_forever()

        for tenth_ms in range(1, 40):
            url = await small.serve(hold)
            small.world.after(tenth_ms / 10_000, small.hosts["there"].kill)
            with trio.fail_after(2):
                try:
                    link = await small.here.net.connect(url, PATH)
                except UnreachableError:
                    pass
                else:
                    await breaks(link)
            await trio.sleep(0.1)
            await small.boot("there")

    run_in(tier, scenario)


def test_a_machine_that_comes_back_in_time_is_reached_by_retries(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        async def echo(link: Link) -> None:
            await link.send(await link.receive())

        async def come_back() -> None:
            await trio.sleep(2)
            await small.boot("there")
            await small.serve(echo)

        small.hosts["there"].lose_power()
        small.nursery.start_soon(come_back)
        with takes(2, 4):
            link = await small.here.net.connect(f"ws://there:{PORT}", PATH)
        await link.send(b"hello")
        await arrives(link, b"hello")

    run_in(tier, scenario)


def test_connecting_gives_up_after_a_while(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        async def hold(link: Link) -> None:
            await trio.sleep_forever()

        url = await small.serve(hold)
        network = small.network

        def no_power() -> None:
            small.hosts["there"].lose_power()

        faults: list[Callable[[], object]] = [
            lambda: network.cut("here", "there"),
            lambda: network.cut("there", "here"),
            lambda: network.swallow("there"),
            lambda: network.spoil_next("here", "there", Mishap.SILENCE, 30),
            lambda: network.spoil_next("there", "here", Mishap.SILENCE, 30),
            small.hosts["there"].pause,
            no_power,
        ]
        for fault in faults:
            fault()
            with (
                takes(CONNECT_TIMEOUT_S, CONNECT_TIMEOUT_S + 0.1),
                pytest.raises(UnreachableError, match="did not answer within"),
            ):
                await small.here.net.connect(url, PATH)
            network.heal()

    run_in(tier, scenario)


def test_a_host_can_refuse_all_connections(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        here, there = await small.pair()
        undo = small.network.refuse("there")
        with takes(0, 0.1), pytest.raises(UnreachableError, match="Connection refused"):
            await small.pair()
        await here.send(b"who is in stays in")
        await arrives(there, b"who is in stays in")
        undo()
        await small.pair()

    run_in(tier, scenario)


def test_a_paused_host_answers_nobody_and_goes_on_when_it_is_resumed(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        handled: list[float] = []

        async def echo(link: Link) -> None:
            handled.append(trio.current_time())
            while True:
                await link.send(await link.receive())

        url = await small.serve(echo)
        link = await small.here.net.connect(url, PATH)
        await link.send(b"one")
        await arrives(link, b"one")
        small.hosts["there"].pause()
        await link.send(b"two")
        await nothing_comes(link, 3)
        new: list[Link] = []

        async def connect() -> None:
            new.append(await small.here.net.connect(url, PATH))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect)
            await trio.sleep(2)
            assert not new
            assert len(handled) == 1
            small.hosts["there"].resume()
        await arrives(link, b"two", within_s=0.1)
        assert len(handled) == 2

    run_in(tier, scenario)


def test_a_host_reaches_itself_whatever_the_network_does(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        async def echo(link: Link) -> None:
            await link.send(await link.receive())

        await small.serve(echo)
        small.network.isolate("there")
        for host in ("there", "localhost", "127.0.0.1"):
            link = await small.there.net.connect(f"ws://{host}:{PORT}", PATH)
            await link.send(b"hello")
            await arrives(link, b"hello")

    run_in(tier, scenario)


def test_a_process_that_ends_closes_its_connections(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        async def hold(link: Link) -> None:
            await trio.sleep_forever()

        url = await small.serve(hold)
        link = await small.here.net.connect(url, PATH)
        small.tasks["there"].cancel_scope.cancel()
        await breaks(link)
        with pytest.raises(UnreachableError):
            await small.here.net.connect(url, PATH)
        await small.boot("there")
        await small.serve(hold)

    run_in(tier, scenario)


def test_a_connection_storm_is_survived(tier: Tier) -> None:
    async def scenario(small: Small) -> None:
        async def echo(link: Link) -> None:
            await link.send(await link.receive())

        url = await small.serve(echo)
        count = 0

        async def come() -> None:
            nonlocal count
            link = await small.here.net.connect(url, PATH)
            await link.send(b"hello")
            assert await link.receive() == b"hello"
            count += 1
            await link.aclose()

        async with trio.open_nursery() as nursery:
            for _ in range(300):
                nursery.start_soon(come)
        assert count == 300

    run_in(tier, scenario)
