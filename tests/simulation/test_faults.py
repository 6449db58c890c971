"""Faults strike the named host at the named step, once, and spare the last intact copy."""

import errno
from math import inf
from typing import Any, get_args

import attrs
import pytest
import trio

from octopi.clients.client import Client
from octopi.identifiers import Offset
from octopi.limits import HIGHWATER_PAUSE_S
from octopi.simulation.cluster import ClusterOptions, SimulatedCluster
from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.faults import DiskFault, Fail
from octopi.simulation.faults import damage as damages
from octopi.simulation.faults.actions import (
    Action,
    AtEffect,
    AtStep,
    AtTime,
    BitFlip,
    BlackholeAccepts,
    BreakDisk,
    CorruptLink,
    Cut,
    DriftClock,
    FillDisk,
    InjectedFault,
    JumpClock,
    Kill,
    LosePower,
    Pause,
    ProtectDisk,
    Refuse,
    Reset,
    RollBack,
    Slow,
    Stop,
    SwizzleClog,
    When,
    Wipe,
)
from octopi.simulation.faults.damage import Damage, Flushed, Harm, Part, targets
from octopi.simulation.faults.data_safety import LastCopyGuard
from octopi.simulation.faults.injector import FAULT, SKIPPED, Injector
from octopi.simulation.kernel.host import LOSE_POWER
from octopi.simulation.kernel.world import Event, World
from octopi.storage.ends_file import NotedLog
from octopi.storage.flush_policy import FlushOptions
from octopi.tracing import steps
from tests.simulation.clusters import ask, play, until, when
from tests.simulation.told import step_event

EVERY_ACTION: tuple[Action, ...] = (
    Kill(),
    Kill(None),
    LosePower(),
    Stop(),
    Pause(0.5),
    Cut(seconds=0.5),
    Cut("register", 0.5, "in", holds=True, resets=True),
    Reset(),
    CorruptLink(),
    Slow(seconds=0.5),
    Refuse(0.5),
    BlackholeAccepts(0.5),
    SwizzleClog(0.5),
    BreakDisk(DiskFault("append", Fail(errno.EIO))),
    FillDisk(0.5),
    ProtectDisk(0.5),
    Wipe(0.1),
    BitFlip(0.1),
    RollBack(0.05, 0.1),
    DriftClock(seconds=0.5),
    JumpClock(),
    Kill(inf),
    Reset("register", "membership"),
    Reset("others", "follow"),
    Damage("missing", "index", 0.1),
    Damage("flip", "log", 0.1),
    Damage("flip", "table", 0.1),
    Damage("missing", "identity", 0.1),
)


async def make(client: Client, *, flush_before_ack: bool) -> None:
    await client.create_topic("topic", flush_before_ack=flush_before_ack)


async def produce(client: Client) -> None:
    async with client.producer() as producer:
        for number in range(20):
            await producer.send("orders", b"%d" % number)


def strike(*faults: InjectedFault, options: ClusterOptions | None = None, seed: int = 1) -> World:
    """Have *faults* strike a cluster that is produced to, then heal it and produce again."""

    async def scenario(cluster: SimulatedCluster) -> None:
        injector = Injector(cluster, LastCopyGuard(cluster), faults)
        injector.arm()
        with trio.move_on_after(5):
            await ask(cluster, produce)
        times = [one.place.seconds for one in faults if isinstance(one.place, AtTime)]
        await until(lambda: cluster.world.now > max(times, default=0))
        injector.heal()
        await until(lambda: not injector.replace_unfit())
        await cluster.wait_serving()
        await ask(cluster, produce, "again")

    return play(scenario, options, seed)


def struck(world: World, what: str = FAULT) -> list[Event]:
    return [event for event in world.events if event.what == what]


def after(world: World, event: Event) -> list[Event]:
    """What the host did in that life after *event*."""
    place = [*world.events][event.number + 1 :]
    return [one for one in place if (one.host, one.life) == (event.host, event.life)]


def test_a_fault_strikes_at_the_step_and_the_host_that_it_names_and_nothing_follows_there() -> None:
    world = strike(InjectedFault(AtStep("P3b", "broker-3", 2), Kill(0.1)))
    [fault] = struck(world)
    assert fault.host == "broker-3"
    before = [one for one in [*world.events][: fault.number] if one.host == "broker-3"]
    assert sum(one.what == steps.P3Replicated.text for one in before) == 2
    assert before[-1].what == steps.P3Replicated.text
    assert [one.what for one in after(world, fault)] == ["kill"]


def test_leader_and_follower_are_those_of_the_partition_that_the_step_is_about() -> None:
    world = strike(
        InjectedFault(AtStep("P2b", "leader"), Pause(0.1), "follower"),
        InjectedFault(AtStep("P3b", "follower"), JumpClock(), "leader"),
    )
    pause, jump = struck(world)
    assert pause.host in {"broker-2", "broker-3"}
    assert jump.host == "broker-1"


