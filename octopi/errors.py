"""What can go wrong: the status table of the wire and the exceptions of the library.

The tree::

    OctopiError
    +-- InvalidTopicError          yours: no legal topic name
    +-- InvalidOptionError         yours: an option out of its range
    +-- ClosedError                yours: the client, producer or consumer was closed
    +-- RecordError                bytes that are no valid record
    |   +-- IncompleteRecordError      they end too early: a torn tail, or more to come
    |   +-- MalformedRecordError       lengths or layout that no encoder writes
    |   +-- ChecksumError              the bytes changed since they were encoded
    +-- StorageError               a disk or a data directory
    |   +-- CorruptLogError            stored bytes are not what was written
    |   +-- DiskFullError              no space: free some, the log goes on
    |   +-- LogReadOnlyError           a write or fsync failed: nothing is accepted any more
    |   +-- DirectoryInUseError        another process holds the data directory
    +-- ConnectionLostError        the peer or the network went away; maybe it was processed
    +-- UnreachableError           no connection could be made; nothing was sent
    +-- ProtocolError              the peer sent what the protocol doesn't allow
    +-- RefusedError               a node answered with a status (see `Status`)
    |   +-- UnknownTopicError, TopicExistsError, OffsetOutOfRangeError, ...
    |   +-- HistoryForkedError     records that were read are gone, others may be in their place
    +-- HistoryLostError           the records to be read next were removed by retention
    +-- TopicReplacedError         a position belongs to a topic that was deleted
    +-- DeliveryError              a message got no receipt
        +-- NotDeliveredError          it is certainly not stored
        +-- OutcomeUnknownError        it may or may not be stored

A class of its own exists where some caller reacts to it.  Everything else is a
`RefusedError` with its `Status`.
"""

from __future__ import annotations

from enum import Enum, IntEnum, unique
from typing import ClassVar, Final

import attrs


