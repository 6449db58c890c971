"""Bugs that the simulator found, each with the smallest plan that showed it.

Plans are written out rather than given as tokens, so that one can read what happens.
"""

import errno
from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import pytest
import trio

from octopi.clients.client import Client, connect
from octopi.environment import Environment
from octopi.errors import OffsetOutOfRangeError, Status
from octopi.identifiers import BrokerId
from octopi.limits import GATHER_S
from octopi.simulation.cluster import ClusterOptions, SimulatedCluster
from octopi.simulation.disk.faults import Delay, DiskFault, Fail
from octopi.simulation.faults.actions import (
    AtEffect,
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    Reset,
    RollBack,
)
from octopi.simulation.faults.damage import Damage
from octopi.simulation.faults.data_safety import LastCopyGuard
from octopi.simulation.faults.injector import Injector
from octopi.simulation.history.events import Acknowledged
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.kernel.host import LOSE_POWER
from octopi.simulation.kernel.world import Event
from octopi.storage.flush_policy import FlushOptions
from octopi.tracing import steps
from sim.run.plan import Plan, WorkloadOptions
from sim.run.simulation import Verdict, simulate
from tests.simulation.clusters import ENOUGH_S, ask, expecting, play, small, until, when

SMALL = WorkloadOptions(producers=1, records=20, consumers=1, topic_partitions=1, pause_s=0.02)

in_order = partial(Plan, jitter_s=0.0, order="fifo")
two_brokers = partial(in_order, brokers=2, partitions=2, replicas=2)


def passing(plan: Plan) -> Verdict:
    """The verdict of a run in which all is well."""
    verdict = simulate(plan)
    assert verdict.violation is None, verdict.details
    assert any(isinstance(one, Acknowledged) for one in verdict.history.events)
    return verdict


def test_a_topic_deleted_before_its_records_were_flushed_disturbs_no_other_of_the_partition() -> (
    None
):
    workload = WorkloadOptions(
        producers=1, records=20, consumers=1, topic_partitions=1, pause_s=0.02, chores=("topic",)
    )
    passing(Plan(1, partitions=1, flush_interval_s=0.05, workload=workload))


def test_a_topic_deleted_while_a_broker_comes_back_is_not_made_again_there() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, lambda client: done(client.create_topic("doomed")), "maker")
        deleting = trio.Event()

        async def delete(client: Client) -> None:
            await client.topics()  # it is connected then
            await deleting.wait()
            await client.delete_topic("doomed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, cluster, delete, "deleter")
            cluster.nodes["broker-2"].host.kill()
            await until(lambda: "doomed" in topics(cluster) and 2 not in in_sync(cluster))
            # It is told the partitions; the topics that it holds are about to be told.
            when(
                cluster,
                lambda event: event.what == steps.E9Telling.text and event.facts["broker"] == 2,
                deleting.set,
            )
            cluster.boot("broker-2")
        await until(lambda: not cluster.decided.state.removals)
        cluster.nodes["broker-2"].host.kill()
        cluster.boot("broker-2")
        await cluster.wait_serving()
        assert topics(cluster) == []
        assert cluster.stored_records("broker-2", "doomed", 0) is None

    play(scenario)


def test_a_follower_of_a_partition_without_topics_comes_back_in_sync() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        async def make_and_delete(client: Client) -> None:
            await client.create_topic("doomed")
            await client.delete_topic("doomed")

        await ask(cluster, make_and_delete)
        cluster.nodes["broker-2"].host.kill()
        await until(lambda: 2 not in in_sync(cluster))
        cluster.boot("broker-2")
        await until(lambda: 2 in in_sync(cluster))
        await ask(cluster, lambda client: done(client.create_topic("next")), "maker")
        await until(lambda: cluster.stored_records("broker-2", "next", 0) is not None)
        assert in_sync(cluster) == [1, 2, 3]

    play(scenario)


def test_topics_that_flush_before_they_acknowledge_go_on_after_all_machines_lost_power() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        sent = [b"%d" % number for number in range(10)]

        await ask(cluster, filling("safe", sent, flush_before_ack=True))
        for node in cluster.servers:
            node.host.lose_power()
        cluster.start()
        await cluster.wait_serving()
        await ask(cluster, expecting("safe", sent), "reader")
        await until(lambda: in_sync(cluster) == [1, 2, 3])

    for seed in range(5):
        play(scenario, seed=seed)


def test_leading_alone_is_not_proposed_again_before_flag_and_logs_are_on_the_device() -> None:
    """The proposal was repeated in the very tick that made it, ahead of what it waited for."""
    away = InjectedFault(AtStep("P7b", occurrence=5), Cut("others", 3.0), "follower")
    plan = Plan(1, partitions=1, replicas=2, workload=SMALL, faults=(away,))
    verdict = simulate(plan, [Oracle])
    assert verdict.violation is None
    assert any(
        event.what == steps.E16Proposing.text and len(event.facts["in_sync"]) == 1
        for event in verdict.events
    )


def test_a_topic_reaches_its_brokers_even_if_its_creator_is_lost() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        async def produce(client: Client) -> None:
            async with client.producer(create_topics=False) as producer:
                await producer.send("orphan", b"taken")

        kill_at(cluster, steps.T1Created.text, "maker")
        await ask(cluster, lambda client: done(client.create_topic("orphan")), "maker")
        await ask(cluster, produce)

    play(scenario)


def test_a_deleted_topic_is_removed_even_if_the_client_that_deleted_it_is_lost() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, lambda client: done(client.create_topic("doomed")), "maker")
        kill_at(cluster, steps.T5Deleting.text, "deleter")
        await ask(cluster, lambda client: done(client.delete_topic("doomed")), "deleter")
        for node in cluster.brokers:
            await until(partial(gone, cluster, node.name, "doomed"))

    play(scenario)


