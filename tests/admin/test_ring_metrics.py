"""Metrics of brokers without a register."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from octopi.admin.metrics import Metrics
from octopi.admin.ring_view import RingBrokerView
from octopi.testing import Cluster, simulated
from tests.admin.test_documented_metrics import documented
from tests.kit.ring import RingOfHosts
from tests.kit.ring_clients import client_of
from tests.roles.test_ring_partitions import FIVE, PARTITIONS, all_led, founded


def metrics(ring: RingOfHosts, name: str) -> dict[str, float]:
    """What a broker shows, by the metric's name and the values of its labels."""
    text = Metrics(RingBrokerView(ring.nodes[name])).text().decode()
    return {
        " ".join([one.name, *one.labels.values()]): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def summed(ring: RingOfHosts, names: tuple[str, ...], metric: str) -> float:
    return sum(metrics(ring, name)[metric] for name in names)


@simulated(brokers=1, oracle=False)
async def test_a_broker_shows_exactly_the_metrics_of_rings_that_are_documented(
    cluster: Cluster,
) -> None:
    ring = founded(cluster, ["a"])
    await all_led(ring, in_sync=1)
    async with client_of(ring, ["a"]) as client, client.producer() as producer:
        await producer.send("orders", b"umbrella")
    names = {one.partition(" ")[0] for one in metrics(ring, "a")}
    says = documented()
    assert says["Rings"].keys() <= names
    known = {*says["Rings"], *says["Brokers"], *says["Every node"]}
    shown = {one for one in names if one.startswith("octopi_")}
    of_histograms = {f"octopi_request_seconds_{one}" for one in ("bucket", "count", "sum")}
    assert shown <= known | of_histograms
    assert "octopi_log_end_bytes" in shown


@simulated(brokers=1, oracle=False)
async def test_what_brokers_count_adds_up_to_what_happened(cluster: Cluster) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FIVE)
    async with client_of(ring, FIVE) as client:
        for number in range(4):
            await client.create_topic(f"topic-{number}")
        version = {metrics(ring, name)["octopi_ring_record_version"] for name in FIVE}
        assert len(version) == 1
        for name in FIVE:
            one = metrics(ring, name)
            assert one["octopi_ring_member"] == one["octopi_ring_neighbours before"] == 1
            assert one["octopi_ring_neighbours behind"] == 4
            assert one["octopi_ring_book_brokers answering"] == 4
            assert (one["octopi_brokers live"], one["octopi_brokers away"]) == (5, 0)
            assert one["octopi_partitions"] == PARTITIONS
            assert one["octopi_partitions_without_leader"] == 0
            assert one["octopi_partitions_under_replicated"] == 0
            assert one["octopi_partitions_fenced"] == 0
        assert summed(ring, FIVE, "octopi_topics") == 4
        assert summed(ring, FIVE, "octopi_partitions_led") == PARTITIONS
        assert summed(ring, FIVE, "octopi_agreements") == 5 * PARTITIONS
        assert summed(ring, FIVE, "octopi_brokers_joined_total") == 5
        others = ("a", "c", "d", "e")
        before = summed(ring, others, "octopi_elections_total")

        led = metrics(ring, "b")["octopi_partitions_led"]
        assert led
        cluster.kill("b")
        await cluster.sleep(3.0)
        elections = summed(ring, others, "octopi_elections_total")
        assert elections >= before + led
        assert summed(ring, others, "octopi_elections_begun_total") >= elections
        assert summed(ring, others, "octopi_in_sync_changes_total") > 0
        assert summed(ring, others, "octopi_brokers_lost_total") == 1
        for name in others:
            one = metrics(ring, name)
            assert (one["octopi_brokers live"], one["octopi_brokers away"]) == (4, 1)
            assert one["octopi_partitions_without_leader"] == 0
            assert one["octopi_partitions_under_replicated"] > 0
        assert summed(ring, others, "octopi_ring_book_brokers silent") > 0


@simulated(brokers=1, oracle=False)
async def test_a_leader_that_is_cut_off_shows_that_it_has_no_right_to_lead(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    await cluster.sleep(1.0)
    leading = next(one for one in FIVE if metrics(ring, one)["octopi_partitions_led"])
    cluster.isolate(leading, seconds=1.5)
    await cluster.sleep(1.2)
    cut_off = metrics(ring, leading)
    assert cut_off["octopi_partitions_fenced"] == cut_off["octopi_partitions_led"] > 0
    await cluster.sleep(2.0)
    await all_led(ring, in_sync=3, within_s=60.0)
    await cluster.eventually(
        lambda: summed(ring, FIVE, "octopi_partitions_fenced") == 0, "all have the right"
    )
