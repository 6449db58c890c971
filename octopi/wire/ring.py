"""What the brokers of a cluster without a register say to each other to find each other
(`octopi.ring`), and what they tell people about it.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Annotated, Final, TypeAlias

import attrs

from octopi.field_bounds import AtMost, Grammar, MayBeMissing, Within
from octopi.identifiers import (
    BrokerId,
    DirectoryId,
    Incarnation,
    PartitionId,
    RingPoint,
    optional_id_fault,
)
from octopi.limits import (
    BOOK_COUNT,
    BROKER_ID_MAX,
    FOUNDERS_MAX,
    HOST_LABEL_BYTES_MAX,
    ID_CHARACTERS,
    NONCE_BYTES_MAX,
    REGISTERS_MAX,
    RING_BITS,
    RING_NODES_TOLD_MAX,
    TOPIC_NAME_BYTES_MAX,
    VALUES_TOLD_MAX,
)
from octopi.model import (
    Counted,
    EpochNumber,
    IncarnationNumber,
    PartitionNumber,
    TopicRecord,
    Verb,
)
from octopi.printable import controls_fault
from octopi.wire.agreement import AcceptorId, ValueChosen
from octopi.wire.common import NodeAddress, Text
from octopi.wire.declarations import (
    ANY_TOKEN,
    BROKER_TO_BROKER,
    BROKER_TO_BROKER_BACK,
    CLIENT_TO_LEADER,
    TO_CLIENT,
    answer,
    notice,
    on_the_cluster,
    request,
)
from octopi.wire.membership import BrokerStatus

_OF_NODES: Final = on_the_cluster(Verb.REPLICATE)
_Point: TypeAlias = Annotated[RingPoint, Within(0, (1 << RING_BITS) - 1)]
_Directory: TypeAlias = Annotated[DirectoryId, AtMost(NONCE_BYTES_MAX)]
_Host: TypeAlias = Annotated[str, AtMost(HOST_LABEL_BYTES_MAX), Grammar(controls_fault)]


@attrs.frozen
class RingNode:
    """A broker, and its place on the ring."""

    broker: Annotated[BrokerId, Within(1, BROKER_ID_MAX)]
    directory: _Directory
    """A broker that comes back with an empty disk has another directory, and is another node."""
    point: _Point
    host: _Host
    """The label of its machine; empty: it is the only broker there."""
    address: NodeAddress
    incarnation: Incarnation
    """Of its directory: a node with a higher one is the same node, restarted since."""

    @property
    def place(self) -> tuple[int, int]:
        """What the order of the ring is by.  Two that join at once may choose the same point; then
        their ids decide."""
        return self.point, self.broker

    @property
    def identity(self) -> AcceptorId:
        """What stays the same when the broker is restarted, perhaps at another address."""
        return AcceptorId(self.broker, self.directory)

    def is_same(self, other: RingNode) -> bool:
        """Whether *other* is this node, perhaps of another incarnation."""
        return self.identity == other.identity


RingNodes: TypeAlias = Annotated[tuple[RingNode, ...], AtMost(RING_NODES_TOLD_MAX)]


@attrs.frozen
class NodeNews:
    """An entry of an address book, as one broker tells it to another."""

    node: RingNode
    age_ms: int
    """How long ago the node was heard.  Clocks are not compared, so it is no time of day."""
    is_silent: bool = False
    """Whether it did not answer since.  It is told all the same: perhaps nobody else knows it, and
    it is on the other side of a split."""


BookNews: TypeAlias = Annotated[tuple[NodeNews, ...], AtMost(BOOK_COUNT + 1)]


# --- before a broker has a place on the ring -----------------------------------------------


@request("introduce", BROKER_TO_BROKER, needs=_OF_NODES, since=2)
@attrs.frozen
class Introduce:
    """To the broker at an address: this is the sender; who are you, and which cluster is there?
    Answer: `Introduced`."""

    request: int
    address: NodeAddress
    """The sender's."""
    founders: Annotated[tuple[NodeAddress, ...], AtMost(FOUNDERS_MAX)]
    """If the sender is a founder: all of them, sorted.  Empty: it only joins."""