def test_a_register_with_a_full_disk_forgets_removals_of_a_topic_and_asks_again() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        def fill() -> None:
            cluster.register.host.disk.capacity_bytes = 0

        await ask(cluster, lambda client: done(client.create_topic("doomed")), "maker")
        when(cluster, lambda event: event.what == steps.T5Deleted.text, fill)
        await ask(cluster, lambda client: done(client.delete_topic("doomed")), "deleter")
        assert cluster.decided.state.removals
        cluster.register.host.disk.capacity_bytes = None
        for node in cluster.brokers:
            node.host.kill()
        cluster.start()
        await until(lambda: not cluster.decided.state.removals)

    play(scenario)


def test_a_topic_whose_files_could_not_be_removed_at_once_does_not_come_back() -> None:
    """The broker was asked again, knew nothing of the log by then, and said that it was gone."""

    async def scenario(cluster: SimulatedCluster) -> None:
        def fail(read_only: bool) -> None:
            cluster.nodes["broker-2"].host.disk.read_only = read_only

        await ask(cluster, lambda client: done(client.create_topic("doomed")), "maker")
        when(
            cluster,
            lambda event: event.what == steps.T7Removing.text and event.host == "broker-2",
            partial(fail, True),
        )
        cluster.world.after(1.0, partial(fail, False))
        await ask(cluster, lambda client: done(client.delete_topic("doomed")), "deleter")
        await until(partial(gone, cluster, "broker-2", "doomed"))
        cluster.nodes["broker-2"].host.kill()
        cluster.boot("broker-2")
        await until(lambda: not cluster.decided.state.removals)
        assert topics(cluster) == []
        assert gone(cluster, "broker-2", "doomed")

    play(scenario)


