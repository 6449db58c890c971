"""What a partition's log ``~subscriptions`` holds: a key for each thing, and its newest value.

============================= ==================================== ==================
key                           value                                written by
============================= ==================================== ==================
``s/<sid>``                   `octopi.model.SubscriptionDefinition` the coordinator
``m/<sid>/<member>``          `MemberEntry`                        the coordinator
``a/<sid>/<partition>``       `AssignmentEntry`                    the coordinator
``k/<sid>/<topic id>``        `MarkEntry`                          each log's leader
============================= ==================================== ==================

``sid`` is the id of one creation of a subscription, 16 hexadecimal digits.  A value is a map of
plain values; fields that have their default are not written.  What is read is checked as a message
is: an unknown kind or field, a missing one or one out of its bounds is an `UnreadableEntryError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum, unique
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import attrs

from octopi.errors import StorageError
from octopi.field_bounds import AtMost, Grammar, Within
from octopi.identifiers import (
    NO_CLAIM,
    Claim,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
    TimestampMs,
    TopicId,
    consumer_name_fault,
    id_fault,
    optional_id_fault,
)
from octopi.limits import (
    AGENT_BYTES_MAX,
    ANCHOR_BYTES_MAX,
    CONNECTION_NAME_BYTES_MAX,
    COUNTED_MAX,
    LETTER_REASON_BYTES_MAX,
    LETTERS_PENDING_MAX,
    LIST_COUNT_MAX,
    OFFSET_MAX,
    QUEUE_WINDOW_MAX,
    SKIPPED_RANGES_MAX,
    TOPIC_NAME_BYTES_MAX,
)
from octopi.model import (
    QUEUE_MODES,
    ModeText,
    Place,
    SubscriptionDefinition,
    SubscriptionMode,
    SubscriptionOptions,
    TopicText,
)
from octopi.position import NO_ANCHOR, Anchor
from octopi.wire.codec import fault_in

_T = TypeVar("_T")

_NO_TIME: Final = TimestampMs(0)
_NO_TOPIC: Final = TopicId("")
_ZERO: Final = Offset(0)

NO_MEMBER: Final = MemberId("")
"""Where there is none."""


class UnreadableEntryError(StorageError):
    """A broker of this version can't read an entry of the log ``~subscriptions``: its bytes are
    not what any broker writes, or a newer one wrote it."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(
            f"the entry {key[:300]!r} of the log ~subscriptions can't be read: {why}; if a newer "
            "version wrote it, run that one (`octopi-node --version`), else run "
            "`octopi-node verify` on the data directory"
        )
        self.key = key
        self.why = why


@attrs.frozen
class MemberEntry:
    """A member of a subscription."""

    static: bool = False
    """Whether it chose its id, and keeps its logs through a restart."""
    agent: Annotated[str, AtMost(AGENT_BYTES_MAX)] = ""
    """The name and version of its program."""
    subject: Annotated[str, AtMost(TOPIC_NAME_BYTES_MAX)] = ""
    """That of its token; empty: it had none."""
    name: Annotated[str, AtMost(CONNECTION_NAME_BYTES_MAX)] = ""
    """What its program calls its connections; empty: nothing."""


@unique
class AssignmentPhase(StrEnum):
    """What is decided about a log of a subscription.  The names stand on disk."""

    FREE = "free"
    ASSIGNED = "assigned"
    RESETTING = "resetting"
    """The mark is being set to another offset; no member has the log meanwhile."""


def _phase_fault(text: str) -> str:
    return "" if text in set(AssignmentPhase) else f"there are {', '.join(AssignmentPhase)}"


def _member_fault(text: str) -> str:
    return consumer_name_fault(text) if text else ""


def _name_fault(text: str) -> str:
    return consumer_name_fault(text)


