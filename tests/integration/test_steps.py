"""The protocols go through their named steps; whatever dies at one of them, each message is
there once.

A node dies at an edge by what its observer raises there: what follows from the step is
neither on its disk nor on its way.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
import trio

import octopi
from octopi.cli.free_ports import free_ports
from octopi.environment import Environment, Trace, TraceEvent
from octopi.errors import UnknownTopicError
from octopi.limits import JOURNAL_SNAPSHOT_ENTRIES
from octopi.roles.broker.ring.node import run_ring_broker
from octopi.roles.broker.ring.options import RingOptions
from octopi.roles.register import election_driver
from octopi.roles.register.node import RegisterNode
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.running import run_register
from octopi.tracing import steps
from octopi.tracing.step import Step
from octopi.wire.endpoints import MEMBERSHIP
from tests.integration.observation import Event, Observation, assert_in_order
from tests.kit.cluster import Cluster, Died, eventually
from tests.kit.disk import MemoryDisk
from tests.kit.join_secrets import SECRETS
from tests.kit.named_clusters import LocalCluster, local_cluster
from tests.kit.traffic import Traffic, traffic

Victim = Literal["leader", "follower"]

OF_THE_FOLLOWER = (
    steps.P3Replicating.text,
    steps.P3Replicated.text,
    steps.P4Acknowledging.text,
    steps.P4Acknowledged.text,
    steps.P8Following.text,
    steps.P8Followed.text,
)
OF_THE_LEADER = tuple(one.text for one in steps.PRODUCING if one.text not in OF_THE_FOLLOWER)


@asynccontextmanager
async def observed_cluster(
    directory: Path, observation: Observation, brokers: int = 3, **options: object
) -> AsyncIterator[LocalCluster]:
    """A cluster of which everything is observed, its brokers on disks in memory."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, directory)
        await cluster.start_register(trace=observation.of("register"))
        local = LocalCluster(cluster)
        local.options = options
        for number in range(1, brokers + 1):
            local.traces[f"broker-{number}"] = observation.of(f"broker-{number}")
            await local.add(MemoryDisk())
        yield local
        nursery.cancel_scope.cancel()


def client_environment(cluster: LocalCluster, observation: Observation) -> Environment:
    return attrs.evolve(cluster.cluster.environment, trace=observation.of("client"))


def number_of(name: str) -> int:
    return int(name.removeprefix("broker-"))


# --- producing -----------------------------------------------------------------------------


async def test_a_message_goes_through_the_steps_of_producing_in_their_order(
    tmp_path: Path,
) -> None:
    observation = Observation()
    async with observed_cluster(tmp_path, observation) as cluster:
        await cluster.create("orders")
        await cluster.in_sync("orders", 3)
        leader = await cluster.leader("orders")
        followers = await cluster.followers("orders")
        environment = client_environment(cluster, observation)
        async with (
            octopi.connect(cluster.url, environment=environment) as client,
            client.producer() as producer,
        ):
            receipts = [await producer.send("orders", b"%d" % one) for one in range(20)]
        last = receipts[-1].next_offset
        for follower in followers:
            await eventually(
                lambda follower=follower: bool(  # type: ignore[misc]
                    observation.all(steps.P8Followed.text, follower, highwater=last)
                )
            )
    for receipt in receipts:
        check_produced(observation, receipt, leader, followers)


