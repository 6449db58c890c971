"""The names of a cluster's hosts, and their roles."""

from __future__ import annotations

from octopi.simulation.cluster import REGISTER, Node, SimulatedCluster
from octopi.testing.errors import MisuseError
from octopi.testing.host_words import (
    WORDS,
    followers_of,
    host_of,
    is_word,
    partition_of,
    topic_of,
)


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
    def registers(self) -> list[str]:
        """The hosts of all registers: ``register``, ``register-2`` and so on."""
        return [node.name for node in self._simulated.registers]

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
        return host_of(f"leader:{_log(topic, partition)}", self._simulated)

    def followers(self, topic: str, partition: int | None = None) -> list[str]:
        """The hosts of the other replicas of a topic's partition."""
        record = topic_of(topic, self._simulated.decided.state)
        return followers_of(partition_of(record, partition), self._simulated)

    def coordinator(self, topic: str) -> str:
        """The host of the broker that deals with the members of the topic's subscriptions."""
        return host_of(f"coordinator:{topic}", self._simulated)

    def sequencer(self, topic: str, partition: int | None = None) -> str:
        """The host of the broker that gives the messages of a topic in memory their order.

        Raises:
          MisuseError: if there is none: nothing was sent to the topic yet.
        """
        return host_of(f"sequencer:{_log(topic, partition)}", self._simulated)

    def host(self, word: str) -> str:
        """The host of that name, or the one that *word* means now (`octopi.testing.host_words`).

        Raises:
          MisuseError: if there is none.
        """
        return self._node(word).name

    def _node(self, host: str) -> Node:
        if host not in self._simulated.nodes and is_word(host):
            host = host_of(host, self._simulated)
        node = self._simulated.nodes.get(host)
        if node is None:
            names = ", ".join(self._simulated.nodes)
            raise MisuseError(
                f"there is no host {host!r}; there are {names}, and words such as leader:TOPIC "
                f"and register:2 ({', '.join(WORDS)})"
            )
        return node

    def _process(self, host: str, what: str) -> Node:
        """The node on *host*, if its process may be ended or paused."""
        node = self._node(host)
        if node.name in self._immortal:
            raise MisuseError(
                f"can't {what} {host}: its program is the test itself; "
                "put what shall suffer that into a function, and start it with cluster.program"
            )
        return node


def _log(topic: str, partition: int | None) -> str:
    return topic if partition is None else f"{topic}/{partition}"
