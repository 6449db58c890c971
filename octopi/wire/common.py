"""Messages that any connection can carry, and parts of the messages of several planes."""

from __future__ import annotations

from typing import Annotated, Final

import attrs

from octopi.field_bounds import AtMost, Grammar, MayBeMissing, Within
from octopi.generation_record import GenerationNumber
from octopi.identifiers import (
    NO_EPOCH,
    BrokerId,
    Epoch,
    Incarnation,
    Offset,
    PartitionId,
    address_fault,
    log_id_fault,
    optional_id_fault,
    optional_log_id_fault,
)
from octopi.limits import (
    ADDRESS_BYTES_MAX,
    AGENT_BYTES_MAX,
    ANCHOR_BYTES_MAX,
    BATCH_BYTES_MAX,
    BROKERS_MAX,
    CONNECTION_NAME_BYTES_MAX,
    GENERATED_PARTITIONS_MAX,
    GENERATIONS_MAX,
    HELLO_BYTES_MAX,
    HOST_LABEL_BYTES_MAX,
    ID_CHARACTERS,
    JOIN_NONCE_BYTES,
    JOIN_SECRET_BYTES,
    JOIN_SECRETS_MAX,
    OFFSET_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    TEXT_BYTES_MAX,
)
from octopi.model import KindText, Seal, TopicKind, TopicOptions, Verb
from octopi.printable import controls_fault
from octopi.wire.declarations import (
    ANY_TOKEN,
    CLIENT_TO_DECIDER,
    CLIENT_TO_LEADER,
    DECIDER_TO_MEMBER,
    MEMBER_TO_DECIDER,
    TO_CLIENT,
    answer,
    connection,
    on_the_cluster,
    request,
)

PROTOCOL_VERSION: Final = 2
"""The newest version of the protocol that this program speaks.  It counts up with the first new
message or field after a release; `octopi.wire.declarations.Declaration.since` says in which version
a message came.  A connection uses the newest version that both sides speak."""
PROTOCOL_VERSION_MIN: Final = 1
"""The oldest version that this program speaks: that of the release before."""
SUBPROTOCOL: Final = "octopi.v1.cbor"
Text = Annotated[str, AtMost(TEXT_BYTES_MAX)]
Agent = Annotated[str, AtMost(AGENT_BYTES_MAX), Grammar(controls_fault)]
ConnectionName = Annotated[
    str, AtMost(CONNECTION_NAME_BYTES_MAX), Grammar(controls_fault), MayBeMissing()
]
"""What a program calls its connections, for people who look at the cluster; empty: nothing."""
HostLabel = Annotated[str, AtMost(HOST_LABEL_BYTES_MAX), Grammar(controls_fault), MayBeMissing()]
"""The machine that a broker runs on, as its operator names it: no two replicas of a partition lie
on brokers with the same label.  Empty: the broker is the only one of its machine."""
Address = Annotated[str, AtMost(ADDRESS_BYTES_MAX)]
"""``ws://host:port`` or ``wss://host:port``; empty if unknown."""
Anchor = Annotated[str, AtMost(ANCHOR_BYTES_MAX), MayBeMissing()]
"""The anchor of an offset, as text that clients keep and send back unchanged (`octopi.position`).
Empty: it is not known, and then nothing is checked."""
Records = Annotated[bytes, AtMost(BATCH_BYTES_MAX)]
ReceivedRecords = Annotated[bytes | memoryview, AtMost(BATCH_BYTES_MAX)]
"""Records that a client decodes where they were received; a view keeps that place."""
Token = Annotated[str, AtMost(HELLO_BYTES_MAX)] | None
Hash = Annotated[bytes, AtMost(JOIN_SECRET_BYTES)]
Brokers = Annotated[list[BrokerId], AtMost(BROKERS_MAX)]
Partitions = Annotated[list[PartitionId], AtMost(PARTITIONS_PER_TOPIC_MAX)]
LogId = Annotated[str, AtMost(ID_CHARACTERS), Grammar(log_id_fault)]
"""The id of a topic, or of an internal log."""
OptionalLogId = Annotated[str, AtMost(ID_CHARACTERS), Grammar(optional_log_id_fault)]
OptionalId = Annotated[str, AtMost(ID_CHARACTERS), Grammar(optional_id_fault)]
_End = Annotated[Offset, Within(0, OFFSET_MAX)]
NodeAddress = Annotated[str, AtMost(ADDRESS_BYTES_MAX), Grammar(address_fault)]