@attrs.frozen
class AssignmentEntry:
    """Who has a log of a subscription."""

    phase: Annotated[str, AtMost(16), Grammar(_phase_fault)] = AssignmentPhase.FREE
    """An `AssignmentPhase`."""
    member: Annotated[MemberId, AtMost(TOPIC_NAME_BYTES_MAX), Grammar(_member_fault)] = NO_MEMBER
    claim: Annotated[Claim, Within(0, COUNTED_MAX)] = NO_CLAIM
    """The newest that was ever given: it counts up with each assignment and each reset."""
    reset_to: Place | None = None


@attrs.frozen
class LostSpan:
    """Records that a subscription was to be given, or had been given, and that the log has no
    more."""

    begin: Annotated[Offset, Within(0, OFFSET_MAX)]
    end: Annotated[Offset, Within(0, OFFSET_MAX)]
    """Exclusive."""


@attrs.frozen
class LetterEntry:
    """A message of a queue that is given up, and not known to be in the dead-letter topic."""

    offset: Annotated[Offset, Within(0, OFFSET_MAX)]
    number: Annotated[int, Within(0, COUNTED_MAX)]
    """Among the dead letters of this subscription and log, from 0."""
    attempts: Annotated[int, Within(0, COUNTED_MAX)]
    """How often the message was dealt."""
    reason: Annotated[str, AtMost(LETTER_REASON_BYTES_MAX)] = ""


@attrs.frozen
class LetterSequence:
    """How dead letters are counted by the log that they are appended to."""

    topic_id: Annotated[TopicId, AtMost(TOPIC_NAME_BYTES_MAX), Grammar(optional_id_fault)] = (
        _NO_TOPIC
    )
    """That of the dead-letter topic when the sequence began; empty: none did."""
    epoch: Annotated[int, Within(0, COUNTED_MAX)] = 0
    """The producer epoch."""
    first_number: Annotated[int, Within(0, COUNTED_MAX)] = 0
    """The number of the dead letter with the producer sequence 0."""


@attrs.frozen
class QueueEntry:
    """What a queue keeps of the messages behind its mark."""

    settled: Annotated[list[int], AtMost(QUEUE_WINDOW_MAX + 1)] = attrs.field(factory=list)
    """Ranges of the log that are settled: the bytes from the mark to the first one, its length,
    the bytes to the next one, and so on."""
    attempts: Annotated[list[int], AtMost(2 * QUEUE_WINDOW_MAX)] = attrs.field(factory=list)
    """Messages that were dealt and given back: the bytes from the mark to the first one, how often
    it was dealt, the bytes from there to the next one, and so on."""
    letters: Annotated[list[LetterEntry], AtMost(LETTERS_PENDING_MAX)] = attrs.field(factory=list)
    """In the order of their numbers."""
    letter_count: Annotated[int, Within(0, COUNTED_MAX)] = 0
    """How many numbers of dead letters were given."""
    sequence: LetterSequence = LetterSequence()
    end: Annotated[Offset, Within(0, OFFSET_MAX)] = _ZERO
    """All of this is about messages below it."""
    anchor: Annotated[Anchor, AtMost(ANCHOR_BYTES_MAX)] = NO_ANCHOR
    """Of `end`."""

    def fault(self) -> str:
        """Why no queue stores this; empty: one does."""
        for numbers in (self.settled, self.attempts):
            if len(numbers) % 2:
                return "numbers about messages come in pairs"
            if any(one < (1 if n else 0) for n, one in enumerate(numbers)):
                return "messages are described in their order"
            if sum(numbers) > OFFSET_MAX:
                return "no log is so long"
        previous = -1
        for letter in self.letters:
            if not previous < letter.number < self.letter_count:
                return "dead letters stand in the order of their numbers"
            previous = letter.number
        if len({one.offset for one in self.letters}) < len(self.letters):
            return "a message becomes one dead letter"
        return ""


