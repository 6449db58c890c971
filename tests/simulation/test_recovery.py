"""Recovery of a register that lost its disk, and of partitions whose replicas all lost records."""

from __future__ import annotations

import attrs
import pytest
import trio

from octopi.clients.client import Client
from octopi.coordination.election import LogLoss
from octopi.coordination.journal_entries import PartitionDecided
from octopi.errors import NotReadyError, RefusedError, Status
from octopi.identifiers import BrokerId
from octopi.simulation.cluster import ClusterOptions, SimulatedCluster
from octopi.simulation.kernel.world import Event, World
from octopi.storage.flush_policy import FlushOptions
from octopi.tracing import steps
from octopi.wire import messages as m
from tests.simulation.clusters import (
    ask,
    creating,
    expecting,
    play,
    reading,
    sending,
    small,
    until,
    when,
)


def kill(cluster: SimulatedCluster, *hosts: str) -> None:
    for host in hosts:
        cluster.nodes[host].host.kill()


def brokers(cluster: SimulatedCluster) -> set[int]:
    """Those that the register let in."""
    return set(cluster.decided.state.brokers)


def in_sync(cluster: SimulatedCluster) -> list[BrokerId]:
    return cluster.decided.state.partitions[0].in_sync


@pytest.mark.parametrize("full_from", [steps.R5Gathered.text, steps.R2Appended.text])
def test_a_register_that_rebuilds_while_its_disk_is_full_believes_no_older_record(
    full_from: str,
) -> None:
    """The broker that has everything can't be let in, ends, and comes last."""
    values = [b"%d" % number for number in range(30)]

    async def scenario(cluster: SimulatedCluster) -> None:
        register = cluster.register.host
        await ask(cluster, sending("topic", values[:5]), "first")
        leader = cluster.leader(0)
        others = [node.name for node in cluster.brokers if node.name != leader]
        kill(cluster, *others)
        await until(lambda: len(in_sync(cluster)) == 1)
        await ask(cluster, sending("topic", values[5:]), "second")
        kill(cluster, leader, "register")
        cluster.wipe("register")

        def fill() -> None:
            register.disk.capacity_bytes = 0

        when(cluster, lambda event: event.what == full_from, fill)
        cluster.boot("register")
        cluster.boot(leader)
        await trio.sleep(6.0)
        assert brokers(cluster) == set()
        kill(cluster, leader)
        register.disk.capacity_bytes = None
        for other in others:
            cluster.boot(other)
        await trio.sleep(10.0)
        assert not cluster.decided.state.partitions, "the newest record is not known yet"
        cluster.boot(leader)
        await ask(cluster, expecting("topic", values), "reader")

    play(scenario, attrs.evolve(small(), gather_s=0.05))


def test_a_register_that_could_not_take_over_its_cluster_forms_no_other_one() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        register = cluster.register.host
        await ask(cluster, sending("topic", [b"sent"]), "first")
        before = cluster.decided.state.cluster
        kill(cluster, *(node.name for node in cluster.servers))
        cluster.wipe("register")
        for host in ("broker-2", "broker-3"):
            cluster.wipe(host)

        def fill() -> None:
            register.disk.capacity_bytes = 0

        when(cluster, lambda event: event.what == steps.R5Gathered.text, fill)
        cluster.boot("register")
        cluster.boot("broker-1")
        await trio.sleep(6.0)
        kill(cluster, "broker-1")
        register.disk.capacity_bytes = None
        cluster.boot("broker-2")
        await until(lambda: bool(brokers(cluster)))
        assert cluster.decided.state.cluster == before

    play(scenario)


def test_a_register_that_learned_its_cluster_gives_leaders_time_to_come_back() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, sending("topic", [b"sent"]), "first")
        leader = cluster.leader(0)
        epoch = cluster.decided.state.partitions[0].epoch
        kill(cluster, "register")
        cluster.wipe("register")
        cluster.boot("register")
        await until(lambda: bool(cluster.decided.state.partitions))
        cluster.network.reset(leader, "register")
        await trio.sleep(5.0)
        assert cluster.decided.state.partitions[0].epoch == epoch
        await ask(cluster, expecting("topic", [b"sent"]), "reader")

    play(scenario)


