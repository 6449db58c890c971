"""The options of ``format("octopi")``.  All of them are checked before anything is read.

Options that mean the same as one of Spark's Kafka connector have the same name.  Options are plain
text that travels to the executors with the job, so tokens can be given by the name of a file or of
an environment variable instead.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from octopi.clients.client import DEFAULT_SERVER
from octopi.clients.subscribing.subscription_options import subscription_name
from octopi.errors import InvalidOptionError, InvalidTopicError
from octopi.identifiers import TopicName, topic_name
from octopi.limits import KIB, MIB
from octopi.position import Anchor, Position
from octopi.transport.addresses import server_address

EARLIEST: Final = -2
LATEST: Final = -1

Places: TypeAlias = Literal["earliest", "latest"] | Mapping[str, Mapping[int, int]]
"""One word for all logs, or offsets by topic and partition, which may be `EARLIEST` and `LATEST`.
Logs that are not named are read from their start, or to their end."""

_UNITS: Final = {"": 1, "b": 1, "k": KIB, "kb": KIB, "m": MIB, "mb": MIB, "g": KIB * MIB}
_SECONDS: Final = {"ms": 0.001, "": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600}


@attrs.frozen
class ConnectionOptions:
    """How to reach a cluster; hashable, so that equal options can share a client."""

    servers: tuple[str, ...]
    token: str | None
    token_file: str
    token_env: str
    tls_ca: str
    """A file with the certificate authority to trust for ``wss://``; empty: the system's."""
    request_timeout_s: float

    def secret(self) -> str | None:
        """The token; None: there is none.  It is read on the machine that uses it, and each time,
        since it may be replaced.

        Raises:
          InvalidOptionError: if the file can't be read, or the environment variable isn't set.
        """
        if self.token_file:
            try:
                return Path(self.token_file).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise InvalidOptionError(
                    f"tokenFile {self.token_file} can't be read on this machine: {error.strerror}"
                ) from None
        if self.token_env:
            if self.token_env not in os.environ:
                raise InvalidOptionError(
                    f"tokenEnv {self.token_env} is not set in this process's environment"
                )
            return os.environ[self.token_env]
        return self.token


@attrs.frozen
class ReadOptions:
    """The options of a source (docs/spark.md)."""

    connection: ConnectionOptions
    path: str
    """The directory of segment files; empty: read from a cluster."""
    subscribe: tuple[TopicName, ...]
    pattern: str
    """A regular expression for the names of topics, instead of `subscribe`; empty: none."""
    subscription: str
    """The durable subscription of each topic at whose marks the query begins; empty: none."""
    starting: Places
    starting_anchors: Mapping[str, Mapping[int, Anchor]]
    """By topic and partition, the anchors of offsets in `starting` that were given as positions."""
    ending: Places
    starting_timestamp_ms: int | None
    min_partitions: int
    max_bytes: int | None
    max_records: int | None
    min_bytes: int
    max_delay_s: float
    fail_on_data_loss: bool
    include_headers: bool
    pushdown: bool


@attrs.frozen
class WriteOptions:
    """The options of a sink (docs/spark.md)."""

    connection: ConnectionOptions
    topic: str
    """The topic for rows without a column ``topic``; empty: rows have one."""
    create_topics: bool
    job_id: str
    """The name of a batch job: a second run with the same name adds no duplicates; empty: each run
    has a new name."""


_CONNECTION: Final = {"server", "token", "tokenfile", "tokenenv", "tlsca", "requesttimeout"}
READ: Final = _CONNECTION | {
    "path",
    "subscribe",
    "subscribepattern",
    "subscription",
    "startingoffsets",
    "endingoffsets",
    "startingtimestamp",
    "minpartitions",
    "maxbytespertrigger",
    "maxrecordspertrigger",
    "minbytespertrigger",
    "maxtriggerdelay",
    "failondataloss",
    "includeheaders",
    "pushdown",
}
WRITE: Final = _CONNECTION | {
    "topic",
    "createtopics",
    "jobid",
    "checkpointlocation",
    "path",
    "queryname",
}
_KAFKA: Final = {
    "kafka.bootstrap.servers": "server",
    "maxoffsetspertrigger": "maxRecordsPerTrigger",
    "minoffsetspertrigger": "minBytesPerTrigger",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "assign": "subscribe",
}


