"""The stream from a leader to its follower, over real sockets, with a follower that hears of
nothing else."""

from pathlib import Path

import trio

import octopi
from octopi.roles.broker.stream_keys import StreamKeys
from octopi.transport.handshake import open_node_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import FOLLOW
from tests.kit.cluster import describe, eventually, running_cluster
from tests.kit.join_secrets import MEMBER
from tests.kit.probes import values
from tests.roles.test_growing import ask, until


async def test_a_deposed_leader_sends_nothing_more_to_its_followers(tmp_path: Path) -> None:
    received: list[m.Replicate | m.Followed] = []
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        octopi.connect(cluster.register.url) as client,
        client.producer() as producer,
        trio.open_nursery() as nursery,
    ):
        nodes = {one: await cluster.start_broker(f"broker-{one}") for one in (1, 2, 3)}
        topic = await describe(cluster, "orders")
        await producer.send("orders", b"first")
        place = await until(cluster, "orders", lambda info: len(info.in_sync) == 3)
        away = next(one for one in place.replicas if one != place.leader)
        await cluster.kill(nodes[away])
        place = await until(cluster, "orders", lambda info: away not in info.in_sync)
        stream = await open_node_connection(
            cluster.environment, place.leader_address, FOLLOW, "test", MEMBER
        )
        await nursery.start(stream.run, received.append)
        assert place.leader is not None
        follow = m.Follow(place.partition, place.epoch, away, 1, 1000, topic.topic_id, [], 0)
        keys, seals = StreamKeys(), cluster.registers[-1].controller.seals
        key = seals.stream_key(away, place.leader)
        keys.learn([m.BrokerInfo(place.leader, "", 1, True, 0, stream_key=key)])
        stream.post(keys.signed(place.leader, follow))
        await eventually(lambda: len(received) >= 2)

        await ask(cluster, m.DrainBroker(0, place.leader))
        receipt = await producer.send("orders", b"second")
        assert receipt.epoch > place.epoch
        async with cluster.connection(place.leader_address) as deposed:
            ends = [0]
            while ends != [receipt.next_offset]:
                question = m.DescribeLogs(deposed.next_request(), "orders", "", -1)
                logs = (await deposed.request(question, m.LogList, 5)).logs
                ends = [one.log_end for one in logs]
        stream.post(m.Follow(place.partition, place.epoch, away, 1, 2000, topic.topic_id, [], 0))
        await eventually(lambda: stream.end_reason is not None)  # another session is too much
        sent = [one.records for one in received if isinstance(one, m.Replicate)]
        assert values(b"".join(sent)) == [b"first"]
