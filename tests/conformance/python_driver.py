"""Drives the Python clients that wait with ``await``: the one for Trio and the one for asyncio.

They have the same names, so what a program of either does is written once here.  Each client,
consumer and member is a task of its own, which stays in its block and takes one job after the
other.  A loop (`tests.conformance.trio_driver`, `aio_driver`) runs the tasks, in a thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Final, Protocol, TypeAlias

import attrs

import octopi
from octopi.errors import OctopiError
from tests.conformance.driving import PATIENCE_S, Command, Refused, given_bytes, shown_bytes
from tests.conformance.python_members import run_member

UNIX_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)


@attrs.define(eq=False)
class Job:
    """A command that a task is to carry out."""

    command: Command
    outcome: Future[Any] = attrs.field(factory=Future)

    def answer(self, result: object) -> None:
        """It is done."""
        self.outcome.set_result(result)

    def fail(self, error: BaseException) -> None:
        """It can't be done."""
        known = isinstance(error, OctopiError)
        self.outcome.set_exception(Refused(error.code) if known else error)  # type: ignore[attr-defined]

    async def fulfil(self, work: Awaitable[object]) -> None:
        """Answer what *work* gives."""
        try:
            result = await work
        except Exception as error:
            self.fail(error)
        else:
            self.answer(result)


Take: TypeAlias = Callable[[], Awaitable[Job]]
Program: TypeAlias = Callable[[Take], Awaitable[None]]


class RunningTask(Protocol):
    """A task that takes jobs."""

    def put(self, job: Job) -> None:
        """Have it carry out *job*, after those before."""

    def cancel(self) -> None:
        """End it, and return when it has ended."""


class EventLoop(Protocol):
    """A loop in a thread of its own, which is Trio's or asyncio's."""

    def start(self, program: Program) -> RunningTask:
        """Run *program* as a task."""

    def close(self) -> None:
        """End all tasks and the loop."""


class PythonDriver:
    """The client whose function to connect is *connect*, in *loop*."""

    lacks: ClassVar[Mapping[str, str]] = {}

    def __init__(self, url: str, connect: Callable[..., Any], loop: EventLoop) -> None:
        self._url = url
        self._connect = connect
        self._loop = loop
        self._tasks: dict[str, RunningTask] = {}
        self._clients: dict[str, Any] = {}
        self._is_sending: dict[str, bool] = {}

    def do(self, command: Command) -> Any:  # noqa: ANN401
        """See `tests.conformance.driving.Driver`."""
        name = command.get("as") or command["by"]
        match command["do"]:
            case "connect":
                self._tasks[name] = self._loop.start(partial(self._run_client, name))
            case "consume":
                client = self._clients[command["by"]]
                self._tasks[name] = self._loop.start(partial(_run_consumer, client))
            case "produce":
                client = self._clients[command["by"]]
                self._tasks[name] = self._loop.start(partial(_run_producer, client))
            case "join":
                connect = partial(self._connect, self._url)
                self._tasks[name] = self._loop.start(partial(run_member, connect))
            case "sent":
                self._is_sending[name] = False
        job = Job(command)
        self._tasks[name].put(job)
        return job.outcome.result(PATIENCE_S)

    def reset(self) -> None:
        """See `tests.conformance.driving.Driver`."""
        for task in reversed(self._tasks.values()):
            task.cancel()
        self._tasks.clear()
        self._clients.clear()

    def close(self) -> None:
        """See `tests.conformance.driving.Driver`."""
        self._loop.close()

    async def _run_client(self, name: str, take: Take) -> None:
        job = await take()
        options = {"token": job.command.get("token")}
        if "timeout_s" in job.command:
            options["request_timeout_s"] = job.command["timeout_s"]
        try:
            async with (
                self._connect(job.command.get("server", self._url), **options) as client,
                client.producer() as producer,
            ):
                self._clients[name] = client
                job.answer(None)
                sent: list[object] = []
                self._is_sending[name] = True
                while (job := await take()).command["do"] != "close":
                    if job.command["do"] == "send numbered":
                        job.answer(None)
                        sent = await self._send_numbered(name, producer, job.command)
                    elif job.command["do"] == "sent":
                        job.answer(sent)
                    else:
                        await job.fulfil(_act(client, producer, job.command))
        except OctopiError as error:
            job.fail(error)
        else:
            job.answer(None)
        while True:  # what a program does that goes on with a closed client
            job = await take()
            await job.fulfil(_act(client, producer, job.command))

    async def _send_numbered(
        self,
        name: str,
        producer: Any,  # noqa: ANN401
        command: Command,
    ) -> list[object]:
        receipts: list[object] = []
        while self._is_sending[name]:
            receipt = await producer.send(command["topic"], b"%d" % len(receipts))
            receipts.append(_shown_receipt(receipt))
        return receipts