def read_options(given: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """The options of a source.  *streaming*: whether it is for a stream, or for a batch; None: that
    isn't known yet.

    Raises:
      InvalidOptionError: if one is wrong; the text names it, and says what it should be.
    """
    values = _known(given, READ)
    subscribe = _topics(values.get("subscribe", ""))
    pattern = values.get("subscribepattern", "")
    path = values.get("path", "")
    if subscribe and pattern:
        raise InvalidOptionError("give subscribe or subscribePattern, not both")
    if not (subscribe or pattern or path):
        raise InvalidOptionError(
            "say what to read: .option('subscribe', 'orders') names topics, subscribePattern "
            "matches them, path names a directory of segment files"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidOptionError(
            f"subscribePattern {pattern!r} is no regular expression: {error}"
        ) from None
    if streaming and "endingoffsets" in values:
        raise InvalidOptionError("endingOffsets is for batch reads: a stream has no end")
    if "startingtimestamp" in values and "startingoffsets" in values:
        raise InvalidOptionError("give startingOffsets or startingTimestamp, not both")
    if "subscription" in values:
        _check_subscription(values, streaming)
    return ReadOptions(
        connection=_connection(values),
        path=path,
        subscribe=subscribe,
        pattern=pattern,
        subscription=values.get("subscription", ""),
        starting=_places(
            "startingOffsets", values.get("startingoffsets", "latest" if streaming else "earliest")
        ),
        starting_anchors=_anchors(values.get("startingoffsets", "")),
        ending=_places("endingOffsets", values.get("endingoffsets", "latest")),
        starting_timestamp_ms=_optional(values, "startingTimestamp", _timestamp_ms),
        min_partitions=_optional(values, "minPartitions", _count) or 1,
        max_bytes=_optional(values, "maxBytesPerTrigger", _bytes),
        max_records=_optional(values, "maxRecordsPerTrigger", _count),
        min_bytes=_optional(values, "minBytesPerTrigger", _bytes) or 0,
        max_delay_s=_optional(values, "maxTriggerDelay", _seconds) or 900.0,
        fail_on_data_loss=_truth("failOnDataLoss", values.get("failondataloss", "true")),
        include_headers=_truth("includeHeaders", values.get("includeheaders", "false")),
        pushdown=_truth("pushdown", values.get("pushdown", "false")),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a sink.

    Raises:
      InvalidOptionError: if one is wrong; the text names it, and says what it should be.
    """
    values = _known(given, WRITE)
    topic = values.get("topic", "")
    if topic:
        _topics(topic)
    return WriteOptions(
        connection=_connection(values),
        topic=topic,
        create_topics=_truth("createTopics", values.get("createtopics", "true")),
        job_id=values.get("jobid", ""),
    )


def _check_subscription(values: Mapping[str, str], streaming: bool | None) -> None:
    subscription_name(values["subscription"])
    if "path" in values:
        raise InvalidOptionError(
            "subscription needs a cluster: the files in path have no subscriptions"
        )
    reset = (
        "the marks of the subscription say where the query begins; `octopi-node subscriptions "
        "reset` moves them"
    )
    if "startingtimestamp" in values:
        raise InvalidOptionError(f"give subscription or startingTimestamp, not both: {reset}")
    starting = values.get("startingoffsets", "latest").strip()
    if streaming is False and "startingoffsets" in values:
        raise InvalidOptionError(
            f"give subscription or startingOffsets, not both: of a batch, {reset}"
        )
    if starting not in {"earliest", "latest"}:
        raise InvalidOptionError(
            f"startingOffsets is {starting[:80]!r}; with subscription it is earliest or latest, "
            f"where a new subscription begins: {reset}"
        )


def _known(given: Mapping[str, str], names: set[str]) -> dict[str, str]:
    values = {name.lower(): value for name, value in given.items()}
    for name in values:
        if name in _KAFKA:
            raise InvalidOptionError(f"there is no option {name}: use {_KAFKA[name]} instead")
        if name not in names:
            raise InvalidOptionError(f"there is no option {name}; there are {sorted(names)}")
    return values


def _connection(values: Mapping[str, str]) -> ConnectionOptions:
    servers = tuple(one.strip() for one in values.get("server", DEFAULT_SERVER).split(","))
    for server in servers:
        server_address(server)
    if sum(name in values for name in ("token", "tokenfile", "tokenenv")) > 1:
        raise InvalidOptionError("give one of token, tokenFile and tokenEnv")
    return ConnectionOptions(
        servers,
        values.get("token"),
        values.get("tokenfile", ""),
        values.get("tokenenv", ""),
        values.get("tlsca", ""),
        _optional(values, "requestTimeout", _seconds) or 60.0,
    )


def _topics(text: str) -> tuple[TopicName, ...]:
    try:
        return tuple(topic_name(one.strip()) for one in text.split(",") if one.strip())
    except InvalidTopicError as error:
        raise InvalidOptionError(str(error)) from None


def _optional(values: Mapping[str, str], name: str, read: Callable[[str, str], Any]) -> Any:
    text = values.get(name.lower())
    return None if text is None else read(name, text.strip())


def _places(name: str, text: str) -> Places:
    """Parse ``earliest``, ``latest``, positions (``v1:...``, separated by blanks), or JSON as for
    Kafka: ``{"orders": {"0": 1234, "1": -2}}``."""
    text = text.strip()
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.startswith("v1:"):
        positions = [Position.parse(one) for one in text.split()]
        return {one.topic: {p: int(o) for p, o in one.offsets.items()} for one in positions}
    example = '{"orders": {"0": 1234, "1": -2}}'
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidOptionError(
            f"{name} is {text[:80]!r}: neither earliest nor latest, no position, and no JSON "
            f"({error}); an example is {example}"
        ) from None
    shape = InvalidOptionError(
        f"{name} is {text[:80]!r}: it must give for each topic an offset for each partition, "
        f"-2 for its start, -1 for its end; an example is {example}"
    )
    if not isinstance(found, dict):
        raise shape
    places: dict[str, dict[int, int]] = {}
    for topic, offsets in found.items():
        if not isinstance(offsets, dict):
            raise shape
        for partition, offset in offsets.items():
            if not partition.isdecimal() or type(offset) is not int or offset < EARLIEST:
                raise shape
        places[topic] = {int(partition): offset for partition, offset in offsets.items()}
    return places


def _anchors(text: str) -> dict[str, dict[int, Anchor]]:
    if not text.strip().startswith("v1:"):
        return {}
    positions = [Position.parse(one) for one in text.split()]
    return {
        one.topic: {partition: place.anchor for partition, place in one.places.items()}
        for one in positions
    }


def _timestamp_ms(name: str, text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOptionError(
            f"{name} is {text!r}; it must be milliseconds since 1970 or a time such as "
            "2026-11-21T12:00:00Z"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1000)


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise InvalidOptionError(f"{name} is {text!r}; it must be a whole number from 1 on")
    return int(text)


def _bytes(name: str, text: str) -> int:
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.lower())
    if match is None or match[2] not in _UNITS or not int(match[1]):
        raise InvalidOptionError(f"{name} is {text!r}; it must be bytes, such as 67108864 or 64m")
    return int(match[1]) * _UNITS[match[2]]


def _seconds(name: str, text: str) -> float:
    match = re.fullmatch(r"([0-9.]+)\s*([a-z]*)", text.lower())
    if match is None or match[2] not in _SECONDS:
        raise InvalidOptionError(
            f"{name} is {text!r}; it must be a time, such as 500ms, 30s or 15m"
        )
    return float(match[1]) * _SECONDS[match[2]]


def _truth(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise InvalidOptionError(f"{name} is {text!r}; it must be true or false")
    return text.lower() == "true"
