"""Clients that carry out subscriptions.json: Python, Node, a page, and `octopi-node consume`.

Each takes commands, one after the other, and answers what it saw, or raises `Refused` with the
name of the status.  Of a member that leaves, the program has to know beforehand how much it takes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Thread, Timer
from typing import TYPE_CHECKING, Any, Protocol

import trio

import octopi
from octopi.errors import HistoryLostError, InvalidOptionError, OctopiError, RefusedError
from octopi.model import QUEUE_MODES
from tests.browser.clusters import in_a_thread
from tests.browser.pages import open_client_page
from tests.browser.python_queue_member import Command, PythonQueueMember, python_options
from tests.browser.tools import STATIC, node_command

if TYPE_CHECKING:
    from playwright.sync_api import Page

PATIENCE_S = 30.0
"""For an answer that has to come."""


class Refused(Exception):  # no fault of the test
    """The client was told no; the text is the name of the status."""


class ConformingClient(Protocol):
    """One client, which has several members of one subscription or of several."""

    def do(self, command: Command) -> Any:  # noqa: ANN401  # what the command makes of it
        """Carry out one command."""


def code_of(error: OctopiError) -> str:
    """The name that octopi.js has for *error*."""
    match error:
        case RefusedError():
            return error.status.name.lower()
        case HistoryLostError():
            return "history_lost"
        case InvalidOptionError():
            return "invalid_option"
        case _:
            raise error


# --- octopi.js ---------------------------------------------------------------------------

_SCRIPT = Path(__file__).with_name("subscription_peer.mjs")


def _result(answer: dict[str, Any]) -> Any:  # noqa: ANN401
    if "refused" in answer:
        raise Refused(answer["refused"])
    return answer["result"]


@contextmanager
def in_node(url: str) -> Iterator[ConformingClient]:
    """octopi.js in Node."""
    command = [*node_command(), str(_SCRIPT), STATIC.as_uri(), url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield _Node(process)
        finally:
            process.kill()


class _Node:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, command: Command) -> Any:  # noqa: ANN401
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return _result(json.loads(self._process.stdout.readline()))


class InPage:
    """octopi.js in a page of the node at *url*."""

    def __init__(self, page: Page, url: str) -> None:
        self._page = page
        self._url = url
        open_client_page(page, url)
        page.evaluate("async () => { window.peer = await import('/test/subscription_peer.mjs'); }")

    def do(self, command: Command) -> Any:  # noqa: ANN401
        asked = [command, self._url]
        return _result(
            self._page.evaluate("([command, url]) => peer.perform(command, Octopi, url)", asked)
        )


# --- Python ------------------------------------------------------------------------------


@contextmanager
def in_python(url: str) -> Iterator[ConformingClient]:
    """The Python client, in a thread of its own."""
    with in_a_thread(_python_members(url)) as members:
        yield _Python(members)


class _Python:
    def __init__(self, members: _PythonMembers) -> None:
        self._members = members

    def do(self, command: Command) -> Any:  # noqa: ANN401
        return trio.from_thread.run(self._members.do, command, trio_token=self._members.token)


class _TestFailure(Exception):
    pass


class _PythonMember:
    """A program: a loop over messages, in which each step is ordered from outside."""

    def __init__(self) -> None:
        self.subscription: octopi.Subscription
        self.taken: list[octopi.Message] = []
        self.has_in_hand = False
        self.order, self.orders = trio.open_memory_channel[str](10)
        self.give, self.given = trio.open_memory_channel[octopi.Message](10)
        self.scope = trio.CancelScope()
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
                with self.scope:
                    async for message in member:
                        await self.give.send(message)
                        order = await self.orders.receive()
                        if order == "fail":
                            raise _TestFailure
                        if order == "leave":
                            break
        except _TestFailure:
            pass
        except OctopiError as error:
            self.error = error
            if not hasattr(self, "subscription"):
                task_status.started(error)
        self.give.close()
        self.ended.set()


class _PythonMembers:
    """All members, each with a client of its own."""

    def __init__(self, url: str, nursery: trio.Nursery) -> None:
        self.token = trio.lowlevel.current_trio_token()
        self._url = url
        self._nursery = nursery
        self._members: dict[str, _PythonMember] = {}
        self._queue_members: dict[str, PythonQueueMember] = {}

    async def do(self, command: Command) -> Any:  # noqa: ANN401
        member = self._members.get(command["as"])
        try:
            with trio.fail_after(PATIENCE_S):
                if command["do"] != "join" and command["as"] in self._queue_members:
                    return await self._queue_members[command["as"]].do(command)
                match command["do"]:
                    case "join":
                        return await self._join(command)
                    case "take":
                        assert member is not None
                        return [await self._take(member) for _ in range(command["count"])]
                    case "commit":
                        assert member is not None
                        return await member.subscription.commit()
                    case "mark":
                        assert member is not None
                        return member.subscription.mark(member.taken[command["message"]])
                    case "claims":
                        assert member is not None
                        return {str(log): one for log, one in member.subscription.claims.items()}
                    case "leave" | "fail":
                        assert member is not None
                        if member.has_in_hand:
                            await member.order.send(command["do"])
                        else:
                            member.scope.cancel()
                        await member.ended.wait()
                        if member.error is not None:
                            raise member.error
        except OctopiError as error:
            raise Refused(code_of(error)) from None
        return None

    async def _join(self, command: Command) -> None:
        if command["options"].get("mode") in QUEUE_MODES:
            queue_member = PythonQueueMember()
            error = await self._nursery.start(queue_member.run, self._url, command)
            self._queue_members[command["as"]] = queue_member
        else:
            member = _PythonMember()
            error = await self._nursery.start(member.run, self._url, command)
            self._members[command["as"]] = member
        if error is not None:
            raise error

    async def _take(self, member: _PythonMember) -> str:
        if member.has_in_hand:
            await member.order.send("next")
            member.has_in_hand = False
        try:
            message = await member.given.receive()
        except trio.EndOfChannel:
            assert member.error is not None
            raise member.error from None
        member.taken.append(message)
        member.has_in_hand = True
        return message.value.decode()


@asynccontextmanager
async def _python_members(url: str) -> AsyncIterator[_PythonMembers]:
    async with trio.open_nursery() as nursery:
        yield _PythonMembers(url, nursery)
        nursery.cancel_scope.cancel()


# --- the program -------------------------------------------------------------------------


@contextmanager
def in_program(
    url: str, directory: Path, program: list[str], members: Callable[[str, str], set[str]]
) -> Iterator[ConformingClient]:
    """`octopi-node consume`, a process each.  *members* of a topic and a name says who is one."""
    running = _Program(url, directory, program, members)
    try:
        yield running
    finally:
        running.end()


class _Program:
    def __init__(
        self,
        url: str,
        directory: Path,
        program: list[str],
        members: Callable[[str, str], set[str]],
    ) -> None:
        self._url = url
        self._directory = directory
        self._program = program
        self._who = members
        self._members: dict[str, _Lines] = {}
        self._all: list[_Lines] = []

    def do(self, command: Command) -> Any:  # noqa: ANN401
        match command["do"]:
            case "join":
                return self._join(command)
            case "take":
                lines = self._members[command["as"]]
                return [lines.next() for _ in range(command["count"])]
            case "acknowledge":
                return None  # it did, when the line was written
            case "leave":
                return self._members[command["as"]].leave()
        raise AssertionError(f"the program has no {command['do']}")

    def _join(self, command: Command) -> None:
        token = self._directory / "token"
        token.write_text(command["token"])
        token.chmod(0o600)
        arguments = ["consume", command["topic"], "--subscription", command["name"]]
        if "takes" in command:
            arguments += ["-n", str(command["takes"])]
        for option, value in command["options"].items():
            match option:
                case "takeOver":
                    arguments.append("--take-over")
                case "start":
                    arguments += ["-o", value]
                case "ackTimeout":
                    arguments += ["--ack-timeout", f"{value // 1000}s"]
                case "prefetch":
                    assert value == command["takes"], "it prefetches what it is to print"
                case _:
                    arguments += [f"--{option}", str(value)]
        before = self._who(command["topic"], command["name"])
        lines = _Lines(
            [*self._program, *arguments, "--server", self._url, "--timeout", "3"],
            {**os.environ, "OCTOPI_TOKEN_FILE": str(token)},
        )
        self._all.append(lines)
        self._members[command["as"]] = lines
        wanted = command["options"].get("member")
        deadline = time.monotonic() + PATIENCE_S
        while not lines.has_ended_within(0.2):  # nothing announces that it is a member
            found = self._who(command["topic"], command["name"])
            if wanted in found or (wanted is None and found - before):
                return
            assert time.monotonic() < deadline
        try:
            lines.check()
        except Refused as refused:
            if str(refused) != "history_lost":  # that comes after joining, and is told when reading
                raise

    def end(self) -> None:
        """End all."""
        for one in self._all:
            one.end()


class _Lines:
    """One process, and the lines that it printed."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
        )
        self._errors = ""
        self._reader = Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors = self._process.stderr.read()

    def has_ended_within(self, seconds: float) -> bool:
        """Whether it has ended, now or in so long."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def next(self) -> str:
        assert self._process.stdout is not None
        watch = Timer(PATIENCE_S, self._process.kill)
        watch.start()
        line = self._process.stdout.readline()
        watch.cancel()
        if not line:
            self.check()
            raise AssertionError("it ended without an error")
        return line.removesuffix("\n")

    def check(self) -> None:
        """Raise why it ended, if that was an error."""
        code = self._process.wait(PATIENCE_S)
        self._reader.join()
        if code == 0:
            return
        if found := re.search(r"\[(\w+)\]", self._errors):
            raise Refused(found[1])
        if code == 2:
            raise Refused("invalid_option")
        assert "were removed by retention" in self._errors, (code, self._errors)
        raise Refused("history_lost")

    def leave(self) -> None:
        """It ends when it has printed what it was to print."""
        self.check()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdout.close()
        self._process.stderr.close()