async def _act(client: Any, producer: Any, command: Command) -> object:  # noqa: ANN401
    match command["do"]:
        case "send":
            return await _send(producer, command)
        case "create topic":
            await client.create_topic(command["topic"], **command.get("options", {}))
        case "delete topic":
            await client.delete_topic(command["topic"])
        case "describe topic":
            info = await client.describe_topic(command["topic"])
            return [one.partition for one in info.partitions]
        case other:
            raise AssertionError(other)
    return None


async def _send(producer: Any, command: Command) -> object:  # noqa: ANN401
    headers = {name: given_bytes(one) for name, one in command.get("headers", {}).items()}
    timestamp = command.get("timestamp")
    receipt = await producer.send(
        command["topic"],
        given_bytes(command["value"]),
        key=given_bytes(command["key"]) if "key" in command else None,
        headers=headers,
        timestamp=None if timestamp is None else UNIX_ZERO + timedelta(milliseconds=timestamp),
        partition=command.get("partition"),
        expected_end=command.get("expected_end"),
    )
    return _shown_receipt(receipt)


async def _run_producer(client: Any, take: Take) -> None:  # noqa: ANN401
    job = await take()
    name, topic = job.command["name"], job.command["topic"]
    try:
        async with client.producer(name=name, topics=[topic]) as producer:
            job.answer(None)
            while True:
                job = await take()
                await job.fulfil(_send(producer, job.command))
    except octopi.ProducerFencedError:
        assert job.outcome.done(), "it is opened, and told of each message"


def _shown_receipt(receipt: octopi.Receipt) -> dict[str, object]:
    return {
        "partition": receipt.partition,
        "offset": receipt.offset,
        "next": receipt.next_offset,
        "duplicate": receipt.duplicate,
    }


async def _run_consumer(client: Any, take: Take) -> None:  # noqa: ANN401
    job = await take()
    topic = job.command["topic"]
    try:
        async with client.consumer(topic, **consumer_options(job.command)) as consumer:
            job.answer(None)
            while (job := await take()).command["do"] != "close":
                await job.fulfil(_read(consumer, job.command))
    except OctopiError as error:
        job.fail(error)
    else:
        job.answer(None)


def consumer_options(command: Command) -> dict[str, Any]:
    """What a consumer is to have, as the Python client names it."""
    names = {
        "on_gap": "on_gap",
        "stop_at_end": "stop_at_end",
        "wait_s": "wait_for_topic",
        "create": "create",
        "give_up_s": "reconnect_timeout_s",
    }
    options = {ours: command[name] for name, ours in names.items() if name in command}
    if "partition" in command:
        options["partitions"] = [command["partition"]]
    return {"start": start_of(command["from"]), **options}


def start_of(start: Any) -> Any:  # noqa: ANN401
    """A place to begin at, as the Python client names it."""
    match start:
        case {"last": int(count)}:
            return octopi.last(count)
        case {"time": int(ms)}:
            return UNIX_ZERO + timedelta(milliseconds=ms)
    return start


async def _read(consumer: Any, command: Command) -> object:  # noqa: ANN401
    if command["do"] == "position":
        several = hasattr(consumer, "positions")
        return str(consumer.positions if several else consumer.position)
    messages = []
    for _ in range(command["count"]):
        try:
            messages.append(shown_message(await anext(consumer)))
        except StopAsyncIteration:
            break
    return messages


def shown_message(message: octopi.Message) -> dict[str, object]:
    """What the judge compares."""
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "next": message.next_offset,
        "timestamp": message.timestamp_ms,
        "key": None if message.key is None else shown_bytes(message.key),
        "headers": {name: shown_bytes(one) for name, one in message.headers.items()},
        "value": shown_bytes(message.value),
    }