def test_a_second_move_of_a_replica_does_not_undo_the_one_being_stored() -> None:
    """The goal of the second move replaced that of the first, which was then removed twice."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, lambda client: done(client.create_topic("topic")), "maker")
        cluster.register.host.disk.sync_s = 0.05
        replicas = cluster.decided.state.partitions[0].replicas
        spare = sorted({1, 2, 3, 4, 5} - set(replicas))
        deciding = trio.Event()
        when(cluster, lambda event: event.what == steps.E8Deciding.text, deciding.set)

        async def move_another(client: Client) -> None:
            await client.topics()  # it is connected then
            await deciding.wait()
            await client.admin.move_replica(0, leaving=replicas[1], joining=spare[1])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, cluster, move_another, "second")
            await trio.sleep(0.5)
            await ask(
                cluster,
                lambda client: client.admin.move_replica(0, leaving=replicas[0], joining=spare[0]),
                "first",
            )
        record = cluster.decided.state.partitions[0]
        assert sorted(record.replicas) == sorted([replicas[2], *spare])

    play(scenario, ClusterOptions(5, 1, gather_s=0.05, rebalance_interval_s=3600.0))


def test_a_partition_without_a_log_has_a_leader_after_all_machines_lost_power() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        async def make_and_delete(client: Client) -> None:
            await client.create_topic("doomed")
            await client.delete_topic("doomed")

        async def produce(client: Client) -> None:
            async with client.producer() as producer:
                await producer.send("next", b"taken")

        await ask(cluster, make_and_delete)
        for node in cluster.servers:
            node.host.lose_power()
        cluster.start()
        await cluster.wait_serving()
        await ask(cluster, produce, "producer")

    play(scenario)


def test_a_consumer_ahead_of_its_log_asks_seldom() -> None:
    """It asked hundreds of times a second while there were brokers that it had not tried."""

    async def scenario(cluster: SimulatedCluster) -> None:
        async def read(client: Client) -> None:
            async with client.consumer("topic", start=10_000, reconnect_timeout_s=5) as consumer:
                with pytest.raises(OffsetOutOfRangeError, match="the log ends at 0"):
                    await anext(consumer)

        await ask(cluster, lambda client: done(client.create_topic("topic")), "maker")
        await ask(cluster, read)
        assert 3 < count(cluster, steps.C9Resuming.text) < 50

    play(scenario)


def count(cluster: SimulatedCluster, what: str) -> int:
    """How often *what* happened."""
    return sum(event.what == what for event in cluster.world.events)


def test_retention_keeps_records_that_the_leader_is_about_to_commit() -> None:
    away = InjectedFault(AtStep("P7b", "leader", 5), Cut("others", 3.0), "follower")
    slow = InjectedFault(
        AtStep("E18", "leader"), BreakDisk(DiskFault("sync_directory", Delay(0.2)))
    )
    workload = attrs.evolve(SMALL, producers=4, burst_count=4, value_bytes_max=6000, pause_s=0.01)
    plan = Plan(
        1,
        brokers=2,
        replicas=2,
        partitions=1,
        flush_interval_s=0.05,
        segment_bytes=4096,
        retention_bytes=4096,
        retention_check_interval_s=0.02,
        workload=workload,
        faults=(away, slow),
    )
    verdict = simulate(plan, [Oracle])
    assert verdict.violation is None, verdict.violation
    assert verdict.counts["fault BreakDisk"] == 1
    assert any(event.what == steps.D4Retired.text for event in verdict.events)


@pytest.mark.parametrize("interval_s", [0.1, 0.75])
def test_a_broker_that_died_while_it_removed_segments_begins_its_log_behind_them(
    interval_s: float,
) -> None:
    """It did not come to the step that says so, and nobody else removed them.  With the longer
    interval nothing is removed after that, and the run must not wait for it."""
    dies = InjectedFault(AtEffect("remove", "before", "leader", 6), Kill(0.02), "here")
    workload = attrs.evolve(
        SMALL, producers=4, records=40, burst_count=4, value_bytes_max=6000, pause_s=0.04
    )
    plan = Plan(
        1,
        brokers=1,
        replicas=1,
        partitions=1,
        flush_interval_s=0.02,
        segment_bytes=4096,
        retention_bytes=4096,
        retention_check_interval_s=interval_s,
        workload=workload,
        faults=(dies,),
    )
    verdict = simulate(plan, [Oracle])
    assert verdict.violation is None, verdict.violation
    assert verdict.counts["fault Kill"] == verdict.counts["StartMoved"] == 1
    is_removed_again = any(event.what == steps.D4Retired.text for event in verdict.events)
    assert is_removed_again == (interval_s < 0.5)


def test_a_leader_whose_disk_failed_while_it_removed_segments_knows_its_log_start() -> None:
    """It went on telling its followers of an older start, until it removed segments again."""
    away = InjectedFault(AtStep("P7b", "leader", 5), Kill(0.3), "follower")
    fails = BreakDisk(DiskFault("remove", Fail(), ".log"))
    workload = attrs.evolve(SMALL, producers=4, records=40, burst_count=4, value_bytes_max=6000)
    plan = in_order(
        1,
        brokers=2,
        replicas=2,
        partitions=1,
        flush_interval_s=0.02,
        segment_bytes=4096,
        retention_bytes=4096,
        retention_check_interval_s=0.3,
        workload=workload,
        faults=(away, InjectedFault(AtEffect("remove", "before", "leader", 4), fails, "here")),
    )
    verdict = simulate(plan, [Oracle])
    assert verdict.violation is None, verdict.violation
    assert verdict.counts["fault BreakDisk"] == 1


def test_a_replica_whose_whole_log_was_removed_or_set_aside_goes_on_where_that_is_noted() -> None:
    """Retention removes what lies before a damaged segment, and that one is set aside: no file
    says any more where the log goes on, and the replica acknowledges what it need not hold."""
    kill = InjectedFault(AtStep("J9a"), Kill(1.661), "here")
    cut = InjectedFault(AtStep("P2c", occurrence=35), Damage("cut", "log", 0.05, 0.378), "here")
    without_register = InjectedFault(AtTime(0.508), Kill(0.05), "register")
    workload = attrs.evolve(SMALL, producers=2, records=13, chores=("renew", "renew"))
    plan = in_order(
        202110,
        flush_before_ack=True,
        flush_interval_s=0.05,
        segment_bytes=4096,
        latency_s=0.001,
        retention_ms=2000,
        retention_check_interval_s=0.3,
        workload=attrs.evolve(workload, pause_s=0.004),
        faults=(kill, cut, without_register),
    )
    verdict = simulate(plan, [Oracle])
    assert verdict.violation is None, verdict.violation
    assert verdict.counts["fault Damage"] == 1
    assert any(event.what == steps.D6SetAside.text for event in verdict.events)


def test_a_producer_may_give_up_a_batch_that_retention_removed_before_a_retry() -> None:
    """It waited for no answer any more, and the run complained that it still had time."""
    dies = InjectedFault(AtStep("P6a", "leader", 10), Kill(0.3), "here")
    late = InjectedFault(AtStep("P6a", "leader", 10), Cut("leader", 0.5), "producer-1")
    workload = WorkloadOptions(
        producers=2,
        records=40,
        consumers=1,
        topic_partitions=1,
        burst_count=5,
        value_bytes_max=6000,
        pause_s=0.05,
        batch_bytes=1,
    )
    plan = in_order(
        1,
        brokers=1,
        replicas=1,
        partitions=1,
        flush_interval_s=0.02,
        segment_bytes=4096,
        retention_ms=100,
        retention_check_interval_s=0.05,
        workload=workload,
        faults=(dies, late),
    )
    verdict = simulate(plan, [Oracle])
    refusals = [one.about for one in verdict.events if isinstance(one.about, steps.P9Refusing)]
    assert any(one.status == Status.RECEIPT_FORGOTTEN for one in refusals)
    assert verdict.violation is None, verdict.violation


@pytest.mark.parametrize("early_deaths", [0, 1, 2])
def test_a_log_that_rotted_while_its_broker_was_down_does_not_lead(early_deaths: int) -> None:
    """It was taken for one with a torn tail, led, and had the others drop what it lacked."""

    async def scenario(cluster: SimulatedCluster) -> None:
        sent = [b"%d" % number for number in range(10)]

        await ask(cluster, filling("topic", sent))
        rotten = cluster.nodes["broker-1"].host
        (path,) = [one for one in rotten.disk.files("data/logs") if one.endswith(".log")]
        for node in cluster.brokers:
            node.host.kill()
        rotten.disk.flip(path, bit=8 * 150)
        for _ in range(early_deaths):
            kill_at(cluster, steps.D5Recovered.text, "broker-1")
            cluster.boot("broker-1")
            await until(lambda: not rotten.is_up)
        cluster.boot("broker-1")
        await trio.sleep(2)  # nobody else could lead
        for name in ("broker-2", "broker-3"):
            cluster.boot(name)
        await cluster.wait_serving()
        await ask(cluster, expecting("topic", sent), "reader")
        await until(lambda: in_sync(cluster) == [1, 2, 3])

    play(scenario, attrs.evolve(small(), flush=FlushOptions(interval_s=600.0)))


def test_a_leader_that_dies_while_its_first_topic_is_made_is_replaced() -> None:
    """The others heard of the next epoch before they heard of the partition, and forgot it."""

    async def scenario(cluster: SimulatedCluster) -> None:
        injector = Injector(cluster, LastCopyGuard(cluster), ())

        def is_made(event: Event) -> bool:
            return event.what == steps.R2Appended.text and bool(cluster.decided.to_be(0))

        def strike() -> None:
            # The other hears of the loss at once, of the topic when that is on the device.
            injector.act(BreakDisk(DiskFault("sync", Delay(0.05))), "register")
            (record,) = cluster.decided.to_be(0)
            injector.act(Kill(None), f"broker-{record.leader}")

        when(cluster, is_made, strike)
        await ask(cluster, lambda client: done(client.create_topic("topic")), "maker")
        (gone,) = [node for node in cluster.brokers if not node.host.is_up]
        partitions = cluster.decided.state.partitions
        await until(lambda: gone.name != f"broker-{partitions[0].leader}")

    play(scenario)


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_register_that_lost_its_disk_calls_no_topic_unknown_before_all_brokers_reported(
    restarts: int,
) -> None:
    sent = [b"%d" % number for number in range(3)]

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, filling("topic", sent))
        cluster.nodes["broker-3"].host.kill()
        cluster.nodes["register"].host.kill()
        cluster.wipe("register")
        cluster.boot("register")
        await until(lambda: cluster.decided.state.brokers.keys() == {1, 2})
        for _ in range(restarts):
            cluster.nodes["register"].host.kill()
            cluster.boot("register")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, cluster, expecting("topic", sent), "reader")
            await trio.sleep(2 * GATHER_S)
            assert topics(cluster) == []
            cluster.boot("broker-3")

    play(scenario)


def test_a_broker_gets_topics_that_the_register_learned_again_after_it_joined() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, filling("first", [b"1"]))
        cluster.nodes["broker-3"].host.kill()
        await ask(cluster, filling("second", [b"2"]), "other client")
        for host in ("register", "broker-2"):
            cluster.nodes[host].host.kill()
        cluster.wipe("register")
        cluster.boot("register")
        cluster.boot("broker-3")
        await until(lambda: cluster.decided.state.brokers.keys() == {1, 3})
        assert topics(cluster) == []
        cluster.boot("broker-2")
        await until(lambda: cluster.stored_records("broker-3", "second", 0) is not None)
        await until(lambda: in_sync(cluster) == [1, 2, 3])

    play(scenario)


def test_acknowledged_records_lie_before_the_end_that_a_new_leader_tells() -> None:
    sent = [b"%d" % number for number in range(3)]

    async def scenario(cluster: SimulatedCluster) -> None:
        injector = Injector(cluster, LastCopyGuard(cluster), [])

        acknowledged: list[Event] = []

        def are_acknowledged(event: Event) -> bool:
            """All of them, and followers don't know."""
            if event.what == steps.P7Acknowledged.text:
                acknowledged.append(event)
            return event.what == steps.P6Telling.text and len(acknowledged) == len(sent)

        def lose_the_leader() -> None:
            injector.act(Kill(None), acknowledged[0].host)

        def hold_up_the_follower() -> None:
            led = cluster.decided.state.partitions[0].leader
            (other,) = {node.name for node in cluster.brokers if node.host.is_up} - {
                f"broker-{led}"
            }
            injector.act(Pause(0.5), other)

        async def fetch_next(client: Client) -> None:
            (place,) = (await client.describe_topic("topic")).partitions
            end = acknowledged[-1].facts["end"]
            fetched = await client.fetch("topic", end, partition=place.partition)
            assert (fetched.messages, fetched.highwater) == ([], end)

        when(cluster, are_acknowledged, lose_the_leader)
        await ask(cluster, filling("topic", sent))
        when(cluster, lambda event: event.what == steps.E11Leading.text, hold_up_the_follower)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, cluster, expecting("topic", sent), "reader")
            nursery.start_soon(ask, cluster, fetch_next, "other reader")

    play(scenario)


