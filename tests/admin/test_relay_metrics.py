"""Metrics of relays."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from octopi import connect
from octopi.admin.metrics import Metrics
from octopi.admin.relay_view import RelayBrokerView
from octopi.simulation.kernel.host import HostClock
from octopi.testing import Cluster, simulated
from tests.admin.test_documented_metrics import documented
from tests.kit.relays import RelaysOfHosts


def metrics(relays: RelaysOfHosts, name: str) -> dict[str, float]:
    """What that relay shows of its only partition, by name, and the value of the other label: the
    status, the phase, the broker, or the bound of a bucket."""
    text = Metrics(RelayBrokerView(relays.running()[name])).text().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            if one.name.startswith("octopi_relay_"):
                assert one.labels.pop("partition", "0") == "0"
                found[" ".join([one.name, *one.labels.values()])] = one.value
    return {name.removeprefix("octopi_relay_"): value for name, value in found.items()}


@simulated(brokers=1, oracle=False)
async def test_relays_show_how_they_take_part_and_how_long_they_did_not(cluster: Cluster) -> None:
    relays = RelaysOfHosts(cluster, partitions=1)
    relays.start()
    await relays.alike()
    environment = await cluster.environment("client")
    async with (
        connect(relays.addresses, environment=environment) as client,
        client.producer() as producer,
    ):
        await producer.send("prices", bytes(1_000))
    await relays.alike()
    shown = {name: metrics(relays, name) for name in relays.names}
    for one in shown.values():
        assert one["status normal"] == 1
        assert one["status fenced"] == one["fenced_seconds_total"] == one["repairing"] == 0
        assert (one["generation"], one["timelines_total"], one["streams"]) == (1, 1, 1)
        assert (one["heard"], one["uncommitted_bytes"]) == (3, 0)
        assert one["buffer_bytes"] > 1_000
        says = {name.removeprefix("octopi_relay_") for name in documented()["Relays"]}
        samples = {f"quorum_seconds_{one}" for one in ("bucket", "count", "sum")}
        assert {name.partition(" ")[0] for name in one} == says - {"quorum_seconds"} | samples
    assert sum(one["sequencer"] for one in shown.values()) == 1

    cluster.split(["a"], ["b", "c"])
    await cluster.sleep(2.6)
    cut_off = metrics(relays, "a")
    assert (cut_off["status fenced"], cut_off["status normal"], cut_off["heard"]) == (1, 0, 1)
    assert 1.9 < cut_off["fenced_seconds_total"] < 2.2
    cluster.heal()
    await relays.alike()
    after = metrics(relays, "a")
    assert after["status normal"] == 1
    assert cut_off["fenced_seconds_total"] < after["fenced_seconds_total"] < 3.5
    await cluster.sleep(1.0)
    assert metrics(relays, "a")["fenced_seconds_total"] == after["fenced_seconds_total"]


@simulated(brokers=1, oracle=False)
async def test_the_time_until_a_quorum_has_written_is_counted_by_who_took_the_message(
    cluster: Cluster,
) -> None:
    relays = RelaysOfHosts(cluster, "abcd", partitions=1)
    relays.start()
    await relays.alike()
    [outside] = set(relays.names) - set(relays.members())
    environment = await cluster.environment("client")
    address = relays.addresses[relays.names.index(outside)]
    begun = cluster.now
    async with (
        connect(address, environment=environment) as client,
        client.producer() as producer,
    ):
        for _ in range(3):
            await producer.send("prices", bytes(100))
    shown = {name: metrics(relays, name) for name in relays.names}
    taken = {name: one.get("quorum_seconds_count", 0) for name, one in shown.items()}
    assert sum(taken.values()) == 3
    [receiver] = [name for name, count in taken.items() if count]
    one = shown[receiver]
    assert 0 < one["quorum_seconds_sum"] < cluster.now - begun
    assert one["quorum_seconds_bucket 0.0005"] < one["quorum_seconds_bucket +Inf"] == 3


@simulated(brokers=1, oracle=False)
async def test_a_relay_that_starts_empty_counts_its_repairs_by_phase(cluster: Cluster) -> None:
    relays = RelaysOfHosts(cluster, partitions=1)
    relays.start()
    await relays.alike()
    environment = await cluster.environment("client")
    async with (
        connect(relays.addresses, environment=environment) as client,
        client.producer() as producer,
    ):
        await producer.send("prices", bytes(1_000))
        await producer.send("scores", bytes(1_000))
    await relays.alike()
    before = metrics(relays, "c")
    assert all(before[f"repairs_total {phase}"] == 0 for phase in ("locate", "fetch", "release"))
    cluster.kill("c", restart_s=0.5)
    await cluster.sleep(2.0)
    await relays.alike()
    after = metrics(relays, "c")
    for phase in ("locate", "fetch", "rebuild", "verify", "release"):
        assert after[f"repairs_total {phase}"] == 2
    assert after["repair_seconds_total fetch"] > 0
    assert after["repair_seconds_total release"] == after["repairs_failed_total"] == 0
    for other in "ab":
        assert metrics(relays, other)["repairs_total locate"] == 0


@simulated(brokers=1, oracle=False)
async def test_a_clock_that_is_wrong_is_shown_by_the_others_with_its_sign(cluster: Cluster) -> None:
    relays = RelaysOfHosts(cluster, partitions=1)
    relays.start()
    await relays.alike()
    clock = relays.running()["b"].environment.clock
    assert isinstance(clock, HostClock)
    clock.wall_jump_ms = 30_000
    await cluster.sleep(5.0)
    shown = {name: metrics(relays, name) for name in relays.names}
    assert abs(shown["a"]["clock_skew_seconds 2"] - 30) < 0.1
    assert abs(shown["c"]["clock_skew_seconds 2"] - 30) < 0.1
    assert abs(shown["a"]["clock_skew_seconds 3"]) < 0.1
    assert abs(shown["b"]["clock_skew_seconds 1"] + 30) < 0.1
