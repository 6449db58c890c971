"""What can go wrong: the status table of the wire and the exceptions of the library.

The tree::

    OctopiError
    +-- InvalidTopicError          caller: the topic name is not allowed
    +-- InvalidOptionError         caller: an option has a value that it can't have
    +-- ClosedError                caller: the client, producer or consumer is closed
    +-- RecordError                the bytes are not a valid record
    |   +-- IncompleteRecordError      the bytes end within a record
    |   +-- MalformedRecordError       no encoder writes such lengths or such a layout
    |   +-- ChecksumError              the bytes changed since they were encoded
    +-- StorageError               node: a disk or a data directory has failed
    |   +-- CorruptLogError            stored bytes differ from what was written
    |   +-- DiskFullError              the disk is full; writes succeed again once space is free
    |   +-- LogReadOnlyError           a write or fsync failed; the log accepts no more writes
    |   +-- DirectoryInUseError        another process uses the data directory
    +-- ConnectionLostError        the connection ended; a request may have been processed
    +-- UnreachableError           no connection could be made; nothing was sent
    +-- ProtocolError              the peer violated the protocol
    +-- RefusedError               a node answered with a status (see `Status`)
    |   +-- UnknownTopicError, TopicExistsError, OffsetOutOfRangeError, ...
    |   +-- HistoryForkedError     records that were read are gone, others may be in their place
    |   +-- UnknownSubscriptionError, SubscriptionExistsError, SubscriptionBusyError
    |   +-- MemberFencedError      another member of the subscription has the log now
    |   +-- ProducerFencedError    a later life of the named producer has begun
    |   +-- RedirectLoopError      brokers name each other as the leader
    +-- HistoryLostError           retention removed the records to be read next
    +-- DigestMismatchError        what a relay sent is not what the digests say
    +-- TopicReplacedError         the topic of a position was deleted and created again
    +-- DeliveryError              a message got no receipt
        +-- NotDeliveredError          the message is certainly not stored
        |   +-- ConditionFailedError       the log does not end where the message was to be appended
        +-- OutcomeUnknownError        the message may or may not be stored

An error has a class of its own if some caller reacts to it.  Every other refusal is a
`RefusedError` with its `Status`.
"""

from __future__ import annotations

from enum import Enum, IntEnum, unique
from typing import ClassVar, Final

import attrs


@unique
class Status(IntEnum):
    """Why a node refused a request.  Clients in any language rely on the numbers and names, which
    never change their meaning.
    """

    MALFORMED_MESSAGE = 1
    UNKNOWN_MESSAGE = 2
    UNSUPPORTED_VERSION = 3
    WRONG_ENDPOINT = 4
    MESSAGE_TOO_LARGE = 5
    TOO_MANY = 6
    TOO_SLOW = 7

    UNKNOWN_TOPIC = 20
    INVALID_TOPIC = 21
    TOPIC_EXISTS = 22
    UNKNOWN_PARTITION = 23
    INVALID_OPTION = 24
    WRONG_KIND = 25
    TOPIC_CLOSED = 26

    MALFORMED_RECORD = 30
    RECORD_CHECKSUM = 31
    CONDITION_FAILED = 32
    OFFSET_INSIDE_RECORD = 33
    OFFSET_OUT_OF_RANGE = 34
    SEQUENCE_GAP = 35
    PRODUCER_FENCED = 36
    UNKNOWN_PRODUCER = 37
    RECEIPT_FORGOTTEN = 38
    UNCOMMITTED = 39

    NOT_LEADER = 40
    NOT_READY = 41
    NO_BROKER = 42
    SHUTTING_DOWN = 43
    NO_QUORUM = 44
    STALE_ROUTE = 45
    HISTORY_FORKED = 46
    BUFFER_FULL = 48
    ANSWER_LOST = 49

    DISK_FULL = 50
    LOG_READ_ONLY = 51
    LOG_CORRUPT = 52
    INTERNAL = 53

    DUPLICATE_BROKER = 60
    WRONG_CLUSTER = 61
    BROKER_FENCED = 62
    REGISTER_SUPERSEDED = 63
    BROKER_IN_USE = 64

    UNAUTHENTICATED = 70
    FORBIDDEN = 71
    EXPIRED = 72
    OVER_LIMIT = 73
    QUOTA_EXCEEDED = 74
    NOT_A_MEMBER = 75

    UNKNOWN_SUBSCRIPTION = 80
    SUBSCRIPTION_EXISTS = 81
    SUBSCRIPTION_BUSY = 82
    MEMBER_FENCED = 83
    STALE_DELIVERY = 84
    UNKNOWN_MEMBER = 85
    WRONG_MODE = 86