def test_a_decision_about_a_broker_that_lost_power_is_right_until_it_joins_again() -> None:
    """Two leaders propose it at once; when the register hears of the second, the first
    decision lies behind the loss."""
    gone = InjectedFault(AtEffect("sync_directory", "after", "leader", 20), Kill(0.18), "follower")
    back = InjectedFault(AtStep("J11", "any", behind=True), LosePower(0.1), "follower")
    workload = WorkloadOptions(
        producers=2, records=30, consumers=2, topic_partitions=2, pause_s=0.05
    )
    plan = Plan(24676, partitions=2, replicas=2, workload=workload, faults=(gone, back))
    verdict = simulate(plan, [Oracle])
    assert verdict.violation is None, verdict.details
    assert any(event.what == LOSE_POWER for event in verdict.events)


def test_a_broker_that_gets_a_replica_hears_of_its_topics_even_if_the_operator_is_lost() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, filling("topic", [b"value"]))
        held_by = cluster.decided.state.partitions[0].replicas
        (joining,) = {1, 2, 3} - set(held_by)
        kill_at(cluster, steps.E8Decided.text, "operator")
        await ask(
            cluster,
            lambda client: client.admin.move_replica(0, leaving=held_by[1], joining=joining),
            "operator",
        )
        await until(lambda: joining in in_sync(cluster))
        assert cluster.stored_records(f"broker-{joining}", "topic", 0)

    options = attrs.evolve(small(), replicas=2, rebalance_interval_s=3600.0)
    play(scenario, options)


