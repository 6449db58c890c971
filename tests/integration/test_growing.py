"""Logs, topics and partitions are added while messages flow."""

from pathlib import Path

import octopi
from tests.kit.named_clusters import Deciders, each_way, local_cluster
from tests.kit.replicas import at_rest
from tests.kit.traffic import traffic

SEGMENT_BYTES = 4096


@each_way
async def test_many_messages_split_a_log_into_segments_that_are_one_log_together(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, deciders=deciders) as cluster:
        async with octopi.connect(cluster.url) as client:
            await client.create_topic("orders", segment_bytes=SEGMENT_BYTES)
        async with traffic(cluster.url, "orders", producers=3, consumers=2) as flow:
            await flow.progress(500)
            away = (await cluster.followers("orders"))[0]
            await cluster.kill(away)
            await flow.progress(200)
            await cluster.restart(away)
            await cluster.in_sync("orders", 3)
            await flow.progress(100)
        # The oracle checks that each segment begins where the last one ends.
        await flow.check_replicas(cluster.data_dirs, 3)
        leader = await cluster.leader("orders")
        (log, *_) = await at_rest(cluster.url, "orders", 3)
        for name in cluster.names:
            directory = cluster.data_dir(name) / "logs" / str(log.log.partition) / "orders"
            sizes = [path.stat().st_size for path in sorted(directory.glob("*.log"))]
            assert len(sizes) >= log.log.log_end // (SEGMENT_BYTES * 2)
            # The leader appends one small batch after the other, a follower all that it is sent.
            if name == leader:
                assert all(size <= SEGMENT_BYTES for size in sizes)


@each_way
async def test_topics_are_added_while_messages_flow(tmp_path: Path, deciders: Deciders) -> None:
    async with local_cluster(tmp_path, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders", producers=2) as flow:
            for number in range(6):
                # Producers make the topics that they write to.
                async with traffic(cluster.url, f"topic-{number}", partitions=2) as added:
                    await added.progress(20)
                    await flow.progress(20)
                await added.check_replicas(cluster.data_dirs, 3)
        await flow.check_replicas(cluster.data_dirs, 3)
        async with octopi.connect(cluster.url) as client:
            names = [info.topic for info in await client.topics()]
        assert names == ["orders", *(f"topic-{number}" for number in range(6))]


@each_way
async def test_partitions_are_added_while_messages_flow(tmp_path: Path, deciders: Deciders) -> None:
    async with local_cluster(tmp_path, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders", producers=2, partitions=4) as flow:
            await flow.progress(50)
            async with octopi.connect(cluster.url) as client:
                total = await client.admin.add_partitions(4)
                assert total == 12
                await client.create_topic("wide", partition_ids=[0, *range(8, total)])
            async with traffic(cluster.url, "wide", producers=6) as wide:
                await wide.progress(200)
                await flow.progress(50)
        await flow.check_replicas(cluster.data_dirs, 3)
        await wide.check_replicas(cluster.data_dirs, 3)
        used = {receipt.partition for one in wide.producing for receipt in one.receipts}
        assert used & {8, 9, 10, 11}, "an added partition was written to"