class Blame(Enum):
    """Which side caused a refusal."""

    CALLER = "caller"
    NODE = "node"
    NEITHER = "neither"


@attrs.frozen
class StatusMeaning:
    """One row of the status table."""

    retryable: bool
    """Whether the same request can succeed later, unchanged, at this or another node."""
    fault: Blame
    http: int
    """The status code of an HTTP answer that reports it."""
    next: str
    """An instruction for the caller, with the command that helps if there is one."""
    before_append: bool = False
    """Whether a broker gives this status to a produce request only before it appends the records.
    Of the others, `UNCOMMITTED` says that the records were appended; after a failure of its disk or
    program a broker does not know."""
    look_up: bool = False
    """Whether a broker can give this status because a decision of the register has not reached it
    yet.  The client then looks the topic up at the register, and sends the request again if the
    topic exists."""
    after_disk_failure: bool = False
    """Whether a failed disk in the cluster can cause this status.  A register whose disk fails may
    have carried out what it refuses; a repeated request then finds the topic already created or
    deleted."""
    outdated: bool = False
    """Whether a correct request can get this status because the cluster changed after the caller's
    last lookup."""
    of_access: bool = False
    """Whether the caller's token causes this status, so that repeating the request is useless."""
    of_identity: bool = False
    """Whether the register does not accept this broker under its id and incarnation."""


_ASK_AGAIN: Final = (
    "send the request to the leader: its address is in the answer, or the register knows it"
)