def test_a_register_whose_disk_was_full_only_after_its_journal_was_switched_starts_again() -> None:
    """It took the old journal to be in force, and removed the one that was."""

    async def scenario(cluster: SimulatedCluster) -> None:
        register = cluster.nodes["register"].host
        too_late = DiskFault("rename", Fail(errno.ENOSPC, done=True))
        when(
            cluster,
            lambda event: event.what == steps.R4Snapshot.text,
            lambda: register.disk.faults.add(too_late),
        )
        await ask(cluster, filling("topic", [b"sent"]))
        await until(lambda: not register.disk.faults)
        register.kill()
        cluster.boot("register")
        with trio.fail_after(ENOUGH_S):
            await cluster.wait_serving()
        await ask(cluster, expecting("topic", [b"sent"]), "reader")

    play(scenario, attrs.evolve(small(), snapshot_entries=3))


def test_the_only_in_sync_replica_keeps_its_disk_even_after_a_power_failure() -> None:
    """Nobody may lead without it: no fault of the cluster, that it waits for an operator."""
    powerless = InjectedFault(AtStep("E4", "any"), LosePower(0.1), "here")
    rolled_back = InjectedFault(AtStep("D1b", "any", 4), RollBack(0.5, 0.5), "here")
    cut_off = InjectedFault(AtStep("J8a", "any"), Cut("others", 2.0), "here")
    workload = WorkloadOptions(producers=2, records=3, consumers=1)
    faults = (powerless, rolled_back, cut_off)
    plan = Plan(60351, replicas=2, jitter_s=0.0, order="fifo", workload=workload, faults=faults)
    assert simulate(plan, [Oracle]).violation is None


