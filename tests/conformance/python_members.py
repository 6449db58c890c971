"""A member of a durable subscription or of a queue, with a Python client."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

import octopi.blocking
from octopi.errors import OctopiError
from octopi.model import QUEUE_MODES
from tests.conformance.driving import Command

if TYPE_CHECKING:
    from tests.conformance.python_driver import Job


class _TestFailure(Exception):
    """What ends a block that is to end by an exception."""


def member_options(command: Command) -> dict[str, Any]:
    """What a member is to have, as the Python client names it."""
    names = {"takeOver": "take_over", "onGap": "on_gap", "ackTimeout": "ack_timeout_s"}
    options = {names.get(name, name): value for name, value in command["options"].items()}
    if "ack_timeout_s" in options:
        options["ack_timeout_s"] /= 1000
    return options


async def run_member(connect: Callable[..., Any], take: Callable[[], Awaitable[Job]]) -> None:
    """A program that is a member: each step within its block is a job."""
    job = await take()
    command = job.command
    try:
        async with (
            connect(token=command["token"], request_timeout_s=2) as client,
            client.subscription(
                command["topic"], command["name"], **member_options(command)
            ) as subscription,
        ):
            is_queue = command["options"].get("mode") in QUEUE_MODES
            member = _QueueMember(subscription) if is_queue else _Member(subscription)
            job.answer(None)
            while (job := await take()).command["do"] != "leave":
                if job.command["do"] == "fail":
                    raise _TestFailure
                if job.command["do"].startswith("take"):  # its error is raised in the block
                    job.answer(await member.do(job.command))
                else:
                    await job.fulfil(member.do(job.command))
    except OctopiError as error:
        job.fail(error)
    except _TestFailure:
        job.answer(None)
    else:
        job.answer(None)


class _Member:
    def __init__(self, subscription: Any) -> None:  # noqa: ANN401
        self._subscription = subscription
        self._taken: list[octopi.Message] = []

    async def do(self, command: Command) -> object:
        """Carry out one command."""
        match command["do"]:
            case "take":
                taken = [await anext(self._subscription) for _ in range(command["count"])]
                self._taken += taken
                return [one.value.decode() for one in taken]
            case "commit":
                return await self._subscription.commit()
            case "mark":
                return self._subscription.mark(self._taken[command["message"]])
            case "claims":
                return {str(log): one for log, one in self._subscription.claims.items()}
        raise AssertionError(command)


class _QueueMember:
    """It answers each message by itself, in the order that it is told to."""

    def __init__(self, subscription: Any) -> None:  # noqa: ANN401
        self._subscription = subscription
        self._taken: list[octopi.DealtMessage] = []

    async def do(self, command: Command) -> object:
        """Carry out one command."""
        match command["do"]:
            case "take":
                return self._took(
                    [await anext(self._subscription) for _ in range(command["count"])]
                )
            case "take lists":
                return self._took(await self._take_lists(command))
            case "commit":
                return await self._subscription.commit()
            case "gaps":
                return len(self._subscription.gaps)
        return _answer(command, self._taken[command["message"]])

    def _took(self, taken: list[octopi.DealtMessage]) -> list[str]:
        self._taken += taken
        return [one.value.decode() for one in taken]

    async def _take_lists(self, command: Command) -> list[octopi.DealtMessage]:
        taken: list[octopi.DealtMessage] = []
        while len(taken) < command["count"]:
            batch = await self._subscription.next_batch()
            if "release" in command:
                batch.release(delay_s=command["release"] / 1000)
            else:
                batch.acknowledge()
            taken += batch
        return taken


def _answer(command: Command, message: octopi.DealtMessage) -> float | None:
    match command["do"]:
        case "acknowledge":
            message.acknowledge()
        case "release":
            message.release(delay_s=command.get("delay", 0) / 1000)
        case "reject":
            message.reject(command["reason"])
        case "extend":
            message.extend()
        case "attempt":
            return message.attempt
        case "deadline in":
            return round((message.deadline - _now(message)) / 60)
    return None


def _now(message: octopi.DealtMessage) -> float:
    """On the clock of the deadline of *message*."""
    is_blocking = isinstance(message, octopi.blocking.DealtMessage)
    return time.monotonic() if is_blocking else trio.current_time()