STATUS_MEANINGS: Final[dict[Status, StatusMeaning]] = {
    Status.MALFORMED_MESSAGE: StatusMeaning(
        False, Blame.CALLER, 400, "fix how the client encodes this message", before_append=True
    ),
    Status.UNKNOWN_MESSAGE: StatusMeaning(
        False,
        Blame.CALLER,
        400,
        "update the client or the node: one of them does not know this message "
        "(`octopi-node --version`)",
        before_append=True,
    ),
    Status.UNSUPPORTED_VERSION: StatusMeaning(
        False,
        Blame.CALLER,
        400,
        "use a client and a node of the same protocol version (`octopi-node --version`)",
        before_append=True,
    ),
    Status.WRONG_ENDPOINT: StatusMeaning(
        False,
        Blame.CALLER,
        404,
        "send this message to the endpoint and role that take it",
        before_append=True,
    ),
    Status.MESSAGE_TOO_LARGE: StatusMeaning(
        False, Blame.CALLER, 413, "send smaller messages", before_append=True
    ),
    Status.TOO_MANY: StatusMeaning(
        True,
        Blame.CALLER,
        429,
        "wait for answers to open requests, or close readings, before you open more",
        before_append=True,
    ),
    Status.TOO_SLOW: StatusMeaning(
        True, Blame.CALLER, 408, "connect again, and read answers in time"
    ),
    Status.UNKNOWN_TOPIC: StatusMeaning(
        False,
        Blame.CALLER,
        404,
        "correct the name (`octopi-node topics list`), or run `octopi-node topics create NAME`",
        before_append=True,
        look_up=True,
        after_disk_failure=True,
    ),
    Status.INVALID_TOPIC: StatusMeaning(
        False, Blame.CALLER, 400, "choose another topic name", before_append=True
    ),
    Status.TOPIC_EXISTS: StatusMeaning(
        False,
        Blame.CALLER,
        409,
        "use the existing topic, or choose another name",
        after_disk_failure=True,
    ),
    Status.UNKNOWN_PARTITION: StatusMeaning(
        False,
        Blame.CALLER,
        404,
        "choose one of the partitions that `octopi-node topics describe NAME` prints",
        before_append=True,
        look_up=True,
        outdated=True,
    ),
    Status.INVALID_OPTION: StatusMeaning(
        False,
        Blame.CALLER,
        400,
        "correct the option that the message names",
        before_append=True,
        outdated=True,
    ),
    Status.WRONG_KIND: StatusMeaning(
        False,
        Blame.CALLER,
        400,
        "use a topic that is kept in logs: topics in memory don't do this",
        before_append=True,
    ),
    Status.TOPIC_CLOSED: StatusMeaning(
        False,
        Blame.CALLER,
        409,
        "write to another topic: this one was closed for good",
        before_append=True,
    ),
    Status.MALFORMED_RECORD: StatusMeaning(
        False, Blame.CALLER, 400, "fix the client's record encoder", before_append=True
    ),
    Status.RECORD_CHECKSUM: StatusMeaning(
        True,
        Blame.NEITHER,
        400,
        "send the records again: their bytes changed on the way",
        before_append=True,
    ),
    Status.CONDITION_FAILED: StatusMeaning(
        False,
        Blame.CALLER,
        409,
        "read the log up to the `offset` in the answer, which is its end, and decide again",
        before_append=True,
    ),
    Status.OFFSET_INSIDE_RECORD: StatusMeaning(
        False, Blame.CALLER, 400, "use offsets that came with a message or a receipt"
    ),
    Status.OFFSET_OUT_OF_RANGE: StatusMeaning(
        False, Blame.CALLER, 410, "start from earliest or latest, or from an offset between them"
    ),
    Status.SEQUENCE_GAP: StatusMeaning(
        False,
        Blame.CALLER,
        409,
        "send the missing records first, or start a new producer epoch",
        before_append=True,
    ),
    Status.PRODUCER_FENCED: StatusMeaning(
        False,
        Blame.CALLER,
        403,
        "stop this program, if another one runs under the same producer name; or open the name "
        "again, which stops the other one",
        before_append=True,
    ),
    Status.UNKNOWN_PRODUCER: StatusMeaning(
        False, Blame.NEITHER, 409, "start a new producer epoch at sequence 0", before_append=True
    ),
    Status.RECEIPT_FORGOTTEN: StatusMeaning(
        False,
        Blame.NEITHER,
        409,
        "do not send the records again: they are stored, only their offsets are no longer known",
    ),
    Status.UNCOMMITTED: StatusMeaning(
        True,
        Blame.NEITHER,
        503,
        "send the records again: they were appended, and may be kept or lost",
    ),
    Status.NOT_LEADER: StatusMeaning(True, Blame.NEITHER, 503, _ASK_AGAIN, before_append=True),
    Status.NOT_READY: StatusMeaning(
        True, Blame.NEITHER, 503, "send the request again in a moment", before_append=True
    ),
    Status.NO_BROKER: StatusMeaning(
        True,
        Blame.NEITHER,
        503,
        "start a broker (`octopi-node serve --role broker`), or wait for one; `octopi-node "
        "status` lists them",
        before_append=True,
    ),
    Status.SHUTTING_DOWN: StatusMeaning(True, Blame.NEITHER, 503, _ASK_AGAIN, before_append=True),
    Status.NO_QUORUM: StatusMeaning(
        True,
        Blame.NEITHER,
        503,
        "send the request to another node, at the address in the answer if there is one: this one "
        "does not hear a majority",
        before_append=True,
        look_up=True,
    ),
    Status.STALE_ROUTE: StatusMeaning(
        True,
        Blame.NEITHER,
        503,
        "look the topic up, and send the records to the partition that their keys choose now: none "
        "of them is stored",
        before_append=True,
        look_up=True,
        outdated=True,
    ),
    Status.HISTORY_FORKED: StatusMeaning(
        False,
        Blame.NEITHER,
        410,
        "continue from the `offset` in the answer, up to which both histories agree, or "
        "from earliest or latest",
    ),
    Status.BUFFER_FULL: StatusMeaning(
        True,
        Blame.NEITHER,
        503,
        "send the request again in a moment: too much waits for a majority of the relays",
        before_append=True,
    ),
    Status.ANSWER_LOST: StatusMeaning(
        True,
        Blame.NEITHER,
        503,
        "look whether the request was carried out, then send it again if it was not: the node "
        "passed it on, and the connection to the node that answers such requests ended",
    ),
    Status.DISK_FULL: StatusMeaning(
        True,
        Blame.NODE,
        507,
        "free space on the broker's disk; `octopi-node status` shows how much each has",
        before_append=True,
        after_disk_failure=True,
    ),
    Status.LOG_READ_ONLY: StatusMeaning(
        False,
        Blame.NODE,
        500,
        "check the broker's disk, then restart the broker",
        after_disk_failure=True,
    ),
    Status.LOG_CORRUPT: StatusMeaning(
        False,
        Blame.NODE,
        500,
        "run `octopi-node verify DIR` on the broker's data directory",
        after_disk_failure=True,
    ),
    Status.INTERNAL: StatusMeaning(
        False,
        Blame.NODE,
        500,
        "read the node's log for the traceback, and report it",
        after_disk_failure=True,
    ),
    Status.DUPLICATE_BROKER: StatusMeaning(
        True,
        Blame.CALLER,
        409,
        "stop the other broker with this id, or give this one a `--data-dir` of its own",
    ),
    Status.WRONG_CLUSTER: StatusMeaning(
        False,
        Blame.CALLER,
        409,
        "start the broker with `--register URL` of its own cluster",
        of_identity=True,
    ),
    Status.BROKER_FENCED: StatusMeaning(
        False, Blame.CALLER, 409, "register again with a new incarnation", of_identity=True
    ),
    Status.REGISTER_SUPERSEDED: StatusMeaning(
        True,
        Blame.NODE,
        409,
        "stop that register for good; if no other one runs, start one with an empty `--data-dir`",
    ),
    Status.BROKER_IN_USE: StatusMeaning(
        False,
        Blame.CALLER,
        409,
        "stop the broker, and move its replicas: `octopi-node partitions move P --from ID "
        "--to OTHER`",
    ),
    Status.UNAUTHENTICATED: StatusMeaning(
        False,
        Blame.CALLER,
        401,
        "use a token signed with a key of this cluster (`octopi-node token create --key FILE`)",
        before_append=True,
        of_access=True,
    ),
    Status.FORBIDDEN: StatusMeaning(
        False,
        Blame.CALLER,
        403,
        "use a token that grants this; `octopi-node token show FILE` prints what yours grants",
        before_append=True,
        of_access=True,
    ),
    Status.EXPIRED: StatusMeaning(
        False,
        Blame.CALLER,
        401,
        "use a fresh token (`octopi-node token create`)",
        before_append=True,
        of_access=True,
    ),
    Status.OVER_LIMIT: StatusMeaning(
        True,
        Blame.CALLER,
        429,
        "use fewer connections, or raise the limit: `--token-connections` of the node",
        before_append=True,
    ),
    Status.QUOTA_EXCEEDED: StatusMeaning(
        False,
        Blame.CALLER,
        429,
        "delete topics, let retention remove messages, or use a token with a larger quota",
        before_append=True,
    ),
    Status.NOT_A_MEMBER: StatusMeaning(
        False,
        Blame.CALLER,
        403,
        "give register and brokers the same join secret: copy `join-secret` of the "
        "register's data directory, and start brokers with `--join-secret FILE`",
    ),
    Status.UNKNOWN_SUBSCRIPTION: StatusMeaning(
        False, Blame.CALLER, 404, "create it: `octopi-node subscriptions create NAME --topic TOPIC`"
    ),
    Status.SUBSCRIPTION_EXISTS: StatusMeaning(
        False,
        Blame.CALLER,
        409,
        "use the options that it has, which the reason names, or another name",
    ),
    Status.SUBSCRIPTION_BUSY: StatusMeaning(
        True, Blame.CALLER, 409, "wait for the other member to leave, or join with `take_over`"
    ),
    Status.MEMBER_FENCED: StatusMeaning(
        False, Blame.NEITHER, 409, "stop: another member has this log now, or its mark was reset"
    ),
    Status.STALE_DELIVERY: StatusMeaning(
        False, Blame.NEITHER, 409, "nothing: the message was delivered again"
    ),
    Status.UNKNOWN_MEMBER: StatusMeaning(False, Blame.NEITHER, 404, "join again as a new member"),
    Status.WRONG_MODE: StatusMeaning(
        False, Blame.CALLER, 409, "describe the subscription, and use it in its own mode"
    ),
}
"""The status table: one row for each status, in the order of `Status`."""