@attrs.frozen
class ReplicaTroubleAt:
    """Why the replica on *broker* accepts no records."""

    broker: BrokerId
    reason: Text


@attrs.frozen
class PartitionInfo:
    """Where a partition is, for clients."""

    partition: PartitionId
    epoch: Epoch
    leader: BrokerId | None
    """None while no broker leads."""
    leader_address: Address
    replicas: Brokers
    in_sync: Brokers
    readers: Annotated[list[Address], AtMost(1_000)]
    """The addresses of live in-sync replicas; the client that asked should use the first."""
    waits_for: Annotated[Brokers, MayBeMissing()] = attrs.field(factory=list)
    """While no broker leads: the brokers that must come back before a leader is chosen, unless an
    operator orders a recovery."""
    is_stuck: Annotated[bool, MayBeMissing()] = False
    """Whether only an operator's order can recover the partition: all replicas that were in sync
    have answered, and each lacks something that it had on its device."""
    recovered_epoch: Annotated[Epoch, MayBeMissing()] = NO_EPOCH
    """The newest epoch whose leader was chosen although acknowledged records may be lost; 0: there
    was none."""
    troubles: Annotated[list[ReplicaTroubleAt], AtMost(1_000), MayBeMissing()] = attrs.field(
        factory=list
    )
    """The replicas that accept no records, and why."""


@attrs.frozen
class GenerationInfo:
    """A generation of a topic that is in force, or was until the next one came into force."""

    number: GenerationNumber
    """What `octopi.wire.producers.Produce.generation` is to be for its partitions."""
    partitions: Partitions
    """A key chooses one by its place in this list."""
    sealed: Annotated[list[_End], AtMost(PARTITIONS_PER_TOPIC_MAX)]
    """Where each log of `partitions` ended, in their order; empty: the generation is in force."""


@attrs.frozen
class TopicInfo:
    """A topic and where its partitions are.

    A topic that got other partitions has several generations.  It is described only to clients that
    are known to decode `generations` (`octopi.roles.earlier_clients`): one that follows the list of
    partitions alone reads the messages of a key in another order.
    """

    topic: Text
    topic_id: Text
    partitions: Annotated[list[PartitionInfo], AtMost(PARTITIONS_PER_TOPIC_MAX)]
    options: TopicOptions
    kind: KindText = TopicKind.LOG
    """Where its messages are: a `octopi.model.TopicKind`.  The partitions of a relay topic have
    numbers of their own; the leader is the sequencer of the relay set, and in sync are those of its
    members that are there."""
    generations: Annotated[list[GenerationInfo], AtMost(GENERATIONS_MAX), MayBeMissing()] = (
        attrs.field(factory=list)
    )
    """All that are or were in force, the oldest first; the last one has `partitions`.  Empty: there
    never was another one than the first."""
    sealed_partitions: Annotated[
        list[PartitionInfo], AtMost(GENERATED_PARTITIONS_MAX), MayBeMissing()
    ] = attrs.field(factory=list)
    """Where the partitions are that have sealed logs of the topic, and take no messages of it."""

    @property
    def is_relay(self) -> bool:
        """Whether it is in memory."""
        return self.kind == TopicKind.RELAY


@attrs.frozen
class BrokerInfo:
    """A broker as the register knows it."""

    broker: BrokerId
    address: Address
    incarnation: Incarnation
    live: bool
    partitions_led: int
    disk_free_bytes: Annotated[int | None, MayBeMissing()] = None
    """The free space of the file system with its data directory, in its last report; None: not
    known."""
    disk_total_bytes: Annotated[int | None, MayBeMissing()] = None
    disk_trouble: Annotated[str, AtMost(TEXT_BYTES_MAX), MayBeMissing()] = ""
    """Why it accepts no records; empty: its disk has space."""
    stream_key: Seal = ""
    """In `InstallPartitions`: the stream key that only this broker and the receiver of the message
    get; see `Follow`."""
    host: HostLabel = ""
    drained: Annotated[bool, MayBeMissing()] = False
    """Whether it is to lead nothing until it is started again."""
    leaving: Annotated[bool, MayBeMissing()] = False
    """Whether it is removed for good as soon as nothing counts on it."""