@answer("introduced", BROKER_TO_BROKER_BACK, since=2)
@attrs.frozen
class Introduced:
    """Answer to `Introduce`."""

    request: int
    address: NodeAddress
    broker: Annotated[BrokerId, Within(0, BROKER_ID_MAX)]
    """0: it has no id yet."""
    directory: Annotated[DirectoryId, AtMost(NONCE_BYTES_MAX)]
    """Of its acceptor; empty if it has no id."""
    host: _Host
    incarnation: Incarnation
    founders: Annotated[tuple[NodeAddress, ...], AtMost(FOUNDERS_MAX)]
    """As in the question."""
    cluster: ValueChosen | None
    """The newest record of the cluster that the sender knows; None: it knows none."""


@request("admit", BROKER_TO_BROKER, needs=_OF_NODES, since=2)
@attrs.frozen
class Admit:
    """To a member of the ring: give me an id that no broker ever had.  If the answer is lost, so is
    the id.  Answer: `Admitted`."""

    request: int
    address: NodeAddress


@answer("admitted", BROKER_TO_BROKER_BACK, since=2)
@attrs.frozen
class Admitted:
    """Answer to `Admit`."""

    request: int
    broker: Annotated[BrokerId, Within(1, BROKER_ID_MAX)]
    taken: Annotated[tuple[_Point, ...], AtMost(BOOK_COUNT + 1)]
    """The points of the brokers that the sender knows, among which to choose one's own."""
    cluster: ValueChosen
    """The record of the cluster, in which the id is given."""


# --- on the ring ---------------------------------------------------------------------------


@request("meet", BROKER_TO_BROKER, needs=_OF_NODES, since=2)
@attrs.frozen
class Meet:
    """To a broker of which perhaps only the address is known: let us exchange our whole address
    books.  Answer: `Met`, or `RingRefused`."""

    request: int
    sender: RingNode | None
    """None: it has no point on the ring yet."""
    news: BookNews


@answer("met", BROKER_TO_BROKER_BACK, since=2)
@attrs.frozen
class Met:
    """Answer to `Meet`."""

    request: int
    node: RingNode
    is_member: bool
    news: BookNews


@request("stabilise", BROKER_TO_BROKER, needs=_OF_NODES, since=2)
@attrs.frozen
class Stabilise:
    """To the first successor: who stands between us?  It tells the successor, too, that *sender*
    takes itself for its predecessor.  Answer: `Neighbours`, or `RingRefused`."""

    request: int
    sender: RingNode
    news: BookNews


@request("probe", BROKER_TO_BROKER, needs=_OF_NODES, since=2)
@attrs.frozen
class Probe:
    """Are you a member of the ring?  Answer: `Neighbours`, or `RingRefused`."""

    request: int
    sender: RingNode


@answer("neighbours", BROKER_TO_BROKER_BACK, since=2)
@attrs.frozen
class Neighbours:
    """Answer to `Stabilise` and `Probe`."""

    request: int
    node: RingNode
    predecessor: RingNode | None
    successors: RingNodes
    news: BookNews


@request("find_holder", BROKER_TO_BROKER, needs=_OF_NODES, since=2)
@attrs.frozen
class FindHolder:
    """Who holds *key*?  Answer: `HolderAnswer`."""

    request: int
    key: _Point


@answer("holder_answer", BROKER_TO_BROKER_BACK, since=2)
@attrs.frozen
class HolderAnswer:
    """Answer to `FindHolder`: what the asked broker takes for true."""

    request: int
    node: RingNode
    """Who answers."""
    holder: RingNode | None
    """None: who answers stands neither at the key nor before it."""
    successors: RingNodes
    """Those behind the holder; without a holder, those behind the broker that answers: some of them
    may be dead, which only whoever asks finds out."""
    nearer: RingNodes
    """Brokers nearer to the key, the nearest first; of a broker that holds the key itself, its
    predecessor."""


@notice("leave_ring", BROKER_TO_BROKER, needs=_OF_NODES, since=2)
@attrs.frozen
class Leave:
    """To the neighbours: *sender* leaves the ring for good, and its neighbours are these."""

    sender: RingNode
    predecessor: RingNode | None
    successors: RingNodes


