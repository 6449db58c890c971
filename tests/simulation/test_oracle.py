"""The oracle accepts sound clusters, and finds the broken invariant in others."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Collection

import attrs
import pytest
import trio

from octopi.clients.client import connect
from octopi.coordination.journal_entries import PartitionDecided
from octopi.environment import Environment
from octopi.errors import Status
from octopi.identifiers import Epoch
from octopi.limits import RECENT_BATCHES_COUNT
from octopi.replication.log_follower import LogFollower
from octopi.replication.log_state import LogState
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.register.member import Member
from octopi.simulation.cluster import ClusterOptions, SimulatedCluster
from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.faults import DiskFault, Fail
from octopi.simulation.disk.image import FileImage
from octopi.simulation.faults.actions import BreakDisk
from octopi.simulation.faults.injector import FAULT
from octopi.simulation.invariants.descriptions import PROMISES
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.invariants.recoveries import ORDERED, better_than
from octopi.simulation.invariants.succession import LOST
from octopi.simulation.kernel import driver
from octopi.simulation.kernel.world import Event, Violation, World
from octopi.simulation.network.message_links import FrameNet
from octopi.simulation.network.network import Network
from octopi.tracing import steps
from octopi.tracing.produce import BatchStep
from octopi.wire.messages import AlterInSync, PartitionRecord
from tests.simulation.told import step_event, tell

OPTIONS = ClusterOptions(partitions=1, gather_s=0.05, rebalance_interval_s=3600.0)
MESSAGE_COUNT = 20


@attrs.define
class Scenario:
    """A cluster whose steps are observed, and one producer."""

    world: World
    cluster: SimulatedCluster
    oracle: Oracle

    def at(self, step: str, action: Callable[[Event], None], *, occurrence: int = 1) -> None:
        """Do *action* when *step* comes for the n-th time."""
        left = [occurrence]

        def observe(event: Event) -> None:
            if event.what == step:
                left[0] -= 1
                if not left[0]:
                    action(event)

        # In front: a step that does harm comes to the oracle with the harm done.
        self.world.observers.insert(0, observe)

    async def produce(self, *, flush_before_ack: bool = False) -> None:
        """Have a client send messages, one after the other."""
        done = trio.Event()

        async def program(environment: Environment) -> None:
            async with (
                connect(self.cluster.address, environment=environment) as client,
                client.producer(create_topics=True) as producer,
            ):
                if flush_before_ack:
                    await client.create_topic("topic", flush_before_ack=True)
                for number in range(MESSAGE_COUNT):
                    await producer.send("topic", f"message {number}".encode())
            done.set()

        self.cluster.add_client("client", program)
        self.cluster.boot("client")
        await done.wait()


def play(scene: Callable[[Scenario], Awaitable[None]], seed: int = 1) -> World:
    """Run *scene* on a cluster of three brokers."""
    world = World(seed)
    network = Network(world, FrameNet)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(world, network, nursery, OPTIONS)
            scenario = Scenario(world, cluster, Oracle(cluster))
            world.observers.append(scenario.oracle)
            cluster.start()
            await cluster.wait_serving()
            await scene(scenario)
            await trio.sleep(3)
            scenario.oracle.at_rest()
            assert await cluster.end() == []
            nursery.cancel_scope.cancel()

    driver.run(world, main, world.random("schedule"))
    return world


def broken(scene: Callable[[Scenario], Awaitable[None]]) -> Violation:
    """The violation that *scene* ends with."""
    with pytest.raises(Violation) as caught:
        play(scene)
    assert caught.value.rule in PROMISES
    assert caught.value.events
    return caught.value


async def produce_through_kills(scenario: Scenario) -> None:
    """Each broker dies once, one while it appends, one while it acknowledges."""

    def kill(event: Event) -> None:
        scenario.cluster.nodes[event.host].host.kill()
        scenario.cluster.boot_after(event.host, 0.2)

    scenario.at(steps.P2Appended.text, kill, occurrence=3)
    scenario.at(steps.P4Acknowledging.text, kill, occurrence=9)
    await scenario.produce()


def test_a_sound_cluster_whose_brokers_die_breaks_no_rule() -> None:
    for seed in range(5):
        world = play(produce_through_kills, seed)
        assert sum(event.what == "kill" for event in world.events) >= 2


async def lose_a_broker_while_a_decision_is_flushed(scenario: Scenario) -> None:
    """A broker comes back into the in-sync set; before the decision is durable another one
    dies, and their leader is told what the register knows."""
    cluster = scenario.cluster
    cluster.register.host.disk.sync_s = 0.05

    def lose_one(event: Event) -> None:
        leader, _, last = sorted(cluster.brokers, key=lambda one: one.name != event.host)
        leaver = next(one for one in cluster.brokers if one not in {leader, last})
        leaver.host.kill()
        cluster.boot_after(leaver.name, 0.5)

        def lose_another(event: Event) -> None:
            if event.what != steps.E17Altering.text or not event.facts["accepted"]:
                return  # a leader that asks again is refused
            if event.facts["asked"].joiner_incarnation is not None and last.host.life_count == 1:
                last.host.kill()
                cluster.boot_after(last.name, 2.0)

        scenario.world.observers.insert(0, lose_another)

    scenario.at(steps.E15FirstCommit.text, lose_one)
    await scenario.produce()
    await trio.sleep(3)


def test_a_decision_that_is_not_durable_is_told_to_no_node() -> None:
    play(lose_a_broker_while_a_decision_is_flushed)


def test_a_register_that_tells_a_decision_before_it_is_durable_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def always(self: Member) -> bool:
        return True

    monkeypatch.setattr(Member, "_may_tell", always)
    assert broken(lose_a_broker_while_a_decision_is_flushed).rule == "undecided-told"


def test_a_leader_that_is_answered_before_the_register_can_remember_it_is_found() -> None:
    async def answer_early(scenario: Scenario) -> None:
        record = PartitionRecord(0, 1, 99, 1, 1, [1, 2, 3], [1])
        asked = AlterInSync(0, 1, 1, 1, 98, [1], None)
        answered = step_event(
            steps.E17Altered, "register", asked=asked, accepted=True, record=record
        )
        scenario.at(steps.R2Appended.text, lambda event: scenario.oracle(answered))
        await scenario.produce()

    assert broken(answer_early).rule == "undecided-told"


def test_a_register_that_believes_unsynced_entries_durable_is_found() -> None:
    async def trust_a_flush(scenario: Scenario) -> None:
        def cut(event: Event) -> None:
            disk = scenario.cluster.nodes[event.host].host.disk
            for path in disk.files("data/journal"):
                if path.endswith(".log"):
                    image(disk, path).settled_bytes -= 1

        scenario.at(steps.R3Flushed.text, cut)
        await scenario.produce()

    assert broken(trust_a_flush).rule == "undecided-told"


def announced(epoch: int) -> Callable[[Scenario], Awaitable[None]]:
    """The register begins a change of a leader whose brokers have promised epoch 9."""

    async def scene(scenario: Scenario) -> None:
        await scenario.produce()
        stored = {"partition": 0, "promised": 9, "sync_flag": False, "intact": True}
        tell(scenario.world, steps.D2Promised, "broker-1", 1, **stored)
        scenario.oracle(step_event(steps.E2Announced, "register", partition=0, epoch=epoch))

    return scene


def test_a_change_with_an_epoch_that_was_accepted_before_is_found() -> None:
    play(announced(10))
    assert broken(announced(9)).rule == "epoch-used-again"


def test_giving_uncommitted_records_to_consumers_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LocalLog, "highwater", property(lambda log: log.end))
    assert broken(produce_through_kills).rule == "uncommitted-seen"


def test_a_follower_that_acknowledges_records_that_it_does_not_hold_is_found() -> None:
    async def lose_a_record(scenario: Scenario) -> None:
        def forget(event: Event) -> None:
            disk = scenario.cluster.nodes[event.host].host.disk
            (path,) = (one for one in disk.files("data/logs") if one.endswith(".log"))
            del image(disk, path).cached[-1:]

        scenario.at(steps.P3Replicated.text, forget, occurrence=5)
        await scenario.produce()

    assert broken(lose_a_record).rule == "promised-unheld"


def test_a_follower_that_does_not_flush_before_it_acknowledges_as_its_topic_asks_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = LogFollower.__init__

    def forget(self: LogFollower, epoch: Epoch, log: LogState, *, durable: bool) -> None:
        begin(self, epoch, log, durable=durable)
        self._durable = False

    async def produce(scenario: Scenario) -> None:
        await scenario.produce(flush_before_ack=True)

    play(produce)
    monkeypatch.setattr(LogFollower, "__init__", forget)
    found = broken(produce)
    assert found.rule == "promised-unheld"
    assert "with a topic that asks for a flush" in str(found)


def test_a_replica_whose_records_change_under_it_is_found() -> None:
    async def change_a_record(scenario: Scenario) -> None:
        def change(event: Event) -> None:
            disk = scenario.cluster.nodes[event.host].host.disk
            (path,) = (one for one in disk.files("data/logs") if one.endswith(".log"))
            image(disk, path).cached[3] ^= 1

        scenario.at(steps.P8Followed.text, change, occurrence=5)
        await scenario.produce()

    found = broken(change_a_record)
    assert found.rule == "incomplete-leader"
    assert found.events[0].what == steps.P6Committed.text


def image(disk: SimulatedDisk, path: str) -> FileImage:
    """A file, past the calls that fail."""
    found = disk.tree.find(path)
    assert isinstance(found, FileImage)
    return found


def promises(*epochs: int, gives_up: bool = False) -> Callable[[Scenario], Awaitable[None]]:
    """A broker that promises *epochs* of one partition, one after the other."""

    async def scene(scenario: Scenario) -> None:
        for number, epoch in enumerate(epochs):
            if gives_up and number:
                tell(scenario.world, steps.J13Retiring, "broker-1", 1, partition=7)
            stored = {"partition": 7, "promised": epoch, "sync_flag": False, "intact": True}
            tell(scenario.world, steps.D2Promised, "broker-1", 1, **stored)

    return scene


def test_a_promise_that_goes_back_is_found() -> None:
    assert broken(promises(2, 3, 0)).rule == "promise-forgotten"


def test_a_replica_that_was_given_up_and_comes_back_has_promised_nothing() -> None:
    play(promises(3, 0, gives_up=True))
    assert broken(promises(3, 0, 1, 0)).rule == "promise-forgotten"


def test_a_follower_that_acts_in_an_older_epoch_than_it_promised_is_found() -> None:
    async def follow(scenario: Scenario) -> None:
        await promises(3)(scenario)
        tell(scenario.world, steps.E12Following, "broker-1", 1, partition=7, epoch=2, leader=2)

    assert broken(follow).rule == "promise-forgotten"


def decided(*in_sync: int, epoch: int = 9) -> Callable[[Scenario], Awaitable[None]]:
    """The register decides on an in-sync set, and brokers 1 and 2 have promised epoch 9."""

    async def scene(scenario: Scenario) -> None:
        for host in ("broker-1", "broker-2"):
            stored = {"partition": 7, "promised": 9, "sync_flag": False, "intact": True}
            tell(scenario.world, steps.D2Promised, host, 1, **stored)
        record = PartitionRecord(7, epoch, 0, 1, 1, [1, 2, 3], list(in_sync))
        entry = PartitionDecided(record)
        scenario.oracle(step_event(steps.E8Decided, "register", entries=[entry], losses=[]))

    return scene


def test_an_in_sync_set_of_brokers_that_have_not_promised_its_epoch_is_found() -> None:
    play(decided(1, 2))
    assert broken(decided(1, 2, 3)).rule == "in-sync-unasked"
    assert broken(decided(1, 2, epoch=10)).rule == "in-sync-unasked"


def elected(leader: int, *in_sync: int) -> Callable[[Scenario], Awaitable[None]]:
    """The register has made durable that *leader* leads; only the brokers 1 and 2 promised."""

    async def scene(scenario: Scenario) -> None:
        await scenario.produce()
        view = scenario.cluster.decided
        [known] = view.state.partitions.values()
        assert known.leader == 1
        epoch = known.epoch + 1
        for host in ("broker-1", "broker-2"):
            stored = {"partition": 0, "promised": epoch, "sync_flag": False, "intact": True}
            tell(scenario.world, steps.D2Promised, host, 1, **stored)
        record = attrs.evolve(known, epoch=epoch, version=0, leader=leader, in_sync=[*in_sync])
        view.before[record.partition] = known
        view.state.apply(PartitionDecided(record))
        entries = [PartitionDecided(record)]
        scenario.oracle(step_event(steps.E8Decided, "register", entries=entries, losses=[]))

    return scene


def test_a_durable_election_of_brokers_that_have_not_promised_is_found() -> None:
    play(elected(2, 1, 2))
    assert broken(elected(2, 1, 2, 3)).rule == "in-sync-unasked"


def test_a_leader_that_goes_on_may_keep_brokers_that_have_not_promised_in_sync() -> None:
    play(elected(1, 1, 2, 3))


def joined(incarnation: int, *, accepted: bool = True) -> Callable[[Scenario], Awaitable[None]]:
    """The register lets the first incarnation of broker 3, or another, be in sync."""

    async def scene(scenario: Scenario) -> None:
        asked = AlterInSync(7, 1, 1, 1, 0, [1, 2, 3], incarnation)
        record = PartitionRecord(7, 1, 1, 1, 1, [1, 2, 3], [1, 2, 3])
        judged = {"asked": asked, "accepted": accepted, "record": record}
        tell(scenario.world, steps.E17Altering, "register", 1, **judged)

    return scene


def test_adding_another_incarnation_than_the_one_that_caught_up_is_found() -> None:
    play(joined(1))
    play(joined(2, accepted=False))
    assert broken(joined(2)).rule == "in-sync-unasked"


def refused(sequence: int) -> Callable[[Scenario], Awaitable[None]]:
    """A producer of which twenty messages are committed is told that one is too long ago."""

    async def scene(scenario: Scenario) -> None:
        receipts: list[Event] = []
        scenario.at(steps.P7Acknowledging.text, receipts.append, occurrence=MESSAGE_COUNT)
        await scenario.produce()
        (last,) = receipts
        about = {name: last.facts[name] for name in BatchStep.names}
        about |= {"sequence": sequence, "status": Status.RECEIPT_FORGOTTEN}
        tell(scenario.world, steps.P9Refusing, last.host, last.life, **about, reason="a test")

    return scene


def test_a_producer_whose_newest_batches_are_forgotten_is_found() -> None:
    play(refused(MESSAGE_COUNT - RECENT_BATCHES_COUNT - 1))
    assert broken(refused(MESSAGE_COUNT - RECENT_BATCHES_COUNT)).rule == "receipt-wrong"


# --- stops, losses -----------------------------------------------------------------------


def proposes(
    *in_sync: int, stops: bool, paused_s: float = 0.0, later_s: float = 0.0, tells: bool = False
) -> Callable[[Scenario], Awaitable[None]]:
    """The leader, which was asked to stop or not, maybe within a pause, proposes an in-sync set:
    in the same instant or later, maybe after it told the register that it stops."""

    async def scene(scenario: Scenario) -> None:
        await scenario.produce()
        [record] = scenario.cluster.decided.state.partitions.values()
        host = scenario.cluster.host_of(record.leader)
        node = scenario.cluster.nodes[host]
        if paused_s:
            node.host.pause()
        if stops:
            scenario.cluster.stop(host)
        if paused_s:
            await scenario.world.sleep(paused_s)
            node.host.resume()
        if later_s:
            await scenario.world.sleep(later_s)
        if tells:
            leaving = {"broker": record.leader, "incarnation": 1}
            tell(scenario.world, steps.E21Stopping, host, 1, **leaving)
        asked = AlterInSync(
            record.partition, record.epoch, record.leader, 1, record.version, list(in_sync), None
        )
        tell(scenario.world, steps.E16Proposing, host, 1, **attrs.asdict(asked))

    return scene


def test_a_broker_that_stops_and_takes_others_out_of_the_in_sync_set_is_found() -> None:
    play(proposes(1, 2, stops=False))
    play(proposes(1, 2, 3, stops=True))
    for heard in (
        proposes(1, 2, stops=True, later_s=0.001),
        proposes(1, 2, stops=True, paused_s=0.1, later_s=0.001),
        proposes(1, 2, stops=True, tells=True),
        proposes(1, 2, stops=True, paused_s=0.1, tells=True),
    ):
        assert broken(heard).rule == "stopping-proposes"


def begins_empty(*, on: int, ordered_on: int | None) -> Callable[[Scenario], Awaitable[None]]:
    """The partition begins again empty on a broker, while all brokers run, maybe by an order that
    names one."""

    async def scene(scenario: Scenario) -> None:
        await scenario.produce()
        [record] = scenario.cluster.decided.state.partitions.values()
        if ordered_on is not None:
            scenario.world.note(ORDERED, partition=record.partition, empty_on=ordered_on)
        epoch = record.epoch + 1
        begun = attrs.evolve(
            record,
            epoch=epoch,
            version=0,
            leader=on,
            replicas=[on],
            in_sync=[on],
            recovered_epoch=epoch,
        )
        decided = {"entries": [PartitionDecided(begun)], "losses": [[]]}
        tell(scenario.world, steps.E8Decided, "register", 1, **decided)

    return scene


def test_a_partition_that_begins_again_empty_though_brokers_have_it_is_found() -> None:
    assert broken(begins_empty(on=1, ordered_on=None)).rule == "lost-unasked"
    ordered = broken(begins_empty(on=1, ordered_on=1))
    assert ordered.rule == "lost-too-much"
    assert "brokers [1, 2, 3] run" in str(ordered)


def refuses(*in_sync: int, takes_again: bool = False) -> Callable[[Scenario], Awaitable[None]]:
    """The leader resigns because its disk refused records, maybe takes some after that, and
    proposes an in-sync set."""

    async def scene(scenario: Scenario) -> None:
        await scenario.produce()
        [record] = scenario.cluster.decided.state.partitions.values()
        host = scenario.cluster.host_of(record.leader)
        now = {"partition": record.partition, "epoch": record.epoch}
        leads = {**now, "leader": record.leader, "leader_incarnation": record.leader_incarnation}
        tell(scenario.world, steps.E19Resigning, host, 1, **leads, reason="input/output error")
        if takes_again:
            log = {"topic": "topic-1", "topic_id": "", "producer": None, "producer_epoch": None}
            batch = {**now, **log, "sequence": None, "count": 1, "offset": 0, "end": 1}
            tell(scenario.world, steps.P2Appended, host, 1, **batch)
        proposal = {"version": record.version, "in_sync": list(in_sync), "joiner_incarnation": None}
        tell(scenario.world, steps.E16Proposing, host, 1, **leads, **proposal)

    return scene


def test_a_leader_that_shrinks_the_in_sync_set_when_its_disk_refused_records_is_found() -> None:
    play(refuses(1, 2, 3))
    play(refuses(1, 2, takes_again=True))
    assert broken(refuses(1, 2)).rule == "refusing-proposes"


def test_a_broker_may_propose_in_the_instant_in_which_it_is_asked_to_stop() -> None:
    """The task that hears of it has its turn after the one that looks after the in-sync set."""
    play(proposes(1, 2, stops=True))
    play(proposes(1, 2, stops=True, paused_s=0.1))


def gives_up(*faults: BreakDisk) -> Callable[[Scenario], Awaitable[None]]:
    """A broker gives its replica up and keeps nothing of it, after *faults* of its disk."""

    async def scene(scenario: Scenario) -> None:
        await scenario.produce()
        [record] = scenario.cluster.decided.state.partitions.values()
        host = scenario.cluster.host_of(record.leader)
        for fault in faults:
            scenario.world.note(FAULT, host, 1, action=fault)
        tell(scenario.world, steps.J13Retiring, host, 1, partition=record.partition)
        tell(scenario.world, steps.J13Retired, host, 1, partition=record.partition)

    return scene


def test_a_broker_that_keeps_no_retired_replica_is_found_unless_its_disk_was_full() -> None:
    assert broken(gives_up()).rule == "retired-unkept"
    other = BreakDisk(DiskFault("append", Fail(errno.EIO)))
    assert broken(gives_up(other)).rule == "retired-unkept"
    play(gives_up(BreakDisk(DiskFault("append", Fail(errno.ENOSPC, done=True)))))


def recovered(
    *,
    best: bool,
    was_in_sync: bool = True,
    in_sync: Collection[int] = (),
) -> Callable[[Scenario], Awaitable[None]]:
    """All lose their power, and one of two begins with what it has: the one that has more, or the
    other one; or neither of those that were in sync; or while others are *in_sync*."""

    async def scene(scenario: Scenario) -> None:
        await scenario.produce()
        cluster = scenario.cluster
        [record] = cluster.decided.state.partitions.values()
        cluster.register.host.kill()
        for broker, cut_bytes in ((1, 90), (2, 30), (3, 90)):
            host = cluster.nodes[f"broker-{broker}"].host
            host.disk.settle()
            host.lose_power()
            [path] = [one for one in host.disk.files("data/logs") if one.endswith(".log")]
            data = host.disk.cached(path)
            host.disk.put(path, data[: len(data) - cut_bytes])
        leader = 2 if best else 1
        decided = attrs.evolve(
            record,
            epoch=record.epoch + 1,
            version=0,
            leader=leader,
            in_sync=[leader],
            recovered_epoch=record.epoch + 1,
        )
        stored = {"partition": record.partition, "sync_flag": True, "intact": True}
        for broker in (1, 2, 3):
            promised = {**stored, "promised": decided.epoch, "log_epoch": record.epoch}
            tell(scenario.world, steps.D2Promised, f"broker-{broker}", 2, **promised)
            accepted = {"partition": 0, "epoch": decided.epoch, "broker": broker}
            accepted |= {"incarnation": 1, "log_epoch": record.epoch}
            tell(scenario.world, steps.E7Counted, "register", 1, **accepted, ends=[])
        lost = [1, 2, 3] if was_in_sync else [1, 3]
        before = attrs.evolve(record, version=record.version + 1, in_sync=[*in_sync], lost=lost)
        cluster.decided.state.apply(PartitionDecided(before))
        entries = [PartitionDecided(decided)]
        scenario.oracle(step_event(steps.E8Decided, "register", entries=entries, losses=[[]]))

    return scene


def test_after_a_power_failure_of_all_the_best_replica_leads_and_the_loss_is_reported() -> None:
    world = play(recovered(best=True))
    [lost] = [event for event in world.events if event.what == LOST]
    assert lost.facts["topic"] == "topic"
    assert broken(recovered(best=False)).rule == "lost-too-much"
    assert broken(recovered(best=True, was_in_sync=False)).rule == "lost-too-much"


def test_a_leader_that_begins_unasked_while_replicas_in_sync_may_come_back_is_found() -> None:
    assert broken(recovered(best=True, in_sync=(1, 3))).rule == "lost-unasked"


def test_a_replica_behind_in_the_fewest_logs_is_better_than_one_with_the_most_bytes() -> None:
    ends = {1: [0, 50, 50], 2: [900, 40, 40], 3: [0, 50, 40]}
    assert better_than(1, ends) == ""
    assert "broker 1 in 1, by 900" in better_than(2, ends)
    assert better_than(4, ends) == ""
    assert better_than(2, {2: [10], 3: [10]}) == ""
