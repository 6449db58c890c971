"""Any order of messages, crashes and power losses: the promises hold after each step.

The same steps are taken twice: by Hypothesis, which finds short ways to trouble and makes
them shorter, and by walks that favour progress and so come to long histories.
"""

import random
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from octopi.errors import RefusedError
from tests.replication.cluster import Cluster, Node

BROKERS = st.integers(1, 3)
SOME = st.integers(0, 1000)
"""Which of several: taken modulo their number."""

WALKS: Final = 60


class AnyOrder(RuleBasedStateMachine):
    """A cluster to which anything happens."""

    brokers = 3
    topics = 1
    min_insync = 1
    recovers = False
    """Whether those that lost data may choose a leader, and committed records are given up."""

    @initialize()
    def begin(self) -> None:
        self.cluster = Cluster(self.brokers, self.topics, self.min_insync)
        self.announcements = 0

    def node(self, which: int) -> Node:
        nodes = list(self.cluster.nodes.values())
        return nodes[which % len(nodes)]

    def leader(self, which: int) -> Node | None:
        """One of those that believe to lead; usually there is one."""
        leaders = [one for one in self.cluster.nodes.values() if one.leads]
        return leaders[which % len(leaders)] if leaders else None

    # --- what makes progress ---------------------------------------------------------

    @rule(which=SOME, topic=SOME, producer=st.integers(0, 1), skip=st.integers(-2, 1))
    def produce(self, which: int, topic: int, producer: int, skip: int) -> None:
        """The next record of a producer, an earlier one again, or one too far."""
        node = self.leader(which)
        if node is None or node.replica is None:
            return
        name = self.cluster.topics[topic % len(self.cluster.topics)]
        rows = node.logs[name].rows
        following = sum(message[0] == producer for _, message in rows)
        if following < 4:
            node.perform(node.produce(name, (producer, max(0, following + skip))))

    @rule(which=SOME, follower=SOME, topic=SOME, count=st.integers(0, 3))
    def stream(self, which: int, follower: int, topic: int, count: int) -> None:
        node = self.leader(which)
        if node is not None:
            name = self.cluster.topics[topic % len(self.cluster.topics)]
            node.stream(self.node(follower).broker, name, count)

    @rule(at=SOME, keep=st.booleans())
    @precondition(lambda self: self.cluster.network)
    def deliver(self, at: int, keep: bool) -> None:
        """Any message, in any order, perhaps not for the last time."""
        self.cluster.deliver(at % len(self.cluster.network), keep=keep)

    @rule()
    def deliver_all(self) -> None:
        for _ in range(len(self.cluster.network)):
            self.cluster.deliver(0)

    @rule(which=SOME)
    def open_stream(self, which: int) -> None:
        self.cluster.open_stream(self.node(which))

    @rule(which=SOME, at=SOME)
    def tell(self, which: int, at: int) -> None:
        """Usually the record in force; it may also be one that was long on its way."""
        records = self.cluster.records
        late = at % len(records) if at % 4 == 0 else 0
        self.cluster.tell(self.node(which), records[-1 - late])

    @rule(which=SOME)
    def device_is_quick(self, which: int) -> None:
        node = self.node(which)
        if node.replica is not None:
            for topic in sorted(node.wants_flush):
                node.perform(node.flush(topic))

    @rule(which=SOME, now=st.floats(0, 10))
    def tick(self, which: int, now: float) -> None:
        node = self.node(which)
        if node.replica is not None:
            node.perform(node.replica.tick(now))

    @rule(which=SOME, other=SOME)
    def propose(self, which: int, other: int) -> None:
        """The in-sync set changes for no reason."""
        node, broker = self.leader(which), self.node(other).broker
        if node is None or node.replica is None or node.replica.leader is None:
            return
        leader = node.replica.leader
        if leader.pending is not None:
            return
        if leader.may_join(broker):
            node.perform(node.replica.propose(leader.joining(broker)))
        elif leader.may_leave(broker):
            node.perform(node.replica.propose(leader.leaving(broker)))

    # --- leadership ------------------------------------------------------------------

    @rule()
    @precondition(lambda self: self.announcements < 8)
    def announce(self) -> None:
        self.announcements += 1
        self.cluster.announce()

    @rule(which=SOME)
    def hear_announcement(self, which: int) -> None:
        self.cluster.announced_to(self.node(which))

    @rule()
    def conclude(self) -> None:
        self.cluster.conclude(recovers=self.recovers)

    @rule(which=SOME)
    def change_the_leader(self, which: int) -> None:
        """All that belongs to a change, so that long histories come about."""
        self.cluster.announce()
        for broker in sorted(self.cluster.nodes):
            if broker != self.node(which).broker:
                self.cluster.announced_to(self.cluster.nodes[broker])
        self.deliver_all()
        if self.cluster.conclude(recovers=self.recovers):
            for node in self.cluster.nodes.values():
                self.cluster.tell(node)
                self.cluster.open_stream(node)

    @rule()
    def restart_the_register(self) -> None:
        self.cluster.restart_register()

    @rule()
    def restart_the_register_from_a_snapshot(self) -> None:
        self.cluster.restart_register(self.cluster.controller.state.entries())

    # --- failures --------------------------------------------------------------------

    @rule(at=SOME)
    @precondition(lambda self: self.cluster.network)
    def lose(self, at: int) -> None:
        self.cluster.network.pop(at % len(self.cluster.network))

    @rule(which=SOME, forgets=st.booleans(), copies=st.booleans())
    def crash(self, which: int, forgets: bool, copies: bool) -> None:
        node = self.node(which)
        node.crash(forgets_highwater=forgets)
        if copies:
            node.copy()

    @rule(which=SOME, cut=SOME)
    def lose_power(self, which: int, cut: int) -> None:
        self.cut(self.node(which), cut)

    def cut(self, node: Node, cut: int) -> None:
        """The machine stops; how much of the page cache was written is anybody's guess.  A sole
        replica loses then what it had not flushed, as its topics accept."""
        if self.brokers == 1:
            node.crash()
        else:
            node.lose_power(lambda synced, end: synced + cut % (end - synced + 1))

    @rule(which=SOME)
    def lose_the_connection(self, which: int) -> None:
        """The register notices that a broker is gone; it may be there all the same."""
        node = self.node(which)
        self.cluster.controller.left(node.broker, node.incarnation)

    @rule(which=SOME, others=st.integers(0, 63))
    def tell_who_is_away(self, which: int, others: int) -> None:
        """Late or never: it is a hint."""
        node = self.node(which)
        if node.replica is not None:
            away = frozenset(one for one in self.cluster.nodes if others >> one & 1)
            node.perform(node.replica.told_away(away, 0.0))

    @rule(at=SOME, limit=st.integers(0, 3), cut=SOME, power=st.booleans())
    @precondition(lambda self: self.cluster.network)
    def stop_between_effects(self, at: int, limit: int, cut: int, power: bool) -> None:
        at %= len(self.cluster.network)
        to = self.cluster.network[at].to
        self.cluster.deliver(at, limit=limit)
        node = self.cluster.nodes.get(to)
        if power and node is not None and node.replica is None:
            self.cut(node, cut)

    @rule(which=SOME, limit=st.integers(0, 3), power=st.booleans())
    def stop_while_accepting(self, which: int, limit: int, power: bool) -> None:
        node = self.node(which)
        self.cluster.announced_to(node, limit)
        if power and node.replica is None:
            self.cut(node, 0)

    @rule(which=SOME, restores=st.booleans(), registers=st.booleans(), hears=st.booleans())
    def restart(self, which: int, restores: bool, registers: bool, hears: bool) -> None:
        """Perhaps with an older copy of the data directory.  A sole replica would lose with it
        what came since."""
        node = self.node(which)
        if node.replica is None:
            if restores and self.brokers > 1:
                node.restore()
            node.start()
        if registers and node.replica is not None:
            is_live = self.cluster.controller.is_live(node.broker)
            if not (node.replica.registered and is_live):
                try:
                    self.cluster.register(node, hears=hears)
                except RefusedError:
                    node.crash()  # an older copy; its next life counts one more

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.check()