def test_a_leader_may_count_a_removed_in_sync_replica_until_it_is_told() -> None:
    """What it counts was acknowledged before the power failed; nobody else can lead by it."""
    first = InjectedFault(AtStep("P3a", "any", 11), LosePower(0.46), "leader")
    second = InjectedFault(AtStep("E11", "any", behind=True), LosePower(0.0), "leader")
    workload = WorkloadOptions(2, 4, 1, topic_partitions=2, pause_s=0.004)
    plan = Plan(64479, partitions=2, order="fifo", workload=workload, faults=(first, second))
    assert simulate(plan, [Oracle]).violation is None


def test_a_paused_leader_may_commit_records_acknowledged_before_the_pause() -> None:
    """It counts a replica that lost its power meanwhile, and the others have the record."""
    powerless = InjectedFault(AtStep("P6c", "any"), LosePower(2.19), "follower")
    asleep = InjectedFault(AtStep("P4b", "broker-2", 2), Pause(2.5), "here")
    cut_off = InjectedFault(AtStep("D2b", "broker-1", 7), Cut("others", 2.0), "here")
    workload = WorkloadOptions(2, 1, 1, topic_partitions=2, pause_s=0.004, reopen_count=8)
    faults = (powerless, asleep, cut_off)
    plan = in_order(53709, partitions=2, min_insync=2, workload=workload, faults=faults)
    assert simulate(plan, [Oracle]).violation is None


