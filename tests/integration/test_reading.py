"""Any in-sync replica serves consumers, and none gives out what may vanish again."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

import octopi
from octopi.identifiers import Offset, PartitionId
from octopi.transport.connection import Connection
from octopi.wire import messages as m
from tests.kit.cluster import Cluster, system_environment
from tests.kit.named_clusters import Deciders, each_way, local_cluster, process_cluster
from tests.kit.probes import batch, values
from tests.kit.traffic import traffic


class Reader:
    """Subscribes at one broker and notes what each delivery says."""

    def __init__(self, connection: Connection, topic: str, partition: int) -> None:
        self.deliveries: list[m.Delivery] = []
        self.ended = trio.Event()
        connection.ask(
            m.Subscribe(
                connection.next_request(), topic, PartitionId(partition), Offset(0), 1 << 40
            ),
            self._take,
        )

    def _take(self, answer: object) -> None:
        if isinstance(answer, m.Delivery):
            self.deliveries.append(answer)
        elif not isinstance(answer, m.Subscribed):
            self.ended.set()

    @property
    def end(self) -> int:
        """How far it was given records."""
        if not self.deliveries:
            return 0
        return self.deliveries[-1].offset + len(self.deliveries[-1].records)


@each_way
async def test_a_follower_serves_consumers_up_to_its_highwater_mark(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders", producers=2) as flow:
            place = await cluster.place("orders")
            follower = cluster.address((await cluster.followers("orders"))[0])
            async with cluster.cluster.connection(follower) as connection:
                reader = Reader(connection, "orders", place.partition)
                await flow.progress(200)
                with trio.fail_after(30):
                    wanted = flow.producing[0].receipts[-1].next_offset
                    while reader.end < wanted:  # noqa: ASYNC110
                        await trio.sleep(0.01)
                assert not reader.ended.is_set()
        assert [one.offset for one in reader.deliveries[1:]] == [
            one.offset + len(one.records) for one in reader.deliveries[:-1]
        ]
        assert all(one.offset + len(one.records) <= one.highwater for one in reader.deliveries)
        sent = sorted(
            ((receipt.offset, one.value(number)) for one in flow.producing
             for number, receipt in enumerate(one.receipts)),
        )  # fmt: skip
        given = [value for one in reader.deliveries for value in values(one.records)]
        assert given == [value for _, value in sent[: len(given)]]


@pytest.mark.process
@each_way
async def test_no_replica_gives_out_records_that_a_hung_in_sync_follower_has_not_acknowledged(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with (
        process_cluster(tmp_path, deciders=deciders) as cluster,
        trio.open_nursery() as nursery,
    ):
        async with octopi.connect(cluster.url) as client:
            # So that the others don't go on without the hung one.
            await client.create_topic("orders", min_insync=3)
        place = await cluster.in_sync("orders", 3)
        hung, other = await cluster.followers("orders")
        asking = Cluster(nursery, tmp_path)
        asking.environment = system_environment(nursery)
        async with (
            asking.connection(place.leader_address) as leader,
            asking.connection(cluster.address(other)) as follower,
        ):
            request = leader.next_request
            produced = m.Produce(request(), "orders", place.partition, batch(0, b"first"))
            await leader.request(produced, m.Produced, 5)
            cluster.brokers[hung].signal(signal.SIGSTOP)
            try:
                records = batch(1, b"second")
                answers: list[object] = []
                leader.ask(m.Produce(request(), "orders", place.partition, records), answers.append)
                committed = len(batch(0, b"first"))
                with trio.fail_after(10):
                    for broker in (leader, follower):
                        await until(broker, lambda log: log.log_end > committed)
                        assert (await log_of(broker, "orders")).highwater == committed
                        fetch = m.Fetch(
                            broker.next_request(),
                            "orders",
                            place.partition,
                            Offset(committed),
                            1000,
                            0,
                        )
                        assert (await broker.request(fetch, m.Fetched, 5)).records == b""
                    assert not answers
            finally:
                cluster.brokers[hung].signal(signal.SIGCONT)
            with trio.fail_after(10):
                for broker in (leader, follower):
                    await until(broker, lambda log: log.highwater > committed)
                    fetch = m.Fetch(
                        broker.next_request(), "orders", place.partition, Offset(committed), 1000, 0
                    )
                    fetched = await broker.request(fetch, m.Fetched, 5)
                    assert values(fetched.records) == [b"second"]
            assert isinstance(answers[0], m.Produced)
        nursery.cancel_scope.cancel()


async def until(broker: Connection, holds: Callable[[m.LogInfo], bool]) -> None:
    """Wait until the broker says that of its log; nothing announces it."""
    while not holds(await log_of(broker, "orders")):  # noqa: ASYNC110
        await trio.sleep(0.01)


async def log_of(broker: Connection, topic: str) -> m.LogInfo:
    question = m.DescribeLogs(broker.next_request(), topic, "", -1)
    (log,) = (await broker.request(question, m.LogList, 5)).logs
    return log
