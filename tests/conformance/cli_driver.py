"""Drives `octopi-node consume` as members of subscriptions, a process each, and the program
as a producer and a consumer while a leader is killed.

Of a member that leaves, the program has to know beforehand how many messages it takes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Thread, Timer
from typing import Any, ClassVar, Final

from tests.conformance.driving import PATIENCE_S, Command, Refused
from tests.conformance.features import FEATURES

_AHEAD: Final = 500
"""So many lines are given to ``produce`` before any of them is read."""

PROGRAM: Final = [sys.executable, "-m", "octopi_node"]
LACKS: Final = {
    one: "the list tries durable subscriptions with the program, and a leader that is killed"
    for one in FEATURES
    if one not in {"durable subscriptions", "queues", "partitions"}
}


@contextmanager
def cli_driver(
    url: str, directory: Path, members: Callable[[str, str], set[str]]
) -> Iterator[_ProgramDriver]:
    """`octopi-node consume`, at the cluster of *url*.  *members* of a topic and a name says who is
    one."""
    driver = _ProgramDriver(url, directory, members)
    try:
        yield driver
    finally:
        driver.reset()


class _ProgramDriver:
    lacks: ClassVar[Mapping[str, str]] = LACKS

    def __init__(self, url: str, directory: Path, members: Callable[[str, str], set[str]]) -> None:
        self._url = url
        self._directory = directory
        self._who = members
        self._members: dict[str, _Lines] = {}
        self._all: list[_Lines] = []
        self._token = ""
        self._feeds: dict[str, _Lines] = {}
        """The programs that send, by their topics."""
        self._topics: dict[str, str] = {}
        """What each program that reads reads."""
        self._numbers = count()

    def do(self, command: Command) -> Any:  # noqa: ANN401
        """See `tests.conformance.driving.Driver`."""
        match command["do"]:
            case "join":
                return self._join(command)
            case "take":
                lines = self._members[command["as"]]
                return [lines.next() for _ in range(command["count"])]
            case "acknowledge":
                return None  # it did, when the line was written
            case "connect":
                self._token = command["token"]
                return None
            case "send":
                self._feed(command, [command["value"]])
                return self._end_feed(command)
            case "send numbered":
                self._numbers = count()
                self._feed(command, self._next_numbers(_AHEAD))
                return None
            case "sent":
                return self._end_feed(command)
            case "consume":
                self._read(command)
                return None
            case "next":
                return self._take(command)
            case "leave":
                return self._members[command["as"]].leave()
        raise AssertionError(f"the program has no {command['do']}")

    def _feed(self, command: Command, lines: list[str]) -> None:
        """Give ``produce`` more lines."""
        topic = command["topic"]
        if topic not in self._feeds:
            self._feeds[topic] = self._start(["produce", topic])
        self._feeds[topic].write(lines)

    def _next_numbers(self, wanted: int) -> list[str]:
        return [str(next(self._numbers)) for _ in range(wanted)]

    def _end_feed(self, command: Command) -> list[dict[str, object]]:
        """Wait until all is acknowledged; the program tells no receipts, only how many."""
        return [{}] * self._feeds.pop(command["topic"]).end_input()

    def _read(self, command: Command) -> None:
        arguments = ["consume", command["topic"], "-o", command["from"]]
        self._members[command["as"]] = self._start(arguments)
        self._topics[command["as"]] = command["topic"]

    def _take(self, command: Command) -> list[dict[str, object]]:
        topic = self._topics[command["as"]]
        if topic in self._feeds:  # what is sent while it reads, and behind that
            self._feed({"topic": topic}, self._next_numbers(command["count"]))
        lines = self._members[command["as"]]
        values = [lines.next().encode().hex() for _ in range(command["count"])]
        return [{"topic": topic, "partition": 0, "value": one} for one in values]

    def _start(self, arguments: list[str]) -> _Lines:
        token = self._directory / "token"
        token.write_text(self._token)
        token.chmod(0o600)
        lines = _Lines(
            [*PROGRAM, *arguments, "--server", self._url, "--timeout", "3"],
            {**os.environ, "OCTOPI_TOKEN_FILE": str(token)},
        )
        self._all.append(lines)
        return lines

    def _join(self, command: Command) -> None:
        self._token = command["token"]
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
        lines = self._start(arguments)
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

    def reset(self) -> None:
        """See `tests.conformance.driving.Driver`."""
        for one in self._all:
            one.end()
        self._all.clear()
        self._feeds.clear()
        self._members.clear()

    def close(self) -> None:
        """See `tests.conformance.driving.Driver`."""


class _Lines:
    """One process, and the lines that it printed."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
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

    def write(self, lines: list[str]) -> None:
        """Give it lines on its standard input, which has room for them."""
        assert self._process.stdin is not None
        self._process.stdin.writelines(f"{one}\n" for one in lines)
        self._process.stdin.flush()

    def end_input(self) -> int:
        """End its standard input, and wait until it ends; return of how many messages it tells."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.check()
        found = re.search(r"^([\d,]+) messages?", self._errors, re.MULTILINE)
        assert found is not None, self._errors
        return int(found[1].replace(",", ""))

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
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.stderr.close()
