"""Conditions that hold always or eventually, and the check of the clients' history."""

from __future__ import annotations

from datetime import timedelta

import pytest

import octopi
import octopi.testing
from octopi.identifiers import Epoch, Offset, PartitionId
from octopi.roles.broker.local_log import LocalLog
from octopi.simulation.history.events import Acknowledged, Delivered, FinalLog, Invoked, LogName
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.kernel.world import Event
from octopi.testing import Cluster, Host, MisuseError, StuckError, Violation, simulated


def test_a_broken_always_condition_fails_the_test_at_the_step_that_breaks_it() -> None:
    async def scene(cluster: Cluster) -> None:
        stock = {"hats": 1}
        cluster.always(lambda: stock["hats"] >= 0, "there are hats to sell")

        async def shop(host: Host) -> None:
            async with host.connect() as client, client.producer() as producer:
                for _ in range(3):
                    stock["hats"] -= 1
                    await producer.send("orders", b"a hat")

        await cluster.program("shop", shop).wait()

    with pytest.raises(Violation, match=r"always: there are hats to sell, at .* shop "):
        octopi.testing.run(scene)


def test_a_condition_that_raises_an_error_fails_the_test() -> None:
    async def scene(cluster: Cluster) -> None:
        stock: dict[str, int] = {}
        cluster.always(lambda: stock["hats"] >= 0, "there are hats to sell")
        async with cluster.client() as client:
            await client.create_topic("orders", 1)

    with pytest.raises(KeyError, match="hats"):
        octopi.testing.run(scene)


@simulated()
async def test_eventually_waits_until_its_condition_holds_and_returns_the_value(
    cluster: Cluster,
) -> None:
    async with cluster.client() as client:

        async def later(host: Host) -> None:
            await cluster.sleep(7)
            async with host.connect() as other:
                await other.create_topic("orders", 1)

        cluster.program("later", later)
        (topic,) = await cluster.eventually(client.topics, "somebody makes a topic")
        assert topic.topic == "orders"
        assert await cluster.eventually(lambda: 7) == 7


@simulated()
async def test_a_condition_has_to_be_a_function_that_can_be_called(
    cluster: Cluster,
) -> None:
    async def slow() -> bool:
        return True

    with pytest.raises(MisuseError, match=r"slow would wait: .* or use cluster\.eventually"):
        cluster.always(slow, "it holds")
    with pytest.raises(MisuseError, match="a function, without"):
        await cluster.eventually(slow())  # type: ignore[call-overload]
    assert await cluster.eventually(slow)


def test_a_condition_that_returns_a_coroutine_fails_the_test() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.always(lambda: cluster.sleep(1), "it holds")
        async with cluster.client() as client:
            await client.create_topic("orders", 1)

    with pytest.raises(MisuseError, match="can't be async"):
        octopi.testing.run(scene)


@simulated()
async def test_eventually_gives_up_a_condition_that_never_holds(cluster: Cluster) -> None:
    began = cluster.now
    with pytest.raises(StuckError, match=r"not within 5 s: pigs fly; it is \[\]"):
        await cluster.eventually(list, "pigs fly", within_s=5.0)
    assert 5.0 <= cluster.now - began < 7.0


def test_a_test_that_does_not_end_names_the_tasks_that_wait() -> None:
    async def scene(cluster: Cluster) -> None:
        async def reader(host: Host) -> None:
            async with host.connect() as client, client.consumer("orders") as consumer:
                async for _ in consumer:
                    pass

        async with cluster.client() as client:
            await client.create_topic("orders", 1)
        cluster.program("reader", reader)
        cluster.kill("broker-1")
        forgotten = octopi.testing.Trigger(print, "any", 1)
        await forgotten.wait()

    with pytest.raises(StuckError) as caught:
        octopi.testing.run(scene, timeout_s=20.0)
    text = str(caught.value)
    assert "has not ended after 20 s of virtual time" in text
    assert "the test at test_promises.py:" in text
    assert "in scene: `await forgotten.wait()`" in text
    assert "reader at test_promises.py:" in text
    assert "in reader: `async for _ in consumer:` (Consumer.__anext__)" in text
    assert "down: broker-1" in text


def test_a_test_that_waits_for_a_message_that_is_never_sent_ends_soon() -> None:
    """Virtual time is cheap: the default time-out is minutes of it."""

    async def scene(cluster: Cluster) -> None:
        async with cluster.client() as client:
            await client.create_topic("orders", 1)
            async with client.consumer("orders", reconnect_timeout_s=None) as consumer:
                await anext(consumer)

    with pytest.raises(StuckError, match=r"Consumer\.__anext__"):
        octopi.testing.run(scene)


