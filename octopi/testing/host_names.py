"""The names of a cluster's hosts, and their roles."""

from __future__ import annotations

from octopi.identifiers import PartitionId
from octopi.simulation.cluster import REGISTER, Node, SimulatedCluster
from octopi.testing.errors import MisuseError


class HostNames:
    """The hosts of one cluster, by their names."""

    def __init__(self, simulated: SimulatedCluster) -> None:
        self._simulated = simulated
        self._immortal: set[str] = set()
        """Hosts of clients whose program is the test itself."""

    @property
    def register(self) -> str:
        """The host of the register."""
        return REGISTER

    @property
    def brokers(self) -> list[str]:
        """The hosts of the brokers: ``broker-1`` and so on."""
        return [node.name for node in self._simulated.brokers]

    @property
    def hosts(self) -> list[str]:
        """All hosts: the register, the brokers, then programs and clients in the order in which
        they were added."""
        return list(self._simulated.nodes)

    def is_up(self, host: str) -> bool:
        """Whether a process runs on *host*, even if it is paused."""
        return self._node(host).host.is_up

    def is_mortal(self, host: str) -> bool:
        """Whether *host* has a process that may be killed, running or not.  Clients of the test
        itself have none."""
        return self._node(host).name not in self._immortal

    def leader(self, topic: str, partition: int | None = None) -> str:
        """The host of the broker that leads a topic's partition, as the register decided last.
        That broker may be down.

        *partition* may be omitted for a topic with only one.

        Raises:
          MisuseError: if there is no such topic or partition, or if it has no leader yet.
        """
        number = self._partition(topic, partition)
        leader = self._simulated.leader(number)
        if not leader:
            raise MisuseError(f"no broker was appointed yet to lead {topic}/{number}")
        return leader

    def followers(self, topic: str, partition: int | None = None) -> list[str]:
        """The hosts of the other replicas of a topic's partition."""
        number = self._partition(topic, partition)
        record = self._simulated.decided.state.partitions[number]
        return [self._simulated.host_of(one) for one in record.replicas if one != record.leader]

    def _partition(self, topic: str, partition: int | None) -> PartitionId:
        state = self._simulated.decided.state
        found = state.topic(topic)
        if found is None:
            known = [one.topic for one in state.topics_after("", state.topic_count)]
            raise MisuseError(
                f"there is no topic {topic!r}; there is {', '.join(known) or 'none at all'}: "
                "make it first, with a client's create_topic"
            )
        if partition is None and len(found.partitions) == 1:
            return found.partitions[0]
        if partition not in found.partitions:
            has = f"{topic!r} has the partitions {', '.join(map(str, found.partitions))}"
            raise MisuseError(f"{has}: {'name one' if partition is None else f'not {partition}'}")
        return PartitionId(partition)

    def _node(self, host: str) -> Node:
        node = self._simulated.nodes.get(host)
        if node is None:
            names = ", ".join(self._simulated.nodes)
            raise MisuseError(f"there is no host {host!r}; there are {names}")
        return node

    def _process(self, host: str, what: str) -> Node:
        """The node on *host*, if its process may be ended or paused."""
        node = self._node(host)
        if host in self._immortal:
            raise MisuseError(
                f"can't {what} {host}: its program is the test itself; "
                "put what shall suffer that into a function, and start it with cluster.program"
            )
        return node
