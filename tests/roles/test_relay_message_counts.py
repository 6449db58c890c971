"""How many messages each relay sends and gets for what a producer sends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import combinations, count

import attrs

from octopi.identifiers import BrokerId, PartitionId, TopicName
from octopi.relay.messages import (
    RelayBeat,
    RelayIncoming,
    RelayMessage,
    RelaySubmit,
    RelaySubmitted,
    RelayWritten,
)
from octopi.relay.receiver import ProduceOutcome, RelayReceipt
from octopi.testing import Cluster, simulated
from tests.kit.relays import RelaysOfHosts
from tests.relay.parts import produced

_PARTITIONS = 24
_PRODUCERS = count(1)


@attrs.define
class Traffic:
    """What relays send each other from now on, but for beats: by kind, sender and receiver."""

    relays: RelaysOfHosts
    sent: Counter[tuple[type[RelayMessage], str, str]] = attrs.field(factory=Counter)

    def __attrs_post_init__(self) -> None:
        for name, node in self.relays.running().items():
            assert node.links is not None
            pass_on = node.links.send

            def send(
                to: BrokerId,
                partition: PartitionId,
                message: RelayMessage,
                name: str = name,
                pass_on: Callable[[BrokerId, PartitionId, RelayMessage], None] = pass_on,
            ) -> None:
                if not isinstance(message, RelayBeat):
                    self.sent[type(message), name, self.relays.name_of(to)] += 1
                pass_on(to, partition, message)

            node.links.send = send  # type: ignore[method-assign]

    def of(self, name: str) -> int:
        """How many messages that relay sent and got."""
        return sum(number for (_, *who), number in self.sent.items() if name in who)

    @property
    def kinds(self) -> dict[type, int]:
        found: Counter[type] = Counter()
        for (kind, *_), number in self.sent.items():
            found[kind] += number
        return dict(found)


async def produce(
    cluster: Cluster, relays: RelaysOfHosts, receiver: str, topic: str, messages: int = 1
) -> None:
    """Have that relay receive as many messages, one after the other."""
    node = relays.running()[receiver]
    name = TopicName(topic)
    partition = node.partitions[node.mesh.partition_of(name)]
    for _ in range(messages):
        outcomes: list[ProduceOutcome] = []
        records = produced(next(_PRODUCERS), [b"one"])
        wall_ms = node.environment.clock.wall_ms()
        partition.produce(node.mesh.topic_id(name), records, 1, wall_ms, outcomes.append)
        await cluster.eventually(partial(bool, outcomes), "there is a receipt")
        assert isinstance(outcomes[0], RelayReceipt)
    await relays.alike()


async def first_of(cluster: Cluster, relays: RelaysOfHosts, topic: str) -> list[str]:
    """Have the stream begin; return the relays of its set, the sequencer first."""
    node = next(iter(relays.running().values()))
    number = node.mesh.partition_of(TopicName(topic))
    members = relays.members(number)
    [sequencer] = {relays.name_of(one.sequencer) for one in members.values()}
    await produce(cluster, relays, sequencer, topic)
    await cluster.sleep(0.5)  # what is repeated has come
    return [sequencer, *(one for one in members if one != sequencer)]


@simulated(brokers=1, oracle=False)
async def test_a_message_costs_the_sequencer_six_messages_and_each_other_member_five(
    cluster: Cluster,
) -> None:
    relays = RelaysOfHosts(cluster, "abcd", partitions=1)
    relays.start()
    await relays.alike()
    sequencer, *members = await first_of(cluster, relays, "prices")
    [outside] = set(relays.names) - {sequencer, *members}

    traffic = Traffic(relays)
    await produce(cluster, relays, sequencer, "prices")
    # Published to two; each of three tells two others how far it has written.
    assert traffic.kinds == {RelayIncoming: 2, RelayWritten: 6}
    assert traffic.of(sequencer) == 2 + 4
    assert [traffic.of(one) for one in members] == [1 + 4, 1 + 4]
    assert traffic.of(outside) == 0

    traffic.sent.clear()
    await produce(cluster, relays, members[0], "prices")
    assert traffic.kinds == {
        RelaySubmit: 1, RelaySubmitted: 1, RelayIncoming: 2, RelayWritten: 6,
    }  # fmt: skip

    await produce(cluster, relays, outside, "prices")  # it finds out who is the sequencer
    traffic.sent.clear()
    await produce(cluster, relays, outside, "prices")
    # It is told by all three how far they have written.
    assert traffic.kinds == {
        RelaySubmit: 1, RelaySubmitted: 1, RelayIncoming: 2, RelayWritten: 9,
    }  # fmt: skip
    assert traffic.of(outside) == 2 + 3


@simulated(brokers=1, oracle=False)
async def test_with_three_sets_that_share_no_relay_each_handles_a_third(cluster: Cluster) -> None:
    relays = RelaysOfHosts(cluster, "abcdefghi", partitions=_PARTITIONS)
    relays.start()
    await relays.alike()
    mesh = next(iter(relays.running().values())).mesh
    members = {one: set(relays.members(one)) for one in range(_PARTITIONS)}
    numbers = next(
        some
        for some in combinations(members, 3)
        if len(set[str]().union(*(members[one] for one in some))) == 9
    )
    names = [TopicName(f"prices-{number}") for number in range(1_000)]
    topics = [
        next(name for name in names if mesh.partition_of(name) == number) for number in numbers
    ]
    sets = [await first_of(cluster, relays, one) for one in topics]

    traffic = Traffic(relays)
    await produce(cluster, relays, sets[0][0], topics[0], 9)
    alone = {one: traffic.of(one) for one in sets[0]}
    traffic.sent.clear()
    for topic, (sequencer, *_) in zip(topics, sets, strict=True):
        await produce(cluster, relays, sequencer, topic, 3)
    for one in sets:
        assert [traffic.of(name) for name in one] == [3 * 6, 3 * 5, 3 * 5]
    assert max(alone.values()) == 3 * max(traffic.of(one) for one in relays.names)