@unique
class RingRefusal(StrEnum):
    """Why a broker does not answer what it is asked."""

    NO_MEMBER = "no member"
    """It is not, or not yet, in the ring."""
    DUPLICATE_BROKER = "duplicate broker"
    """A broker with the id of the one that asks, and another directory, is alive."""
    BROKER_REMOVED = "broker removed"
    """Who asks was removed from the cluster for good."""
    ASK_AGAIN = "ask again"
    """It is being found out whether such a broker is alive."""


def ring_refusal_fault(text: str) -> str:
    return "" if text in set(RingRefusal) else f"it is none of {', '.join(RingRefusal)}"


@answer("ring_refused", BROKER_TO_BROKER_BACK, since=2)
@attrs.frozen
class RingRefused:
    """Answer to `Meet`, `Stabilise` and `Probe`."""

    request: int
    why: Annotated[str, AtMost(NONCE_BYTES_MAX), Grammar(ring_refusal_fault)]
    """A `RingRefusal`."""


# --- who is there, and who leads -----------------------------------------------------------


@attrs.frozen
class LedEpoch:
    """The sender of a pulse leads a partition in an epoch."""

    partition: PartitionNumber
    epoch: EpochNumber


@request("pulse", BROKER_TO_BROKER, needs=_OF_NODES, since=2)
@attrs.frozen
class Pulse:
    """I am there, and lead these partitions, of which the receiver is an acceptor.
    Answer: `PulseHeard`."""

    request: int
    broker: Annotated[BrokerId, Within(1, BROKER_ID_MAX)]
    incarnation: IncarnationNumber
    leads: Annotated[tuple[LedEpoch, ...], AtMost(VALUES_TOLD_MAX)]
    status: Annotated[BrokerStatus | None, MayBeMissing()] = None
    """How full its disk is, and all its replicas that take no records; None: as it told before."""


@answer("pulse_heard", BROKER_TO_BROKER_BACK, since=2)
@attrs.frozen
class PulseHeard:
    """Answer to `Pulse`: this acceptor is there, and grants the right to lead these partitions
    (`octopi.agreement.lease`), each in the epoch that the pulse names."""

    request: int
    acceptor: AcceptorId
    incarnation: IncarnationNumber
    granted: Annotated[tuple[PartitionNumber, ...], AtMost(VALUES_TOLD_MAX)]


# --- topics --------------------------------------------------------------------------------


@request("host_topic", BROKER_TO_BROKER, needs=_OF_NODES, since=2)
@attrs.frozen
class HostTopic:
    """From the leader of a topic's home to the leader of a partition: let the partition have a log
    of the topic, or go by its new options; or, if it is to go, let it have none any more.
    Answer: `TopicHosted`, once that is committed and done on the leader.

    What is ordered for one home is numbered, by the epoch of the home's leader and its count.  An
    order that comes late, from a former leader or twice, is refused.
    """

    request: int
    home: PartitionNumber
    epoch: EpochNumber
    number: Counted
    partition: PartitionNumber
    topic: TopicRecord
    is_gone: bool
    """Whether the topic was deleted."""


@answer("topic_hosted", BROKER_TO_BROKER_BACK, since=2)
@attrs.frozen
class TopicHosted:
    """Answer to `HostTopic`."""

    request: int


RingRequest: TypeAlias = Meet | Stabilise | Probe | FindHolder
RingAnswer: TypeAlias = Met | Neighbours | HolderAnswer | RingRefused
RingMessage: TypeAlias = RingRequest | RingAnswer | Leave


# --- for people ----------------------------------------------------------------------------


@attrs.frozen
class ShownNode:
    """A broker of the ring, as another one knows it."""

    node: RingNode
    heard_ms: int | None
    """How long ago it was heard; None: it was only named by others."""
    is_silent: bool
    """Whether it did not answer since."""


@request("describe_ring", CLIENT_TO_LEADER, needs=ANY_TOKEN, since=2)
@attrs.frozen
class DescribeRing:
    """Ask a broker of a cluster without a register what it knows of the ring.
    Answer: `RingDescription`."""

    request: int


