"""A real broker process among clients that are many, slow or hostile: it stays small and
serves everybody else."""

import resource
from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import node_processes
from octopi.identifiers import Offset
from octopi.limits import MIB
from octopi.wire import messages as m
from octopi.wire.codec import encode
from tests.kit.cluster import Cluster

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _many_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))


async def works(url: str, topic: str) -> None:
    """Produce and read back, as a bystander."""
    async with octopi.connect(url) as client:
        async with client.producer() as producer:
            receipt = await producer.send(topic, b"bystander")
        async with client.consumer(topic, start=receipt.offset) as consumer:
            async for message in consumer:
                assert message.value == b"bystander"
                return


async def test_a_thousand_idle_connections_cost_little_and_disturb_nobody(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        with trio.fail_after(90):
            await works(register.url, "orders")
            before = broker.rss_bytes()
            async with trio.open_nursery() as nursery:
                idle = Cluster(nursery, tmp_path)
                async with trio.open_nursery() as opening:
                    for _ in range(20):
                        opening.start_soon(open_idle, idle, broker.url, 50, nursery)
                each = (broker.rss_bytes() - before) / 1000
                await works(register.url, "orders")
                nursery.cancel_scope.cancel()
            await works(register.url, "orders")
        assert each < 64 * 1024
        assert broker.rss_bytes_max() < 120 * MIB


async def open_idle(cluster: Cluster, url: str, count: int, nursery: trio.Nursery) -> None:
    for _ in range(count):
        await nursery.start(hold_open, cluster, url)


async def hold_open(cluster: Cluster, url: str, *, task_status: trio.TaskStatus[None]) -> None:
    async with cluster.connection(url):
        task_status.started()
        await trio.sleep_forever()


async def test_a_subscriber_that_never_reads_costs_the_broker_no_more_than_its_window(
    tmp_path: Path,
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        with trio.fail_after(90):
            async with octopi.connect(register.url) as client:
                async with client.producer() as producer:
                    for _ in range(64):
                        await producer.submit("orders", b"x" * MIB)
                info = await client.describe_topic("orders")
            before = broker.rss_bytes()
            async with trio.open_nursery() as nursery:
                deaf = Cluster(nursery, tmp_path)
                for _ in range(3):
                    link = await deaf.environment.net.connect(broker.url, "/v1/client")
                    await link.send(encode(m.Hello(1, "deaf", None)))
                    partition = info.partitions[0].partition
                    await link.send(encode(m.Subscribe(1, "orders", partition, Offset(0), 1 << 40)))
                await works(register.url, "orders")
                grown = broker.rss_bytes() - before
                nursery.cancel_scope.cancel()
        assert grown < 60 * MIB
