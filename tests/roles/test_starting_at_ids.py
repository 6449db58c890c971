"""Reading begins behind a message of a topic in memory that has an id."""

from __future__ import annotations

import pytest

from octopi import OffsetOutOfRangeError, RefusedError, Status, connect
from octopi.errors import InvalidOptionError
from octopi.relay.message_ids import MessageId, id_behind
from octopi.testing import Cluster, simulated
from tests.roles.test_relays import TOPIC, started, values


@simulated(brokers=1, oracle=False)
async def test_each_message_that_was_sent_together_is_a_place_to_begin_behind(
    cluster: Cluster,
) -> None:
    async with (
        started(cluster) as (relays, environment),
        connect(relays.addresses, environment=environment) as client,
        client.producer(linger_s=0.05) as producer,
    ):
        pending = [await producer.submit(TOPIC, one) for one in values(5)]
        receipts = [await one for one in pending]
        receipts.append(await producer.send(TOPIC, b"5"))
        await producer.send(TOPIC, b"6")
        for number, receipt in enumerate(receipts):
            async with client.consumer(TOPIC, start=receipt.id or b"") as consumer:
                assert (await anext(consumer)).value == b"%d" % (number + 1)
                [place] = consumer.position.places.values()
                assert place.anchor
        behind = id_behind(MessageId(receipts[4].id or b""), 1)
        for unknown in (behind, bytes(16)):
            with pytest.raises(OffsetOutOfRangeError, match="too old, or none of this topic"):
                async with client.consumer(TOPIC, start=unknown):
                    pass
        with pytest.raises(InvalidOptionError, match="15 bytes"):
            async with client.consumer(TOPIC, start=bytes(15)):
                pass


@simulated(brokers=1)
async def test_messages_of_a_topic_in_logs_have_no_ids(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.create_topic(TOPIC)
        with pytest.raises(RefusedError) as caught:
            async with client.consumer(TOPIC, start=bytes(16)):
                pass
        assert caught.value.status == Status.WRONG_KIND