def check_produced(
    observation: Observation, receipt: octopi.Receipt, leader: str, followers: list[str]
) -> None:
    offset, end = receipt.offset, receipt.next_offset
    appended = observation.first(steps.P2Appended.text, leader, offset=offset, end=end).facts
    batch = {name: appended[name] for name in ("producer", "producer_epoch", "sequence", "count")}

    def holds(name: str) -> Any:  # noqa: ANN401
        return lambda event: event.facts[name] >= end

    def covers(event: Event) -> bool:
        return bool(event.facts["offset"] <= offset and event.facts["end"] >= end)

    before = [
        observation.first(steps.C1Sending.text, "client", **batch),
        observation.first(steps.C1Sent.text, "client", **batch),
        observation.first(steps.P1Received.text, leader, **batch),
        observation.first(steps.P2Appending.text, leader, **batch),
        observation.first(steps.P2Appended.text, leader, **batch),
    ]
    committed = [
        *(
            observation.first(step, leader, where=holds("highwater"))
            for step in (steps.P5InSync.text, steps.P6Committing.text, steps.P6Committed.text)
        ),
        observation.first(steps.P7Acknowledging.text, leader, **batch),
        observation.first(steps.P7Acknowledged.text, leader, **batch),
        observation.first(steps.C3Receipt.text, "client", **batch),
    ]
    for follower in followers:
        name = number_of(follower)
        replicated = [
            observation.first(steps.P2Forwarding.text, leader, where=covers, follower=name),
            observation.first(steps.P2Forwarded.text, leader, where=covers, follower=name),
            observation.first(steps.P3Replicating.text, follower, where=covers),
            observation.first(steps.P3Replicated.text, follower, where=covers),
            observation.first(steps.P4Acknowledging.text, follower, where=holds("end")),
            observation.first(steps.P4Acknowledged.text, follower, where=holds("end")),
            observation.first(steps.P5Heard.text, leader, where=holds("end"), follower=name),
        ]
        assert_in_order([*before, *replicated, *committed])
        told = min(
            (
                event
                for step in (steps.P6Told.text, steps.P2Forwarded.text)
                for event in observation.all(step, leader, follower=name)
                if event.facts["highwater"] >= end
            ),
            key=lambda event: event.number,
        )
        followed = [
            observation.first(step, follower, where=holds("highwater"))
            for step in (steps.P8Following.text, steps.P8Followed.text)
        ]
        assert_in_order([committed[2], told, *followed])
    assert committed[3].facts["in_sync"] == [1, 2, 3]
    assert all(one.facts["log_end"] >= end for one in committed[:3])


# --- leadership, joining, the register -------------------------------------------------------


async def test_a_change_of_leadership_goes_through_its_steps_in_their_order(
    tmp_path: Path,
) -> None:
    observation = Observation()
    async with (
        observed_cluster(tmp_path, observation) as cluster,
        traffic(cluster.url, "orders") as flow,
    ):
        await flow.progress(30)
        before = await cluster.leader("orders")
        since = len(observation.events)
        await cluster.kill(before)
        await flow.progress(30)
        leader = await cluster.leader("orders")
    register, number = "register", number_of(leader)

    def first(step: str, node: str, **facts: Any) -> Event:  # noqa: ANN401
        return observation.first(step, node, since=since, **facts)

    wanted = first(steps.E1Wanted.text, register, leader=number_of(before), goal=None)
    epoch = wanted.facts["epoch"] + 1

    assert_in_order(
        [
            first(steps.R6Lost.text, register, broker=number_of(before)),
            wanted,
            first(steps.R2Appending.text, register),
            first(steps.R2Appended.text, register),
            first(steps.R3Flushing.text, register),
            first(steps.R3Flushed.text, register),
            first(steps.E2Announced.text, register, epoch=epoch),
            first(steps.E3Announcing.text, register, epoch=epoch, broker=number),
            first(steps.E3Told.text, register, epoch=epoch, broker=number),
            first(steps.E4Heard.text, leader, epoch=epoch),
            first(steps.E5Left.text, leader, role="FOLLOWER"),
            first(steps.D2Promising.text, leader, promised=epoch),
            first(steps.D2Promised.text, leader, promised=epoch),
            first(steps.E6Accepting.text, leader, epoch=epoch),
            first(steps.E6Accepted.text, leader, epoch=epoch),
            first(steps.E7Counted.text, register, epoch=epoch, broker=number),
            first(steps.E8Deciding.text, register),
            first(steps.E8Decided.text, register),
            first(steps.E9Telling.text, register, broker=number),
            first(steps.E10Installing.text, leader),
            first(steps.E10Installed.text, leader),
            first(steps.E11Leading.text, leader, epoch=epoch),
            first(steps.D2Promised.text, leader, promised=epoch, log_epoch=epoch),
            first(steps.P6Committing.text, leader, epoch=epoch),
            first(steps.E15FirstCommit.text, leader, epoch=epoch),
        ]
    )
    assert len(observation.all(steps.E11Leading.text, epoch=epoch)) == 1


