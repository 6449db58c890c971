"""Messages that any connection can carry, and what the messages of several planes consist of."""

from __future__ import annotations

from typing import Annotated, Final

import attrs

from octopi.field_bounds import AtMost, Grammar, MayBeMissing
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
    HELLO_BYTES_MAX,
    ID_CHARACTERS,
    JOIN_NONCE_BYTES,
    JOIN_SECRET_BYTES,
    JOIN_SECRETS_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    TEXT_BYTES_MAX,
)
from octopi.model import Seal, TopicOptions, Verb
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

PROTOCOL_VERSION: Final = 1
SUBPROTOCOL: Final = "octopi.v1.cbor"
Text = Annotated[str, AtMost(TEXT_BYTES_MAX)]
Agent = Annotated[str, AtMost(AGENT_BYTES_MAX), Grammar(controls_fault)]
Address = Annotated[str, AtMost(ADDRESS_BYTES_MAX)]
"""``ws://host:port`` or ``wss://host:port``; empty if unknown."""
Anchor = Annotated[str, AtMost(ANCHOR_BYTES_MAX), MayBeMissing()]
"""What stands before an offset: text that clients keep and send back as it came
(`octopi.position`).  Empty: not known, and then nothing is checked."""
Records = Annotated[bytes, AtMost(BATCH_BYTES_MAX)]
Token = Annotated[str, AtMost(HELLO_BYTES_MAX)] | None
Hash = Annotated[bytes, AtMost(JOIN_SECRET_BYTES)]
Brokers = Annotated[list[BrokerId], AtMost(BROKERS_MAX)]
Partitions = Annotated[list[PartitionId], AtMost(PARTITIONS_PER_TOPIC_MAX)]
LogId = Annotated[str, AtMost(ID_CHARACTERS), Grammar(log_id_fault)]
"""The id of a topic, or of an internal log."""
OptionalLogId = Annotated[str, AtMost(ID_CHARACTERS), Grammar(optional_log_id_fault)]
OptionalId = Annotated[str, AtMost(ID_CHARACTERS), Grammar(optional_id_fault)]
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
    """Addresses of live in-sync replicas; the first is the one that this asker should use."""
    waits_for: Annotated[Brokers, MayBeMissing()] = attrs.field(factory=list)
    """While no broker leads: those without which no leader is chosen, unless an operator orders
    it."""
    is_stuck: Annotated[bool, MayBeMissing()] = False
    """Whether an operator has to order it: all have answered, and each lacks something that it had
    on its device."""
    recovered_epoch: Annotated[Epoch, MayBeMissing()] = NO_EPOCH
    """The newest epoch whose leader was chosen although acknowledged records may be lost; 0: none
    was."""
    troubles: Annotated[list[ReplicaTroubleAt], AtMost(1_000), MayBeMissing()] = attrs.field(
        factory=list
    )
    """The replicas that take no records, and why."""


@attrs.frozen
class TopicInfo:
    """A topic and where its partitions are."""

    topic: Text
    topic_id: Text
    partitions: Annotated[list[PartitionInfo], AtMost(PARTITIONS_PER_TOPIC_MAX)]
    options: TopicOptions


@attrs.frozen
class BrokerInfo:
    """A broker as the register knows it."""

    broker: BrokerId
    address: Address
    incarnation: Incarnation
    live: bool
    partitions_led: int
    disk_free_bytes: Annotated[int | None, MayBeMissing()] = None
    """Of the file system that its data directory lies on, as it said last; None: not known."""
    disk_total_bytes: Annotated[int | None, MayBeMissing()] = None
    disk_trouble: Annotated[str, AtMost(TEXT_BYTES_MAX), MayBeMissing()] = ""
    """Why it takes no records; empty: its disk has space."""
    stream_key: Seal = ""
    """In `InstallPartitions`: a key that only this broker and the receiver of the message get; see
    `Follow`."""


@connection("hello")
@attrs.frozen
class Hello:
    """The first message of the connecting side.  Answer: `Welcome`, or `Failure` and a close."""

    version: int
    """The newest protocol version that the sender speaks."""
    agent: Agent
    """Program and version, for the node's log."""
    token: Token = None
    nonce: Annotated[bytes, AtMost(JOIN_NONCE_BYTES), MayBeMissing()] = b""
    """At an endpoint for nodes alone: bytes that were never used before
    (`octopi.security.join_secret`).  The answer is `Challenge` instead, and the token is not
    shown before `Proof`."""


@connection("challenge")
@attrs.frozen
class Challenge:
    """The answer to the hello of another node: prove that you are one.  Answer: `Proof`, or
    `Failure` and the end."""

    nonce: Annotated[bytes, AtMost(JOIN_NONCE_BYTES)]
    """Bytes that were never used before."""
    proofs: Annotated[list[Hash], AtMost(JOIN_SECRETS_MAX)]
    """That the sender has the join secret: one for each that it has."""


@connection("proof")
@attrs.frozen
class Proof:
    """The answer to a `Challenge` with a good proof.  Answer: `Welcome`, or `Failure` and the
    end."""

    proof: Hash
    """Made with a secret that the challenger has proven to have."""
    token: Token = None


@connection("welcome")
@attrs.frozen
class Welcome:
    """The connection is open."""

    version: int
    """The version that both speak from here on."""
    role: Text
    """``register`` or ``broker``."""
    agent: Agent
    heartbeat_interval_ms: int
    """Each side sends something, if need be `Heartbeat`, at least so often."""
    heartbeat_timeout_ms: int
    """Each side gives the connection up after silence for so long."""
    message_bytes_max: int
    """Longer messages end the connection."""
    expires_ms: int | None = None
    """When the connection ends unless a fresh token comes before, in ms since 1970."""


@connection("heartbeat")
@attrs.frozen
class Heartbeat:
    """Nothing to say, still here.  No answer."""


@connection("failure")
@attrs.frozen
class Failure:
    """A request was refused, or a reading ended."""

    request: int | None
    """None: the connection as a whole; it is closed next."""
    status: int
    """A number of `octopi.errors.Status`."""
    reason: Text
    address: Address = ""
    """Where to go instead, if that is known."""
    epoch: Annotated[Epoch | None, MayBeMissing()] = None
    """Of ``not_leader``: the epoch of the leader at `address`."""
    offset: Annotated[Offset | None, MayBeMissing()] = None
    """Of ``history_forked``: the last offset up to which the log and what was read agree.  Of
    ``condition_failed``: where the log ends."""


@answer(
    "done", TO_CLIENT, MEMBER_TO_DECIDER, DECIDER_TO_MEMBER, needs=on_the_cluster(Verb.REPLICATE)
)
@attrs.frozen
class Done:
    """A request without a result of its own was carried out."""

    request: int


@request("authenticate", CLIENT_TO_DECIDER, CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class Authenticate:
    """A fresh token for this connection.  Answer: `Authenticated`."""

    request: int
    token: Annotated[str, AtMost(HELLO_BYTES_MAX)]


@answer("authenticated", TO_CLIENT)
@attrs.frozen
class Authenticated:
    """Answer to `Authenticate`: from here on the grants of the new token count."""

    request: int
    expires_ms: int | None
    """See `Welcome`."""
