"""The names and numbers that identify things, each with a type of its own.

An offset is not a length, and a broker's id is not a partition's: with ``NewType`` the type checker
finds such mistakes, at no cost at run time.  This module knows no format, no clock and no file.
"""

from __future__ import annotations

import re
from typing import Final, NewType

from octopi.errors import InvalidTopicError
from octopi.limits import ID_CHARACTERS, NONCE_BYTES_MAX, TOPIC_NAME_BYTES_MAX

BrokerId = NewType("BrokerId", int)
"""A broker, for as long as its data directory exists (positive)."""

DirectoryId = NewType("DirectoryId", str)
"""A data directory of a broker: random hexadecimal digits, drawn when it is made."""

RingPoint = NewType("RingPoint", int)
"""A place on the ring of brokers, of a broker or of a key: 52 bits (`octopi.ring.points`)."""

InstanceId = NewType("InstanceId", int)
"""One of the values on which nodes agree (`octopi.agreement`), from 0."""

ClusterId = NewType("ClusterId", str)
"""A cluster: 16 lower-case hexadecimal digits, drawn once by its first register."""

Incarnation = NewType("Incarnation", int)
"""One process of a broker; counted up durably at each start, from 1."""

Epoch = NewType("Epoch", int)
"""The number of one leadership of a partition; grows with each appointment of a leader, from 1."""

NO_EPOCH: Final = Epoch(0)
"""Stands for no epoch."""

PartitionId = NewType("PartitionId", int)
"""The number of a partition, the unit of replication and leadership (from 0)."""

TopicName = NewType("TopicName", str)
"""A checked topic name; make one with `topic_name`."""

TopicId = NewType("TopicId", str)
"""One creation of a topic: 16 hexadecimal digits.  A topic that was deleted and created
again has another id, so a saved position can't be used for other data by mistake."""

Offset = NewType("Offset", int)
"""A byte position in a log (from 0).  The offset at which a record starts is that record's id.
Ends are exclusive."""

ProducerId = NewType("ProducerId", bytes)
"""A producer: 16 random bytes."""

ProducerEpoch = NewType("ProducerEpoch", int)
"""Counts the restarts of a producer id; a higher epoch fences all lower ones."""

Sequence = NewType("Sequence", int)
"""A producer's count of its records in one log, per producer epoch, from 0, without gap."""

TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970-01-01 UTC."""

SubscriptionName = NewType("SubscriptionName", str)
"""The name of a durable subscription of a topic."""

SubscriptionId = NewType("SubscriptionId", str)
"""One creation of a durable subscription: 16 hexadecimal digits.  A subscription that was deleted
and created again under the same name has another id."""

MemberId = NewType("MemberId", str)
"""The id of one consumer of a durable subscription.  A static member chooses its id; the others are
given theirs."""

Claim = NewType("Claim", int)
"""The number of an assignment of a log to a member; counts up with each assignment and each reset
of a log of a subscription, from 1."""

NO_CLAIM: Final = Claim(0)
"""Stands for no claim."""

SUBSCRIPTIONS_LOG: Final = "~subscriptions"
"""Name and id of the internal log in which a partition keeps its durable subscriptions."""

TOPICS_LOG: Final = "~topics"
"""Name and id of the internal log in which a partition of a cluster without a register keeps the
records of topics, and which topics it has logs of."""

INTERNAL_LOGS: Final = (SUBSCRIPTIONS_LOG,)
"""The internal logs of each partition, which are replicated with the logs of its topics.  A ``~``
tells their names and ids from those of topics, which never have one."""

RING_LOGS: Final = (SUBSCRIPTIONS_LOG, TOPICS_LOG)
"""Those of each partition in a cluster without a register."""

EVENTS_TOPIC: Final = TopicName("_octopi.events")
RATES_TOPIC: Final = TopicName("_octopi.rates")

SYSTEM_TOPICS: Final = (EVENTS_TOPIC, RATES_TOPIC)
"""The topics with the cluster's own history: nodes write them, and clients read them."""

SYSTEM_PREFIX: Final = "_octopi."
"""What the names of system topics begin with.  No other topic has such a name."""

_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_ID: Final = re.compile(rf"[0-9a-f]{{{ID_CHARACTERS}}}", re.ASCII)
_NONCE: Final = re.compile(rf"[!-~]{{1,{NONCE_BYTES_MAX}}}", re.ASCII)
_ADDRESS: Final = re.compile(r"wss?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}/?", re.ASCII)


