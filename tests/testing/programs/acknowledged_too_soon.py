"""A queue of mails: the wrong sender acknowledges a mail before it has sent it."""

from __future__ import annotations

import trio

from octopi.testing import Cluster, Host
from tests.testing.programs.planted import Planted


async def post(mail: bytes, sent: set[bytes]) -> None:
    """Send a mail by a service somewhere else, which takes a moment."""
    await trio.sleep(0.2)
    sent.add(mail)


async def wrong(host: Host, sent: set[bytes]) -> None:
    async with (
        host.connect() as client,
        client.subscription("mails", "sender", mode="shared") as mails,
    ):
        async for mail in mails:
            mail.acknowledge()
            await post(mail.value, sent)


async def right(host: Host, sent: set[bytes]) -> None:
    async with (
        host.connect() as client,
        client.subscription("mails", "sender", mode="shared") as mails,
    ):
        async for mail in mails:
            await post(mail.value, sent)
            mail.acknowledge()


async def scene(cluster: Cluster, is_right: bool) -> None:
    sent: set[bytes] = set()
    program = right if is_right else wrong
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("mails", 1)
        cluster.program("sender", lambda host: program(host, sent))
        with cluster.random_faults(["kill"], hosts=["sender"]):
            for number in range(5):
                await producer.send("mails", b"mail %d" % number)
                await cluster.sleep(0.5)
        await cluster.sleep(15)
        assert len(sent) == 5


BUG = Planted("acknowledged too soon", scene, ("sender",), seed=1)