@attrs.frozen
class MarkEntry:
    """How far a subscription is in a log."""

    name: Annotated[SubscriptionName, AtMost(TOPIC_NAME_BYTES_MAX), Grammar(_name_fault)]
    """That of the subscription."""
    topic: TopicText
    mark: Annotated[Offset, Within(0, OFFSET_MAX)]
    """The first message that is not known to be processed."""
    anchor: Annotated[Anchor, AtMost(ANCHOR_BYTES_MAX)] = NO_ANCHOR
    """Of the mark: which epochs wrote the records before it (`octopi.position`)."""
    claim: Annotated[Claim, Within(0, COUNTED_MAX)] = NO_CLAIM
    """The newest that attached, or reset the mark."""
    changed_ms: Annotated[TimestampMs, Within(0, OFFSET_MAX)] = _NO_TIME
    """When this was stored: a member was attached then, or had been just before."""
    mode: ModeText = SubscriptionMode.EXCLUSIVE
    expires_ms: int | None = SubscriptionOptions().expires_ms
    mark_interval_ms: int = SubscriptionOptions().mark_interval_ms
    lost: LostSpan | None = None
    """What the log has no more and the members have not gone on behind yet."""
    skipped: Annotated[list[LostSpan], AtMost(SKIPPED_RANGES_MAX)] = attrs.field(factory=list)
    """What was lost before, the newest last."""
    attempts: int | None = SubscriptionOptions().attempts
    ack_timeout_ms: int = SubscriptionOptions().ack_timeout_ms
    window: int = SubscriptionOptions().window
    queue: QueueEntry = attrs.field(factory=QueueEntry)
    """In the modes of queues."""


Entry: TypeAlias = SubscriptionDefinition | MemberEntry | AssignmentEntry | MarkEntry


@attrs.frozen
class StoredSubscriptions:
    """All entries of one partition."""

    definitions: dict[SubscriptionId, SubscriptionDefinition] = attrs.field(factory=dict)
    members: dict[SubscriptionId, dict[MemberId, MemberEntry]] = attrs.field(factory=dict)
    assignments: dict[SubscriptionId, dict[PartitionId, AssignmentEntry]] = attrs.field(
        factory=dict
    )
    marks: dict[tuple[SubscriptionId, TopicId], MarkEntry] = attrs.field(factory=dict)

    @classmethod
    def read(cls, entries: Mapping[str, Mapping[str, Any]]) -> StoredSubscriptions:
        """The inverse of `to_map`, of all entries: the newest value of each key.

        Raises:
          UnreadableEntryError: if one of them is not what `to_map` makes.
        """
        found = cls()
        for key, value in entries.items():
            found.add(key, value)
        return found

    def add(self, key: str, value: Mapping[str, Any]) -> None:
        """Read one entry; of ten thousands of them, some can be read in each turn.

        Raises:
          UnreadableEntryError: if it is not what `to_map` makes.
        """
        try:
            self._add(key, value)
        except (TypeError, ValueError) as error:
            raise UnreadableEntryError(key, str(error)) from None

    def _add(self, key: str, value: Mapping[str, Any]) -> None:
        kind, *ids = key.split("/")
        if kind not in {"s", "m", "a", "k"}:
            raise ValueError(f"there is no kind {kind[:20]!r} of entries")
        if len(ids) != (1 if kind == "s" else 2) or id_fault(ids[0]):
            raise ValueError("its key has another form")
        sid, last = SubscriptionId(ids[0]), ids[-1]
        if kind == "s":
            self.definitions[sid] = _definition(sid, value)
        elif kind == "m":
            _no_fault(consumer_name_fault(last))
            self.members.setdefault(sid, {})[MemberId(last)] = _made(MemberEntry, value)
        elif kind == "a":
            partition = _partition(last)
            self.assignments.setdefault(sid, {})[partition] = _made(AssignmentEntry, value)
        else:
            _no_fault(id_fault(last))
            self.marks[sid, TopicId(last)] = _mark(value)


# --- keys ----------------------------------------------------------------------------


def definition_key(sid: SubscriptionId) -> str:
    """Where an `octopi.model.SubscriptionDefinition` is kept."""
    return f"s/{sid}"


