"""What nodes tell over HTTP, asked of a real cluster in this process."""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio
from prometheus_client.parser import text_string_to_metric_families

import octopi
from harness.processes import node_processes
from octopi.admin.cluster_watch import REGISTER_AWAY
from tests.admin.nodes import Nodes, ask, serving_nodes


async def written(nodes: Nodes, topic: str = "orders", count: int = 10) -> octopi.Receipt:
    """Messages in a topic; the last receipt."""
    async with octopi.connect(nodes.register) as client, client.producer() as producer:
        for number in range(count):
            receipt = await producer.send(topic, b"message %d" % number)
        return receipt


async def until(url: str, path: str, key: str, count: int) -> list[Any]:
    """What is at *key*, as soon as there are *count* of them: pages are a moment old."""
    with trio.fail_after(20):
        while len(found := (await ask(url, path)).json[key]) != count:  # noqa: ASYNC110
            await trio.sleep(0.1)  # nothing announces it
    return list(found)


async def samples(url: str) -> dict[tuple[str, ...], float]:
    """Metrics of a node, by name and label values in the order of the labels' names."""
    page = await ask(url, "/metrics")
    assert page.status == 200
    found = {}
    for family in text_string_to_metric_families(page.body.decode()):
        for sample in family.samples:
            found[sample.name, *(value for _, value in sorted(sample.labels.items()))] = (
                sample.value
            )
    return found


def open_files(directory: Path) -> list[str]:
    """The files below *directory* that this process has open."""
    links = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it is closed by now
            links.append(str(one.readlink()))
    return [one for one in links if one.startswith(str(directory))]


