"""Random walks in which brokers leave for good, while anything that may go wrong does."""

from __future__ import annotations

import attrs

from octopi.agreement.values import first_value
from octopi.coordination.election import ElectionGoal
from octopi.identifiers import BrokerId
from octopi.ring.group_steps import RingBrokers, TakeAcceptors, next_step
from octopi.ring.leaving import RemovalCheck, parts_of
from octopi.wire.ring import RingNode
from tests.replication.cluster import require
from tests.ring.nodes import node
from tests.ring.partition_walks import Walk
from tests.ring.partition_world import Host, PartitionWorld

BROKERS = 7
REPLICAS = 3
LEAVERS = 2
CLUSTER = first_value([node(99).identity], b"")
"""The agreed value about the cluster: nobody here decides about it."""


class LeavingWalk(Walk):
    """A walk in which up to two of seven brokers are ordered to leave.

    Who leaves is known to all sooner or later: each broker hears of it at a step of its own.
    """

    def __init__(self, world: PartitionWorld) -> None:
        super().__init__(world)
        self.ordered: set[BrokerId] = set()
        self.gone: set[BrokerId] = set()
        self.checks: dict[tuple[int, BrokerId], RemovalCheck] = {}
        """Of each process and each broker that leaves."""
        del self.steps[self.move]
        self.steps |= {
            self.flow: 12.0,
            self.order_to_leave: 1.5,
            self.hear_orders: 3.0,
            self.hand_over: 1.0,
            self.follow_ring: 6.0,
            self.remove: 6.0,
        }

    def place(self, broker: BrokerId) -> RingNode:
        """Partition 0 takes brokers in the order of their points."""
        directory = self.world.hosts[broker].identity.directory
        return attrs.evolve(node(broker, point=broker), directory=directory)

    # --- steps -------------------------------------------------------------------------------

    def start(self) -> None:
        host = self.host()
        if host.partition is None and host.broker not in self.gone:
            host.start()

    def order_to_leave(self) -> None:
        """Somebody orders a broker of the first group to leave, dead or alive; and when it is gone,
        one of those that may have come into the group since."""
        if not self.ordered and len(self.gone) < LEAVERS:
            first, last = (6, 7) if self.gone else (1, 5)
            self.ordered.add(BrokerId(self.random.randint(first, last)))

    def hear_orders(self) -> None:
        self.host().unwilling = frozenset(self.ordered | self.gone)

    def hand_over(self) -> None:
        host = self.host()
        if host.partition is not None and host.partition.leads and host.broker in host.unwilling:
            self.world.do(host, host.partition.hold(ElectionGoal(avoid=host.unwilling), host.now))

    def follow_ring(self) -> None:
        """Any leader takes the step of the group that is next for what it knows."""
        for host in self.world.hosts.values():
            self.take_step(host)

    def take_step(self, host: Host) -> None:
        machine = host.partition
        if machine is None or not machine.leads:
            return
        staying = tuple(self.place(one) for one in self.world.hosts if one not in host.unwilling)
        ring = RingBrokers(staying, staying)
        step = next_step(machine.value, machine.agreed, REPLICAS, ring, host.seen.live)
        if isinstance(step, TakeAcceptors):
            self.world.do(host, machine.move(step.acceptors, host.now))
        elif step is not None:
            leader = host.broker if host.broker in step.replicas else None
            goal = ElectionGoal(leader=leader, replicas=list(step.replicas))
            self.world.do(host, machine.hold(goal, host.now))

    def remove(self) -> None:
        self.remove_by(self.host())

    def remove_by(self, host: Host) -> None:
        """A broker looks whether another one that leaves may be removed, and removes it."""
        for broker in sorted(self.ordered & host.unwilling):
            machine = host.partition
            if machine is None:
                return
            check = self.checks.setdefault((host.process, broker), RemovalCheck())
            unread = check.pending(parts_of(broker, [machine], CLUSTER), [machine])
            if unread:
                self.world.do(host, machine.read(host.now))
            elif unread == []:
                self.take_out(broker)

    def take_out(self, broker: BrokerId) -> None:
        """It is gone, with its disk."""
        require(
            broker not in self.world.decided.in_sync,
            "nobody is removed who is in sync",
        )
        self.ordered.discard(broker)
        self.gone.add(broker)
        self.world.hosts[broker].stop()

    # --- the end -----------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """The faults end, all hear of the orders, and all brokers that are not gone run."""
        self.world.cut = frozenset()
        for host in self.world.hosts.values():
            if host.partition is None and host.broker not in self.gone:
                host.start()
        for one in self.world.nodes.values():
            one.wants_stream = one.replica is not None  # what was lost broke the stream
        for _ in range(40):
            if len(self.gone) == LEAVERS:
                break
            self.order_to_leave()
            for host in self.world.hosts.values():
                host.unwilling = frozenset(self.ordered | self.gone)
            for _ in range(len(self.world.hosts)):
                self.hand_over()
                self.remove()
            self.follow_ring()
            self.world.settle(0.5)
            self.world.check()
        self.world.settle(3.0)


def leaving_walk(seed: int, steps: int) -> LeavingWalk:
    """A random walk of so many steps, and what comes to rest after it."""
    world = PartitionWorld(seed, brokers=BROKERS, replicas=REPLICAS, keeping=BROKERS)
    walk = LeavingWalk(world)
    walk.run(steps)
    walk.come_to_rest()
    return walk