class AllLosePower(AnyOrder):
    """Power fails everywhere, too, and those that lost data choose a leader."""

    recovers = True

    @rule(
        count=st.integers(0, 3),
        cuts=st.tuples(SOME, SOME, SOME),
        hears=st.lists(st.integers(0, 2), max_size=3),
    )
    def all_lose_power(self, count: int, cuts: tuple[int, int, int], hears: list[int]) -> None:
        """While records are sent, of which each device has some; those that come back may
        choose."""
        nodes = list(self.cluster.nodes.values())
        for number in range(count):
            for topic in range(self.topics):
                self.produce(0, topic, number % 2, 0)
                for follower in range(self.brokers):
                    self.stream(0, follower, topic, 3)
            self.deliver_all()
        for node, cut in zip(nodes, cuts, strict=True):
            self.cut(node, cut)
        for node in nodes:
            self.restart(node.broker - 1, restores=False, registers=True, hears=True)
        self.announce()
        for one in hears:
            self.hear_announcement(one)
        self.deliver_all()
        self.conclude()


@pytest.mark.parametrize(
    ("brokers", "topics", "min_insync"), [(3, 1, 1), (3, 2, 1), (5, 1, 2), (1, 1, 1)]
)
def test_promises_hold_in_any_order_of_messages_and_failures(
    brokers: int, topics: int, min_insync: int
) -> None:
    class Case(AnyOrder):
        pass

    Case.brokers, Case.topics, Case.min_insync = brokers, topics, min_insync
    run(Case)