async def test_a_broker_joins_and_a_follower_catches_up_step_by_step(tmp_path: Path) -> None:
    observation = Observation()
    async with (
        observed_cluster(tmp_path, observation) as cluster,
        traffic(cluster.url, "orders") as flow,
    ):
        await flow.progress(30)
        leader = await cluster.leader("orders")
        (away, _) = await cluster.followers("orders")
        await cluster.kill(away)
        await cluster.in_sync("orders", 2)
        since = len(observation.events)
        await cluster.restart(away)
        await cluster.in_sync("orders", 3)
        await flow.progress(30)
    register, number = "register", number_of(away)

    def first(step: str, node: str, **facts: Any) -> Event:  # noqa: ANN401
        return observation.first(step, node, since=since, **facts)

    joined = [
        first(steps.J1Identifying.text, away, incarnation=2),
        first(steps.J1Identified.text, away, incarnation=2),
        first(steps.J2Connected.text, away),
        first(steps.J3Reporting.text, away),
        first(steps.J4Joining.text, away, broker=number),
        first(steps.J5Admitting.text, register, broker=number),
        first(steps.R2Appended.text, register),
        first(steps.R3Flushed.text, register),
        first(steps.J5Admitted.text, register, broker=number),
        first(steps.J4Joined.text, away, broker=number),
        first(steps.E10Installing.text, away),
        first(steps.E10Installed.text, away),
    ]
    assert_in_order([*joined, first(steps.J6Serving.text, register, broker=number)])
    assert_in_order(
        [
            *joined,
            first(steps.E12Following.text, away),
            first(steps.J7StreamOpened.text, away),
            first(steps.J8Asking.text, away),
            first(steps.J8Asked.text, away),
            first(steps.J9Comparing.text, leader, follower=number),
            first(steps.J9Compared.text, leader, follower=number),
            first(steps.J10Parted.text, away),
            first(steps.P4Acknowledged.text, away),
            first(steps.J11CaughtUp.text, leader, follower=number),
            first(steps.E16Proposing.text, leader, in_sync=[1, 2, 3]),
            first(steps.E16Proposed.text, leader, in_sync=[1, 2, 3]),
            first(steps.E17Altering.text, register, accepted=True),
            first(steps.E17Altered.text, register, accepted=True),
            first(steps.E18Learned.text, leader, in_sync=[1, 2, 3]),
            first(steps.J12InSync.text, leader, follower=number),
        ]
    )


async def test_a_register_reads_after_a_restart_what_it_made_durable(tmp_path: Path) -> None:
    observation = Observation()
    async with observed_cluster(tmp_path, observation) as cluster:
        await cluster.create("orders")
        assert_in_order(
            [
                observation.first(steps.R1Read.text, "register", entries=[]),
                observation.first(steps.R5Gathered.text, "register"),
                observation.first(steps.R2Appending.text, "register"),
                observation.first(steps.R2Appended.text, "register"),
                observation.first(steps.J5Admitting.text, "register"),
                observation.first(steps.R3Flushing.text, "register"),
                observation.first(steps.R3Flushed.text, "register"),
                observation.first(steps.J5Admitted.text, "register"),
            ]
        )
        await restart_register(cluster, observation)
        since = observation.all(steps.R1Read.text)[-1].number
        await eventually(lambda: len(observation.all(steps.J6Serving.text, since=since)) == 3)
    written = [
        entry
        for event in observation.all(steps.R2Appended.text)
        if event.number < since
        for entry in event.facts["entries"]
    ]
    assert observation.events[since].facts["entries"] == written
    for name in cluster.names:
        assert_in_order(
            [
                observation.first(steps.J4Joining.text, name, since=since),
                observation.first(steps.J5Admitted.text, since=since, broker=number_of(name)),
                observation.first(steps.J4Joined.text, name, since=since),
            ]
        )


