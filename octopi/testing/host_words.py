"""Hosts by what they are at the moment: ``leader:orders``, ``register:2``, ``sequencer:prices``.

Each fault of a cluster takes such a word in the place of a host's name.  It means the host that is
it when the fault strikes, so a fault that is planned strikes whoever is it then.

================================ =================================================================
word                             means
================================ =================================================================
``register:2``                   the second register; ``register:1`` is ``register``
``active``                       the register that decides, of several
``standby``                      the first register that doesn't
``leader:orders``                who leads the topic's partition, if it has one
``leader:orders/3``              who leads its partition 3
``follower:orders/3``            the first of its followers
``coordinator:orders``           who leads the topic's first partition: it deals with the members
                                 of the topic's subscriptions
``sequencer:prices``             who gives the messages of a topic in memory their order
``relay:prices``                 the first other member of its relay set
================================ =================================================================
"""

from __future__ import annotations

import re
from typing import Final

from octopi.coordination.cluster_state import ClusterState
from octopi.identifiers import PartitionId
from octopi.model import TopicRecord
from octopi.simulation.cluster import REGISTER, SimulatedCluster
from octopi.testing.errors import MisuseError

WORDS: Final = ("register", "leader", "follower", "coordinator", "sequencer", "relay")
ALONE: Final = ("active", "standby")
_WORD: Final = re.compile(rf"(?P<role>{'|'.join(WORDS)}):(?P<about>.+)")


def is_word(text: str) -> bool:
    """Whether *text* is one of these words, and not the name of a host."""
    return text in ALONE or _WORD.fullmatch(text) is not None


def host_of(word: str, simulated: SimulatedCluster) -> str:
    """The host that *word* means now.

    Raises:
      MisuseError: if there is none.
    """
    found = _WORD.fullmatch(word)
    if found is None:
        return _of_registers(word, simulated)
    role, about = found["role"], found["about"]
    if role == "register":
        return _numbered(about, simulated)
    topic, _, number = about.partition("/")
    if number and not number.isdecimal():
        raise MisuseError(f"{word!r}: behind the / stands the number of a partition")
    record = topic_of(topic, simulated.decided.state)
    if role == "coordinator":
        return _leader(record.topic, record.partitions[0], simulated)
    partition = partition_of(record, int(number) if number else None)
    if role in ("sequencer", "relay"):
        return _of_relays(role, record.topic, partition, simulated)
    leader = _leader(record.topic, partition, simulated)
    if role == "leader":
        return leader
    followers = followers_of(partition, simulated)
    if not followers:
        raise MisuseError(f"{word!r}: {record.topic}/{partition} has no followers")
    return followers[0]


def topic_of(topic: str, state: ClusterState) -> TopicRecord:
    """The topic of that name.

    Raises:
      MisuseError: if there is none.
    """
    found = state.topic(topic)
    if found is None:
        known = [one.topic for one in state.topics_after("", state.topic_count)]
        raise MisuseError(
            f"there is no topic {topic!r}; there is {', '.join(known) or 'none at all'}: "
            "make it first, with a client's create_topic"
        )
    return found


def partition_of(record: TopicRecord, partition: int | None) -> PartitionId:
    """*partition*, if the topic has it; None: the only one.

    Raises:
      MisuseError: if the topic has no such partition, or several.
    """
    if partition is None and len(record.partitions) == 1:
        return record.partitions[0]
    if partition not in record.partitions:
        has = f"{record.topic!r} has the partitions {', '.join(map(str, record.partitions))}"
        raise MisuseError(f"{has}: {'name one' if partition is None else f'not {partition}'}")
    return PartitionId(partition)


def followers_of(partition: PartitionId, simulated: SimulatedCluster) -> list[str]:
    """The hosts of the replicas of a partition that don't lead it."""
    record = simulated.decided.state.partitions[partition]
    return [simulated.host_of(one) for one in record.replicas if one != record.leader]


def _leader(topic: str, partition: PartitionId, simulated: SimulatedCluster) -> str:
    leader = simulated.leader(partition)
    if not leader:
        raise MisuseError(f"no broker was appointed yet to lead {topic}/{partition}")
    return leader


def _numbered(about: str, simulated: SimulatedCluster) -> str:
    names = [node.name for node in simulated.registers]
    if not about.isdecimal() or not 1 <= int(about) <= len(names):
        raise MisuseError(
            f"there is no register {about}; there are {len(names)}: `simulated(registers=3)` makes "
            "three"
        )
    return names[int(about) - 1]


def _of_registers(word: str, simulated: SimulatedCluster) -> str:
    names = [node.name for node in simulated.registers]
    active = simulated.decided.active or REGISTER
    found = [one for one in names if (one == active) == (word == "active")]
    if not found:
        raise MisuseError(f"there is no {word} register; there are {len(names)} registers")
    return found[0]


def _of_relays(role: str, topic: str, partition: PartitionId, simulated: SimulatedCluster) -> str:
    facts = simulated.relays.partitions.get(partition)
    if facts is None or facts.sequencer is None:
        raise MisuseError(
            f"{topic!r} has no sequencer: it is no topic in memory, or nothing was sent to it yet"
        )
    if role == "sequencer":
        return simulated.host_of(facts.sequencer)
    others = [one for one in facts.members if one != facts.sequencer]
    if not others:
        raise MisuseError(f"{topic!r} has no relay beside its sequencer")
    return simulated.host_of(others[0])
