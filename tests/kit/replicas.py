"""The oracle: in a cluster at rest, all replicas of a log are the same bytes.

At rest means that every replica says the same log end, and that all of it is committed.
What is compared then are the files, not what brokers say of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs
import trio

import octopi
from octopi.errors import OctopiError
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.record import Message, decode
from tests.kit.disk import MemoryDisk

Servers: TypeAlias = str | Sequence[str]
"""The addresses of nodes, as clients are given them."""

REST_S = 30.0
"""A cluster that nobody disturbs is at rest much sooner."""

_POLL_S = 0.02


@attrs.frozen
class DataDirectory:
    """Where a broker keeps its data."""

    path: Path
    disk: MemoryDisk | None = None
    """The disk it is on, if that is none of this machine."""

    def log(self, topic: str, partition: int) -> bytes | None:
        """The log as it lies there, its segments one behind the other; None: nothing is kept."""
        directory = self.path / "logs" / str(partition) / topic
        files = self._files(directory)
        content = b""
        for path in sorted(path for path in files if path.suffix == ".log"):
            assert int(path.stem) == len(content), f"{path} does not begin where the last one ends"
            content += files[path]
        return content if files else None

    def _files(self, directory: Path) -> dict[Path, bytes]:
        if self.disk is None:
            return {path: path.read_bytes() for path in directory.glob("*")}
        files = {Path("/", path): content for path, content in self.disk.files().items()}
        return {path: content for path, content in files.items() if path.parent == directory}


async def at_rest(url: Servers, topic: str, replica_count: int) -> list[octopi.BrokerLog]:
    """Wait until *replica_count* brokers serve each log of *topic*, all in sync, with the same
    end, and all of it committed; return the logs as they are then."""
    logs: list[octopi.BrokerLog] = []
    info: octopi.TopicInfo | None = None
    with trio.move_on_after(REST_S):
        async with octopi.connect(url, request_timeout_s=REST_S) as client:
            while True:
                info = await client.describe_topic(topic)
                try:
                    everything = await client.admin.describe_logs()
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
    url: Servers, topic: str, data_dirs: Iterable[DataDirectory], replica_count: int
) -> dict[int, list[Message]]:
    """Wait for rest, compare the files of all replicas byte by byte; return what they hold, by
    partition."""
    directories = list(data_dirs)
    partitions = {one.log.partition for one in await at_rest(url, topic, replica_count)}
    return {one: same(topic, one, directories, replica_count) for one in partitions}


def same(
    topic: str, partition: int, data_dirs: Iterable[DataDirectory], replica_count: int
) -> list[Message]:
    """Compare the files of the replicas of one log; return what they hold."""
    found = {one.path.name: one.log(topic, partition) for one in data_dirs}
    held = {name: content for name, content in found.items() if content is not None}
    assert len(held) == replica_count, f"{sorted(held)} hold {topic}/{partition}"
    first, *others = held
    for other in others:
        assert held[other] == held[first], f"{other} and {first} differ in {topic}/{partition}"
    return decode(held[first], Offset(0), TopicName(topic), PartitionId(partition))
