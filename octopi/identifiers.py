"""The names and numbers that identify things, each a type of its own.

A byte position is not a length, and a broker is not a partition: ``NewType`` lets
the type checker hold us to that at no cost at run time.  This module knows no
format, no clock and no file.
"""

from __future__ import annotations

import re
from typing import Final, NewType

from octopi.errors import InvalidTopicError
from octopi.limits import ID_CHARACTERS, NONCE_BYTES_MAX, TOPIC_NAME_BYTES_MAX

BrokerId = NewType("BrokerId", int)
"""A broker, for as long as its data directory lives (positive)."""

ClusterId = NewType("ClusterId", str)
"""A cluster: 16 lower-case hexadecimal digits, drawn once by its first register."""

Incarnation = NewType("Incarnation", int)
"""One process of a broker; counted up durably at each start, from 1."""

Epoch = NewType("Epoch", int)
"""A generation of a partition's leadership; grows at each appointment, from 1."""

NO_EPOCH: Final = Epoch(0)
"""Where there is none."""

PartitionId = NewType("PartitionId", int)
"""A partition: the group of brokers that carries a share of the topics (from 0)."""

TopicName = NewType("TopicName", str)
"""A checked topic name; make one with `topic_name`."""

TopicId = NewType("TopicId", str)
"""One creation of a topic: 16 hexadecimal digits.  A topic that was deleted and created
again has another id, so a saved position can't silently point into other data."""

Offset = NewType("Offset", int)
"""A byte position in a log (from 0).  Where a record starts, it is that record's id.
Ends are exclusive."""

ProducerId = NewType("ProducerId", bytes)
"""A producer: 16 random bytes."""

ProducerEpoch = NewType("ProducerEpoch", int)
"""Counts the incarnations of a producer id; a higher one fences off every lower one."""

Sequence = NewType("Sequence", int)
"""A producer's count of its records in one log, per producer epoch, from 0, without gap."""

TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970-01-01 UTC."""

SubscriptionName = NewType("SubscriptionName", str)
"""A durable subscription of a topic, as its users call it."""

SubscriptionId = NewType("SubscriptionId", str)
"""One creation of a durable subscription: 16 hexadecimal digits.  A subscription that was deleted
and created again under the same name has another id."""

MemberId = NewType("MemberId", str)
"""One consumer of a durable subscription: chosen by a static member, given to the others."""

Claim = NewType("Claim", int)
"""Says which assignment of a log to a member is newer; counts up with each assignment and each
reset of a log of a subscription, from 1."""

NO_CLAIM: Final = Claim(0)
"""Where there was none yet."""

SUBSCRIPTIONS_LOG: Final = "~subscriptions"
"""Name and id of the internal log in which a partition keeps its durable subscriptions."""

INTERNAL_LOGS: Final = (SUBSCRIPTIONS_LOG,)
"""The internal logs of each partition: replicated with the logs of its topics, and no topics.
No name and no id of a topic has a ``~``."""

_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_ID: Final = re.compile(rf"[0-9a-f]{{{ID_CHARACTERS}}}", re.ASCII)
_NONCE: Final = re.compile(rf"[!-~]{{1,{NONCE_BYTES_MAX}}}", re.ASCII)
_ADDRESS: Final = re.compile(r"wss?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}/?", re.ASCII)


def topic_name(text: str) -> TopicName:
    """Check a topic's name.

    A name is 1 to `TOPIC_NAME_BYTES_MAX` characters out of ``A-Z a-z 0-9 . _ -`` and is
    neither ``.`` nor ``..``: it is used as the name of a folder and in URLs as it is.

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


# --- what is wrong with a text that a peer sent; empty: nothing ---------------------------


def topic_name_fault(text: str) -> str:
    """Why *text* is no topic's name; empty if it is one."""
    try:
        topic_name(text)
    except InvalidTopicError as error:
        return str(error)
    return ""


def consumer_name_fault(text: str) -> str:
    """Why *text* names no durable subscription and no member of one; empty if it can.

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


def is_internal(log: str) -> bool:
    """Whether *log*, the name or the id of a log, is that of an internal log."""
    return log in INTERNAL_LOGS


def log_id_fault(text: str) -> str:
    """Why *text* is no id of a log, which is its topic's or that of an internal log; empty if it
    is one."""
    return "" if is_internal(text) else id_fault(text)


def log_name_fault(name: str, topic_id: str) -> str:
    """Why no log has that *name* and that *topic_id*; empty if one may.

    An internal log's name is its id; both of any other log are those of its topic.
    """
    if is_internal(name):
        return "" if topic_id == name else f"the id of {name} is {name}, not {topic_id!r}"
    return topic_name_fault(name) or id_fault(topic_id)


def optional_id_fault(text: str) -> str:
    """The same, where an empty text stands for no topic or no cluster."""
    return id_fault(text) if text else ""


def optional_log_id_fault(text: str) -> str:
    """The same, where an empty text stands for no log."""
    return log_id_fault(text) if text else ""


def nonce_fault(text: str) -> str:
    """Why *text* can't name one incarnation of a broker or register; empty if it can."""
    if _NONCE.fullmatch(text) is not None:
        return ""
    return f"it has to be 1 to {NONCE_BYTES_MAX} printable characters of ASCII without spaces"


def address_fault(text: str) -> str:
    """Why *text* is no address of a node; empty if it is one."""
    if _ADDRESS.fullmatch(text) is not None:
        return ""
    return "it has to be ws://host:port or wss://host:port"