@answer("ring_description", TO_CLIENT, since=2)
@attrs.frozen
class RingDescription:
    """Answer to `DescribeRing`."""

    request: int
    cluster: Annotated[str, AtMost(ID_CHARACTERS), Grammar(optional_id_fault)]
    """Empty: there is none yet."""
    partitions: int
    change: int
    """How often the record of the cluster was changed."""
    acceptors: Annotated[tuple[BrokerId, ...], AtMost(FOUNDERS_MAX)]
    """The brokers that agree on the record of the cluster."""
    me: RingNode | None
    """None: the broker has no place on the ring yet."""
    is_member: bool
    predecessor: RingNode | None
    successors: RingNodes
    known: Annotated[tuple[ShownNode, ...], AtMost(BOOK_COUNT)]
    """The address book, in the order of the ring."""
    waits_for: Annotated[Text, MayBeMissing()] = ""
    """Why the broker is no member of the ring yet."""
    leads: Annotated[int, MayBeMissing()] = 0
    """How many partitions the broker leads."""
    fenced: Annotated[int, MayBeMissing()] = 0
    """How many of those it has no right to lead now: no majority of their acceptors answers it."""
    drained: Annotated[tuple[BrokerId, ...], AtMost(BOOK_COUNT), MayBeMissing()] = ()
    """The brokers that are to lead nothing until they are started again."""
    leaving: Annotated[tuple[BrokerId, ...], AtMost(BOOK_COUNT), MayBeMissing()] = ()
    """Those that are removed for good as soon as nothing counts on them."""
    ending: Annotated[Text, MayBeMissing()] = ""
    """The stage in which the cluster is handed over to registers (`octopi.ring.ending`); empty: it
    was never ordered."""
    registers: Annotated[tuple[Text, ...], AtMost(REGISTERS_MAX), MayBeMissing()] = ()
    """To which registers."""
    ending_awaits: Annotated[tuple[BrokerId, ...], AtMost(BOOK_COUNT), MayBeMissing()] = ()
    """The brokers that have not stated yet that their part of this stage is done."""


@request("order_leave", CLIENT_TO_LEADER, needs=on_the_cluster(Verb.ADMIN), since=2)
@attrs.frozen
class OrderLeave:
    """Have *broker* leave the cluster for good, and say how far that is; asked again, it only says
    so.  The brokers go on with it by themselves.  Answer: `LeaveProgress`."""

    request: int
    broker: Annotated[BrokerId, Within(1, BROKER_ID_MAX)]
    is_taken_back: Annotated[bool, MayBeMissing()] = False
    """Whether the order is taken back: then the broker stays, unless it is gone."""


@answer("leave_progress", TO_CLIENT, since=2)
@attrs.frozen
class LeaveProgress:
    """Answer to `OrderLeave`: what counts on the broker, as the asked one knows."""

    request: int
    broker: Annotated[BrokerId, Within(1, BROKER_ID_MAX)]
    is_gone: bool
    """Whether it was removed; its id is never given again."""
    leads: int
    """The partitions that it leads."""
    replicas: int
    """The partitions of which it has a replica."""
    decides: int
    """The agreed values of which it is an acceptor."""
    waits_for: Annotated[Text, MayBeMissing()] = ""
    """What has to be done about something before it can leave; empty: nothing."""


@request("locate", CLIENT_TO_LEADER, needs=ANY_TOKEN, since=2)
@attrs.frozen
class Locate:
    """Look for the holder of a partition.  Answer: `Located`."""

    request: int
    topic: Annotated[str, AtMost(TOPIC_NAME_BYTES_MAX)]
    """The partition is the one that would keep the record of this topic; empty: it is given."""
    partition: PartitionId
    """Used if no topic is given."""


@answer("located", TO_CLIENT, since=2)
@attrs.frozen
class Located:
    """Answer to `Locate`."""

    request: int
    partition: PartitionId
    key: _Point
    holder: RingNode
    successors: RingNodes
    """Brokers behind the holder; they may be dead."""
    steps: int
    """Brokers that were asked."""
