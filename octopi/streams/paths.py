"""The paths of streams, and the topics that they name.

A path of one segment that is a legal topic name names that topic.  Any other path is escaped:
``path.``, then its UTF-8 bytes, of which letters, digits, ``_`` and ``-`` stand for themselves and
each other one is written as ``.`` and two hexadecimal digits.  So ``a/b c`` is the topic
``path.a.2fb.20c``, and the topic of a path tells the path.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from octopi.errors import InvalidTopicError, Status
from octopi.identifiers import TopicName, topic_name, topic_name_fault
from octopi.limits import TOPIC_NAME_BYTES_MAX
from octopi.streams.problems import StreamProblem

PREFIX: Final = "/v1/streams/"
ESCAPED: Final = "path."

_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_ESCAPE: Final = re.compile(rb"\.([0-9a-f]{2})")


def topic_of(path: str) -> TopicName:
    """The topic of the stream at *path*, a request's path, percent-encoded.

    Raises:
      StreamProblem: if no topic can have that name.
    """
    raw = unquote_to_bytes(path.removeprefix(PREFIX).encode("latin-1"))
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise StreamProblem("a stream's path is UTF-8", Status.INVALID_TOPIC) from None
    if not text.strip("/"):
        raise StreamProblem(f"name a stream: {PREFIX}TOPIC", Status.INVALID_TOPIC)
    if not topic_name_fault(text):
        return TopicName(text)
    if any(segment in {"", ".", ".."} for segment in text.split("/")):
        raise StreamProblem(
            "no segment of a stream's path is empty, '.' or '..'", Status.INVALID_TOPIC
        )
    escaped = "".join(chr(one) if one in _PLAIN else f".{one:02x}" for one in raw)
    try:
        return topic_name(ESCAPED + escaped)
    except InvalidTopicError:
        raise StreamProblem(
            f"the path is too long: escaped, it is {len(ESCAPED + escaped)} characters of at most "
            f"{TOPIC_NAME_BYTES_MAX}",
            Status.INVALID_TOPIC,
        ) from None


def source_topic(path: str) -> TopicName:
    """The topic of the stream that ``Stream-Forked-From`` names: by its path on this node, or by
    what follows `PREFIX` in it."""
    return topic_of(path.partition("?")[0].removeprefix(PREFIX).removeprefix("/"))


def path_of(topic: TopicName) -> str:
    """A path, percent-encoded, of the stream that *topic* is; the inverse of `topic_of`."""
    if not topic.startswith(ESCAPED):
        return PREFIX + topic
    raw = _ESCAPE.sub(
        lambda match: bytes([int(match[1], 16)]), topic.removeprefix(ESCAPED).encode()
    )
    path = PREFIX + quote(raw, safe="/")
    try:
        return path if topic_of(path) == topic else PREFIX + topic
    except StreamProblem:
        return PREFIX + topic  # a client gave a topic such a name
