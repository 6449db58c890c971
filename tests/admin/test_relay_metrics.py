"""Metrics of relays."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from octopi import connect
from octopi.admin.metrics import Metrics
from octopi.admin.relay_view import RelayBrokerView
from octopi.testing import Cluster, simulated
from tests.admin.test_documented_metrics import documented
from tests.kit.relays import RelaysOfHosts


def metrics(relays: RelaysOfHosts, name: str) -> dict[str, float]:
    """What that relay shows of its only partition, by name; the status is part of the name."""
    text = Metrics(RelayBrokerView(relays.running()[name])).text().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            if one.name.startswith("octopi_relay_"):
                assert one.labels["partition"] == "0"
                status = one.labels.get("status", "")
                found[f"{one.name} {status}".strip()] = one.value
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
        assert {name.partition(" ")[0] for name in one} == says
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
