"""Leaderships move by load in a whole cluster, in virtual time."""

from __future__ import annotations

from collections import Counter
from typing import Final

import attrs
import pytest
import trio

from octopi.clients.client import Client
from octopi.coordination.shedding import SheddingRules
from octopi.coordination.topic_placement import PlacementRule
from octopi.simulation.cluster import ClusterOptions, SimulatedCluster
from octopi.tracing import steps
from sim.run.simulation import simulate
from sim.search.exhaust import look, plan_of
from sim.search.exhaust_cells import Cell
from sim.search.exhaust_runs import SCENARIOS
from tests.simulation.clusters import ask, play

PARTITIONS: Final = 12
RULES: Final = SheddingRules(
    interval_s=1.0, average_s=12.0, rest_s=12.0, load_min=0.05, light=0.005
)
"""Five times as fast as in the product, and with less load, so that a run is short."""
OPTIONS: Final = ClusterOptions(
    brokers=3, partitions=PARTITIONS, gather_s=0.05, shedding=RULES, rebalance_interval_s=3600.0
)
VALUE_BYTES: Final = 25_000
EACH_S: Final = 0.5
"""How often a message is sent to each topic that is used: 0.05 of load."""


class Skew:
    """Sends to the topics that one broker leads, for a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.topics: list[str] = []
        self.longest_s = 0.0
        """The longest time in which a message was not acknowledged."""
        self.leaders: list[Counter[int]] = []
        """How many of these topics each broker leads, every two seconds."""
        self.loads: list[float] = []

    async def run(self, client: Client) -> None:
        """Make topics of one partition each, and send to those of one broker."""
        placed = [
            await client.create_topic(f"topic-{number}", partitions=1)
            for number in range(PARTITIONS)
        ]
        busy = placed[0].partitions[0].leader
        self.topics = [one.topic for one in placed if one.partitions[0].leader == busy]
        async with trio.open_nursery() as nursery:
            for topic in self.topics:
                nursery.start_soon(self._send, client, topic)
            for _ in range(round(self._seconds / 2)):
                await trio.sleep(2)
                found = [await client.describe_topic(one) for one in self.topics]
                self.leaders.append(Counter(one.partitions[0].leader or 0 for one in found))
        found_loads = (await client.admin.describe_loads()).brokers.values()
        self.loads = [one for one in found_loads if one is not None]

    async def _send(self, client: Client, topic: str) -> None:
        async with client.producer() as producer:
            for number in range(round(self._seconds / EACH_S)):
                began = trio.current_time()
                await producer.send(topic, b"%06d" % number + bytes(VALUE_BYTES))
                self.longest_s = max(self.longest_s, trio.current_time() - began)
                await trio.sleep_until(began + EACH_S)

    async def check(self, client: Client) -> None:
        """Each message is there, once and in order."""
        for topic in self.topics:
            async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
                numbers = [int(one.value[:6]) async for one in consumer]
            assert numbers == list(range(round(self._seconds / EACH_S)))


def test_a_broker_that_leads_all_that_is_used_gives_half_of_it_away_and_no_more() -> None:
    skew = Skew(30)

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, skew.run, enough_s=60)
        await ask(cluster, skew.check, "reader")

    world = play(scenario, OPTIONS)
    assert len(skew.topics) == 4
    assert list(skew.leaders[0].values()) == [4]
    assert all(max(one.values()) == 2 for one in skew.leaders[5:]), skew.leaders
    moves = [one for one in world.events if one.what == steps.H3Moved.text]
    assert len(moves) == 2, "and no further one"
    assert len(skew.loads) == 3
    assert max(skew.loads) / (sum(skew.loads) / 3) <= 1.25
    assert skew.longest_s < 0.5, "a planned hand-over"


def test_topics_are_placed_rather_where_leaders_have_little_to_do_if_the_register_is_told_so() -> (
    None
):
    skew = Skew(20)
    led: Counter[bool] = Counter()

    async def place_more(client: Client) -> None:
        busy = (await client.describe_topic(skew.topics[0])).partitions[0].leader
        for number in range(30):
            placed = await client.create_topic(f"later-{number}", partitions=1)
            led[placed.partitions[0].leader == busy] += 1

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, skew.run, enough_s=60)
        await ask(cluster, place_more, "maker")

    still = attrs.evolve(RULES, load_min=1e9)  # leaderships stay
    play(
        scenario,
        attrs.evolve(OPTIONS, shedding=still, placement=PlacementRule.LEAST_LOADED),
    )
    assert led[True] + led[False] == 30
    assert 0 < led[True] <= 5, "a third by the hash of their names, a tenth by load"


@pytest.mark.parametrize("place", ["H1a", "H3a", "H3b", "H4"])
@pytest.mark.parametrize("action", ["kill"])
def test_a_node_that_dies_while_a_leadership_moves_by_load_costs_nothing(
    place: str, action: str
) -> None:
    role = "broker" if place == "H1a" else "register"
    cell = Cell(place, role)
    plan = plan_of(cell, action, look("shedding").spots[cell][0])
    verdict = simulate(plan)
    assert not verdict.rule, verdict.violation
    assert any(one.what.startswith(place) for one in verdict.events)


def test_a_run_of_the_simulator_moves_by_load_only_if_its_plan_says_so() -> None:
    plan = attrs.evolve(SCENARIOS["shedding"], sheds=False)
    seen = {one.what for one in simulate(plan).events}
    assert not seen & {one.text for one in steps.OF_SHEDDING}