def test_a_fault_strikes_before_an_effect_so_that_it_never_happens() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        fault = InjectedFault(AtEffect("append", "before", "broker-1", 3), LosePower(None))
        Injector(cluster, LastCopyGuard(cluster), [fault]).arm()
        effects = cluster.nodes["broker-1"].host.effects
        begun, done = effects["append", "before"], effects["append", "after"]
        with trio.move_on_after(1):
            await ask(cluster, produce)
        assert not cluster.nodes["broker-1"].host.is_up
        assert effects["append", "before"] == begun + 3
        assert effects["append", "after"] == done + 2

    play(scenario)


def test_a_fault_strikes_at_a_time_and_when_something_holds() -> None:
    world = strike(
        InjectedFault(AtTime(0.125), Reset("register"), "broker-2"),
        InjectedFault(When("acknowledged", 3), Reset("client")),
    )
    when, at_time = struck(world)
    assert at_time.at == 0.125
    acknowledged = [one for one in world.events if one.what == steps.P7Acknowledged.text]
    assert when.number == acknowledged[2].number + 1
    assert when.host == acknowledged[2].host


def test_the_last_intact_copy_is_spared_and_that_is_noted() -> None:
    faults = [InjectedFault(AtTime(0.2), Wipe(None), f"broker-{number}") for number in (1, 2, 3)]
    world = strike(*faults)
    assert [one.host for one in struck(world)] == ["broker-1", "broker-2"]
    [skipped] = struck(world, SKIPPED)
    assert skipped.host == "broker-3"
    assert "last intact copy of partition 0" in skipped.facts["why"]


def test_a_replica_left_alone_is_spared_until_its_sync_flag_is_durable() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        last_copies = LastCopyGuard(cluster)
        await ask(cluster, produce)
        [record] = cluster.decided.state.partitions.values()
        leader, follower = cluster.host_of(record.leader), cluster.host_of(record.replicas[1])
        objections: list[str] = []
        when(
            cluster,
            lambda event: event.what == steps.J5Admitted.text and event.facts["incarnation"] > 1,
            lambda: objections.append(last_copies.objection(leader, LosePower())),
        )
        alone: list[list[int]] = []
        when(
            cluster,
            lambda _: bool(objections) and not last_copies.objection(leader, LosePower()),
            lambda: alone.append(cluster.decided.state.partitions[0].in_sync),
        )
        # Else the leader would tell the mark right then, and notice that the follower is gone.
        await trio.sleep(2 * HIGHWATER_PAUSE_S)
        cluster.nodes[follower].host.lose_power()
        cluster.boot(follower)
        await until(lambda: bool(objections))
        assert "last intact copy" in objections[0]
        await until(lambda: bool(alone))
        assert alone == [[record.leader]]

    play(scenario, ClusterOptions(brokers=2, partitions=1, replicas=2, gather_s=0.05))


def test_a_broker_that_flushes_is_spared_until_its_log_is_on_the_device() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        last_copies = LastCopyGuard(cluster)
        objections: list[str] = []

        def look() -> None:
            objections.append(last_copies.objection("broker-1", LosePower()))

        when(cluster, lambda event: event.what == steps.T3Making.text, look)
        await ask(cluster, lambda client: make(client, flush_before_ack=True))
        look()
        before, made = objections
        assert "last intact copy" in before
        assert not made

    play(scenario, ClusterOptions(brokers=1, partitions=1, gather_s=0.05))


def test_a_single_replica_may_be_killed_but_not_lose_its_power() -> None:
    options = ClusterOptions(brokers=1, partitions=1, gather_s=0.05)
    world = strike(
        InjectedFault(AtStep("P2b", "leader"), LosePower()),
        InjectedFault(AtStep("P2b", "leader"), Kill()),
        options=options,
    )
    assert [type(one.facts["action"]) for one in struck(world)] == [Kill]
    assert [type(one.facts["action"]) for one in struck(world, SKIPPED)] == [LosePower]


def test_a_fault_that_can_not_happen_to_a_host_is_skipped() -> None:
    world = strike(
        InjectedFault(AtTime(0.2), Kill(None), "broker-3"),
        InjectedFault(AtTime(0.3), Pause(), "broker-3"),
        InjectedFault(AtTime(0.3), Wipe(), "client"),
        InjectedFault(AtTime(0.3), Kill(), "nobody"),
        InjectedFault(AtTime(0.3), BitFlip(), "register"),
    )
    assert len(struck(world)) == 1
    why = [one.facts["why"] for one in struck(world, SKIPPED)]
    assert why[:3] == ["it is down", "a client keeps nothing", "there is no such host"]
    assert len(why) == 4


