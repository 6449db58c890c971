"""What brokers measure of durable subscriptions, asked of a real cluster in this process."""

from __future__ import annotations

from pathlib import Path

import trio

import octopi
from octopi.admin.subscription_metrics import SubscriptionMetrics
from octopi.roles.broker.node import BrokerNode, BrokerOptions, run_broker
from tests.admin.nodes import serving_nodes
from tests.admin.test_pages import samples, written
from tests.admin.test_subscription_pages import until_equal
from tests.kit.cluster import Cluster
from tests.kit.join_secrets import SECRETS


async def test_lag_members_and_marks_of_a_subscription_are_measured(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes:
        receipt = await written(nodes, count=3)
        log = (str(receipt.partition), "billing", "orders")

        def name(what: str) -> tuple[str, ...]:
            return (f"octopi_subscription_{what}", *log)

        async with octopi.connect(nodes.register) as client:
            await client.admin.create_subscription("orders", "billing")
            found = await samples(nodes.brokers[0])
            assert found[name("lag_bytes")] == receipt.next_offset
            assert found["octopi_subscription_members", "billing", "orders"] == 0
            before = found[name("lag_seconds")]
            assert (await samples(nodes.brokers[0]))[name("lag_seconds")] > before
            async with client.subscription("orders", "billing") as orders:
                async for message in orders:
                    if message.next_offset == receipt.next_offset:
                        break
                await orders.commit()
                found = await samples(nodes.brokers[0])
                assert found["octopi_subscription_members", "billing", "orders"] == 1
            found = await samples(nodes.brokers[0])
            assert found[name("lag_bytes")] == 0
            assert found[name("lag_seconds")] == 0
            assert found[name("marks_stored_total")] >= 2  # the claim, and the mark
            assert found[name("fenced_total")] == 0
            assert found[name("lost_bytes_total")] == 0
            assert found["octopi_subscription_rebalance_total", "billing", "orders"] == 1
            await client.admin.delete_subscription("orders", "billing")
            found = await samples(nodes.brokers[0])
            assert not [one for one in found if one[0].startswith("octopi_subscription")]


async def test_only_the_subscriptions_with_the_greatest_lags_have_series_of_their_own(
    tmp_path: Path,
) -> None:
    shown: list[BrokerNode] = []
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, tmp_path)
        await cluster.start_register()
        options = BrokerOptions(
            "127.0.0.1:0", str(tmp_path / "b1"), [cluster.register.url], SECRETS
        )

        async def broker(*, task_status: trio.TaskStatus[str]) -> None:
            await run_broker(
                cluster.environment,
                options,
                stop=trio.Event(),
                show=shown.append,
                task_status=task_status,
            )

        await nursery.start(broker)
        async with (
            octopi.connect(cluster.register.url) as client,
            client.producer() as producer,
        ):
            ends = []
            for number in range(4):
                receipt = await producer.send("orders", bytes(100 * (number + 1)))
                ends.append(receipt.next_offset)
            for number, end in enumerate([0, *ends]):
                name = f"program-{number}"
                await client.admin.create_subscription("orders", name)
                await client.admin.reset_subscription("orders", name, end)
        metrics = SubscriptionMetrics(shown[0].parts, series_max=2)
        await metrics.look()
        families = {one.name: one.samples for one in metrics.collect()}
        lags = {
            one.labels["subscription"]: one.value
            for one in families["octopi_subscription_lag_bytes"]
        }
        others = sum(ends[-1] - end for end in ends[1:])
        assert lags == {"program-0": ends[-1], "program-1": ends[-1] - ends[0], "": others}
        members = families["octopi_subscription_members"]
        assert len(members) == 3
        assert [one.labels for one in members if not one.labels["topic"]] == [
            {"topic": "", "subscription": ""}
        ]
        nursery.cancel_scope.cancel()


async def test_messages_of_a_queue_are_measured_and_shown(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes:
        receipt = await written(nodes, count=1)
        log = (str(receipt.partition), "billing", "orders")
        path = "/api/v1/subscription?topic=orders&name=billing"

        async def measured(what: str) -> float:
            return (await samples(nodes.brokers[0]))[f"octopi_subscription_{what}", *log]

        async with (
            octopi.connect(nodes.register) as client,
            client.subscription("orders", "billing", mode="shared", attempts=2) as queue,
        ):
            order = await anext(queue)
            assert await measured("open") == 1
            assert await measured("redelivered_total") == 0
            order.release()
            order = await anext(queue)
            assert await measured("redelivered_total") == 1
            assert await measured("lag_bytes") == receipt.next_offset
            found = await until_equal(nodes.brokers[0], path, "open_count", 1)
            assert (found["members_count"], found["logs_without_member"]) == (1, 0)
            order.reject("not readable")
            await queue.commit()
            found = await until_equal(nodes.brokers[0], path, "dead_count", 1)
            [shown] = found["logs"]
            assert (shown["open_count"], shown["dead_count"], shown["letter_fault"]) == (0, 1, "")
            assert await measured("dead_letters") == 1
            assert await measured("waiting") == 0
            assert await measured("lag_bytes") == 0