def test_a_register_that_rebuilds_twice_hears_again_which_brokers_lost_power() -> None:
    """The broker says so until the register has taken it out of the in-sync set."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, creating("topic"), "maker")
        await ask(cluster, sending("topic", [b"sent"]), "first")
        leader = cluster.leader(0)
        unlucky, other = (node.name for node in cluster.brokers if node.name != leader)
        kill(cluster, leader, other, "register")
        cluster.nodes[unlucky].host.lose_power()
        cluster.wipe("register")
        cluster.boot("register")
        cluster.boot(unlucky)
        await until(lambda: bool(brokers(cluster)))
        await trio.sleep(1.0)
        kill(cluster, "register")
        cluster.boot("register")
        await trio.sleep(3.0)
        sets: list[list[BrokerId]] = []

        def see(event: Event) -> None:
            if event.what == steps.J5Admitted.text:
                sets.extend(
                    one.record.in_sync
                    for one in event.facts["entries"]
                    if isinstance(one, PartitionDecided)
                )

        cluster.world.observers.append(see)
        cluster.boot(leader)
        cluster.boot(other)
        await ask(cluster, expecting("topic", [b"sent"]), "reader")
        assert sets
        assert all(cluster.broker_of(unlucky) not in one for one in sets)

    play(scenario)


@pytest.mark.parametrize("full_from", [steps.R5Gathered.text, steps.R2Appended.text])
def test_a_register_that_can_not_journal_what_brokers_told_calls_no_topic_unknown(
    full_from: str,
) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        register = cluster.register.host
        await ask(cluster, creating("topic"), "maker")
        await ask(cluster, sending("topic", [b"sent"]), "first")
        kill(cluster, "register")
        cluster.wipe("register")

        def fill() -> None:
            register.disk.capacity_bytes = 0
            cluster.world.after(5.0, free)

        def free() -> None:
            register.disk.capacity_bytes = None

        when(cluster, lambda event: event.what == full_from, fill)
        cluster.boot("register")
        await ask(cluster, expecting("topic", [b"sent"]), "reader")

    play(scenario)


# --- all copies lost something ---------------------------------------------------------


def lose_power(cluster: SimulatedCluster, *hosts: str) -> None:
    for host in hosts:
        cluster.nodes[host].host.lose_power()


def everybody(cluster: SimulatedCluster) -> list[str]:
    return [node.name for node in cluster.servers]


def recoveries(world: World) -> list[list[LogLoss]]:
    """What was told to be lost each time that a leader was chosen though that may be so."""
    told = [one.facts["losses"] for one in world.events if one.what == steps.E8Decided.text]
    return [lost for decided in told for lost in decided]


def leads(cluster: SimulatedCluster) -> bool:
    """Whether the register has appointed a leader that is in sync."""
    record = cluster.decided.state.partitions[0]
    return record.leader in record.in_sync


def test_flushed_records_survive_a_power_failure_of_all_machines() -> None:
    values = [b"%d" % number for number in range(20)]

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, creating("topic"), "maker")
        await ask(cluster, sending("topic", values), "first")
        await trio.sleep(3.0)
        lose_power(cluster, *everybody(cluster))
        cluster.start()
        await ask(cluster, expecting("topic", values), "reader")
        await ask(cluster, sending("topic", [b"more"]), "second")
        await ask(cluster, expecting("topic", [*values, b"more"]), "second reader")
        await until(lambda: in_sync(cluster) == [1, 2, 3])

    world = play(scenario)
    assert recoveries(world) == [[]]


def test_only_unflushed_records_are_lost_when_all_machines_lose_power() -> None:
    """The one that flushed most leads; what it lacks and another one has is told."""
    values = [b"%d" % number for number in range(20)]
    read: list[bytes] = []

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, creating("topic"), "maker")
        await ask(cluster, sending("topic", values[:15]), "first")
        await trio.sleep(3.0)
        await ask(cluster, sending("topic", values[15:]), "second")
        lose_power(cluster, *everybody(cluster))
        cluster.start()
        await until(lambda: leads(cluster))
        await ask(cluster, reading("topic", read), "reader")
        await ask(cluster, sending("topic", [b"more"]), "third")
        await ask(cluster, expecting("topic", [*read, b"more"]), "second reader")

    options = attrs.evolve(small(), flush=FlushOptions(interval_s=2.0))
    world = play(scenario, options)
    assert read == values[: len(read)]
    assert 15 <= len(read) < 20
    assert len(recoveries(world)) == 1


def test_a_topic_that_flushes_first_loses_nothing_beside_one_that_does_not() -> None:
    values = [b"%d" % number for number in range(20)]

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, creating("quick"), "maker")
        await ask(cluster, creating("safe", flush_before_ack=True), "second maker")
        await ask(cluster, sending("quick", values), "first")
        await ask(cluster, sending("safe", values), "second")
        lose_power(cluster, *everybody(cluster))
        cluster.start()
        await ask(cluster, expecting("safe", values), "reader")

    world = play(scenario, attrs.evolve(small(), flush=FlushOptions(interval_s=30.0)))
    assert len(recoveries(world)) == 1


def test_a_partition_waits_for_an_absent_in_sync_replica_until_an_operator_orders_otherwise() -> (
    None
):
    values = [b"%d" % number for number in range(20)]
    found: list[m.PartitionRecovery] = []

    async def scenario(cluster: SimulatedCluster) -> None:
        async def recover(client: Client) -> None:
            found.append(await client.admin.recover_partition(0))
            found.append(await client.admin.recover_partition(0, accept_loss=True))
            with pytest.raises(RefusedError, match="nothing has to be given up"):
                await client.admin.recover_partition(0, accept_loss=True)

        async def look(client: Client) -> None:
            described.append((await client.admin.describe_cluster()).partitions[0])

        described: list[m.PartitionInfo] = []
        await ask(cluster, creating("topic"), "maker")
        await ask(cluster, sending("topic", values), "first")
        await trio.sleep(3.0)
        lose_power(cluster, *everybody(cluster))
        for host in ("register", "broker-1", "broker-2"):
            cluster.boot(host)
        await trio.sleep(20.0)
        assert not leads(cluster)
        await ask(cluster, look, "looker")
        assert described[0].leader is None
        assert described[0].waits_for == [3]
        await ask(cluster, recover, "operator")
        await ask(cluster, expecting("topic", values), "reader")
        cluster.boot("broker-3")
        await until(lambda: in_sync(cluster) == [1, 2, 3])
        await ask(cluster, look, "second looker")
        assert described[1].recovered_epoch == described[1].epoch

    world = play(scenario)
    before, after = found
    assert (before.leader, before.recovered, before.waits_for) == (None, False, [3])
    assert [one.answered for one in sorted(before.replicas, key=lambda one: one.broker)] == [
        True,
        True,
        False,
    ]
    assert after.recovered
    assert after.leader == after.candidate == before.candidate
    assert after.leader in {1, 2}
    assert recoveries(world) == [[]]


def test_replicas_in_sync_that_are_gone_for_good_are_given_up_by_order_only() -> None:
    values = [b"%d" % number for number in range(10)]
    found: list[m.PartitionRecovery] = []

    async def scenario(cluster: SimulatedCluster) -> None:
        async def recover(client: Client) -> None:
            found.append(await client.admin.recover_partition(0, accept_loss=True))

        await ask(cluster, creating("topic"), "maker")
        await ask(cluster, sending("topic", values[:5]), "first")
        leader = cluster.leader(0)
        others = [node.name for node in cluster.brokers if node.name != leader]
        kill(cluster, *others)
        await until(lambda: len(in_sync(cluster)) == 1)
        await ask(cluster, sending("topic", values[5:]), "second")
        kill(cluster, leader)
        for other in others:
            cluster.boot(other)
        await trio.sleep(10.0)
        assert cluster.leader(0) == leader
        await ask(cluster, recover, "operator")
        assert cluster.leader(0) in others
        await ask(cluster, expecting("topic", values[:5]), "reader")

    world = play(scenario)
    assert found[0].recovered
    assert [one.was_in_sync for one in found[0].replicas].count(True) == 1
    assert len(recoveries(world)) == 1


def test_records_that_a_leader_lacks_lead_again_as_the_broker_that_keeps_them_advises() -> None:
    values = [b"%d" % number for number in range(20)]
    faults: list[str] = []

    async def scenario(cluster: SimulatedCluster) -> None:
        async def look(client: Client) -> None:
            faults.extend(
                one.log.fault for one in await client.admin.describe_logs() if one.log.fault
            )

        async def recover(client: Client) -> None:
            assert (await client.admin.recover_partition(0)).candidate in {2, 3}
            assert (await client.admin.recover_partition(0, accept_loss=True)).recovered

        await ask(cluster, sending("topic", values[:5]), "first")
        await trio.sleep(3.0)
        disk = cluster.nodes["broker-1"].host.disk
        paths = [*disk.files("data/logs"), "/data/replicas/0.ends"]
        older = {path: disk.cached(path) for path in paths}
        await ask(cluster, sending("topic", values[5:]), "second")
        await trio.sleep(3.0)
        kill(cluster, "broker-1", "broker-2", "broker-3")
        for path, data in older.items():
            disk.put(path, data)
        cluster.boot("broker-1")
        await until(lambda: in_sync(cluster) == [1])
        cluster.boot("broker-2")
        cluster.boot("broker-3")
        await trio.sleep(3.0)
        assert in_sync(cluster) == [1]
        await ask(cluster, look, "looker")
        cluster.stop("broker-1")
        await trio.sleep(3.0)
        assert cluster.leader(0) == "broker-1", "no other one is in sync"
        await ask(cluster, recover, "operator")
        await ask(cluster, expecting("topic", values), "reader")
        cluster.boot("broker-1")
        await until(lambda: in_sync(cluster) == [1, 2, 3])

    play(scenario)
    assert len(faults) == 2
    assert all("`octopi-node partitions recover`" in fault for fault in faults)


def test_a_partition_that_is_led_is_not_recovered() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        async def recover(client: Client) -> None:
            for accept_loss in (False, True):
                with pytest.raises(RefusedError, match="in sync and runs") as caught:
                    await client.admin.recover_partition(0, accept_loss=accept_loss)
                assert caught.value.status == Status.INVALID_OPTION
            with pytest.raises(RefusedError, match="has no replicas") as caught:
                await client.admin.recover_partition(7)
            assert caught.value.status == Status.UNKNOWN_PARTITION

        await ask(cluster, creating("topic"), "maker")
        epoch = cluster.decided.state.partitions[0].epoch
        await ask(cluster, recover, "operator")
        assert cluster.decided.state.partitions[0].epoch == epoch

    play(scenario)


def test_a_sole_replica_is_asked_only_if_its_loss_is_accepted() -> None:
    found: list[m.PartitionRecovery] = []

    async def scenario(cluster: SimulatedCluster) -> None:
        async def recover(client: Client) -> None:
            with pytest.raises(RefusedError, match="one replica, on broker 1"):
                await client.admin.recover_partition(0)
            found.append(await client.admin.recover_partition(0, accept_loss=True))

        await ask(cluster, sending("topic", [b"sent"]), "first")
        await ask(cluster, recover, "operator")
        await ask(cluster, expecting("topic", [b"sent"]), "reader")

    world = play(scenario, ClusterOptions(brokers=1, partitions=1, gather_s=0.05))
    assert not found[0].recovered, "its logs are sound"
    assert found[0].leader == 1
    assert recoveries(world) == []


def test_no_leader_can_be_ordered_if_no_replica_answers() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        async def recover(client: Client) -> None:
            assert (await client.admin.recover_partition(0)).candidate is None
            with pytest.raises((RefusedError, NotReadyError), match="no replica"):
                await client.admin.recover_partition(0, accept_loss=True)

        await ask(cluster, creating("topic"), "maker")
        kill(cluster, *(node.name for node in cluster.brokers))
        await trio.sleep(5.0)
        await ask(cluster, recover, "operator")

    play(scenario)


@pytest.mark.parametrize("brokers_count", [1, 3])
def test_a_replica_with_an_older_checkpoint_goes_on_with_all_records_by_itself(
    brokers_count: int,
) -> None:
    values = [b"%d" % number for number in range(20)]
    path = "/data/logs/0/topic/checkpoint"

    async def scenario(cluster: SimulatedCluster) -> None:
        damaged = cluster.nodes["broker-1"].host
        await ask(cluster, sending("topic", values[:10]), "first")
        older = damaged.disk.cached(path)
        leader = cluster.leader(0)
        assert leader is not None
        epoch = cluster.decided.state.partitions[0].epoch
        kill(cluster, leader)
        await trio.sleep(2.0)
        cluster.start()
        await until(lambda: cluster.decided.state.partitions[0].epoch > epoch)
        await ask(cluster, sending("topic", values[10:]), "second")
        await trio.sleep(2.0)
        kill(cluster, "broker-1")
        damaged.disk.put(path, older)
        cluster.start()
        await until(lambda: 1 in in_sync(cluster))
        await ask(cluster, expecting("topic", values), "reader")
        await ask(cluster, sending("topic", [b"more"]), "third")
        await ask(cluster, expecting("topic", [*values, b"more"]), "second reader")
        kill(cluster, *(one.name for one in cluster.brokers if one.name != "broker-1"))
        await ask(cluster, expecting("topic", [*values, b"more"]), "last reader")

    world = play(scenario, attrs.evolve(small(), brokers=brokers_count))
    assert recoveries(world) == []


@pytest.mark.parametrize("is_first", [False, True])
def test_a_register_without_memory_has_a_deleted_topic_removed_where_one_of_its_name_was_made(
    is_first: bool,
) -> None:
    """A broker was away when the topic was deleted and made again."""

    async def scenario(cluster: SimulatedCluster) -> None:
        async def make_again(client: Client) -> None:
            await client.delete_topic("topic")
            await client.create_topic("topic")

        await ask(cluster, sending("topic", [b"older"]), "first")
        await until(lambda: in_sync(cluster) == [1, 2, 3])
        kill(cluster, "broker-3")
        await until(lambda: 3 not in in_sync(cluster))
        await ask(cluster, make_again, "operator")
        await ask(cluster, sending("topic", [b"newer"]), "second")
        everyone = ["register", "broker-1", "broker-2"]
        kill(cluster, *everyone)
        cluster.wipe("register")
        cluster.boot("register")
        for name in ("broker-3", "broker-1") if is_first else ("broker-1", "broker-2"):
            cluster.boot(name)
        await trio.sleep(1.0)
        cluster.start()
        await until(lambda: 0 in cluster.decided.state.partitions and leads(cluster))
        await until(lambda: in_sync(cluster) == [1, 2, 3])
        await ask(cluster, expecting("topic", [b"newer"]), "reader")
        kill(cluster, "broker-1", "broker-2")
        await until(lambda: leads(cluster))
        await ask(cluster, expecting("topic", [b"newer"]), "last reader")

    play(scenario, attrs.evolve(small(), gather_s=0.3))