@unique
class Status(IntEnum):
    """Why a node refused.  Numbers and names are stable: clients in any language rely on them.

    The names can be given better explanations; a number never changes its meaning.
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

    MALFORMED_RECORD = 30
    RECORD_CHECKSUM = 31
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
    HISTORY_FORKED = 46

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


class Blame(Enum):
    """Whose doing a refusal is."""

    CALLER = "caller"
    NODE = "node"
    NOBODY = "nobody"


@attrs.frozen
class StatusMeaning:
    """One row of the status table."""

    retryable: bool
    """Whether the same request can succeed later, unchanged (perhaps at another node)."""
    fault: Blame
    next: str
    """What the caller does next."""
    before_append: bool = False
    """Whether a broker refuses a produce request with this status only before it appends.  Of the
    others, `UNCOMMITTED` says that the records were appended; where the disk or the program of a
    broker fails, it does not know."""
    look_up: bool = False
    """Whether a broker can give this status because it does not know yet what the register
    decided.  The request is not retryable as such, but the client looks the topic up at the
    register and sends the request again if the topic is there."""
    after_disk_failure: bool = False
    """Whether the failure of a disk of the cluster can be the cause of this status.  A register
    whose disk fails may have carried out what it refuses; a repetition then finds the topic
    created or deleted already."""
    outdated: bool = False
    """Whether a request for something that existed when the caller last looked can get this
    status, because the cluster has changed since."""
    of_access: bool = False
    """Whether the token of the caller is the reason: repeating the request is of no use."""
    of_identity: bool = False
    """Whether the register has another broker in the place of this one, or none for it."""


_ASK_AGAIN: Final = "ask the register (or the address in the answer) and send it there"

STATUS_MEANINGS: Final[dict[Status, StatusMeaning]] = {
    Status.MALFORMED_MESSAGE: StatusMeaning(
        False, Blame.CALLER, "mend the client", before_append=True
    ),
    Status.UNKNOWN_MESSAGE: StatusMeaning(
        False, Blame.CALLER, "mend or update the client", before_append=True
    ),
    Status.UNSUPPORTED_VERSION: StatusMeaning(
        False, Blame.CALLER, "use a client and a node of one protocol version", before_append=True
    ),
    Status.WRONG_ENDPOINT: StatusMeaning(
        False, Blame.CALLER, "send it to the endpoint and role it belongs to", before_append=True
    ),
    Status.MESSAGE_TOO_LARGE: StatusMeaning(
        False, Blame.CALLER, "send smaller messages", before_append=True
    ),
    Status.TOO_MANY: StatusMeaning(
        True, Blame.CALLER, "finish some of what is open first", before_append=True
    ),
    Status.TOO_SLOW: StatusMeaning(True, Blame.CALLER, "connect again and answer in time"),
    Status.UNKNOWN_TOPIC: StatusMeaning(
        False,
        Blame.CALLER,
        "create the topic, or mend its name",
        before_append=True,
        look_up=True,
        after_disk_failure=True,
    ),
    Status.INVALID_TOPIC: StatusMeaning(
        False, Blame.CALLER, "choose another name", before_append=True
    ),
    Status.TOPIC_EXISTS: StatusMeaning(
        False, Blame.CALLER, "use it, or choose another name", after_disk_failure=True
    ),
    Status.UNKNOWN_PARTITION: StatusMeaning(
        False, Blame.CALLER, "describe the topic", before_append=True, look_up=True, outdated=True
    ),
    Status.INVALID_OPTION: StatusMeaning(
        False, Blame.CALLER, "mend the option", before_append=True, outdated=True
    ),
    Status.MALFORMED_RECORD: StatusMeaning(
        False, Blame.CALLER, "mend the client's encoder", before_append=True
    ),
    Status.RECORD_CHECKSUM: StatusMeaning(
        True, Blame.NOBODY, "send it again: the bytes changed on the way", before_append=True
    ),
    Status.OFFSET_INSIDE_RECORD: StatusMeaning(
        False, Blame.CALLER, "use offsets that came with a message or a receipt"
    ),
    Status.OFFSET_OUT_OF_RANGE: StatusMeaning(
        False, Blame.CALLER, "start from earliest or latest, or from an offset between them"
    ),
    Status.SEQUENCE_GAP: StatusMeaning(
        False,
        Blame.CALLER,
        "send the missing records first, or start a new producer epoch",
        before_append=True,
    ),
    Status.PRODUCER_FENCED: StatusMeaning(
        False, Blame.CALLER, "stop: a newer life of this producer is writing", before_append=True
    ),
    Status.UNKNOWN_PRODUCER: StatusMeaning(
        False, Blame.NOBODY, "start a new producer epoch at sequence 0", before_append=True
    ),
    Status.RECEIPT_FORGOTTEN: StatusMeaning(
        False, Blame.NOBODY, "nothing: the records are stored, their offsets are not remembered"
    ),
    Status.UNCOMMITTED: StatusMeaning(
        True, Blame.NOBODY, "send it again: the records were appended, and may be kept or lost"
    ),
    Status.NOT_LEADER: StatusMeaning(True, Blame.NOBODY, _ASK_AGAIN, before_append=True),
    Status.NOT_READY: StatusMeaning(
        True, Blame.NOBODY, "try again in a moment", before_append=True
    ),
    Status.NO_BROKER: StatusMeaning(
        True, Blame.NOBODY, "start a broker, or wait for one", before_append=True
    ),
    Status.SHUTTING_DOWN: StatusMeaning(True, Blame.NOBODY, _ASK_AGAIN, before_append=True),
    Status.HISTORY_FORKED: StatusMeaning(
        False,
        Blame.NOBODY,
        "go on from the `offset` in the answer, up to which both agree, or from earliest or latest",
    ),
    Status.DISK_FULL: StatusMeaning(
        True,
        Blame.NODE,
        "free space on the broker's disk",
        before_append=True,
        after_disk_failure=True,
    ),
    Status.LOG_READ_ONLY: StatusMeaning(
        False,
        Blame.NODE,
        "look at the broker's disk, then restart the broker",
        after_disk_failure=True,
    ),
    Status.LOG_CORRUPT: StatusMeaning(
        False,
        Blame.NODE,
        "run `octopi-node verify` on the broker's data directory",
        after_disk_failure=True,
    ),
    Status.INTERNAL: StatusMeaning(
        False, Blame.NODE, "look at the node's log, report the fault", after_disk_failure=True
    ),
    Status.DUPLICATE_BROKER: StatusMeaning(
        True, Blame.CALLER, "stop the other broker of that id, or use a data directory of its own"
    ),
    Status.WRONG_CLUSTER: StatusMeaning(
        False, Blame.CALLER, "point the broker at the register of its own cluster", of_identity=True
    ),
    Status.BROKER_FENCED: StatusMeaning(
        False, Blame.CALLER, "register again with a new incarnation", of_identity=True
    ),
    Status.REGISTER_SUPERSEDED: StatusMeaning(
        True,
        Blame.NODE,
        "stop that register for good; if no other one runs, start one with an empty data directory",
    ),
    Status.BROKER_IN_USE: StatusMeaning(
        False,
        Blame.CALLER,
        "stop it for good, and move its replicas to other brokers (`partitions move`)",
    ),
    Status.UNAUTHENTICATED: StatusMeaning(
        False,
        Blame.CALLER,
        "use a token that was made with a key of this cluster",
        before_append=True,
        of_access=True,
    ),
    Status.FORBIDDEN: StatusMeaning(
        False, Blame.CALLER, "use a token that grants this", before_append=True, of_access=True
    ),
    Status.EXPIRED: StatusMeaning(
        False, Blame.CALLER, "use a fresh token", before_append=True, of_access=True
    ),
    Status.OVER_LIMIT: StatusMeaning(
        True,
        Blame.CALLER,
        "use fewer connections, or raise the limit of the token or of the node",
        before_append=True,
    ),
    Status.QUOTA_EXCEEDED: StatusMeaning(
        False,
        Blame.CALLER,
        "delete topics, let retention remove messages, or use a token with a larger quota",
        before_append=True,
    ),
    Status.NOT_A_MEMBER: StatusMeaning(
        False,
        Blame.CALLER,
        "give register and brokers one join secret: copy `join-secret` of the register's data "
        "directory, and start brokers with `--join-secret FILE`",
    ),
}
"""Every status has its row; a test holds this."""


class OctopiError(Exception):
    """The root of everything that this library raises on purpose."""


class InvalidTopicError(OctopiError):
    """You gave a name that can't be a topic's."""


class InvalidOptionError(OctopiError):
    """You gave an option a value that it can't have."""


