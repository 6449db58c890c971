"""`status`, `/readyz`, the pages of a node, its metrics and its log say when a disk is full, whom
that hurts and what helps, and when it is over."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

import octopi
from octopi.admin.broker_view import BrokerNodeView
from octopi.admin.metrics import Metrics
from octopi.cli.node_processes import node_environment
from octopi.limits import DISK_ROOM_BYTES_MIN
from octopi.roles.broker.node import BrokerNode, BrokerOptions, run_broker
from tests.kit.cluster import Cluster, eventually
from tests.kit.disk import MemoryDisk
from tests.kit.join_secrets import SECRETS

SIZE = 4 * DISK_ROOM_BYTES_MIN


@attrs.frozen
class SoleReplica:
    """A broker whose disk has a size, and that holds the only replica of a topic."""

    cluster: Cluster
    disk: MemoryDisk
    view: BrokerNodeView
    client: octopi.Client

    async def status(self, *options: str) -> tuple[int, str]:
        """What the program says of the cluster, in a process of its own."""
        command = [sys.executable, "-m", "octopi_node", "status", *options]
        done = await trio.run_process(
            [*command, "--server", self.cluster.register.url],
            env=node_environment(),
            capture_stdout=True,
            check=False,
        )
        return done.returncode, done.stdout.decode()

    async def fill(self) -> None:
        """Produce until the disk takes nothing, as all may see."""
        with pytest.raises(octopi.NotDeliveredError, match="No space left"):
            await self._produce_for_ever()
        await eventually(lambda: self.view.why_not_ready() != "")

    async def _produce_for_ever(self) -> None:
        async with self.client.producer(delivery_timeout_s=2.0) as producer:
            while True:
                await producer.send("orders", bytes(100_000))

    async def known(self, *, full: bool) -> None:
        """Wait until the register knows it."""
        with trio.fail_after(20):
            while True:
                (broker,) = (await self.client.admin.describe_cluster()).brokers
                if bool(broker.disk_trouble) == full:
                    return
                await trio.sleep(0.05)  # nothing announces it to clients


@asynccontextmanager
async def sole_replica(directory: Path) -> AsyncIterator[SoleReplica]:
    disk = MemoryDisk(capacity_bytes=SIZE)
    shown: list[BrokerNode] = []
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, directory)
        await cluster.start_register()
        options = BrokerOptions("127.0.0.1:0", "data", [cluster.register.url], SECRETS)

        async def run(*, task_status: trio.TaskStatus[str]) -> None:
            environment = attrs.evolve(cluster.environment, disk=disk)
            await run_broker(
                environment,
                options,
                stop=trio.Event(),
                show=shown.append,
                task_status=task_status,
            )

        await nursery.start(run)
        async with octopi.connect(cluster.register.url) as client:
            await client.create_topic("orders", partition_ids=[0])
            yield SoleReplica(cluster, disk, BrokerNodeView(shown[0]), client)
        nursery.cancel_scope.cancel()


async def test_status_names_the_broker_whose_disk_is_full_the_partitions_and_what_helps(
    tmp_path: Path,
) -> None:
    async with sole_replica(tmp_path) as sole:
        code, text = await sole.status()
        assert (code, text.splitlines()[-1]) == (0, "healthy")
        assert "of 4.2 MB" in text
        await sole.fill()
        await sole.known(full=True)
        code, text = await sole.status()
        assert code == 1
        assert "takes no records: partition 0" in text
        assert (
            "broker 1, partition 0: the data directory takes nothing: No space left on device"
            in text
        )
        assert "octopi-node partitions move" in text
        assert ", full" in text
        code, text = await sole.status("--json")
        (broker,) = json.loads(text)["brokers"]
        assert broker["disk_free_bytes"] < DISK_ROOM_BYTES_MIN
        assert broker["disk_total_bytes"] == SIZE
        sole.disk.capacity_bytes = 2 * SIZE
        await sole.known(full=False)
        code, text = await sole.status()
        assert (code, text.splitlines()[-1]) == (0, "healthy")
        async with sole.client.producer() as producer:
            await producer.send("orders", b"and it takes records again")


async def test_a_node_is_not_ready_while_a_log_that_it_leads_takes_no_records_and_logs_this_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def said() -> list[str]:
        lines = [record.getMessage() for record in caplog.records]
        return [one for one in lines if "disk" in one or "failed" in one]

    async with sole_replica(tmp_path) as sole:
        assert sole.view.why_not_ready() == ""
        metrics = Metrics(sole.view).text().decode()
        assert "octopi_disk_total_bytes 4.194304e+06" in metrics
        assert "octopi_disk_full 0.0" in metrics
        await sole.fill()
        assert sole.view.why_not_ready().endswith("; it leads partition 0")
        metrics = Metrics(sole.view).text().decode()
        assert "octopi_disk_full 1.0" in metrics
        assert "octopi_replicas_troubled 1.0" in metrics
        sole.disk.capacity_bytes = None
        await eventually(lambda: sole.view.why_not_ready() == "")
        assert said() == ["disk full", "disk has space again"]