async def test_a_node_that_has_ended_leaves_no_file_open(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes:
        await written(nodes)
        assert open_files(tmp_path)
    gc.collect()  # the descriptor of a file system goes with its object
    assert open_files(tmp_path) == []


async def test_every_node_says_who_it_is_and_that_it_can_be_used(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes:
        for url in (nodes.register, *nodes.brokers):
            assert (await ask(url, "/healthz")).body == b"ok\n"
            assert (await ask(url, "/readyz")).json == {"ready": True, "why": ""}
            found = await ask(url, "/")
            assert (found.status, found.headers["location"]) == (302, "/console/")
            assert (await ask(url, "/console/")).status == 200
            assert (await ask(url, "/console/..%2f__init__.py")).status == 404
            assert (await ask(url, "/nothing")).status == 404
            assert (await ask(url, "/api/v1/nothing")).json["error"]["status"] == "not_found"
        register = (await ask(nodes.register, "/api/v1/status")).json
        broker = (await ask(nodes.brokers[0], "/api/v1/status")).json
        assert (register["role"], register["url"]) == ("register", nodes.register)
        assert (broker["role"], broker["broker"], broker["incarnation"]) == ("broker", 1, 1)
        assert broker["cluster"] == register["cluster"] != ""
        assert broker["registers"] == [nodes.register]
        assert broker["authentication"] is False


async def test_every_node_shows_the_whole_cluster(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path, brokers=2) as nodes:
        receipt = await written(nodes)
        for url in (nodes.register, *nodes.brokers):
            [topic] = await until(url, "/api/v1/topics", "topics", 1)
            [log] = topic["partitions"]
            assert topic["topic"] == "orders"
            assert log["partition"] == receipt.partition
            assert sorted(log["replicas"]) == sorted(log["in_sync"]) == [1, 2]
            assert log["highwater"] == log["log_end"] == receipt.next_offset
            assert {one["lag_bytes"] for one in log["copies"]} == {0}
            cluster = (await ask(url, "/api/v1/cluster")).json
            assert cluster["healthy"], cluster["problems"]
            assert [one["address"] for one in cluster["brokers"]] == nodes.brokers
            for one in (cluster["register"], *cluster["brokers"]):
                assert one["agent"] == f"octopi-node/{octopi.__version__}"
                assert one["uptime_s"] >= 0
            [place] = cluster["partitions"]
            assert place["leader_address"] in nodes.brokers
            assert [one["role"] for one in place["copies"]] == ["leader", "follower"]
            assert {one["log_end"] for one in place["copies"]} == {receipt.next_offset}


async def test_topics_come_in_pages(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes:
        async with octopi.connect(nodes.register) as client:
            for name in ("b", "a1", "c", "a2"):
                await client.create_topic(name)
        await until(nodes.register, "/api/v1/topics", "topics", 4)

        async def names(query: str) -> tuple[list[str], bool]:
            page = (await ask(nodes.brokers[0], f"/api/v1/topics?{query}")).json
            return [one["topic"] for one in page["topics"]], page["more"]

        assert await names("limit=3") == (["a1", "a2", "b"], True)
        assert await names("limit=3&after=b") == (["c"], False)
        assert await names("prefix=a") == (["a1", "a2"], False)
        assert await names("limit=x") == (["a1", "a2", "b", "c"], False)
        assert await names("limit=0") == (["a1"], True)


async def test_consumers_are_shown_with_their_lag(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes:
        receipt = await written(nodes, count=3)
        async with (
            octopi.connect(nodes.register, name="billing") as client,
            client.consumer("orders", start="earliest", window_bytes=1) as consumer,
        ):
            first = await anext(consumer)
            path = "/api/v1/consumers?topic=orders"
            [seen] = await until(nodes.brokers[0], path, "consumers", 1)
            assert seen["topic"] == "orders"
            assert seen["name"] == "billing"
            assert seen["agent"].startswith("octopi-python/")
            assert first.offset < seen["position"] < receipt.next_offset
            assert seen["sent_lag_bytes"] == receipt.next_offset - seen["position"]
            assert seen["dealt"] == first.offset  # it works on that one
            assert seen["lag_bytes"] == receipt.next_offset - first.offset
            assert (await ask(nodes.register, "/api/v1/consumers?topic=other")).json[
                "consumers"
            ] == []
            found = await samples(nodes.brokers[0])
            label = str(receipt.partition)
            assert found["octopi_readings", label, "orders"] == 1
            assert found["octopi_consumer_lag_bytes_max", label, "orders"] == seen["lag_bytes"]
            of_consumer = {
                name: (labels, value)
                for (name, *labels), value in found.items()
                if name in {"octopi_consumer_lag_bytes", "octopi_consumer_sent_lag_bytes"}
            }
            assert {name: value for name, (_, value) in of_consumer.items()} == {
                "octopi_consumer_lag_bytes": seen["lag_bytes"],
                "octopi_consumer_sent_lag_bytes": seen["sent_lag_bytes"],
            }
            assert all("billing" not in labels for labels, _ in of_consumer.values())
        await until(nodes.brokers[0], path, "consumers", 0)


async def test_elections_and_members_are_told_as_events(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes:
        receipt = await written(nodes)
        events = await until(nodes.brokers[0], "/api/v1/events", "events", 4)
        kinds = [one["kind"] for one in events]
        assert kinds == ["register_started", "broker_joined", "leader", "topic_created"]
        assert [one["number"] for one in events] == [1, 2, 3, 4]
        leader = events[2]
        assert (leader["partition"], leader["broker"]) == (receipt.partition, 1)
        assert (leader["epoch"], leader["in_sync"]) == (1, [1])
        assert events[3]["topic"] == "orders"
        page = (await ask(nodes.register, "/api/v1/events?after=3")).json
        assert [one["number"] for one in page["events"]] == [4]
        assert page["newest"] == 4
        assert page["life"]


async def test_metrics_count_what_happened(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path, brokers=2) as nodes:
        receipt = await written(nodes, count=10)
        label = str(receipt.partition)
        leads = 0
        for url in nodes.brokers:
            found = await samples(url)
            assert found["octopi_log_end_bytes", label, "orders"] == receipt.next_offset
            assert found["octopi_highwater_bytes", label, "orders"] == receipt.next_offset
            assert found["octopi_appended_messages_total", label, "orders"] == 10
            assert found["octopi_appended_bytes_total", label, "orders"] == receipt.next_offset
            assert found["octopi_ready",] == 1
            if found["octopi_partition_leads", label]:
                leads += 1
                follower = "2" if url == nodes.brokers[0] else "1"
                assert found["octopi_replica_lag_bytes", follower, label, "orders"] == 0
                assert found["octopi_partition_in_sync_replicas", label] == 2
                assert found["octopi_request_seconds_count", "produce"] == 10
                assert found["octopi_request_seconds_bucket", "+Inf", "produce"] == 10
                assert found["octopi_connections", "/v1/follow"] == 1
        assert leads == 1
        found = await samples(nodes.register)
        assert found["octopi_brokers", "live"] == 2
        assert found["octopi_topics",] == 1
        assert found["octopi_elections_total",] == 1
        assert found["octopi_brokers_joined_total",] == 2
        assert found["octopi_partitions_without_leader",] == 0
        assert found["octopi_connections", "/v1/membership"] == 2


async def test_the_page_of_a_cluster_says_that_no_broker_has_joined(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path, brokers=0) as nodes:
        page = await ask(nodes.register, "/api/v1/cluster")
        assert page.json["problems"] == ["no broker has joined"]


async def test_a_broker_shows_what_the_register_said_last_while_that_is_silent(
    tmp_path: Path,
) -> None:
    with node_processes(tmp_path) as processes:
        register = await trio.to_thread.run_sync(processes.register)
        broker = await trio.to_thread.run_sync(processes.broker, register)
        nodes = Nodes(register.url, [broker.url])
        await written(nodes)
        await until(broker.url, "/api/v1/topics", "topics", 1)
        before = (await ask(broker.url, "/api/v1/cluster")).json
        assert before["register_trouble"] == ""
        register.kill9()
        found = before
        with trio.fail_after(30):
            while not found["register_trouble"]:
                await trio.sleep(0.2)  # nothing announces it
                found = (await ask(broker.url, "/api/v1/cluster")).json
        assert found["register_heard_at_ms"] < found["seen_at_ms"]
        assert found["healthy"] is False
        assert found["problems"] == [REGISTER_AWAY]
        [place] = found["partitions"]
        assert [one["role"] for one in place["copies"]] == ["leader"]
        [topic] = (await ask(broker.url, "/api/v1/topic-search")).json["topics"]
        assert (topic["topic"], topic["state"]) == ("orders", "ok")


async def test_a_broker_that_left_has_the_time_at_which_it_did(tmp_path: Path) -> None:
    with node_processes(tmp_path) as processes:
        register = await trio.to_thread.run_sync(processes.register)
        broker = await trio.to_thread.run_sync(processes.broker, register)
        await written(Nodes(register.url, [broker.url]))
        [up] = (await ask(register.url, "/api/v1/cluster")).json["brokers"]
        assert up["left_at_ms"] is None
        broker.kill9()
        with trio.fail_after(30):
            while (page := (await ask(register.url, "/api/v1/cluster")).json)["healthy"]:  # noqa: ASYNC110
                await trio.sleep(0.2)  # nothing announces it
        [away] = page["brokers"]
        assert 0 <= page["seen_at_ms"] - away["left_at_ms"] < 30_000
