"""Carries out conformance.json with the Python client, as conformance.mjs does with the other."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import octopi
from octopi.errors import (
    DeliveryError,
    InvalidOptionError,
    InvalidTopicError,
    MalformedRecordError,
    OctopiError,
    RefusedError,
    TopicReplacedError,
)

SCRIPT = Path(__file__).with_suffix(".json")

_CODES: dict[type[OctopiError], str] = {
    InvalidOptionError: "invalid_option",
    InvalidTopicError: "invalid_topic",
    MalformedRecordError: "message_too_large",
    TopicReplacedError: "topic_replaced",
}
_UNIX_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


async def carry_out(url: str, prefix: str) -> list[Any]:
    """What was seen at each step."""
    saved: dict[str, str] = {}
    seen: list[Any] = []
    async with octopi.connect(url) as client, client.producer() as producer:
        for step in json.loads(SCRIPT.read_text()):
            try:
                if step["do"] == "publish":
                    seen.append(await _publish(producer, prefix, step))
                else:
                    seen.append(await _read(client, prefix, step, saved))
            except OctopiError as error:
                seen.append(f"refused: {_code(error)}")
    return json.loads(json.dumps(seen))  # type: ignore[no-any-return]


async def _publish(producer: octopi.Producer, prefix: str, step: dict[str, Any]) -> object:
    receipts = []
    for one in step["messages"]:
        receipt = await producer.send(
            prefix + step["topic"],
            one["value"].encode() if "value" in one else b"\x07" * one["bytes"],
            key=one["key"].encode() if "key" in one else None,
            headers={name: bytes.fromhex(value) for name, value in one.get("headers", {}).items()},
            timestamp=_UNIX_ZERO + timedelta(milliseconds=one["timestamp"]),
            partition=one.get("partition"),
        )
        receipts.append([receipt.partition, receipt.offset, receipt.duplicate])
    return receipts


async def _read(
    client: octopi.Client, prefix: str, step: dict[str, Any], saved: dict[str, str]
) -> object:
    start = step["from"]
    if isinstance(start, dict) and "saved" in start:
        position = saved[start["saved"]]
        if "ahead" in start:
            ahead = start["ahead"]
            position = re.sub(r"=(\d+)", lambda found: f"={int(found[1]) + ahead}", position)
        start = re.sub("@.*?:", f"@{start['of']}:", position) if "of" in start else position
    elif isinstance(start, dict) and "last" in start:
        start = octopi.last(start["last"])
    elif isinstance(start, dict):
        start = _UNIX_ZERO + timedelta(milliseconds=start["at"])
    partitions = [step["partition"]] if "partition" in step else None
    messages: list[list[Any]] = []
    async with client.consumer(
        prefix + step["topic"], start=start, partitions=partitions
    ) as consumer:
        async for one in consumer:
            headers = [[name, value.hex()] for name, value in one.headers.items()]
            large = len(one.value) > 1000
            messages.append(
                [
                    one.partition,
                    one.offset,
                    one.next_offset,
                    one.timestamp_ms,
                    None if one.key is None else one.key.hex(),
                    headers,
                    f"{len(one.value)} bytes" if large else one.value.hex(),
                ]
            )
            if len(messages) == step["count"]:
                break
        position = str(consumer.position)
    if "save" in step:
        saved[step["save"]] = position
    messages.sort(key=lambda message: (message[0], message[1]))
    return {"messages": messages, "position": re.sub("^v1:.*@.*?:", "", position)}


def _code(error: OctopiError) -> str:
    if isinstance(error, DeliveryError) and isinstance(error.__cause__, OctopiError):
        error = error.__cause__
    if isinstance(error, RefusedError):
        return error.status.name.lower()
    return _CODES[type(error)]