@connection("hello")
@attrs.frozen
class Hello:
    """The first message of the connecting side.  Answer: `Welcome`, or `Failure` and a close."""

    version: int
    """The newest protocol version that the sender speaks."""
    agent: Agent
    """The sender's program and version, for the node's log."""
    token: Token = None
    nonce: Annotated[bytes, AtMost(JOIN_NONCE_BYTES), MayBeMissing()] = b""
    """Given at endpoints for nodes alone, and by an operator's client: bytes that were never used
    before (`octopi.security.join_secret`).  Then the answer is `Challenge`, and the token is not
    sent before `Proof`."""
    name: ConnectionName = ""


@connection("challenge")
@attrs.frozen
class Challenge:
    """Answer to a `Hello` with a nonce: the sender proves that it has a join secret, and requires
    the same.  Answer: `Proof`, or `Failure` and a close."""

    nonce: Annotated[bytes, AtMost(JOIN_NONCE_BYTES)]
    """Bytes that were never used before."""
    proofs: Annotated[list[Hash], AtMost(JOIN_SECRETS_MAX)]
    """The proofs that the sender has a join secret, one for each that it has."""


@connection("proof")
@attrs.frozen
class Proof:
    """Answer to a `Challenge` with a valid proof.  Answer: `Welcome`, or `Failure` and a close."""

    proof: Hash
    """Made with a join secret that the other side has proven to have."""
    token: Token = None


@connection("welcome")
@attrs.frozen
class Welcome:
    """The connection is open."""

    version: int
    """The protocol version of all further messages."""
    role: Text
    """``register`` or ``broker``."""
    agent: Agent
    heartbeat_interval_ms: int
    """Each side sends a message at least this often: `Heartbeat` if there is no other."""
    heartbeat_timeout_ms: int
    """Each side closes the connection after a silence of this length."""
    message_bytes_max: int
    """The greatest size of a message; longer ones end the connection."""
    expires_ms: int | None = None
    """When the connection ends, unless a fresh token comes before: in ms since 1970-01-01 UTC;
    None: never."""
    cluster: Annotated[Text, MayBeMissing()] = ""
    """The id of the cluster that the node belongs to; empty: none yet."""


@connection("heartbeat")
@attrs.frozen
class Heartbeat:
    """Shows that the sender is still there, when it has nothing else to send.  No answer."""


@connection("failure")
@attrs.frozen
class Failure:
    """A request was refused, or a reading ended."""

    request: int | None
    """The number of the request or reading; None: the failure concerns the whole connection, which
    is closed next."""
    status: int
    """A number of `octopi.errors.Status`."""
    reason: Text
    address: Address = ""
    """The address of a node that can do what was asked; empty: none is known."""
    epoch: Annotated[Epoch | None, MayBeMissing()] = None
    """With ``not_leader``: the epoch of the leader at `address`."""
    offset: Annotated[Offset | None, MayBeMissing()] = None
    """With ``history_forked``: an offset up to which the log agrees with what was read.  With
    ``condition_failed``: the end of the log."""


@answer(
    "done", TO_CLIENT, MEMBER_TO_DECIDER, DECIDER_TO_MEMBER, needs=on_the_cluster(Verb.REPLICATE)
)
@attrs.frozen
class Done:
    """Answer to a request that has no result: it was carried out."""

    request: int


@request("authenticate", CLIENT_TO_DECIDER, CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class Authenticate:
    """Give this connection a fresh token.  Answer: `Authenticated`."""

    request: int
    token: Annotated[str, AtMost(HELLO_BYTES_MAX)]


@answer("authenticated", TO_CLIENT)
@attrs.frozen
class Authenticated:
    """Answer to `Authenticate`: from now on the grants of the new token hold."""

    request: int
    expires_ms: int | None
    """See `Welcome`."""