async def restart_register(
    cluster: LocalCluster,
    observation: Observation,
    snapshot_entries: int = JOURNAL_SNAPSHOT_ENTRIES,
) -> RegisterNode:
    register = cluster.cluster.register
    shown: list[RegisterNode] = []
    await cluster.cluster.kill(register)
    listen = register.url.removeprefix("ws://")
    await cluster.cluster.start_register(
        listen=listen,
        snapshot_entries=snapshot_entries,
        trace=observation.of("register"),
        show=shown.append,
    )
    return shown[0]


# --- dying at a step -------------------------------------------------------------------------


class Trap:
    """Ends a broker when an edge has come, anywhere, so many times."""

    def __init__(self, cluster: LocalCluster, step: str, count: int) -> None:
        self._cluster = cluster
        self._step = step
        self._left = count
        self.victim = ""
        """Who is ended; nobody while it is empty."""
        self.sprung = trio.Event()

    def of(self, name: str) -> Trace:
        """The observer of one broker."""

        def observe(step: TraceEvent) -> None:
            if self.sprung.is_set() or not self.victim or step.text != self._step:
                return
            self._left -= 1
            if self._left:
                return
            self.sprung.set()
            if name == self.victim:
                raise Died
            self._cluster.node(self.victim).scope.cancel()

        return observe


async def end_at(
    cluster: LocalCluster, step: str, victim: Victim, disks: dict[str, MemoryDisk] | None = None
) -> None:
    """Produce; end *victim* at *step*; go on; restart it; compare."""
    trap = Trap(cluster, step, count=5)
    for number in (1, 2, 3):
        name = f"broker-{number}"
        cluster.traces[name] = trap.of(name)
        await cluster.add(disks[name] if disks else None)
    await cluster.create("orders")
    leader = await cluster.leader("orders")
    async with traffic(cluster.url, "orders", producers=2) as flow:
        await flow.progress(30)
        followers = [name for name in cluster.names if name != leader]
        trap.victim = leader if victim == "leader" else followers[0]
        with trio.fail_after(20):
            await trap.sprung.wait()
        await cluster.kill(trap.victim)
        if disks:
            disks[trap.victim].crash(keep_page_cache=False)
        await flow.progress(50)
        await cluster.restart(trap.victim)
        await cluster.in_sync("orders", 3)
        await flow.progress(30)
    await flow.check_replicas(cluster.data_dirs, replica_count=3)


def code(step: str) -> str:
    return step.split()[0]


@pytest.mark.parametrize("step", OF_THE_LEADER, ids=code)
async def test_a_leader_that_dies_at_any_step_costs_no_message_and_no_repeat(
    tmp_path: Path, step: str
) -> None:
    async with local_cluster(tmp_path, brokers=0) as cluster:
        await end_at(cluster, step, "leader")


@pytest.mark.parametrize("step", OF_THE_FOLLOWER, ids=code)
async def test_a_follower_that_dies_at_any_step_costs_no_message_and_no_repeat(
    tmp_path: Path, step: str
) -> None:
    async with local_cluster(tmp_path, brokers=0) as cluster:
        await end_at(cluster, step, "follower")


