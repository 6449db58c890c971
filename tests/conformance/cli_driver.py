"""Drives `octopi-node consume` as members of subscriptions, a process each.

Of a member that leaves, the program has to know beforehand how many messages it takes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread, Timer
from typing import Any, ClassVar, Final

from tests.conformance.driving import PATIENCE_S, Command, Refused
from tests.conformance.features import FEATURES

PROGRAM: Final = [sys.executable, "-m", "octopi_node"]
LACKS: Final = {
    one: "the list tries only durable subscriptions with the program"
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
            [*PROGRAM, *arguments, "--server", self._url, "--timeout", "3"],
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

    def reset(self) -> None:
        """See `tests.conformance.driving.Driver`."""
        for one in self._all:
            one.end()
        self._all.clear()
        self._members.clear()

    def close(self) -> None:
        """See `tests.conformance.driving.Driver`."""


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
