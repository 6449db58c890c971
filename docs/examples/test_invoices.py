"""A pipeline: orders are billed by a member of a subscription, and a queue sends the invoices.

The leader dies at a step of a mark, both programs are killed in their work, and in the end the
whole cluster is started again.  Yet each order is billed, each invoice is sent or is a dead letter,
and nothing comes again that was confirmed.
"""

import pytest

import octopi
import octopi.testing

ORDERS = [b"order %d" % number for number in range(20)]
UNKNOWN = b"order 7"
"""The post always fails for this one's invoice."""


async def bill(host: octopi.testing.Host, accounts: dict[int, bytes]) -> None:
    """Book each order in *accounts*, under its offset, then have its invoice sent."""
    async with (
        host.connect() as client,
        client.producer() as producer,
        client.subscription("orders", "billing") as orders,
    ):
        async for order in orders:
            accounts[order.offset] = order.value
            host.step("booked", offset=order.offset)
            await producer.send("invoices", order.value)


async def send_invoices(host: octopi.testing.Host, posted: list[bytes]) -> None:
    """Post each invoice; one that can't be posted is tried again, three times in all."""
    async with (
        host.connect() as client,
        client.subscription("invoices", "post", mode="shared", attempts=3) as invoices,
    ):
        async for invoice in invoices:
            if invoice.value == UNKNOWN:
                invoice.release(delay_s=1.0)
            else:
                host.step("posting", attempt=invoice.attempt)
                posted.append(invoice.value)
                invoice.acknowledge()


@pytest.mark.parametrize("step", ["S5a", "S8a", "S9a", "S10a"])
@octopi.testing.simulated()
async def test_each_invoice_is_sent_or_is_a_dead_letter(
    cluster: octopi.testing.Cluster, step: str
) -> None:
    accounts: dict[int, bytes] = {}
    posted: list[bytes] = []
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        await client.create_topic("invoices", 1)
        cluster.program("billing", lambda host: bill(host, accounts))
        cluster.program("post", lambda host: send_invoices(host, posted))
        struck = [
            cluster.at(step, lambda host: cluster.kill(host, restart_s=2.0), who="leader"),
            cluster.at("booked", lambda host: cluster.kill(host, restart_s=1.0), occurrence=10),
            cluster.at("posting", lambda host: cluster.kill(host, restart_s=1.0), occurrence=5),
        ]
        for order in ORDERS:
            await producer.send("orders", order)
        for trigger in struck:
            await trigger.wait()

        async def is_settled() -> bool:
            marks = [
                await client.admin.describe_subscription("orders", "billing"),
                await client.admin.describe_subscription("invoices", "post"),
            ]
            return all(one.lag_bytes == 0 for one in marks)

        await cluster.eventually(is_settled, "everything is processed")
        assert list(accounts.values()) == ORDERS
        assert set(posted) == {order for order in ORDERS if order != UNKNOWN}

        await cluster.settle()
        count = len(posted)
        for host in [cluster.register, *cluster.brokers]:
            cluster.kill(host, restart_s=1.0)
        await cluster.sleep(60)
        assert len(posted) == count
        async with client.consumer(
            "invoices.post.dead", start="earliest", stop_at_end=True
        ) as consumer:
            letters = [letter async for letter in consumer]
        assert {letter.value for letter in letters} == {UNKNOWN}
        assert all(int(letter.headers["octopi-attempts"]) >= 3 for letter in letters)