@pytest.mark.parametrize(
    ("step", "victim"),
    [
        (steps.P2Forwarded.text, "follower"),
        (steps.P3Replicated.text, "leader"),
        (steps.P4Acknowledged.text, "leader"),
        (steps.P6Told.text, "follower"),
        (steps.P7Acknowledged.text, "follower"),
        (steps.P8Followed.text, "leader"),
    ],
    ids=lambda value: code(value),
)
async def test_a_broker_that_dies_right_after_a_step_of_another_costs_no_message_and_no_repeat(
    tmp_path: Path, step: str, victim: Victim
) -> None:
    async with local_cluster(tmp_path, brokers=0) as cluster:
        await end_at(cluster, step, victim)


@pytest.mark.parametrize(
    "step",
    [
        steps.P1Received.text,
        steps.P2Appended.text,
        steps.P5InSync.text,
        steps.P6Committed.text,
        steps.P7Acknowledged.text,
    ],
    ids=code,
)
async def test_a_leader_that_loses_power_at_any_step_costs_no_message_and_no_repeat(
    tmp_path: Path, step: str
) -> None:
    disks = {f"broker-{number}": MemoryDisk() for number in (1, 2, 3)}
    async with local_cluster(tmp_path, brokers=0) as cluster:
        await end_at(cluster, step, "leader", disks)


# --- all of them -----------------------------------------------------------------------------


async def test_every_step_is_observed_with_the_facts_that_are_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observation = Observation()
    async with observed_cluster(
        tmp_path, observation, brokers=4, retention_check_interval_s=0.05
    ) as cluster:
        environment = client_environment(cluster, observation)
        async with traffic(cluster.url, "orders", environment=environment) as flow:
            await flow.progress(30)
            await cut_a_tail(cluster, observation, flow)
            register = await restart_register(cluster, observation, snapshot_entries=10)
            await cluster.in_sync("orders", 3)
            await break_links(register)
            await damage_a_log(cluster, observation)
            await fill_a_disk(cluster, flow)
            await move_a_replica(cluster, flow)
            with monkeypatch.context() as impatient:
                impatient.setattr(election_driver, "HAND_OVER_TIMEOUT_S", 0.0)
                await hand_over(cluster, flow)
            await stop_and_start(cluster, flow)
            await alter_a_topic(cluster, environment)
            await use_a_subscription(cluster, environment)
            await use_a_queue(cluster, environment)
        await follow_from_behind_retention(cluster, observation)
        await replace_the_active_register(cluster, observation)
        await found_a_cluster_without_a_register(cluster, observation)
        await abandon_a_message(cluster, environment)
        await read_on_behind_a_fork(cluster, environment)
    seen = {event.step for event in observation.events}
    # Those of relays, which need faults, are all seen in tests/simulation/test_relay_plans.py, and
    # those of shedding in tests/simulation/test_shedding.py, those of generations in
    # tests/testing/test_producers_of_growing_topics.py.
    elsewhere = steps.OF_RELAYS | steps.OF_SHEDDING | steps.OF_GENERATIONS
    assert sorted({one.text for one in steps.ALL if one not in elsewhere} - seen) == []


async def replace_the_active_register(cluster: LocalCluster, observation: Observation) -> None:
    """Of three registers without brokers, the active one stops; they fold their journals."""
    places = [f"127.0.0.1:{port}" for port in free_ports(3)]
    peers = tuple(f"ws://{place}" for place in places)
    stops = {place: trio.Event() for place in places}

    def is_observed(step: type[Step], but: str = "") -> str:
        """The register that came to *step*; empty: none did."""
        nodes = [one.node for one in observation.events if one.step == step.text]
        return next((one for one in nodes if one in stops and one != but), "")

    async with trio.open_nursery() as nursery:
        for place in places:
            environment = attrs.evolve(
                cluster.cluster.environment, disk=MemoryDisk(), trace=observation.of(place)
            )
            options = RegisterOptions(
                place, "data", peers=peers, secrets=SECRETS, gather_s=0.0, snapshot_entries=1
            )
            nursery.start_soon(partial(run_register, environment, options, stop=stops[place]))
        while not (active := is_observed(steps.G3Active)):  # noqa: ASYNC110
            await trio.sleep(0.01)
        stops[active].set()
        while not (is_observed(steps.G3Active, active) and is_observed(steps.G7Folded)):  # noqa: ASYNC110
            await trio.sleep(0.01)
        for stop in stops.values():
            stop.set()