class OctopiError(Exception):
    """The base class of every error that this library raises on purpose."""

    _code: str = "internal"

    @property
    def code(self) -> str:
        """The stable name of what happened, which every client in every language uses: the name
        of the node's `Status` in small letters, or of what no node sends, such as ``closed``."""
        return self._code


class InvalidTopicError(OctopiError):
    """The caller gave a topic name that is not allowed; choose another."""

    _code = "invalid_topic"


class InvalidOptionError(OctopiError):
    """The caller gave an option a value that it can't have; the text names the option."""

    _code = "invalid_option"


class ClosedError(OctopiError):
    """The caller used a client, producer or consumer after closing it."""

    _code = "closed"


class RecordError(OctopiError):
    """Bytes that should be records are not valid records."""

    _code = "record_damaged"


class IncompleteRecordError(RecordError):
    """The bytes end within a record: either more bytes follow later, or a write was torn."""


class MalformedRecordError(RecordError):
    """The bytes have lengths or a layout that no encoder writes; or a message that was to be sent
    doesn't fit the format, and its *code* says so: ``message_too_large`` or ``invalid_option``."""

    def __init__(self, message: str, code: str = RecordError._code) -> None:
        super().__init__(message)
        self._code = code


class ChecksumError(RecordError):
    """The bytes changed since they were encoded."""