def test_a_deleted_topic_that_an_old_disk_brings_back_may_lose_records() -> None:
    rolled_back = InjectedFault(AtStep("P8b", "broker-2", 4), RollBack(0.293, 0.05), "here")
    workload = WorkloadOptions(
        1, 11, 1, topics=2, topic_partitions=1, pause_s=0.02, chores=("topic",)
    )
    plan = two_brokers(44412, workload=workload, faults=(rolled_back,))
    assert simulate(plan, [Oracle]).violation is None


def test_no_broker_is_told_an_epoch_that_a_restarted_register_would_not_know() -> None:
    """A broker was briefed in the moment in which the next epoch was decided."""
    slow = DiskFault("sync", Delay(0.29), times=9)
    faults = (
        InjectedFault(AtStep("R3b", "register"), BreakDisk(slow), "here"),
        InjectedFault(AtStep("P6a", "any"), Reset("others"), "leader"),
        InjectedFault(AtStep("R3a", "register", 19), Reset("others"), "broker-2"),
    )
    workload = WorkloadOptions(1, 1, 1, topic_partitions=2, pause_s=0.004)
    plan = two_brokers(49378, latency_s=0.02, workload=workload, faults=faults)
    assert simulate(plan, [Oracle]).violation is None


def test_a_change_of_leaders_goes_on_even_if_the_operator_is_lost() -> None:
    """It waited for the register's disk, behind somebody else."""

    async def scenario(cluster: SimulatedCluster) -> None:
        async def drain(environment: Environment) -> None:
            async with connect(cluster.address, environment=environment) as client:
                await client.admin.drain_broker(1)

        await ask(cluster, lambda client: done(client.create_topic("first")), "maker")
        partitions = cluster.decided.state.partitions
        assert partitions[0].leader == 1
        operator = cluster.add_client("operator", drain)
        cluster.register.host.disk.sync_s = 1.0
        when(
            cluster,
            lambda event: event.what == steps.R3Flushing.text,
            lambda: cluster.boot_after("operator", 0.1),
        )
        when(cluster, lambda event: event.what == steps.E1Wanted.text, operator.host.kill)
        await ask(cluster, lambda client: done(client.create_topic("second")), "other maker")
        await until(lambda: partitions[0].leader != 1)

    play(scenario)


def test_a_client_that_asks_for_the_end_of_a_new_log_is_told_to_retry() -> None:
    """The leader was still storing a decision about the partition."""
    slow = BreakDisk(DiskFault("sync", Delay(0.98), times=3))
    faults = (InjectedFault(AtStep("E10a", "broker-3"), slow, "broker-1"),)
    workload = WorkloadOptions(1, 1, 1, topic_partitions=1)
    passing(in_order(1, partitions=1, workload=workload, faults=faults))


def test_a_broker_that_leaves_while_the_register_listens_is_no_member() -> None:
    """What it was let in for and what it left for came at the same moment, behind a pause."""
    paused = InjectedFault(AtEffect("send", "after", "register", 3), Pause(2.0), "here")
    workload = WorkloadOptions(producers=1, records=1, consumers=1, topic_partitions=1)
    plan = Plan(
        1,
        tier="websocket",
        brokers=2,
        partitions=1,
        replicas=1,
        jitter_s=0.0,
        order="fifo",
        workload=workload,
        faults=(paused,),
    )
    passing(plan)


def filling(
    topic: str, values: list[bytes], *, flush_before_ack: bool = False
) -> Callable[[Client], Awaitable[None]]:
    """Make *topic* and send *values* to it, one after the other."""

    async def send(client: Client) -> None:
        await client.create_topic(topic, flush_before_ack=flush_before_ack)
        async with client.producer() as producer:
            for value in values:
                await producer.send(topic, value)

    return send


async def done(answer: Awaitable[object]) -> None:
    await answer


def topics(cluster: SimulatedCluster) -> list[str]:
    return [one.topic for one in cluster.decided.state.topics_after("", 10)]


def in_sync(cluster: SimulatedCluster) -> list[BrokerId]:
    return cluster.decided.state.partitions[0].in_sync


def gone(cluster: SimulatedCluster, host: str, topic: str) -> bool:
    return cluster.stored_records(host, topic, 0) is None


def kill_at(cluster: SimulatedCluster, step: str, host: str) -> None:
    when(cluster, lambda event: event.what == step, lambda: cluster.nodes[host].host.kill())
