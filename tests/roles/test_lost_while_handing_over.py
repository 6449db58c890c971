"""The only register is lost with its disk while some brokers have taken over what it handed over,
and some have not: the cluster is never decided about by a register and by brokers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import trio

from octopi.environment import Disk
from octopi.limits import HAND_OVER_PATIENCE_S
from octopi.ring.hand_over_fate import HandOverFate
from octopi.roles.broker import hand_over_question
from octopi.roles.broker.announced_hand_over import AnnouncedHandOver, store_announced
from octopi.testing import Cluster, StuckError, simulated
from tests.roles.test_ring_fail_over import stored
from tests.roles.test_to_ring import THREE, Changed, changed


async def nothing_is_lost(one: Changed) -> None:
    """Check that the load goes on, and that all of it is stored once."""
    count = len(one.load.acknowledged)
    await one.cluster.eventually(
        lambda: one.load.has(count + 20), "messages are acknowledged again", within_s=60.0
    )
    one.load.stops = True
    await one.cluster.eventually(
        lambda: len(one.load.acknowledged) == one.load.sent_count,
        "all is acknowledged",
        within_s=60.0,
    )
    found = await stored(one.client, "orders")
    assert found == [b"%d" % number for number in range(one.load.sent_count)]


async def have_taken_over(one: Changed, *names: str) -> None:
    """Wait until these brokers go on without a register."""
    await one.cluster.eventually(
        lambda: all(name in one.changing.ring.nodes for name in names), f"{names} have taken over"
    )


def why_it_waits(one: Changed, name: str) -> str:
    """Why a broker does not join its register."""
    question = one.changing.nodes[name].question
    assert question is not None
    return question.waits_for


def late_broker(begin: Callable[[Changed], Callable[[], None]]) -> None:
    """Two brokers take over, and the third one finds another register.  *begin* returns what puts
    that in the place of the one that has handed over."""

    @simulated(brokers=1, oracle=False)
    async def scenario(cluster: Cluster) -> None:
        async with changed(cluster) as one:
            replace = begin(one)
            await one.at_the_commit_point(lambda: cluster.isolate("c"))
            await one.changing.ring.ideal("a", "b")
            replace()
            await cluster.sleep(2.0)
            cluster.heal()
            await one.changing.in_ring(20.0)
            await nothing_is_lost(one)

    scenario()


def an_empty_register(one: Changed) -> Callable[[], None]:
    return lambda: one.changing.replace("r")


def an_older_copy(one: Changed) -> Callable[[], None]:
    copy = one.changing.back_up("r")
    return lambda: one.changing.restore("r", copy)


def test_a_broker_that_finds_an_empty_register_takes_over_from_the_others() -> None:
    late_broker(an_empty_register)


def test_a_broker_that_finds_an_older_copy_of_the_register_takes_over_from_the_others() -> None:
    late_broker(an_older_copy)


def test_a_broker_that_believes_an_empty_register_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hand_over_question, "fate", lambda *told, **how: HandOverFate.GIVEN_UP)
    with pytest.raises((AssertionError, StuckError)):
        late_broker(an_empty_register)


@simulated(brokers=1, oracle=False)
async def test_a_broker_waits_for_the_others_and_says_so(cluster: Cluster) -> None:
    async with changed(cluster) as one:
        await one.at_the_commit_point(lambda: cluster.isolate("c"))
        await have_taken_over(one, "a", "b")
        cluster.kill("a")
        cluster.kill("b")
        one.changing.replace("r")
        cluster.heal()
        await cluster.sleep(HAND_OVER_PATIENCE_S + 10.0)
        assert not one.changing.nodes["c"].is_joined()
        assert "start broker 1 at ws://a:9101, 2 at ws://b:9101" in why_it_waits(one, "c")
        cluster.restart("a")
        await have_taken_over(one, "c")
        cluster.restart("b")
        await one.changing.in_ring()
        await nothing_is_lost(one)


@simulated(brokers=1, oracle=False)
async def test_brokers_none_of_which_has_taken_over_go_back_to_an_empty_register(
    cluster: Cluster,
) -> None:
    async with changed(cluster) as one:
        await one.at_the_commit_point(lambda: one.changing.replace("r"))
        await one.changing.joined(within_s=10.0)
        count = len(one.load.acknowledged)
        await cluster.eventually(lambda: one.load.has(count + 20), "messages are acknowledged")
        await one.order()
        await one.changing.in_ring()
        await nothing_is_lost(one)


@simulated(brokers=1, oracle=False)
async def one_takes_over_alone(cluster: Cluster) -> None:
    """It dies, and the others give up; all are started again."""
    async with changed(cluster) as one:

        def act() -> None:
            cluster.cut("b", "r")
            cluster.cut("c", "r")

        await one.at_the_commit_point(act)
        await have_taken_over(one, "a")
        cluster.kill("a")
        one.changing.replace("r")
        cluster.heal()
        await one.changing.joined("b", "c", within_s=HAND_OVER_PATIENCE_S + 10.0)
        cluster.restart("a")
        for name in ("b", "c"):
            cluster.kill(name)
            cluster.restart(name)
            one.changing.nodes.pop(name, None)
        await one.changing.joined("b", "c", within_s=10.0)
        await cluster.sleep(5.0)
        assert "a" not in one.changing.ring.members() or not any(
            replica.machine.leader is not None
            for replica in one.changing.ring.nodes["a"].replicas.replicas
        )


def test_a_broker_that_took_over_alone_and_died_decides_nothing_when_it_is_back() -> None:
    one_takes_over_alone()


def test_a_promise_not_to_take_over_that_is_not_stored_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def store_no_promise(
        disk: Disk, data_directory: str, announced: AnnouncedHandOver
    ) -> None:
        if not announced.has_given_up:
            await store_announced(disk, data_directory, announced)

    monkeypatch.setattr(hand_over_question, "store_announced", store_no_promise)
    with pytest.raises((AssertionError, StuckError)):
        one_takes_over_alone()


@simulated(brokers=1, oracle=False)
async def test_an_order_that_was_not_carried_out_leaves_no_broker_waiting(
    cluster: Cluster,
) -> None:
    async with changed(cluster) as one:
        changing = one.changing
        attempts = changing.register_nodes["r"].controller.state.hand_over_attempts

        async def once_announced() -> None:
            while not attempts:
                await cluster.sleep(0.001)
            cluster.isolate("c")

        one.tasks.start_soon(once_announced)
        one.tasks.start_soon(one.order_once)

        def is_announced(name: str) -> bool:
            question = changing.nodes[name].question
            return question is not None and question.is_announced

        await cluster.eventually(lambda: is_announced("a") and is_announced("b"), "two know of it")
        assert not is_announced("c")
        cluster.kill("r")
        cluster.kill("b")
        cluster.restart("r")
        await cluster.sleep(0.5)
        await changing.joined("a", within_s=3.0)  # it asks nobody
        assert why_it_waits(one, "a") == ""
        cluster.heal()
        cluster.restart("b")
        await changing.joined()
        await one.order()
        await changing.in_ring()
        await nothing_is_lost(one)


@simulated(seeds=3, brokers=1, oracle=False)
async def test_the_register_is_lost_at_any_moment_of_an_order(cluster: Cluster) -> None:
    async with changed(cluster) as one:
        random, changing = cluster.random, one.changing
        replace = random.choice([an_empty_register, an_empty_register, an_older_copy])(one)

        async def strike(act: Callable[[], object]) -> None:
            await cluster.sleep(random.choice([0.01, 0.1, 1.0]) * random.random())
            act()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.order_once)
            for name in random.sample(THREE, random.randint(0, 2)):
                nursery.start_soon(strike, partial(cluster.cut, name, "r"))
            for name in random.sample(THREE, random.randint(0, 2)):
                nursery.start_soon(strike, partial(cluster.kill, name, restart_s=random.random()))
            nursery.start_soon(strike, replace)
            await cluster.sleep(2.0)
            nursery.cancel_scope.cancel()
        cluster.heal()

        def in_ring() -> list[str]:
            return [name for name in THREE if name in changing.ring.members()]

        def with_register() -> list[str]:
            nodes = [(name, changing.nodes.get(name)) for name in THREE]
            return [name for name, node in nodes if node is not None and node.is_joined()]

        await cluster.eventually(
            lambda: len(in_ring()) == 3 or len(with_register()) >= 2,
            "brokers or a register decide",
            within_s=2 * HAND_OVER_PATIENCE_S,
        )
        await cluster.sleep(5.0)
        if len(with_register()) == 3:  # the order was not carried out
            await one.order()
        if len(with_register()) != 2:
            await changing.in_ring()
            await nothing_is_lost(one)
