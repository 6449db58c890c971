"""Writes a topic of Octopi Lite as its source document kept it: the work of `export --format lite`.

The file ``BROKER/PARTITION.kafka`` has the messages of a partition as that broker's replica has
them, 256 bytes each, so those of one partition are equal.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import trio

from octopi import Client, FetchResult, PartitionInfo
from octopi.cli.exporting import new_file
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.rate_meter import RateMeter
from octopi.limits import REQUEST_TIMEOUT_S
from octopi.lite.numbers import number_at, offset_of, value_of


async def export_lite(
    client: Client, topic: str, directory: Path, meter: RateMeter, *, force: bool
) -> int:
    """Write all partitions of *topic*, of each replica in sync; return the number of files.

    Raises:
      CommandError: if a file exists (without *force*), if retention has removed messages, or if a
          replica lacks some.
      NotLiteError: if the topic has other records.
      OctopiError, OSError: if reading or writing fails.
    """
    addresses = {one.broker: one.address for one in (await client.admin.describe_cluster()).brokers}
    places = (await client.describe_topic(topic)).partitions
    files = {
        directory / str(broker) / f"{partition_id}.kafka": (place, addresses[broker])
        for partition_id, place in enumerate(places)
        for broker in place.in_sync
    }
    for path in files:
        if path.exists() and not force:
            raise CommandError(
                f"{path} exists: choose another DIR, or replace it with --force", ExitCode.USAGE
            )
    ends = {place.partition: await _end(client, topic, place) for place in places}
    meter.start()
    for path, (place, address) in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as beside, beside.open("wb") as file:
            await _copy(client, topic, place, address, ends[place.partition], file, meter)
    meter.stop()
    return len(files)


async def _end(client: Client, topic: str, place: PartitionInfo) -> int:
    """How many messages a partition has, from number 0 on."""
    latest = await client.find_offset(topic, "latest", partition=place.partition)
    oldest = number_at(latest.log_start)
    if oldest:
        raise CommandError(
            f"retention has removed the messages 0 to {oldest - 1} of partition {place.partition}, "
            "so those in a file would have other numbers: export another format"
        )
    return number_at(latest.offset)


async def _copy(
    client: Client,
    topic: str,
    place: PartitionInfo,
    address: str,
    end: int,
    file: BinaryIO,
    meter: RateMeter,
) -> None:
    """Write the messages 0 to *end* as the replica at *address* has them."""
    number = 0
    while number < end:
        found: FetchResult = await client.fetch(
            topic,
            offset_of(number),
            partition=place.partition,
            wait_s=REQUEST_TIMEOUT_S / 2,
            at=address,
        )
        messages = found.messages[: end - number]
        if not messages:
            raise CommandError(
                f"the broker at {address} has {number} of {end} messages of partition "
                f"{place.partition}: run this again when `octopi-node status` is healthy"
            )
        values = b"".join(map(value_of, messages))
        await trio.to_thread.run_sync(file.write, values)
        number += len(messages)
        meter.add(len(messages), len(values))