async def found_a_cluster_without_a_register(
    cluster: LocalCluster, observation: Observation
) -> None:
    """A broker forms a cluster of its own, and is registered for its partition."""
    place = f"127.0.0.1:{free_ports(1)[0]}"
    environment = attrs.evolve(
        cluster.cluster.environment, disk=MemoryDisk(), trace=observation.of("ring")
    )
    options = RingOptions(place, "data", (f"ws://{place}",), secrets=SECRETS, partition_count=1)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(run_ring_broker, environment, options, stop=stop))
        while not {one.text for one in steps.OF_RINGS} <= {  # noqa: ASYNC110
            one.step for one in observation.events
        }:
            await trio.sleep(0.01)
        stop.set()


async def alter_a_topic(cluster: LocalCluster, environment: Environment) -> None:
    """A topic is altered while it is in use."""
    async with octopi.connect(cluster.url, environment=environment) as client:
        await client.alter_topic("orders", retention=timedelta(days=7))


async def cut_a_tail(cluster: LocalCluster, observation: Observation, flow: Traffic) -> None:
    """Leaders die with a batch and come back, until one was alone with it.

    What is on its way to a follower already may take the batch with it: then there is nothing
    to cut, and the next leader has to die.
    """
    for _ in range(20):
        await cluster.in_sync("orders", 3)
        old = await cluster.leader("orders")
        observation.end_at(steps.P2Appended.text, old)
        await flow.progress(30)
        await cluster.kill(old)
        await cluster.restart(old)
        await cluster.in_sync("orders", 3)
        if observation.all(steps.E13Truncated.text, old):
            return


async def fill_a_disk(cluster: LocalCluster, flow: Traffic) -> None:
    """The leader's disk is full: it resigns."""
    old = await cluster.leader("orders")
    disk = cluster.disks[old]
    assert disk is not None
    disk.capacity_bytes = 0
    await flow.progress(30)
    disk.capacity_bytes = None
    await cluster.in_sync("orders", 3)


async def damage_a_log(cluster: LocalCluster, observation: Observation) -> None:
    """A follower's log is cut short while it is down."""
    follower, *_ = await cluster.followers("orders")
    await eventually(lambda: bool(observation.all(steps.D1Flushed.text, follower)))
    await cluster.kill(follower)
    disk = cluster.disks[follower]
    assert disk is not None
    path = max(one for one in disk.files() if "/orders/" in one and one.endswith(".log"))
    disk.plant(path, disk.content(path)[:1])
    await cluster.restart(follower)
    await cluster.in_sync("orders", 3)


async def move_a_replica(cluster: LocalCluster, flow: Traffic) -> None:
    place = await cluster.place("orders")
    (spare,) = {1, 2, 3, 4} - {*place.replicas}
    leaving = next(one for one in place.replicas if one != place.leader)
    async with octopi.connect(cluster.url) as client:
        with trio.fail_after(20):  # on a full disk no replica is kept
            while any(  # noqa: ASYNC110
                one.disk_trouble for one in (await client.admin.describe_cluster()).brokers
            ):
                await trio.sleep(0.05)  # nothing announces it to clients
        await client.admin.move_replica(place.partition, leaving, spare, timeout_s=20)
    await flow.progress(30)


async def hand_over(cluster: LocalCluster, flow: Traffic) -> None:
    """The leadership is taken from a broker, at the second attempt."""
    place = await cluster.place("orders")
    assert place.leader is not None
    async with octopi.connect(cluster.url) as client:
        await client.admin.drain_broker(place.leader, timeout_s=20)
    await flow.progress(30)