def test_cuts_may_overlap_and_each_ends_by_itself() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        injector = Injector(cluster, LastCopyGuard(cluster), ())
        injector.arm()
        assert injector.act(Cut(seconds=0.2), "broker-2") == ""
        assert injector.act(Cut("register", 1.5), "broker-2") == ""
        await until(lambda: cluster.world.now > 1.4)
        lost = [one for one in cluster.world.events if one.what == steps.R6Lost.text]
        assert [one.facts["broker"] for one in lost] == [2], "the longer cut goes on"
        await until(lambda: cluster.world.now > 3)
        assert injector.act(Kill(), "broker-9") == "there is no such host"

    play(scenario)


@pytest.mark.parametrize("action", EVERY_ACTION, ids=lambda action: str(action)[:40])
def test_every_action_can_be_done_to_a_broker_and_healed(action: Action) -> None:
    # Something is on the device by then, and may rot.
    options = ClusterOptions(partitions=1, gather_s=0.05, flush=FlushOptions(messages=2))
    world = strike(InjectedFault(AtStep("P3b", "broker-2", 10), action), options=options)
    assert len(struck(world)) == 1


# --- damaged files -----------------------------------------------------------------------


LAST_BYTES = ("unflushed", "unheard")
"""Parts in which only a bit flips, and only where the node knows too little: tests of their own are
below."""


def damage(action: Damage, target: str = "broker-2") -> tuple[str, SimulatedCluster]:
    """Have *action* happen to a broker that has flushed a lot; return what was done to which
    file, and the cluster as it was then."""
    clusters: list[SimulatedCluster] = []

    async def scenario(cluster: SimulatedCluster) -> None:
        clusters.append(cluster)
        injector = Injector(cluster, LastCopyGuard(cluster), ())
        injector.arm()
        await ask(cluster, produce)
        await ask(cluster, lambda client: make(client, flush_before_ack=False), "again")
        assert injector.act(attrs.evolve(action, restart_s=None), target) == ""
        assert not cluster.nodes[target].host.is_up

    options = ClusterOptions(partitions=1, gather_s=0.05, flush=FlushOptions(messages=2))
    world = play(scenario, options)
    [done] = struck(world, "file damaged")
    return f"{done.facts['path']} {done.facts['done']}", clusters[0]


@pytest.mark.parametrize("part", [one for one in get_args(Part) if one not in LAST_BYTES])
@pytest.mark.parametrize("harm", ["cut", "flip", "missing"])
def test_every_file_can_be_damaged_in_every_way(part: Part, harm: Harm) -> None:
    target = "register" if part == "journal" else "broker-2"
    done, cluster = damage(Damage(harm, part), target)
    path, _, what = done.partition(" ")
    disk = cluster.nodes[target].host.disk
    if part == "directory" or harm == "missing":
        assert what == "removed"
        assert not disk.files(path)
    elif harm == "cut":
        assert what == f"cut to {len(disk.cached(path))} bytes"
        assert disk.cached(path) == disk.durable(path)
    else:
        assert what.startswith("bit ")


def test_an_older_copy_of_a_file_takes_the_place_of_the_file() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        disk = cluster.nodes["broker-2"].host.disk
        injector = Injector(
            cluster,
            LastCopyGuard(cluster),
            [InjectedFault(AtTime(9.0), Damage("older", "log", None, 0.3))],
        )
        injector.arm()
        await ask(cluster, produce)
        await until(lambda: cluster.world.now > 0.3)
        [path] = [one for one in disk.files("data/logs") if one.endswith(".log")]
        before = disk.durable(path)
        await ask(cluster, produce, "again")
        action = Damage("older", "log", None, 0.3)
        assert injector.act(action, "broker-2") == ""
        assert disk.cached(path) == before

    play(scenario, ClusterOptions(partitions=1, gather_s=0.05, flush=FlushOptions(messages=2)))


def test_the_records_flushed_last_are_not_damaged() -> None:
    flushed = Flushed()
    facts: dict[str, Any] = {"partition": 0, "topic": "orders", "flushed_end": 100}
    directory = "data/logs/0/orders"
    flushed(step_event(steps.D1Flushed, **facts))
    assert flushed.end("broker-1", directory) == 0
    flushed(step_event(steps.D1Flushed, **(facts | {"flushed_end": 300})))
    assert flushed.end("broker-1", directory) == 100
    flushed(step_event(steps.E13Truncated, partition=0, topic="orders"))
    assert flushed.end("broker-1", directory) == 0
    assert targets(SimulatedDisk(), "broker-1", Damage(), flushed, None) == []