def test_a_cluster_that_breaks_an_invariant_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(cluster: Cluster) -> None:
        async with cluster.client() as client, client.producer() as producer:
            await client.create_topic("orders", 1)
            async with client.consumer("orders") as consumer:
                for _ in range(3):
                    await producer.submit("orders", b"a hat")
                    await anext(consumer)

    monkeypatch.setattr(LocalLog, "highwater", property(lambda log: log.end))
    monkeypatch.setattr(LocalLog, "read", LocalLog.read_uncommitted)
    with pytest.raises(Violation, match="uncommitted-seen"):
        octopi.testing.run(scene)


def test_the_oracle_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(cluster: Cluster) -> None:
        await cluster.sleep(1)

    seen: list[Event] = []
    monkeypatch.setattr(Oracle, "__call__", lambda self, event: seen.append(event))
    octopi.testing.run(scene, oracle=False)
    assert seen == []
    octopi.testing.run(scene)
    assert seen


@simulated(record=True)
async def test_recorded_clients_note_their_operations_and_behave_as_usual(cluster: Cluster) -> None:
    async with cluster.client("alice") as client:
        await client.create_topic("orders", 1, retention=timedelta(days=1))
        async with client.producer() as producer:
            receipt = await producer.send("orders", b"a hat", headers={"of": b"alice"})
            pending = await producer.submit("orders", b"a hat", key=b"k")
            producer.submit_nowait("orders", b"an umbrella")
            await pending
            assert pending.is_settled
            await producer.flush()
            assert producer.acknowledged_count == 3
        values = [b"a hat", b"a hat", b"an umbrella"]
        async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
            messages = [message async for message in consumer]
            assert [message.value for message in messages] == values
            assert messages[0].headers == {"of": b"alice"}
            assert messages[1].key == b"k"
            assert consumer.lag_bytes == 0
        async with client.consumer("orders", start=octopi.last(1), stop_at_end=True) as consumer:
            assert [[one.value for one in batch] async for batch in consumer.batches()] == [
                [b"an umbrella"]
            ]
        found = await client.fetch("orders", receipt.offset, partition=receipt.partition)
        assert [message.value for message in found.messages] == values
    await cluster.settle()
    kinds = [type(event) for event in cluster.history.events]
    assert kinds.count(Invoked) == kinds.count(Acknowledged) == 3
    assert kinds.count(Delivered) == 4
    assert kinds.count(FinalLog) == 1


def test_the_history_of_clients_is_checked_at_the_end() -> None:
    async def scene(cluster: Cluster) -> None:
        async with cluster.client("alice") as client, client.producer() as producer:
            await client.create_topic("orders", 1)
            receipt = await producer.send("orders", b"a hat")
        log = LogName("orders", receipt.partition)
        await cluster.settle()
        # What would be noted if the log had lost the message.
        cluster.history.note(FinalLog(cluster.now, log, ()))

    with pytest.raises(octopi.testing.HistoryViolation, match=r"LOST_WRITE .*'alice\.1-1'"):
        octopi.testing.run(scene, record=True)


@simulated()
async def test_a_history_can_be_noted_by_hand(cluster: Cluster) -> None:
    log = LogName("orders", PartitionId(0))
    cluster.history.note(Invoked(cluster.now, "me", "orders", PartitionId(0), b"a hat"))
    cluster.history.note(Acknowledged(cluster.now, log, b"a hat", Offset(0), Offset(62), Epoch(1)))
    cluster.check()
    cluster.history.note(FinalLog(cluster.now, log, ()))
    with pytest.raises(octopi.testing.HistoryViolation, match="what was acknowledged stays"):
        cluster.check()


@simulated(seeds=3, record=True)
async def test_the_history_of_recorded_clients_is_valid_through_faults(cluster: Cluster) -> None:
    async def sender(host: Host) -> None:
        async with host.connect() as client, client.producer() as producer:
            for number in range(20):
                await producer.submit("orders", b"%d" % number)
                await cluster.sleep(0.1)

    async def reader(host: Host) -> None:
        async with (
            host.connect() as client,
            client.consumer("orders", start="earliest") as consumer,
        ):
            async for _ in consumer:
                pass

    async with cluster.client() as client:
        await client.create_topic("orders", 2)
    with cluster.random_faults():
        senders = [cluster.program(name, sender) for name in ("one", "two")]
        cluster.program("reader", reader)
        await cluster.sleep(5)
    for one in senders:
        if not one.is_up:
            cluster.restart(one.name)
        await one.wait()
    await cluster.settle()
    assert sum(isinstance(event, Acknowledged) for event in cluster.history.events) > 20


@simulated()
async def test_a_cluster_that_does_not_settle_says_why(cluster: Cluster) -> None:
    cluster.kill("broker-1")
    with pytest.raises(StuckError, match=r"not within 0 s: broker-1 doesn't serve"):
        await cluster.settle(within_s=0.0)
    await cluster.settle()
