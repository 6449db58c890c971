"""Random walks of brokers that decide about a partition: anything that may go wrong does."""

from __future__ import annotations

from octopi.coordination.election import ElectionGoal
from octopi.identifiers import BrokerId
from octopi.replication.partition_replica import Role
from tests.replication.cluster import Node
from tests.ring.partition_world import Host, PartitionWorld


class Walk:
    """One walk, chosen by its world's generator."""

    def __init__(self, world: PartitionWorld) -> None:
        self.world = world
        self.random = world.random
        self.steps = {
            self.deliver: 26.0,
            self.flow: 3.0,
            self.sync: 10.0,
            self.pass_time: 6.0,
            self.pulse: 4.0,
            self.produce: 5.0,
            self.stream: 5.0,
            self.follow: 3.0,
            self.device_is_quick: 2.0,
            self.settle: 0.6,
            self.change_in_sync: 2.0,
            self.hold: 0.4,
            self.move: 0.4,
            self.lose: 1.0,
            self.cut_off: 0.3,
            self.heal: 0.6,
            self.stop: 0.4,
            self.stop_between_effects: 0.3,
            self.lose_power: 0.2,
            self.start: 1.5,
        }

    def run(self, count: int) -> None:
        """Take *count* steps."""
        for step in self.random.choices(list(self.steps), list(self.steps.values()), k=count):
            step()
            self.world.check()

    def host(self) -> Host:
        """Any broker."""
        return self.random.choice(list(self.world.hosts.values()))

    def node(self) -> Node:
        """Any broker that may have a replica."""
        return self.random.choice(list(self.world.nodes.values()))

    def leader(self) -> Node | None:
        """Any broker that takes itself for the leader."""
        leaders = [one for one in self.world.nodes.values() if one.leads]
        return self.random.choice(leaders) if leaders else None

    # --- steps -------------------------------------------------------------------------------

    def deliver(self) -> None:
        network = self.world.network
        if network:
            at = self.random.randrange(len(network))
            self.world.deliver(at, keep=self.random.random() < 0.05)

    def flow(self) -> None:
        for _ in range(len(self.world.network)):
            self.world.deliver(0)

    def sync(self) -> None:
        self.world.sync(self.host().broker)

    def pass_time(self) -> None:
        self.world.pass_time(self.random.choice([0.01, 0.05, 0.3]))

    def pulse(self) -> None:
        for host in self.world.hosts.values():
            self.world.pulse(host.broker)

    def produce(self) -> None:
        node = self.leader()
        if node is not None:
            topic = self.world.topics[0]
            known = len(node.logs[topic].rows)
            if known < 8:
                number = max(0, known + self.random.choice([0, 0, 0, -1]))
                node.perform(node.produce(topic, (0, number)))

    def stream(self) -> None:
        node = self.leader()
        if node is not None:
            for broker in self.world.nodes:
                node.stream(broker, self.world.topics[0], self.random.randrange(4))

    def follow(self) -> None:
        node = self.node()
        if node.replica is not None and node.replica.role is Role.FOLLOWER:
            node.wants_stream = False
            self.world.follow(node)

    def device_is_quick(self) -> None:
        node = self.node()
        if node.replica is not None:
            for topic in sorted(node.wants_flush):
                node.perform(node.flush(topic))

    def settle(self) -> None:
        self.world.settle(self.random.choice([0.2, 2.0]))

    def change_in_sync(self) -> None:
        node, broker = self.leader(), BrokerId(self.node().broker)
        leader = None if node is None or node.replica is None else node.replica.leader
        if node is None or node.replica is None or leader is None or leader.pending is not None:
            return
        if leader.may_join(broker):
            node.perform(node.replica.propose(leader.joining(broker)))
        elif leader.may_leave(broker):
            node.perform(node.replica.propose(leader.leaving(broker)))

    def hold(self) -> None:
        host = self.host()
        if host.partition is not None:
            goal = ElectionGoal(leader=BrokerId(self.node().broker))
            self.world.do(host, host.partition.hold(goal, host.now))

    def move(self) -> None:
        host = self.host()
        if host.partition is not None:
            group = self.random.sample(list(self.world.hosts.values()), self.random.choice([3, 5]))
            acceptors = [one.identity for one in group]
            self.world.do(host, host.partition.move(acceptors, host.now))

    def lose(self) -> None:
        if self.world.network:
            self.world.network.pop(self.random.randrange(len(self.world.network)))

    def cut_off(self) -> None:
        side = self.random.sample(list(self.world.hosts), self.random.choice([1, 2]))
        self.world.cut = frozenset(side)

    def heal(self) -> None:
        self.world.cut = frozenset()

    def stop(self) -> None:
        self.host().stop(self.random.randrange(3))

    def stop_between_effects(self) -> None:
        network = self.world.network
        if network:
            at = self.random.randrange(len(network))
            to = self.world.hosts[BrokerId(network[at].to)]
            self.world.deliver(at, limit=self.random.randrange(4))
            self.world.follow_process(to)

    def lose_power(self) -> None:
        host = self.host()
        host.stop()
        if host.node is not None:
            host.node.lose_power(lambda synced, end: self.random.randint(synced, end))

    def start(self) -> None:
        host = self.host()
        if host.partition is None:
            host.start()


class LeaseWalk(Walk):
    """A walk in which leaders are replaced all the time, most messages come soon, and clocks
    count."""

    def __init__(self, world: PartitionWorld) -> None:
        super().__init__(world)
        self.steps = {
            self.flow_most: 12.0,
            self.deliver: 6.0,
            self.sync: 3.0,
            self.pass_time: 14.0,
            self.pulse: 10.0,
            self.pulse_one: 6.0,
            self.hold: 1.0,
            self.move: 1.0,
            self.lose: 1.0,
            self.cut_off: 2.0,
            self.heal: 1.5,
            self.stop: 0.7,
            self.start: 3.0,
            self.follow: 1.0,
        }

    def flow_most(self) -> None:
        """Nearly all messages arrive, the others later."""
        for _ in range(2):
            for broker in self.world.hosts:
                self.world.sync(broker)
            for _ in range(len(self.world.network)):
                if self.random.random() < 0.9:
                    self.world.deliver(0)
                else:
                    self.world.network.append(self.world.network.pop(0))

    def pulse_one(self) -> None:
        self.world.pulse(self.host().broker)


def lease_walk(seed: int, steps: int, **options: int) -> PartitionWorld:
    """A random walk of so many steps, in which leaders are replaced all the time."""
    world = PartitionWorld(seed, **options)
    LeaseWalk(world).run(steps)
    return world


def walk(seed: int, steps: int, **options: int) -> PartitionWorld:
    """A random walk of so many steps."""
    world = PartitionWorld(seed, **options)
    Walk(world).run(steps)
    return world