@pytest.mark.parametrize("topics", [1, 2])
def test_after_all_brokers_lose_power_the_promises_hold_but_for_accepted_losses(
    topics: int,
) -> None:
    class Case(AllLosePower):
        pass

    Case.brokers, Case.topics, Case.min_insync = 3, topics, 1
    run(Case)


def run(case: type[AnyOrder]) -> None:
    run_state_machine_as_test(
        case,
        settings=settings(
            max_examples=100,
            stateful_step_count=80,
            deadline=None,
            phases=[Phase.reuse, Phase.generate, Phase.shrink],  # explaining traces every line
            suppress_health_check=list(HealthCheck),
        ),
    )


class Walk(AnyOrder):
    """The same steps, chosen by a seeded generator."""

    def __init__(self, brokers: int, topics: int, min_insync: int) -> None:
        self.brokers, self.topics, self.min_insync = brokers, topics, min_insync
        self.begin()

    def step(self, choice: random.Random) -> None:
        name = choice.choices(list(STEPS), [weight for weight, _ in STEPS.values()])[0]
        if name in {"deliver", "lose", "stop_between_effects"} and not self.cluster.network:
            return
        if name == "announce" and self.announcements >= 8:
            return
        arguments = {key: draw(choice) for key, draw in STEPS[name][1].items()}
        getattr(self, name)(**arguments)
        self.cluster.check()


def some(choice: random.Random) -> int:
    return choice.randrange(1000)


def few(choice: random.Random) -> int:
    return choice.randrange(4)


def maybe(choice: random.Random) -> bool:
    return choice.random() < 0.5


def seldom(choice: random.Random) -> bool:
    return choice.random() < 0.15


def rarely(choice: random.Random) -> bool:
    return choice.random() < 0.03


def mostly(choice: random.Random) -> bool:
    return choice.random() < 0.8


def nearly_always(choice: random.Random) -> bool:
    return choice.random() < 0.97


def mostly_next(choice: random.Random) -> int:
    return choice.choice([0, 0, 0, -1, 1, -2])


def moment(choice: random.Random) -> float:
    return choice.random() * 10


def one_of_two(choice: random.Random) -> int:
    return choice.randrange(2)


STEPS: Final[dict[str, tuple[float, dict[str, Callable[[random.Random], Any]]]]] = {
    "produce": (6, {"which": some, "topic": some, "producer": one_of_two, "skip": mostly_next}),
    "stream": (8, {"which": some, "follower": some, "topic": some, "count": few}),
    "deliver": (12, {"at": some, "keep": seldom}),
    "deliver_all": (2, {}),
    "open_stream": (3, {"which": some}),
    "tell": (4, {"which": some, "at": some}),
    "device_is_quick": (3, {"which": some}),
    "tick": (2, {"which": some, "now": moment}),
    "propose": (2.5, {"which": some, "other": some}),
    "announce": (0.5, {}),
    "hear_announcement": (2, {"which": some}),
    "conclude": (1, {}),
    "change_the_leader": (1, {"which": some}),
    "restart_the_register": (0.1, {}),
    "restart_the_register_from_a_snapshot": (0.1, {}),
    "lose": (1, {"at": some}),
    "lose_the_connection": (0.5, {"which": some}),
    "tell_who_is_away": (0.5, {"which": some, "others": some}),
    "crash": (0.5, {"which": some, "forgets": maybe, "copies": maybe}),
    "lose_power": (0.5, {"which": some, "cut": some}),
    "stop_between_effects": (0.3, {"at": some, "limit": few, "cut": some, "power": maybe}),
    "stop_while_accepting": (0.2, {"which": some, "limit": few, "power": maybe}),
    "restart": (
        3,
        {"which": some, "restores": rarely, "registers": mostly, "hears": nearly_always},
    ),
}


@pytest.mark.parametrize(
    ("brokers", "topics", "min_insync"), [(3, 1, 1), (3, 2, 1), (5, 1, 2), (2, 1, 1), (3, 1, 2)]
)
def test_promises_hold_in_long_histories(brokers: int, topics: int, min_insync: int) -> None:
    committed = 0
    for seed in range(WALKS):
        walk, choice = Walk(brokers, topics, min_insync), random.Random(seed)
        for _ in range(300):
            walk.step(choice)
        committed += sum(len(rows) for rows in walk.cluster.committed.values())
    assert committed > WALKS / 2, "walks come to something"