def member_key(sid: SubscriptionId, member: MemberId) -> str:
    """Where a `MemberEntry` is kept."""
    return f"m/{sid}/{member}"


def assignment_key(sid: SubscriptionId, partition: PartitionId) -> str:
    """Where an `AssignmentEntry` is kept."""
    return f"a/{sid}/{partition}"


def mark_key(sid: SubscriptionId, topic_id: TopicId) -> str:
    """Where a `MarkEntry` is kept."""
    return f"k/{sid}/{topic_id}"


# --- values --------------------------------------------------------------------------


def to_map(entry: Entry) -> dict[str, Any]:
    """What is stored of *entry*; the key has the rest."""
    return {
        field.name: _plain(value)
        for field in attrs.fields(type(entry))
        if field.name != "sid"
        for value in [getattr(entry, field.name)]
        if value != _default(field)
    }


def _plain(value: object) -> object:
    match value:
        case LostSpan():
            return [value.begin, value.end]
        case SubscriptionOptions() | LetterSequence():
            return attrs.asdict(value)
        case QueueEntry():
            return {
                field.name: _plain(one)
                for field in attrs.fields(QueueEntry)
                for one in [getattr(value, field.name)]
                if one != _default(field)
            }
        case LetterEntry():
            return list(attrs.astuple(value))
        case list():
            return [_plain(one) for one in value]
        case StrEnum():
            return value.value
        case _:
            return value


def _default(field: attrs.Attribute[Any]) -> object:
    factory = getattr(field.default, "factory", None)
    return field.default if factory is None else factory()


def _made(cls: type[_T], value: Mapping[str, Any]) -> _T:
    """*cls* of the fields in *value*, checked."""
    made = cls(**value)
    _no_fault(fault_in(made))
    return made


def _definition(sid: SubscriptionId, value: Mapping[str, Any]) -> SubscriptionDefinition:
    fields = dict(value)
    options = SubscriptionOptions(**fields.pop("options", {}))
    _no_fault(fault_in(options) or options.fault())
    return _made(SubscriptionDefinition, {**fields, "sid": sid, "options": options})


def _mark(value: Mapping[str, Any]) -> MarkEntry:
    fields = dict(value)
    if fields.get("lost") is not None:
        fields["lost"] = _span(fields["lost"])
    if "skipped" in fields:
        fields["skipped"] = [_span(one) for one in fields["skipped"]]
    if "queue" in fields:
        fields["queue"] = _queue(fields["queue"])
    made = _made(MarkEntry, fields)
    _no_fault(_options(made).fault(made.mode))
    _no_fault(made.queue.fault())
    if made.mode not in QUEUE_MODES and made.queue != QueueEntry():
        raise ValueError(f"mode {made.mode} has no queue")
    return made


def _options(entry: MarkEntry) -> SubscriptionOptions:
    return SubscriptionOptions(
        expires_ms=entry.expires_ms,
        mark_interval_ms=entry.mark_interval_ms,
        attempts=entry.attempts,
        ack_timeout_ms=entry.ack_timeout_ms,
        window=entry.window,
    )


def _queue(value: Mapping[str, Any]) -> QueueEntry:
    fields = dict(value)
    if "letters" in fields:
        fields["letters"] = [LetterEntry(*one) for one in fields["letters"]]
    if "sequence" in fields:
        fields["sequence"] = LetterSequence(**fields["sequence"])
    return QueueEntry(**fields)


def _span(value: object) -> LostSpan:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("a lost range is a pair of offsets")
    begin, end = value
    return LostSpan(begin, end)


def _partition(text: str) -> PartitionId:
    if not text.isdecimal() or text != str(int(text)) or int(text) >= LIST_COUNT_MAX:
        raise ValueError("its key has another form")
    return PartitionId(int(text))


def _no_fault(fault: str) -> None:
    if fault:
        raise ValueError(fault)