def topic_name(text: str) -> TopicName:
    """Check a topic's name.

    A name has 1 to `TOPIC_NAME_BYTES_MAX` characters out of ``A-Z a-z 0-9 . _ -``, and is neither
    ``.`` nor ``..``, because it is used, unchanged, as the name of a folder and in URLs.

    Raises:
      InvalidTopicError: if *text* is no such name.
    """
    if not text:
        raise InvalidTopicError("a topic's name can't be empty")
    if len(text) > TOPIC_NAME_BYTES_MAX:
        raise InvalidTopicError(
            f"a topic's name has at most {TOPIC_NAME_BYTES_MAX} characters, "
            f"this one has {len(text)}"
        )
    if text in {".", ".."} or _TOPIC_NAME.fullmatch(text) is None:
        raise InvalidTopicError(
            f"{text!r} is no topic name: use letters, digits, '.', '_' and '-' (ASCII), "
            "and neither '.' nor '..' alone"
        )
    return TopicName(text)


# --- checks of texts from peers ------------------------------------------------------------


def topic_name_fault(text: str) -> str:
    """Why *text* is no name of a topic; empty if it is one."""
    try:
        topic_name(text)
    except InvalidTopicError as error:
        return str(error)
    return ""


def consumer_name_fault(text: str) -> str:
    """Why *text* can't be the name of a durable subscription, or of a member; empty if it can.

    The rules are those of topic names.
    """
    if not text:
        return "a name can't be empty"
    if len(text) > TOPIC_NAME_BYTES_MAX:
        return f"a name has at most {TOPIC_NAME_BYTES_MAX} characters, this one has {len(text)}"
    if text in {".", ".."} or _TOPIC_NAME.fullmatch(text) is None:
        return (
            f"{text!r} is no name: use letters, digits, '.', '_' and '-' (ASCII), "
            "and neither '.' nor '..' alone"
        )
    return ""


def id_fault(text: str) -> str:
    """Why *text* is no id of a topic or of a cluster; empty if it is one.

    Ids become parts of file names, as names of topics do.
    """
    if _ID.fullmatch(text) is not None:
        return ""
    return f"it has to be {ID_CHARACTERS} hexadecimal digits in lower case"


def is_system_topic(name: str) -> bool:
    """Whether *name* is one that only topics of the cluster itself can have."""
    return name.startswith(SYSTEM_PREFIX)


def system_name_fault(name: str) -> str:
    """Why no topic can be created under *name*, which is a legal one; empty: one can."""
    if not is_system_topic(name) or name in SYSTEM_TOPICS:
        return ""
    return (
        f"names that begin with {SYSTEM_PREFIX} are for the cluster's own topics "
        f"({', '.join(SYSTEM_TOPICS)}): choose another name than {name!r}"
    )


def is_internal(log: str) -> bool:
    """Whether *log*, a name or an id of a log, belongs to an internal log."""
    return log in RING_LOGS


def log_id_fault(text: str) -> str:
    """Why *text* is no id of a log; empty if it is one.  The id of a log is that of its topic, or
    that of an internal log."""
    return "" if is_internal(text) else id_fault(text)


def log_name_fault(name: str, topic_id: str) -> str:
    """Why no log can have this *name* together with this *topic_id*; empty if one can.

    The name of an internal log is its id.  Any other log has the name and the id of its topic.
    """
    if is_internal(name):
        return "" if topic_id == name else f"the id of {name} is {name}, not {topic_id!r}"
    return topic_name_fault(name) or id_fault(topic_id)


def optional_id_fault(text: str) -> str:
    """Like `id_fault`, but *text* may be empty, for no topic or no cluster."""
    return id_fault(text) if text else ""


def optional_log_id_fault(text: str) -> str:
    """Like `log_id_fault`, but *text* may be empty, for no log."""
    return log_id_fault(text) if text else ""


def nonce_fault(text: str) -> str:
    """Why *text* can't be the nonce of an incarnation or a generation; empty if it can."""
    if _NONCE.fullmatch(text) is not None:
        return ""
    return f"it has to be 1 to {NONCE_BYTES_MAX} printable characters of ASCII without spaces"


def address_fault(text: str) -> str:
    """Why *text* is no address of a node; empty if it is one."""
    if _ADDRESS.fullmatch(text) is not None:
        return ""
    return "it has to be ws://host:port or wss://host:port"