class ClosedError(OctopiError):
    """You used a client, producer or consumer after closing it."""


class RecordError(OctopiError):
    """Bytes that should be records are not."""


class IncompleteRecordError(RecordError):
    """The bytes end within a record: a torn tail, or there is more to come."""


class MalformedRecordError(RecordError):
    """Lengths or layout that no encoder writes."""


class ChecksumError(RecordError):
    """The bytes changed since they were encoded."""


class StorageError(OctopiError):
    """Something is wrong with a disk or a data directory."""


class CorruptLogError(StorageError):
    """Stored bytes are not what was written.  Nothing at or behind them is served."""

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
    """What follows the last flush of a log isn't what a write that was broken off leaves behind:
    the disk changed it, or lost it with the machine's power."""


class DiskFullError(StorageError):
    """There was no space for a write.  The write was undone; it can be tried again."""


class LogReadOnlyError(StorageError):
    """A write or an fsync failed, so what the disk holds is unknown from there on."""


class NeedsTimeError(OctopiError):
    """What is asked of a log takes longer than it may here: an index has to be made anew first."""


class DirectoryInUseError(StorageError):
    """Another process holds the data directory."""


class ConnectionLostError(OctopiError):
    """A connection ended.  Requests without an answer may have been processed."""


class UnreachableError(OctopiError):
    """No connection could be made, so nothing was sent."""

    @property
    def is_refused(self) -> bool:
        """Whether a machine answered that no process listens there."""
        return _is_refused(self.__cause__)