def test_a_bit_flipped_in_a_tail_lies_behind_the_checkpoint() -> None:
    disk, flushed = SimulatedDisk(), Flushed()
    view = disk.attach(lambda *_: None)
    for directory in ("data", "data/logs", "data/logs/0", "data/logs/0/orders"):
        view.make_directory(directory)
    view.open("data/logs/0/orders/00000000000000000000.log", create=True).append(bytes(300))
    disk.settle()
    facts: dict[str, Any] = {"partition": 0, "topic": "orders", "flushed_end": 300}
    for _ in range(2):
        flushed(step_event(steps.D1Flushed, **facts))
    flushed(step_event(steps.D3Noting, **facts, recovery_point=120))
    [target] = targets(disk, "broker-1", Damage("flip", "tail"), flushed, None)
    assert (target.start_bytes, target.size_bytes) == (120, 300)
    flushed(step_event(steps.D3Noting, **(facts | {"recovery_point": 300})))
    assert targets(disk, "broker-1", Damage("flip", "tail"), flushed, None) == []


def test_a_bit_that_flips_before_its_flush_is_one_of_the_last_bytes() -> None:
    disk, flushed = SimulatedDisk(), Flushed()
    view = disk.attach(lambda *_: None)
    for directory in ("data", "data/logs", "data/logs/0", "data/logs/0/orders"):
        view.make_directory(directory)
    view.open("data/logs/0/orders/00000000000000000000.log", create=True).append(bytes(300))
    unflushed = Damage("flip", "unflushed")
    [target] = targets(disk, "broker-1", unflushed, flushed, None)
    assert (target.start_bytes, target.size_bytes) == (296, 300)
    assert targets(disk, "broker-1", Damage("cut", "unflushed"), flushed, None) == []
    facts: dict[str, Any] = {"partition": 0, "topic": "orders", "flushed_end": 297}
    flushed(step_event(steps.D1Flushed, **facts))
    assert targets(disk, "broker-1", unflushed, flushed, None) == []


def test_a_bit_that_flips_before_its_commit_was_heard_of_is_behind_the_noted_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, flushed = SimulatedDisk(), Flushed()
    view = disk.attach(lambda *_: None)
    for directory in ("data", "data/logs", "data/logs/0", "data/logs/0/orders"):
        view.make_directory(directory)
    view.open("data/logs/0/orders/00000000000000000000.log", create=True).append(bytes(300))
    disk.settle()
    noted = [NotedLog({"topic": "orders"}, recovery_point=Offset(280), highwater=Offset(200))]
    monkeypatch.setattr(damages, "_noted", lambda *_, cached: noted)
    unheard = Damage("flip", "unheard")
    [target] = targets(disk, "broker-1", unheard, flushed, None)
    assert (target.start_bytes, target.size_bytes) == (276, 280)
    noted[0] = attrs.evolve(noted[0], highwater=Offset(277))
    assert targets(disk, "broker-1", unheard, flushed, None) == []
    assert targets(disk, "broker-1", Damage("cut", "unheard"), flushed, None) == []


def test_after_a_power_failure_only_noted_records_are_damaged() -> None:
    disk, flushed = SimulatedDisk(), Flushed()
    facts: dict[str, Any] = {"partition": 0, "topic": "orders", "flushed_end": 300}
    for _ in range(2):
        flushed(step_event(steps.D1Flushed, **facts))
    flushed(Event(0, 0.0, "broker-1", 1, LOSE_POWER, {}))
    assert flushed.end("broker-1", "data/logs/0/orders", disk) == 0
    flushed(step_event(steps.D5Recovered, **facts))
    assert flushed.end("broker-1", "data/logs/0/orders", disk) == 300


# --- single connections, and brokers that stay away ---------------------------------------


def test_a_reset_breaks_one_connection_and_spares_the_others() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, produce)
        network = cluster.network
        before = network.links("broker-2", "broker-1", "/v1/follow")
        joined = network.links("broker-2", "register", "/v1/membership")
        assert len(before) == len(joined) == 1
        injector = Injector(cluster, LastCopyGuard(cluster), ())
        injector.arm()
        assert injector.act(Reset("broker-1", "follow"), "broker-2") == ""
        assert before[0].is_broken
        assert before[0].other.is_broken
        assert network.links("broker-2", "register", "/v1/membership") == joined
        assert network.links("broker-2", "broker-1", "/v1/follow") == []

    play(scenario)


def test_a_broker_that_is_gone_for_good_stays_down_if_the_others_suffice() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        injector = Injector(cluster, LastCopyGuard(cluster), ())
        injector.arm()
        await ask(cluster, produce)
        for host in ("broker-2", "broker-3"):
            assert injector.act(Stop(inf), host) == ""
        assert injector.heal() == "broker-2"
        node = cluster.nodes["broker-3"]
        await until(lambda: bool(node.host.is_up and node.url))
        assert not cluster.nodes["broker-2"].host.is_up
        assert injector.is_gone("broker-2")

    play(scenario)
