"""Thousands of orders of a register, and of records of a leader, that no such node would send.

A broker obeys its register, so it may end up with anything that a register can decide.  But its
process goes on, it starts again, and it writes and deletes nothing outside of its data directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import attrs
import pytest
import trio

import octopi.testing
from octopi.environment import Environment, Link
from octopi.errors import OctopiError
from octopi.record import NO_REQUEST, encode_opaque
from octopi.roles.broker.node import BrokerOptions, run_broker
from octopi.simulation.disk.image import Directory
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode
from octopi.wire.endpoints import FOLLOW, MEMBERSHIP
from tests.kit.join_secrets import SECRETS, be_asked
from tests.security.forging import Forge, Known, known
from tests.security.test_forged_messages import complaints

__all__ = ["complaints"]

CLUSTER = "c" * 16
TOPIC = m.TopicRecord("orders", "1" * 16, [0], m.TopicOptions())
BATCH = 250
TOLD = MEMBERSHIP.to_decider | FOLLOW.to_leader | {m.Heartbeat}
WELCOME = m.Welcome(1, "register", "forger", 250, 1000, 1 << 24)
RECORDS = encode_opaque(NO_REQUEST, b"a record")


def facts() -> Known:
    place = m.PartitionInfo(0, 1, 1, "ws://evil:7000", [1, 2], [1, 2], [])
    topic = m.TopicInfo(TOPIC.topic, TOPIC.topic_id, [place], TOPIC.options)
    brokers = [m.BrokerInfo(one, "ws://evil:7000", 1, True, 0) for one in (1, 2)]
    found = known(m.ClusterDescription(1, CLUSTER, 1, 1, brokers, []), topic)
    end = len(RECORDS)
    for name in ("offset", "log_end", "end", "keep", "begin", "start", "highwater"):
        found.plausible[name] = [0, end, 2 * end, 10 * end]
    found.plausible["records"] = [RECORDS, RECORDS * 3]
    return found


@attrs.define
class Evil:
    """A register, and a leader, that say what they like."""

    environment: Environment
    randomness: Random
    is_leader: bool
    """Whether the records are forged; else the orders."""
    sent: int = 0
    joins: list[m.Join] = attrs.field(factory=list)
    follows: int = 0
    epoch: int = 1
    is_kind: bool = False
    """Whether it has stopped to forge."""

    async def serve(self, *, task_status: trio.TaskStatus[str]) -> None:
        paths = frozenset({MEMBERSHIP.path, FOLLOW.path})
        async with trio.open_nursery() as nursery:
            await self.environment.net.listen(
                "evil:7000",
                self.talk,
                paths=paths,
                handler_nursery=nursery,
                task_status=task_status,
            )

    async def talk(self, link: Link) -> None:
        try:
            await be_asked(link, SECRETS(), WELCOME)
            while True:
                match decode(await link.receive(), TOLD):
                    case m.Join() as join:
                        self.joins.append(join)
                        await self.order(link, join)
                    case m.Follow() as follow:
                        self.follows += 1
                        await self.lead(link, follow)
                    case _:
                        await link.send(encode(m.Heartbeat()))
        except OctopiError:
            return
        finally:
            with trio.CancelScope(shield=True):
                await link.aclose(1000, "")

    async def order(self, link: Link, join: m.Join) -> None:
        life = m.RegisterGeneration(1, "n")
        await link.send(encode(m.Joined(join.request, CLUSTER, 1, life, "credential")))
        leads = not self.is_leader and self.randomness.random() < 0.5
        self.epoch += 1
        record = m.PartitionRecord(
            0, self.epoch, 0, 1 if leads else 2, join.incarnation if leads else 1, [1, 2], [1, 2]
        )
        brokers = [m.BrokerInfo(one, "ws://evil:7000", 1, True, 0) for one in (1, 2)]
        await link.send(encode(m.InstallPartitions(1, [record], brokers)))
        await link.send(encode(m.InstallTopics(2, [TOPIC])))
        if self.is_leader or self.is_kind:
            return
        await self.pause()
        await self.forge(link, MEMBERSHIP.back | {m.AnnounceEpoch, m.InSyncAltered}, {})

    async def lead(self, link: Link, follow: m.Follow) -> None:
        session: dict[str, list[object]] = {
            "partition": [follow.partition],
            "epoch": [follow.epoch],
            "incarnation": [follow.incarnation],
            "attempt": [follow.attempt],
            "topic_id": [follow.topic_id],
        }
        begin = follow.log_end
        if self.is_kind or self.randomness.random() < 0.7:
            answer = m.Followed(
                follow.partition,
                follow.epoch,
                follow.incarnation,
                follow.attempt,
                follow.topic_id,
                min(begin, self.randomness.choice((0, begin))) if not self.is_kind else begin,
                begin,
            )
            await link.send(encode(answer))
        if not self.is_kind:
            await self.forge(link, FOLLOW.back, session)

    async def forge(
        self, link: Link, classes: frozenset[type], fixed: dict[str, list[object]]
    ) -> None:
        found = facts()
        found.plausible |= fixed
        found.plausible["epoch"] = [*found.plausible["epoch"], self.epoch, self.epoch + 1]
        forge = Forge(self.randomness, found)
        names = sorted(classes, key=lambda one: m.TYPE_NAMES[one])
        for _ in range(self.randomness.randint(1, 12)):
            self.sent += 1
            await link.send(forge.message(names))
            await self.pause()

    async def pause(self) -> None:
        clock = self.environment.clock
        await clock.sleep_until(clock.now() + self.randomness.choice((0.0, 0.001, 0.05)))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_leader", [False, True], ids=["register", "leader"])
def test_a_broker_survives_forged_orders_and_records(
    is_leader: bool, seed: int, complaints: Callable[[], list[str]]
) -> None:
    async def scene(cluster: octopi.testing.Cluster) -> None:
        evil = Evil(await cluster.environment("evil"), Random(seed), is_leader)

        async def victim(host: octopi.testing.Host) -> None:
            options = BrokerOptions("victim:7000", "data", ["ws://evil:7000"], SECRETS)
            await run_broker(host.environment, options, stop=trio.Event())
            raise AssertionError("it has ended")

        async with trio.open_nursery() as nursery:
            await nursery.start(evil.serve)
            program = cluster.program("victim", victim, restart_s=None)
            while evil.sent < BATCH:
                await cluster.sleep(1.0)
                if cluster.random.random() < 0.05:
                    cluster.kill("victim", restart_s=0.1)
            evil.is_kind = True
            for _ in range(3):
                cluster.kill("victim", restart_s=0.1)
                before = len(evil.joins)
                await cluster.eventually(lambda: len(evil.joins) > before)  # noqa: B023
            await cluster.sleep(5.0)
            assert program.is_up
            tree = cluster._simulated.nodes["victim"].host.disk.tree
            assert sorted(tree.root.cached) == ["data"]
            assert [one for one in names_below(tree.root) if not is_plain(one)] == []
            nursery.cancel_scope.cancel()

    octopi.testing.run(scene, brokers=1, partitions=1, oracle=False, timeout_s=3_000)
    assert complaints() == []


def names_below(directory: Directory) -> Iterator[str]:
    """Every name of a file or folder; this disk takes any, also ``..``."""
    for name, node in directory.cached.items():
        yield name
        if isinstance(node, Directory):
            yield from names_below(node)


def is_plain(name: str) -> bool:
    return name.isascii() and name.isprintable() and name not in {"", ".", ".."}