class StorageError(OctopiError):
    """A disk or a data directory of the node has failed, or can't be used."""


class CorruptLogError(StorageError):
    """Stored bytes differ from what was written.  Records from there on are not served.

    Run `octopi-node verify` on the data directory.
    """

    _code = "log_corrupt"

    def __init__(self, path: str, position_bytes: int, offset: int, why: str) -> None:
        super().__init__(
            f"{path} is damaged at byte {position_bytes} (offset {offset}): {why}; "
            "run `octopi-node verify` on the data directory"
        )
        self.path = path
        self.position_bytes = position_bytes
        self.offset = offset
        self.why = why


class AlteredTailError(CorruptLogError):
    """The bytes behind the last flush of a log differ from what an interrupted write can leave: the
    disk changed them, or lost them with the machine's power."""


class DiskFullError(StorageError):
    """The disk is full.  The write was undone, and can be repeated once there is free space."""

    _code = "disk_full"


class LogReadOnlyError(StorageError):
    """A write or an fsync failed, so it is unknown what the disk holds from there on.

    The log accepts no more writes: check the disk, then restart the broker.
    """

    _code = "log_read_only"


class NeedsTimeError(OctopiError):
    """A read of a log needs an index that is being rebuilt; repeat the read in a moment."""

    _code = "not_ready"


class DirectoryInUseError(StorageError):
    """Another process uses the data directory; stop it first."""


class ConnectionLostError(OctopiError):
    """A connection ended.  Requests without an answer may or may not have been processed."""

    _code = "connection_lost"


class UnreachableError(OctopiError):
    """No connection to a node could be made, so nothing was sent.  Is the node running?"""

    _code = "unreachable"

    @property
    def is_refused(self) -> bool:
        """Whether every address that was tried refused the connection: no process listens there."""
        return _is_refused(self.__cause__)


def _is_refused(error: BaseException | None) -> bool:
    """Whether *error* is a refused connection, or a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_refused, error.exceptions))
    return isinstance(error, ConnectionRefusedError) or (
        error is not None and _is_refused(error.__cause__)
    )


class ProtocolError(OctopiError):
    """The peer sent what the protocol doesn't allow; its connection is closed.

    *status* is sent to the peer.  *request* is the number of its request, if that could be read.
    """

    _code = "protocol"

    def __init__(
        self,
        message: str,
        status: Status = Status.MALFORMED_MESSAGE,
        request: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.request = request
        """The number of the peer's request; None if it could not be read."""


