"""What the first acceptors of a partition choose while the network is split, or a disk is lost.

The acceptors and proposers are those of the product; each broker computes the first acceptors by
itself, from the cluster record.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from octopi.agreement.acceptor import AnswerProposer
from octopi.agreement.acceptors import Acceptors
from octopi.agreement.proposer import ChangeMade, ConcludeChange, Proposer, SendToAcceptor
from octopi.agreement.values import first_value
from octopi.identifiers import ClusterId, DirectoryId, InstanceId, PartitionId
from octopi.ring.cluster_record import ClusterRecord, PartitionKind, formed
from octopi.ring.points import RING_SIZE
from octopi.wire.agreement import AgreedValue
from octopi.wire.ring import RingNode
from tests.ring.nodes import node
from tests.ring.world import BrokenRule

PARTITION = PartitionId(0)
_INSTANCE = InstanceId(1)


@attrs.define
class View:
    """A broker, what it knows of the cluster, and whom it sees."""

    node: RingNode
    record: ClusterRecord
    sees: tuple[RingNode, ...]
    acceptors: Acceptors = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.acceptors = Acceptors(self.node.identity, lambda _: first_of(self))


def first_of(view: View) -> AgreedValue:
    """The first value of the partition, as a broker computes it."""
    acceptors = view.record.first_acceptors(PartitionKind.LOG, PARTITION)
    assert acceptors is not None
    return first_value(acceptors, b"")


def choose(
    views: Collection[View], by: View, name: bytes, seen: AgreedValue | None = None
) -> AgreedValue | None:
    """What is chosen if *by* proposes *name* and reaches only *views*; None: nothing.  *seen*: what
    the proposer knows to be chosen."""
    identity, first = by.node.identity, seen or first_of(by)
    proposer = Proposer(_INSTANCE, identity.broker, by.node.incarnation, first, lambda: 0.0)
    effects = proposer.ask(1, lambda value: value.with_content(name), 0.0)
    reached = {one.node.identity: one for one in views}
    while effects:
        effect = effects.pop(0)
        match effect:
            case SendToAcceptor(acceptor, message) if acceptor in reached:
                for answer in reached[acceptor].acceptors.receive(message):
                    if isinstance(answer, AnswerProposer):
                        effects += proposer.receive(answer.message, 0.0)
            case ConcludeChange(_, ChangeMade(value)):
                return value
            case _:
                pass
    return None


def _views(count: int, replicas: int) -> list[View]:
    nodes = tuple(node(one, point=one * (RING_SIZE // 7)) for one in range(1, count + 1))
    record = formed(ClusterId("0123456789abcdef"), 4, replicas, nodes)
    return [View(one, record, nodes) for one in nodes]


def two_groups() -> None:
    """1, 2 and 3 are split from 4, 5 and 6, and each side begins with the partition."""
    views = _views(6, 3)
    sides = [views[:3], views[3:]]
    for side in sides:
        for view in side:
            view.sees = tuple(one.node for one in side)
    chosen = [choose(side, side[0], b"side") for side in sides]
    if all(one is not None for one in chosen):
        raise BrokenRule("two groups decide about one partition")
    if chosen == [None, None]:
        raise BrokenRule("no side has a majority of five acceptors")


def an_acceptor_without_its_disk() -> None:
    """A and B choose a value; A loses its disk; A and C, which know nothing, choose another."""
    a, b, c = _views(3, 3)
    if choose([a, b], a, b"one") is None:
        raise BrokenRule("a majority does not choose")
    wiped = attrs.evolve(a.node, directory=DirectoryId("new"))
    a = View(wiped, a.record, a.sees)
    if choose([a, c], c, b"other") is not None:
        raise BrokenRule("two first values are chosen")


FIRST_ACCEPTORS = [two_groups, an_acceptor_without_its_disk]
