"""Programs of the test on hosts of their own: they live, die and are started again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

import octopi
import octopi.testing
from octopi.testing import Cluster, Host, MisuseError, simulated


@simulated()
async def test_a_program_runs_on_a_host_of_its_own_and_is_done_when_it_returns(
    cluster: Cluster,
) -> None:
    async def program(host: Host) -> None:
        async with host.connect() as client, client.producer() as producer:
            await producer.send("orders", host.name.encode())

    sender = cluster.program("sender", program)
    assert sender.is_up
    await sender.wait()
    assert sender.is_done
    assert not sender.is_up
    assert sender.life_count == 1
    async with cluster.client() as client:
        consumer = client.consumer("orders", start="earliest", stop_at_end=True)
        async with consumer as messages:
            assert [message.value async for message in messages] == [b"sender"]


@simulated()
async def test_a_killed_program_stops_and_begins_again_when_it_is_restarted(
    cluster: Cluster,
) -> None:
    done: list[str] = []

    async def program(host: Host) -> None:
        try:
            while True:
                await trio.sleep(1)
                host.step("tick")
                done.append(f"life {host.life}")
        finally:
            async with host.connect() as client:
                await client.topics()
                done.append("cleaned up")

    ticker = cluster.program("ticker", program)
    await cluster.sleep(2.5)
    cluster.kill("ticker")
    await cluster.sleep(5)
    assert done == ["life 1", "life 1"]
    assert not ticker.is_done
    cluster.restart("ticker")
    await cluster.sleep(1.5)
    assert done == ["life 1", "life 1", "life 2"]


@simulated()
async def test_a_stopped_program_is_cancelled_and_can_clean_up(cluster: Cluster) -> None:
    seen: list[str] = []

    async def program(host: Host) -> None:
        async with host.connect() as client, client.producer() as producer:
            await producer.submit("orders", b"the last one")
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                with trio.CancelScope(shield=True):
                    await producer.flush()
                    seen.append("flushed")
                raise

    worker = cluster.program("worker", program)
    await cluster.sleep(1)
    assert cluster.stop("worker", restart_s=1.0)
    await cluster.eventually(lambda: worker.life_count == 2)
    assert seen == ["flushed"]
    assert worker.errors == []


@simulated()
async def test_a_program_that_ends_with_an_error_of_the_cluster_is_started_again(
    cluster: Cluster,
) -> None:
    async def program(host: Host) -> None:
        async with host.connect() as client, client.consumer("orders") as consumer:
            async for _ in consumer:
                return

    reader = cluster.program("reader", program, restart_s=0.5)
    await cluster.sleep(2.2)
    assert reader.life_count == 5
    assert all("no topic orders" in repr(error) for error in reader.errors)
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        await cluster.sleep(1)
        await producer.send("orders", b"a hat")
    await reader.wait()


def failing(program: Callable[[Host], Awaitable[object]], restart_s: float | None = 1.0) -> str:
    """How a test fails in which *program* runs, with all the notes."""

    async def scene(cluster: Cluster) -> None:
        cluster.program("worker", program, restart_s=restart_s)
        await cluster.sleep(100)

    with pytest.raises(Exception) as caught:  # noqa: PT011  # what it is, is asked for
        octopi.testing.run(scene)
    cause = f"because of {caught.value.__cause__!r}"
    return "\n".join([repr(caught.value), cause, *caught.value.__notes__])


def test_a_program_that_raises_an_error_of_its_own_fails_the_test() -> None:
    async def program(host: Host) -> None:
        await trio.sleep(1)
        raise KeyError("no such account") from ValueError("7")

    text = failing(program)
    assert "because of ValueError('7')" in text
    assert "KeyError('no such account')" in text
    assert "raised by program 'worker', life 1" in text


def test_a_program_without_restarts_fails_the_test_with_any_error() -> None:
    async def program(host: Host) -> None:
        async with host.connect() as client:
            await client.describe_topic("orders")

    text = failing(program, restart_s=None)
    assert "UnknownTopicError" in text
    assert "raised by program 'worker', life 1" in text


@simulated()
async def test_a_program_is_given_as_a_function_and_not_called(cluster: Cluster) -> None:
    async def program() -> None: ...

    with pytest.raises(MisuseError, match="was called already"):
        cluster.program("worker", program())  # type: ignore[arg-type]


def test_a_program_that_is_not_async_fails_the_test() -> None:
    assert "is no async function: it returned 7" in failing(lambda host: 7)  # type: ignore[arg-type, return-value]


@simulated()
async def test_two_programs_can_not_have_one_name(cluster: Cluster) -> None:
    async def program(host: Host) -> None:
        await trio.sleep_forever()

    cluster.program("worker", program)
    for name in ("worker", "register"):
        with pytest.raises(MisuseError, match=f"there is a host '{name}' already"):
            cluster.program(name, program)
        with pytest.raises(MisuseError, match=f"there is a host '{name}' already"):
            async with cluster.client(name):
                pass


@simulated()
async def test_a_host_may_have_several_clients(cluster: Cluster) -> None:
    async with cluster.client("alice") as one, cluster.client("alice") as other:
        await one.create_topic("orders", 1)
        assert [topic.topic for topic in await other.topics()] == ["orders"]


@simulated()
async def test_hosts_talk_to_each_other_over_the_same_network(cluster: Cluster) -> None:
    """A program may serve others: its environment has all that a node has."""
    answers: list[bytes] = []
    environment = await cluster.environment("asker")

    async def server(host: Host) -> None:
        async def answer(link: octopi.environment.Link) -> None:
            await link.send(await link.receive() + b"!")

        async with trio.open_nursery() as nursery:
            await host.environment.net.listen(
                "server:80", answer, paths=frozenset({"/"}), handler_nursery=nursery
            )

    cluster.program("server", server)
    await cluster.sleep(0.1)
    link = await environment.net.connect("ws://server:80", "/")
    await link.send(b"hello")
    answers.append(await link.receive())
    assert answers == [b"hello!"]


def test_a_program_that_outlives_its_process_fails_the_test() -> None:
    async def stubborn(host: Host) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(3600)

    async def scene(cluster: Cluster) -> None:
        cluster.program("worker", stubborn)
        await cluster.sleep(1)

    with pytest.raises(MisuseError, match="tasks of worker, life 1 don't end"):
        octopi.testing.run(scene)
