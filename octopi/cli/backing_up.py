"""Copies the logs of a topic to files: the work of `backup`."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import trio

from octopi import Client, TopicInfo
from octopi.cli.backup_files import FORMAT, MANIFEST, UNFINISHED, BackedUpLog, Manifest
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.rate_meter import RateMeter
from octopi.environment import Disk
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.limits import CONSUMER_WINDOW_BYTES
from octopi.position import Anchor, Place
from octopi.record import scan


def prepare_directory(directory: Path) -> None:
    """Make *directory*, if it is missing, and mark it as a backup that has begun.  What a backup
    that was interrupted has left there is removed.

    Raises:
      CommandError: if it has anything else in it.
      OSError: if that fails.
    """
    directory.mkdir(parents=True, exist_ok=True)
    found = sorted(path.name for path in directory.iterdir())
    if found and (MANIFEST in found or UNFINISHED not in found):
        what = "has a backup already" if MANIFEST in found else f"is not empty ({found[0]})"
        raise CommandError(f"{directory} {what}: name another directory", ExitCode.USAGE)
    (directory / UNFINISHED).touch()
    for path in directory.glob("*.log"):
        path.unlink()


async def back_up(
    client: Client, topic: str, directory: Path, disk: Disk, meter: RateMeter
) -> Manifest:
    """Copy everything that is committed in *topic* now to *directory*, which is made.

    Raises:
      CommandError: if the topic got other partitions while it was in use, the directory is not
          empty, or a record arrived damaged.
      OctopiError: whatever reading raises.
      OSError: if writing fails.
    """
    info = await client.describe_topic(topic)
    if info.generations:
        raise CommandError(
            f"{topic} got other partitions while it was in use, and a backup has one list of them: "
            "copy it with `octopi-node pipeline archive`",
            ExitCode.REFUSED,
        )
    prepare_directory(directory)
    taken_at = datetime.now(UTC).isoformat(timespec="seconds")
    logs: list[BackedUpLog] = []
    meter.start()
    for one in info.partitions:
        path = directory / f"{one.partition}.log"
        with path.open("wb") as file:
            logs.append(await _copy_log(client, info, PartitionId(one.partition), file, meter))
            await trio.to_thread.run_sync(_sync, file)
    meter.stop()
    manifest = Manifest(FORMAT, info.topic, info.topic_id, taken_at, info.options, logs)
    await disk.replace_file(str(directory / MANIFEST), manifest.to_json())
    (directory / UNFINISHED).unlink()
    return manifest


async def _copy_log(
    client: Client, info: TopicInfo, partition: PartitionId, file: BinaryIO, meter: RateMeter
) -> BackedUpLog:
    topic, records = TopicName(info.topic), client.stored_records
    first = await records.find(topic, partition, "earliest")
    end = (await records.find(topic, partition, "latest")).offset
    start = Place(Offset(first.offset), Anchor(first.anchor))
    digest = hashlib.sha256()
    position, messages = start.offset, 0

    def write(data: bytes | memoryview) -> None:
        file.write(data)
        digest.update(data)

    async with records.read(
        topic,
        TopicId(info.topic_id),
        partition,
        start,
        Offset(end),
        window_bytes=CONSUMER_WINDOW_BYTES,
        skip_gaps=False,
    ) as reader:
        while chunks := await reader.chunks():
            for chunk in chunks:
                found = scan(chunk.records)
                if found.fault is not None:
                    at = chunk.offset + found.valid_bytes
                    raise CommandError(
                        f"{topic}/{partition}: the record at offset {at} arrived damaged "
                        f"({found.fault}); on the node's side: run `octopi-node verify DIR` on the "
                        "data directories of the brokers",
                        ExitCode.DATA_FAULT,
                    )
                assert chunk.offset == position, "a reader leaves out nothing"
                await trio.to_thread.run_sync(write, chunk.records)
                position = Offset(position + len(chunk.records))
                messages += found.count
                meter.add(found.count, len(chunk.records))
    assert position == end, "a reader reads up to the end"
    return BackedUpLog(partition, start.offset, end, messages, digest.hexdigest())


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
