"""The Python client as a member of a queue that carries out subscriptions.json."""

from __future__ import annotations

from typing import Any

import trio

import octopi
from octopi.errors import OctopiError

Command = dict[str, Any]


def python_options(command: Command) -> dict[str, Any]:
    """What a member is to have, as the Python client names it."""
    options = {
        {"takeOver": "take_over", "onGap": "on_gap", "ackTimeout": "ack_timeout_s"}.get(
            name, name
        ): value
        for name, value in command["options"].items()
    }
    if "ack_timeout_s" in options:
        options["ack_timeout_s"] /= 1000
    return options


class PythonQueueMember:
    """A program that answers each message of a queue by itself, in the order it is told to."""

    def __init__(self) -> None:
        self.subscription: octopi.QueueSubscription
        self.taken: list[octopi.DealtMessage] = []
        self.leaving = trio.Event()
        self.ended = trio.Event()
        self.error: OctopiError | None = None

    async def run(
        self,
        url: str,
        command: Command,
        *,
        task_status: trio.TaskStatus[OctopiError | None],
    ) -> None:
        """Be a member; started with why it can't."""
        options = python_options(command)
        try:
            async with (
                octopi.connect(url, token=command["token"], request_timeout_s=2) as client,
                client.subscription(command["topic"], command["name"], **options) as member,
            ):
                self.subscription = member
                task_status.started(None)
                await self.leaving.wait()
        except OctopiError as error:
            self.error = error
            if not hasattr(self, "subscription"):
                task_status.started(error)
        self.ended.set()

    async def do(self, command: Command) -> Any:  # noqa: ANN401
        """Carry out one command."""
        match command["do"]:
            case "take":
                return self._took([await anext(self.subscription) for _ in range(command["count"])])
            case "take lists":
                return self._took(await self._take_lists(command))
            case "commit":
                return await self.subscription.commit()
            case "gaps":
                return len(self.subscription.gaps)
            case "leave":
                self.leaving.set()
                await self.ended.wait()
                if self.error is not None:
                    raise self.error
                return None
        return self._answer(command, self.taken[command["message"]])

    def _took(self, taken: list[octopi.DealtMessage]) -> list[str]:
        self.taken += taken
        return [one.value.decode() for one in taken]

    async def _take_lists(self, command: Command) -> list[octopi.DealtMessage]:
        taken: list[octopi.DealtMessage] = []
        while len(taken) < command["count"]:
            batch = await self.subscription.next_batch()
            if "release" in command:
                batch.release(delay_s=command["release"] / 1000)
            else:
                batch.acknowledge()
            taken += batch
        return taken

    def _answer(self, command: Command, message: octopi.DealtMessage) -> float | None:
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
                return round((message.deadline - trio.current_time()) / 60)
        return None