def _is_refused(error: BaseException | None) -> bool:
    """Whether *error* says so of every address that was tried."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_refused, error.exceptions))
    return isinstance(error, ConnectionRefusedError) or (
        error is not None and _is_refused(error.__cause__)
    )


class ProtocolError(OctopiError):
    """The peer sent what the protocol doesn't allow; its connection is closed."""

    def __init__(
        self,
        message: str,
        status: Status = Status.MALFORMED_MESSAGE,
        request: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.request = request
        """The number of the request that it was, if that could be read."""


class RefusedError(OctopiError):
    """A node answered a request with a status other than success.

    Nodes raise it to answer so; clients raise it when they were answered so.
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
        """Where to go instead, or empty."""
        self.epoch: int | None = epoch
        """The epoch of the leader at `address`, if the node said so."""
        self.offset: int | None = offset
        """The offset (bytes) that this status speaks of; see `octopi.wire.common.Failure`."""

    @property
    def meaning(self) -> StatusMeaning:
        """The row of the status table for this refusal."""
        return STATUS_MEANINGS[self.status]

    @property
    def retryable(self) -> bool:
        """Whether the same request can succeed later."""
        return self.meaning.retryable

    def __str__(self) -> str:
        return f"{self.args[0]} [{self.status.name.lower()}]"


class UnknownTopicError(RefusedError):
    """There is no such topic."""

    default_status = Status.UNKNOWN_TOPIC


class TopicExistsError(RefusedError):
    """There is such a topic already."""

    default_status = Status.TOPIC_EXISTS


class OffsetOutOfRangeError(RefusedError):
    """The log doesn't hold that offset: removed by retention, or not yet written."""

    default_status = Status.OFFSET_OUT_OF_RANGE


class OffsetInsideRecordError(RefusedError):
    """That offset is no record's start."""

    default_status = Status.OFFSET_INSIDE_RECORD


class NotLeaderError(RefusedError):
    """Another broker leads that partition; `address` names it where it is known."""

    default_status = Status.NOT_LEADER


class NotReadyError(RefusedError):
    """The node can't answer yet."""

    default_status = Status.NOT_READY


class SupersededError(RefusedError):
    """A register is older than one that a broker obeyed, or stands beside it."""

    default_status = Status.REGISTER_SUPERSEDED


class HistoryForkedError(RefusedError):
    """Records that were read are gone from the log, and others may stand in their place.

    All replicas that held them lost them, for example to a power cut.  What was read up to
    `offset` is still there.  Start again at `offset`, or consume with ``on_fork="resume"``.
    """

    default_status = Status.HISTORY_FORKED

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
        """Up to where the consumer had read (bytes): it read [`offset`, `read_until`), and
        those records are gone.  None where no consumer had read anything."""

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


class HistoryLostError(OctopiError):
    """The records that a consumer would read next are gone: retention removed them.

    Start again at `available_from`, or consume with ``on_gap="skip"``.
    """

    def __init__(self, topic: str, partition: int, wanted: int, available_from: int) -> None:
        super().__init__(
            f"{topic}/{partition}: the records from offset {wanted} to {available_from} were "
            "removed by retention before they were read"
        )
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        """The offset that comes next (bytes)."""
        self.available_from = available_from
        """Where the log starts now (bytes)."""


class TopicReplacedError(OctopiError):
    """A topic was deleted and created again, so positions in the old one mean nothing."""


class DeliveryError(OctopiError):
    """A message got no receipt."""


class NotDeliveredError(DeliveryError):
    """The message is certainly not stored; sending it again can't double it."""


class OutcomeUnknownError(DeliveryError):
    """The message may or may not be stored: its answer never came.

    Sending it again may double it.  Raised only when the delivery time-out ended.
    """


_BY_STATUS: Final[dict[Status, type[RefusedError]]] = {
    cls.default_status: cls
    for cls in (
        UnknownTopicError,
        TopicExistsError,
        OffsetOutOfRangeError,
        OffsetInsideRecordError,
        NotLeaderError,
        NotReadyError,
        SupersededError,
        HistoryForkedError,
    )
}


def refused(
    status: Status,
    message: str,
    address: str = "",
    epoch: int | None = None,
    offset: int | None = None,
) -> RefusedError:
    """The exception for *status*, of the class that callers react to."""
    return _BY_STATUS.get(status, RefusedError)(message, status, address, epoch, offset)