class RefusedError(OctopiError):
    """A node refused a request, with a `Status` that says why and what to do next.

    Nodes raise it to refuse a request; clients raise it when a node has refused theirs.
    """

    default_status: ClassVar[Status | None] = None

    def __init__(
        self,
        message: str,
        status: Status | None = None,
        address: str = "",
        epoch: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        chosen = status if status is not None else self.default_status
        assert chosen is not None, "a refusal needs a status"
        self.status: Status = chosen
        self.address: str = address
        """The url of the node to send the request to instead; empty if unknown."""
        self.epoch: int | None = epoch
        """The epoch of the leader at `address`; None if unknown."""
        self.offset: int | None = offset
        """An offset (bytes) that belongs to this status; see `octopi.wire.common.Failure`."""

    @property
    def code(self) -> str:
        """The name of the status, in small letters."""
        return self.status.name.lower()

    @property
    def meaning(self) -> StatusMeaning:
        """The row of the status table for this refusal."""
        return STATUS_MEANINGS[self.status]

    @property
    def retryable(self) -> bool:
        """Whether the same request can succeed later."""
        return self.meaning.retryable

    def __str__(self) -> str:
        return f"{self.args[0]} [{self.code}]"


class UnknownTopicError(RefusedError):
    """The topic does not exist."""

    default_status: ClassVar[Status] = Status.UNKNOWN_TOPIC


class TopicExistsError(RefusedError):
    """A topic with this name exists already."""

    default_status: ClassVar[Status] = Status.TOPIC_EXISTS


class OffsetOutOfRangeError(RefusedError):
    """The log doesn't hold that offset: retention removed it, or it is not written yet."""

    default_status: ClassVar[Status] = Status.OFFSET_OUT_OF_RANGE


class OffsetInsideRecordError(RefusedError):
    """The offset is not the start of a record."""

    default_status: ClassVar[Status] = Status.OFFSET_INSIDE_RECORD


class NotLeaderError(RefusedError):
    """Another broker leads the partition; `address` is its url, if known."""

    default_status: ClassVar[Status] = Status.NOT_LEADER


class RedirectLoopError(RefusedError):
    """Brokers sent the client from one to another, and none of them led the log.

    The client has asked the register, or another broker, in between and tried again until the time
    of the request was over; `RefusedError.status` is that of the last refusal.
    """

    tried: tuple[str, ...] = ()
    """The urls of the brokers that were asked, in turn; the last ones, if they were many."""


class NoQuorumError(RefusedError):
    """The node hears no majority of those that decide with it: another one may lead by now.
    `address` is the url of another one, if this one knows it.  It goes on by itself when it hears
    them again."""

    default_status: ClassVar[Status] = Status.NO_QUORUM


class NotReadyError(RefusedError):
    """The node can't answer yet; repeat the request in a moment."""

    default_status: ClassVar[Status] = Status.NOT_READY


class SupersededError(RefusedError):
    """The register is older than one that a broker has already followed, or runs beside it."""

    default_status: ClassVar[Status] = Status.REGISTER_SUPERSEDED


class HistoryForkedError(RefusedError):
    """Records that were read are gone from the log, and others may be in their place.

    Every replica that held them lost them, for example by a power failure.  Records below `offset`
    are unchanged.  Start again at `offset`, or consume with ``on_fork="resume"``.
    """

    default_status: ClassVar[Status] = Status.HISTORY_FORKED

    def __init__(
        self,
        message: str,
        status: Status | None = None,
        address: str = "",
        epoch: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message, status, address, epoch, offset)
        self.topic: str = ""
        self.partition: int | None = None
        self.read_until: int | None = None
        """The offset up to which the consumer had read: it read [`offset`, `read_until`), and
        those records are gone.  None: the error came from a node, which doesn't know this."""

    @classmethod
    def of_range(
        cls, topic: str, partition: int, offset: int, read_until: int
    ) -> HistoryForkedError:
        """The error of a consumer that had read *topic*/*partition* up to *read_until*, while
        its log agrees only up to *offset*."""
        error = cls(
            f"{topic}/{partition}: the records from offset {offset} to {read_until} were lost "
            "after they were read, and others may stand in their place; start again at "
            f"{offset} to read what is there now",
            offset=offset,
        )
        error.topic = topic
        error.partition = partition
        error.read_until = read_until
        return error


class UnknownSubscriptionError(RefusedError):
    """The topic has no subscription of that name, or it was deleted."""

    default_status: ClassVar[Status] = Status.UNKNOWN_SUBSCRIPTION


class SubscriptionExistsError(RefusedError):
    """A subscription of that name exists with other options; the text names what differs."""

    default_status: ClassVar[Status] = Status.SUBSCRIPTION_EXISTS


class SubscriptionBusyError(RefusedError):
    """Another member has the subscription or the log: wait for it, or take over."""

    default_status: ClassVar[Status] = Status.SUBSCRIPTION_BUSY


class ProducerFencedError(RefusedError):
    """A later life of this named producer has begun, so this one is over: nothing of it is stored
    any more.  Go on only by opening the name again, which ends the other life in turn."""

    default_status: ClassVar[Status] = Status.PRODUCER_FENCED


class MemberFencedError(RefusedError):
    """Another member has the log now, or its mark was reset: marks of this member are ignored."""

    default_status: ClassVar[Status] = Status.MEMBER_FENCED


class HistoryLostError(OctopiError):
    """Retention removed the records that a consumer would read next.

    Start again at `available_from`, or consume with ``on_gap="skip"``.
    """

    _code = "history_lost"

    def __init__(self, topic: str, partition: int, wanted: int, available_from: int) -> None:
        super().__init__(
            f"{topic}/{partition}: the records from offset {wanted} to {available_from} were "
            "removed by retention before they were read; the log starts at offset "
            f"{available_from} now"
        )
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        """The offset of the record that the consumer would read next (bytes)."""
        self.available_from = available_from
        """The start of the log now (bytes)."""


class DigestMismatchError(OctopiError):
    """What a relay sent to a consumer with ``proven=True`` is not what the digests say: something
    before `offset` was changed, left out or put elsewhere.

    A relay's memory, or a program between, is wrong.  What came before is good; read on from
    `Consumer.position` at another relay.
    """

    _code = "digest_mismatch"

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset
        """Where the digests differ (bytes)."""


class TopicReplacedError(OctopiError):
    """The topic was deleted and created again, so a position in the old one is meaningless."""

    _code = "topic_replaced"


class DeliveryError(OctopiError):
    """A message got no receipt; the subclass says whether it is stored."""


class NotDeliveredError(DeliveryError):
    """The message is certainly not stored; sending it again can't duplicate it."""

    @property
    def code(self) -> str:
        """That of the refusal which ended it, if sending the message again can't help; else
        ``not_delivered``."""
        cause = self.__cause__
        if isinstance(cause, OctopiError) and not getattr(cause, "retryable", True):
            return cause.code
        return "not_delivered"


class ConditionFailedError(NotDeliveredError):
    """The log did not end where the message was to be appended (``expected_end``), so the message
    is certainly not stored.  Read on up to `end`, and decide again."""

    _code = "condition_failed"

    def __init__(self, message: str, end: int | None = None) -> None:
        super().__init__(message, end)
        self.end: int | None = end
        """The end of the log, to which all is committed (bytes); None: it is not known."""

    @property
    def code(self) -> str:
        """``condition_failed``."""
        return self._code

    def __str__(self) -> str:
        return str(self.args[0])


class OutcomeUnknownError(DeliveryError):
    """The message may or may not be stored: no answer came before the delivery time-out.

    Sending it again may store it twice.
    """

    _code = "outcome_unknown"


_BY_STATUS: Final[dict[Status, type[RefusedError]]] = {
    cls.default_status: cls
    for cls in (
        UnknownTopicError,
        TopicExistsError,
        OffsetOutOfRangeError,
        OffsetInsideRecordError,
        NoQuorumError,
        NotLeaderError,
        NotReadyError,
        SupersededError,
        HistoryForkedError,
        UnknownSubscriptionError,
        SubscriptionExistsError,
        SubscriptionBusyError,
        MemberFencedError,
        ProducerFencedError,
    )
}


def refused(
    status: Status,
    message: str,
    address: str = "",
    epoch: int | None = None,
    offset: int | None = None,
) -> RefusedError:
    """The exception for *status*: its own class if it has one, else `RefusedError`."""
    return _BY_STATUS.get(status, RefusedError)(message, status, address, epoch, offset)
