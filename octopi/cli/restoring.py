"""Writes the logs of a backup into an empty topic: the work of `restore`.

A record's offset is its position in the log, so the same bytes from offset 0 on have the same
offsets.  They go to the cluster as produce requests do: a broker takes whole records that have a
producer id and sequences, and the records of a log that begins at 0 have each producer's sequences
from 0 on, in order (docs/protocol.md).  One request has records of one producer, so the pieces of a
log are cut where the producer changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from octopi import Client, HistoryLostError, Producer, TopicInfo, UnknownTopicError
from octopi.cli.backup_files import BackedUpLog, LogFile, Manifest
from octopi.cli.failures import PROGRAM, CommandError, ExitCode
from octopi.cli.json_messages import timestamp_of
from octopi.cli.rate_meter import RateMeter
from octopi.errors import RefusedError, Status
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.limits import CONSUMER_WINDOW_BYTES
from octopi.position import Place
from octopi.record import Scan, decode

_NO_SUCH_PARTITION: Final = (Status.UNKNOWN_PARTITION, Status.INVALID_OPTION)


@attrs.frozen
class RestoredLog:
    """Where a log is restored."""

    log: BackedUpLog
    file: LogFile
    partition: PartitionId


def check_files(manifest: Manifest, directory: Path) -> None:
    """Check every byte of the backup in *directory*.

    Raises:
      CommandError: if a file is missing, cut or damaged; the text says what is sound of each.
    """
    faults: list[str] = []
    for log in manifest.logs:
        file = LogFile(directory / log.file_name)
        try:
            fault = file.check(log)
        except OSError as error:
            fault = f"{file.path}: {error.strerror}"
        if fault:
            faults.append(fault)
    if faults:
        sound = len(manifest.logs) - len(faults)
        raise CommandError(
            f"the backup is damaged, and nothing was restored: {'; '.join(faults)}; "
            f"{sound} of {len(manifest.logs)} logs are as they were written",
            ExitCode.DATA_FAULT,
        )


def check_starts(manifest: Manifest) -> None:
    """Check that offsets can be kept.

    Raises:
      CommandError: if a log of the backup doesn't begin at offset 0.
    """
    late = [log for log in manifest.logs if log.start > 0]
    if late:
        raise CommandError(
            f"the log of partition {late[0].partition} begins at offset {late[0].start:,}, because "
            "retention had removed what was before it; a log can only be written from offset 0 on, "
            "so its offsets can't be kept: with --new-offsets its messages are restored with the "
            "offsets that they get",
            ExitCode.USAGE,
        )


async def find_targets(
    client: Client, manifest: Manifest, directory: Path, topic: str
) -> tuple[TopicInfo, list[RestoredLog]]:
    """The topic *topic*, which is created unless it is there and empty, and where each log goes:
    the partition with the same number if the topic has it, else the one at the same place.

    Raises:
      CommandError: if the topic is not empty, or has another number of partitions.
    """
    try:
        info = await client.describe_topic(topic)
    except UnknownTopicError:
        info = await _create(client, manifest, topic)
    else:
        await _check_empty(client, info, manifest)
    partitions = [one.partition for one in info.partitions]
    wanted = [log.partition for log in manifest.logs]
    chosen = wanted if set(wanted) == set(partitions) else partitions
    return info, [
        RestoredLog(log, LogFile(directory / log.file_name), PartitionId(partition))
        for log, partition in zip(manifest.logs, chosen, strict=True)
    ]


async def _create(client: Client, manifest: Manifest, topic: str) -> TopicInfo:
    options = manifest.options
    partitions = [log.partition for log in manifest.logs]
    create = partial(
        client.create_topic,
        topic,
        retention=_time(options.retention_ms),
        retention_bytes=options.retention_bytes,
        segment_bytes=options.segment_bytes,
        flush_before_ack=options.flush_before_ack,
        min_insync=options.min_insync,
        hold=_time(options.hold_ms),
        hold_bytes=options.hold_bytes,
    )
    try:
        return await create(partition_ids=partitions)
    except RefusedError as error:
        if error.status not in _NO_SUCH_PARTITION:
            raise
        return await create(len(partitions))


def _time(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


async def _check_empty(client: Client, info: TopicInfo, manifest: Manifest) -> None:
    if len(info.partitions) != len(manifest.logs):
        raise CommandError(
            f"{info.topic} has {len(info.partitions)} partitions, and the backup "
            f"{len(manifest.logs)}: restore to another name with --topic, or delete the topic",
            ExitCode.USAGE,
        )
    for one in info.partitions:
        end = (await client.find_offset(info.topic, "latest", partition=one.partition)).offset
        if end > 0:
            raise CommandError(
                f"{info.topic} is not empty: {info.topic}/{one.partition} ends at offset {end:,}; "
                "restore to another name with --topic, or delete the topic and restore again",
                ExitCode.USAGE,
            )


async def restore_log(
    client: Client, info: TopicInfo, target: RestoredLog, meter: RateMeter
) -> None:
    """Write a log, then read it again and compare it with the backup.

    Raises:
      CommandError: if the log is not the one of the backup afterwards.
      OctopiError: if the cluster doesn't take the records.
      OSError: if reading the file fails.
    """
    topic, records = TopicName(info.topic), client.stored_records
    pieces = target.file.pieces()
    while (piece := await trio.to_thread.run_sync(next, pieces, None)) is not None:
        data, found = piece
        for part in requests_of(data, found):
            await records.append(topic, target.partition, part)
        meter.add(found.count, len(data))
    log = target.log
    end = (await records.find(topic, target.partition, "latest")).offset
    try:
        is_same = end == log.end and await _digest(client, info, target) == log.sha256
    except HistoryLostError as error:
        raise CommandError(
            f"{topic}/{target.partition}: the retention of the topic has removed messages while "
            f"they were restored ({error}): run `{PROGRAM} topics delete {topic}`, and restore "
            "with --no-retention"
        ) from None
    if not is_same:
        raise CommandError(
            f"{topic}/{target.partition} is not as in the backup: it ends at offset {end:,}, and "
            f"should at {log.end:,}; another program may have produced to it: stop it, run "
            f"`{PROGRAM} topics delete {topic}`, and restore again"
        )


async def _digest(client: Client, info: TopicInfo, target: RestoredLog) -> str:
    digest = hashlib.sha256()
    async with client.stored_records.read(
        TopicName(info.topic),
        TopicId(info.topic_id),
        target.partition,
        Place(Offset(0)),
        Offset(target.log.end),
        window_bytes=CONSUMER_WINDOW_BYTES,
        skip_gaps=False,
    ) as reader:
        while chunks := await reader.chunks():
            for chunk in chunks:
                digest.update(chunk.records)
    return digest.hexdigest()


def requests_of(data: bytes, found: Scan) -> Iterator[bytes]:
    """*data* in parts that one request may have: records of one producer with consecutive
    sequences, or of version 1.  *found*: its scan."""
    position = 0
    for run in found.runs:
        if position < run.start:
            yield data[position : run.start]
        yield data[run.start : run.end]
        position = run.end
    if position < len(data):
        yield data[position:]


async def restore_messages(
    producer: Producer, info: TopicInfo, target: RestoredLog, meter: RateMeter
) -> None:
    """Produce the messages of a log again, to its partition, and wait until all are acknowledged.

    Raises:
      CommandError: if a time stamp is behind the year 9999, up to which producers take them.
      OctopiError: if the cluster doesn't take the messages.
      OSError: if reading the file fails.
    """
    pieces = target.file.pieces()
    while (piece := await trio.to_thread.run_sync(next, pieces, None)) is not None:
        data, found = piece
        for message in decode(data, Offset(0), TopicName(info.topic), target.partition):
            try:
                timestamp = timestamp_of(message.timestamp_ms)
            except ValueError as error:
                raise CommandError(
                    f"{target.file.path}: a message can't be produced: {error}"
                ) from (None)
            await producer.submit(
                info.topic,
                message.value,
                key=message.key,
                headers=message.headers,
                timestamp=timestamp,
                partition=target.partition,
            )
        meter.add(found.count, len(data))
    await producer.flush()
