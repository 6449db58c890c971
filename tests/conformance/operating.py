"""What operators and other programs do in a scenario, beside the client: with the Trio client."""

from __future__ import annotations

from typing import Any, Final

import trio

import octopi
from octopi.errors import OctopiError
from octopi.model import QUEUE_MODES
from tests.conformance.driving import PATIENCE_S, given_bytes
from tests.security.test_authorisation import everything

RETENTION: Final = {"retention_bytes": 8_192, "segment_bytes": 4_096}


class Operator:
    """Of the cluster at *url*, with a token for everything if it *needs_tokens*."""

    def __init__(self, url: str, *, needs_tokens: bool = True) -> None:
        self._url = url
        self._token = everything() if needs_tokens else None

    def do(self, topic: str, step: dict[str, Any]) -> Any:  # noqa: ANN401
        """Carry out a step of a scenario, which concerns *topic*."""

        async def act() -> object:
            async with octopi.connect(self._url, token=self._token) as client:
                with trio.fail_after(PATIENCE_S):
                    return await _act(client, topic, step)

        return trio.run(act)

    def members(self, topic: str, name: str) -> set[str]:
        """Who is a member of the subscription *name* now."""

        async def ask() -> set[str]:
            async with octopi.connect(self._url, token=self._token) as client:
                try:
                    status = await client.admin.describe_subscription(topic, name)
                except OctopiError:
                    return set()
                # The members of a queue have no logs of their own.
                is_queue = status.definition.mode in QUEUE_MODES
                return {one.member for one in status.members if one.log_count or is_queue}

        return trio.run(ask)


async def _act(client: octopi.Client, topic: str, step: dict[str, Any]) -> object:
    match step["do"]:
        case "make":
            await client.create_topic(topic, **_options(step))
        case "remake":
            await client.delete_topic(topic)
            await client.create_topic(topic, **_options(step))
        case "remove":
            await client.delete_topic(topic)
        case "publish":
            await _publish(client, topic, step)
        case "lose the oldest":
            await _lose_the_oldest(client, topic)
        case "tell a broker":
            return (await client.admin.describe_cluster()).brokers[0].address
        case "tell the oldest":
            async with client.consumer(topic, start="earliest") as consumer:
                return (await anext(consumer)).value.decode()
        case _:
            return await _act_on_subscription(client, topic, step)
    return None


def _options(step: dict[str, Any]) -> dict[str, Any]:
    """The options of a topic; its partitions by number, so that they can be named."""
    numbers = step.get("partition_ids", list(range(step.get("partitions", 1))))
    return {**step.get("options", {}), "partition_ids": numbers}


async def _publish(client: octopi.Client, topic: str, step: dict[str, Any]) -> None:
    async with client.producer() as producer:
        keys = step.get("keys") or [None] * len(step["values"])
        for value, key in zip(step["values"], keys, strict=True):
            await producer.send(
                topic,
                given_bytes(value),
                key=None if key is None else given_bytes(key),
                partition=step.get("partition", 0),
            )


async def _lose_the_oldest(client: octopi.Client, topic: str) -> None:
    async with client.producer() as producer:
        for number in range(200):  # a batch each, or they would share a segment
            await producer.send(topic, b"%0100d" % number)
    while True:  # nothing announces it
        found = await client.find_offset(topic, "earliest", partition=0)
        if found.highwater - found.log_start < sum(RETENTION.values()):
            return  # nothing more goes
        await trio.sleep(0.05)


async def _act_on_subscription(client: octopi.Client, topic: str, step: dict[str, Any]) -> object:
    match step["do"]:
        case "create":
            mode = step.get("mode", "exclusive")
            await client.admin.create_subscription(topic, "billing", mode=mode)
        case "reset":
            force = step.get("force", False)
            await client.admin.reset_subscription(topic, "billing", step["to"], force=force)
        case "delete":
            await client.admin.delete_subscription(topic, "billing")
        case "await":
            while True:  # nothing announces it
                status = await client.admin.describe_subscription(topic, "billing")
                logs = {one.member: one.log_count for one in status.members}
                if logs == step["logs"] and all(one.is_attached for one in status.logs):
                    return None
                await trio.sleep(0.05)
        case "tell the dead letters":
            async with client.consumer(f"{topic}.billing.dead", start="earliest") as consumer:
                letters = [await anext(consumer) for _ in step["sees"]]
            return [
                {
                    "value": one.value.decode(),
                    "attempts": int(one.headers["octopi-attempts"]),
                    "reason": one.headers["octopi-reason"].decode(),
                }
                for one in letters
            ]
        case other:
            raise AssertionError(f"there is no step {other!r}")
    return None