async def break_links(register: RegisterNode) -> None:
    """The connections of all brokers with the register end."""
    for connection, endpoint in list(register.traffic.connections.items()):
        if endpoint is MEMBERSHIP:
            await connection.close()
    await eventually(lambda: not any(one.is_closed for one in register.members.values()))


async def stop_and_start(cluster: LocalCluster, flow: Traffic) -> None:
    """The leader is stopped in good order, and started again."""
    leader = await cluster.leader("orders")
    await cluster.stop(leader)
    await flow.progress(30)
    await cluster.restart(leader)
    await cluster.in_sync("orders", 3)


async def use_a_subscription(cluster: LocalCluster, environment: Environment) -> None:
    """A named producer begins; a member joins, marks and leaves; then the subscription is reset and
    deleted."""
    async with octopi.connect(cluster.url, environment=environment) as client:
        async with client.producer(name="pricing", topics=["orders"]):
            pass
        async with client.subscription("orders", "billing") as orders:
            await anext(orders)
            await orders.commit()
        await client.admin.reset_subscription("orders", "billing", to="earliest")
        await client.admin.delete_subscription("orders", "billing")


async def use_a_queue(cluster: LocalCluster, environment: Environment) -> None:
    """A member of a queue acknowledges one message, and rejects another one."""
    async with octopi.connect(cluster.url, environment=environment) as client:
        async with client.subscription("orders", "work", mode="shared") as orders:
            (await anext(orders)).acknowledge()
            await orders.commit()
            (await anext(orders)).reject("of no use")
        async with client.consumer("orders.work.dead", start="earliest") as letters:
            with trio.fail_after(20):
                await anext(letters)


async def follow_from_behind_retention(cluster: LocalCluster, observation: Observation) -> None:
    """A follower and a consumer come for what was removed; then the topic is removed."""
    environment = client_environment(cluster, observation)
    async with octopi.connect(cluster.url, environment=environment) as client:
        await client.create_topic("kept", segment_bytes=4096, retention_bytes=4096)
        place = await cluster.place("kept")
        away, *others = sorted(
            (f"broker-{one}" for one in place.replicas),
            key=lambda name: cluster.address(name) == place.leader_address,
        )
        await cluster.kill(away)
        async with client.producer() as producer:
            for _ in range(20):
                await producer.send("kept", bytes(1024))
        await eventually(lambda: all(observation.all(steps.D4Retired.text, one) for one in others))
        await cluster.restart(away)
        await cluster.in_sync("kept", 3)
        async with client.consumer(
            "kept", start=0, on_gap="skip", reconnect_timeout_s=0.2
        ) as consumer:
            await consumer.next_batch()
            await client.delete_topic("kept")
            with contextlib.suppress(UnknownTopicError):
                while await consumer.next_batch():
                    pass


async def read_on_behind_a_fork(cluster: LocalCluster, environment: Environment) -> None:
    """A consumer goes on at the end of what the first epoch never wrote."""
    async with octopi.connect(cluster.url, environment=environment) as client:
        async with client.producer() as producer:
            receipt = await producer.send("orders", b"of a later epoch")
        assert receipt.epoch > 1
        topic = await client.describe_topic("orders")
        place = f"{receipt.partition}={receipt.next_offset}~1-0"
        elsewhere = f"v1:orders@{topic.topic_id}:{place}"
        async with client.consumer("orders", start=elsewhere) as consumer:
            with pytest.raises(octopi.HistoryForkedError):
                await anext(consumer)


async def abandon_a_message(cluster: LocalCluster, environment: Environment) -> None:
    async with octopi.connect(cluster.url, environment=environment) as client:
        with contextlib.suppress(ZeroDivisionError):
            async with client.producer(linger_s=60) as producer:
                await producer.submit("orders", b"never sent")
                raise ZeroDivisionError
