"""What a broker of a ring answers about partitions, and what it makes of nonsense."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import pytest
import trio
import trio.testing

from octopi.coordination.agreed_partition import decode_partition, encode_partition
from octopi.environment import Environment
from octopi.identifiers import BrokerId, ClusterId, Epoch, Incarnation, InstanceId, PartitionId
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.ring.cluster_record import ClusterRecord, formed
from octopi.ring.first_partition import first_partition_value, instance_of, partition_of
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.identity import BrokerIdentity
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.ring.own_acceptor import OwnAcceptor
from octopi.roles.broker.ring.partitions import (
    RingPartitions,
    RingSurroundings,
    begin_partitions,
)
from octopi.roles.broker.ring.routes import RingRoutes
from octopi.roles.noted_events import NotedEvents
from octopi.storage.directories import make_durable_directory
from octopi.storage.flush_policy import FlushOptions
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet
from tests.ring.nodes import node

ZERO = PartitionId(0)


class NoRoutes:
    """Sends nothing."""

    def brokers(self, live: object) -> list[m.BrokerInfo]:
        return []

    def __getattr__(self, name: str) -> object:
        return lambda *sent: None


@attrs.define
class Stage:
    """The partitions of broker 2, which is no leader, and what it answers."""

    partitions: RingPartitions
    record: ClusterRecord
    answers: list[object] = attrs.field(factory=list)
    answered: trio.Event = attrs.field(factory=trio.Event)

    def answer(self, message: object) -> None:
        self.answers.append(message)
        self.answered.set()

    @property
    def first(self) -> m.AgreedValue:
        value = first_partition_value(self.record, ZERO)
        assert value is not None
        return value


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    disk = MemoryDisk()
    environment = Environment(SystemClock(), cast(Any, MemoryNet()), disk, SystemRandomness())
    async with trio.open_nursery() as nursery:
        replicas = ReplicaManager(
            environment,
            "data",
            Flusher(environment.clock),
            nursery,
            FlushOptions(),
            "test",
            lost_power=False,
            catch_up_slowdown_max=0.5,
        )
        await make_durable_directory(disk, "data")
        await replicas.open_all(BrokerId(2))
        records: list[ClusterRecord] = []

        def first(instance: InstanceId) -> m.AgreedValue | None:
            partition = partition_of(instance)
            return None if partition is None else first_partition_value(records[0], partition)

        acceptor = OwnAcceptor(environment, "data", lambda error: None, first)
        await acceptor.open(BrokerId(2))
        assert acceptor.identity is not None
        nodes = (node(1), attrs.evolve(node(2), directory=acceptor.identity.directory), node(3))
        records.append(formed(ClusterId("0123456789abcdef"), 2, 3, nodes))
        routes = cast(RingRoutes, NoRoutes())
        events = NotedEvents(environment.clock)
        around = RingSurroundings(environment, replicas, acceptor, routes, nursery, events)
        identity = BrokerIdentity("", BrokerId(2), Incarnation(1), "n", "cache")
        partitions = await begin_partitions(around, identity, lambda error: None)
        partitions.begin(records[0])
        yield Stage(partitions, records[0])
        nursery.cancel_scope.cancel()
        await acceptor.close()


def ballot(number: int, broker: int = 3) -> m.Ballot:
    return m.Ballot(number, BrokerId(broker), Incarnation(1))


def announced(value: m.AgreedValue) -> m.AgreedValue:
    """The value after another epoch was announced."""
    agreed = attrs.evolve(decode_partition(value.content), announced=Epoch(2))
    return value.with_content(encode_partition(agreed))


async def test_an_acceptor_that_may_not_accept_says_which_value_it_knows() -> None:
    async with stage() as on:
        asked = m.AcceptValue(instance_of(ZERO), ballot(1), announced(on.first), ballot(1))
        on.partitions.asked(asked, on.answer)
        await on.answered.wait()
        assert on.answers == [m.KnownValues((m.KnownValue(instance_of(ZERO), 0),))]


async def test_an_acceptor_takes_the_same_from_the_leader_and_grants_its_pulses_no_more() -> None:
    async with stage() as on:
        pulse = m.Pulse(7, BrokerId(1), Incarnation(1), (m.LedEpoch(ZERO, Epoch(1)),))
        on.partitions.heard(pulse, on.answer)
        [heard] = on.answers
        assert isinstance(heard, m.PulseHeard)
        assert heard.granted == (ZERO,)
        on.answers.clear()
        on.answered = trio.Event()
        asked = m.AcceptValue(instance_of(ZERO), ballot(1, 1), announced(on.first), ballot(1, 1))
        on.partitions.asked(asked, on.answer)
        await on.answered.wait()
        [accepted] = on.answers
        assert isinstance(accepted, m.ValueAccepted)
        on.partitions.heard(pulse, on.answer)
        last = on.answers[-1]
        assert isinstance(last, m.PulseHeard)
        assert last.granted == ()


async def test_who_knows_an_older_value_is_told_the_newer_one() -> None:
    async with stage() as on:
        chosen = m.ValueChosen(instance_of(ZERO), ballot(1), announced(on.first))
        on.partitions.learn(chosen)
        on.partitions.compare(m.KnownValues((m.KnownValue(instance_of(ZERO), 0),)), on.answer)
        assert on.answers == [chosen]
        on.answers.clear()
        newer = m.KnownValues((m.KnownValue(instance_of(ZERO), 5), m.KnownValue(InstanceId(0), 9)))
        on.partitions.compare(newer, on.answer)
        assert on.answers == [m.KnownValues((m.KnownValue(instance_of(ZERO), 1),))]
        [known] = on.partitions.known_values()
        assert [one.change for one in known.values] == [1, 0]


@pytest.mark.parametrize("instance", [0, 1, 99])
async def test_what_is_unknown_or_can_not_be_read_changes_nothing(instance: int) -> None:
    number = InstanceId(instance)
    async with stage() as on:
        nonsense = on.first.with_content(b"?")
        on.partitions.learn(m.ValueChosen(number, ballot(1), nonsense))
        on.partitions.asked(m.AcceptValue(number, ballot(1), nonsense, ballot(1)), on.answer)
        member = on.first.acceptors[0]
        promised = m.BallotPromised(number, member, ballot(1), ballot(1), nonsense)
        on.partitions.answered(promised)
        await trio.testing.wait_all_tasks_blocked()
        assert on.answers == []
        machine = on.partitions.partition(ZERO)
        assert machine is not None
        assert machine.value == on.first
