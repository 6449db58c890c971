"""The oracle: in a cluster at rest, all replicas of a log are the same bytes.

At rest means that every replica says the same log end, and that all of it is committed.
What is compared then are the files, not what brokers say of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import trio

import octopi
from octopi.errors import OctopiError
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.record import Message, decode

REST_S = 30.0
"""A cluster that nobody disturbs is at rest much sooner."""

_POLL_S = 0.02


def stored(data_dir: Path, topic: str, partition: int) -> bytes:
    """The log as it lies in a data directory: its segments one behind the other."""
    content = b""
    for segment in sorted((data_dir / "logs" / str(partition) / topic).glob("*.log")):
        assert int(segment.stem) == len(content), f"{segment} does not begin where the last ends"
        content += segment.read_bytes()
    return content


async def at_rest(url: str, topic: str, replica_count: int) -> list[octopi.BrokerLog]:
    """Wait until *replica_count* brokers serve each log of *topic*, all in sync, with the same
    end, and all of it committed; return the logs as they are then."""
    logs: list[octopi.BrokerLog] = []
    info: octopi.TopicInfo | None = None
    with trio.move_on_after(REST_S):
        async with octopi.connect(url, request_timeout_s=REST_S) as client:
            while True:
                info = await client.describe_topic(topic)
                try:
                    everything = await client.describe_logs()
                except OctopiError:
                    everything = []  # a broker went while it was asked
                logs = [one for one in everything if one.log.topic == topic]
                if all(_rests(one, logs, replica_count) for one in info.partitions):
                    return logs
                await trio.sleep(_POLL_S)  # nothing announces it
    raise AssertionError(f"no rest within {REST_S:g} s: {info}, {logs}")


def _rests(place: octopi.PartitionInfo, logs: list[octopi.BrokerLog], replica_count: int) -> bool:
    copies = [one.log for one in logs if one.log.partition == place.partition]
    states = {(one.epoch, one.log_start, one.highwater, one.log_end) for one in copies}
    return (
        place.leader is not None
        and len(place.in_sync) == len(copies) == replica_count
        and len(states) == 1
        and copies[0].highwater == copies[0].log_end
        and copies[0].epoch == place.epoch
        and not any(one.fault for one in copies)
    )


async def identical(
    url: str, topic: str, data_dirs: Iterable[Path], replica_count: int
) -> dict[int, list[Message]]:
    """Wait for rest, compare the files of all replicas byte by byte; return what they hold, by
    partition."""
    found: dict[int, list[Message]] = {}
    directories = list(data_dirs)
    for partition in {one.log.partition for one in await at_rest(url, topic, replica_count)}:
        holding = [one for one in directories if (one / "logs" / str(partition) / topic).is_dir()]
        contents = [stored(one, topic, partition) for one in holding]
        assert len(contents) == replica_count, f"{holding} hold {topic}/{partition}"
        for directory, content in zip(holding, contents, strict=True):
            assert content == contents[0], f"{directory} and {holding[0]} differ in {topic}"
        found[partition] = decode(contents[0], Offset(0), TopicName(topic), PartitionId(partition))
    return found
