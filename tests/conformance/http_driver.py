"""Drives plain HTTP: topics as streams, by a program that has nothing but `http.client`.

What HTTP reads are bytes: the values of messages, one behind the other.  So the program has to know
how long they are, and the judge says it.  Each write is sent twice, as by a program that the first
answer didn't reach: nothing may be doubled by that.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse
from itertools import count
from threading import Event
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlsplit

import attrs

from tests.conformance.driving import (
    PATIENCE_S,
    Command,
    Inexpressible,
    Refused,
    given_bytes,
    shown_bytes,
)

LACKS: Final = {
    "a refusal of names that topics can't have": "any path is a stream: one that is no topic's "
    "name is escaped into one",
    "a start at a time": "a read begins at the beginning, at an offset, or at the end",
    "a start at the last messages": "the bytes of a stream don't tell where a message begins",
    "appending on a condition": "a write is appended wherever the stream ends",
    "an error if a topic was made again": "an offset of the deleted stream gets 410, as one whose "
    "content retention has removed",
    "an error of consumers whose client is closed": "there is no client, only requests",
    "clients that are opened and closed": "each request stands by itself",
    "creation of topics with options": "`PUT` says a stream's content type and lifetime, and no "
    "option of a topic",
    "description of topics": "`HEAD` tells the end, the content type and the lifetime, and no "
    "partitions",
    "durable subscriptions": "no request belongs to a member; a program keeps its offset itself",
    "empty values": "a request without a body writes nothing",
    "headers": "a request's headers are for its transport; none of them is stored with the content",
    "keys": "a stream is one log, in which keys decide nothing",
    "positions that all clients share": "an offset is a place in one stream, whose topic and "
    "partition are in the path",
    "queues": "a stream has no members to deal messages to",
    "reading of all partitions at once": "a request is for one partition (`?partition=NUMBER`)",
    "several topics and patterns": "a request is for one stream",
    "time stamps": "a write has the time at which it was taken, and a read tells no times",
    "waiting for a topic": "a stream that isn't there is answered at once with 404",
}

_EXPRESSED: Final = {
    "connect": {"as", "token", "server", "timeout_s"},
    "close": {"as"},
    "create topic": {"by", "topic"},
    "delete topic": {"by", "topic"},
    "produce": {"as", "by", "topic", "name"},
    "send": {"as", "by", "topic", "partition", "value"},
    "send numbered": {"by", "topic"},
    "sent": {"by", "topic"},
    "consume": {"as", "by", "topic", "partition", "from", "stop_at_end", "on_gap", "give_up_s"},
    "next": {"as", "count", "sizes"},
    "position": {"as"},
}
"""What a command may say, since there is a header, a parameter or a path for it."""

_OF_THE_JUDGE: Final = {"do", "sees", "save", "refused", "values", "count"}


@contextmanager
def http_driver(url: str, live: str, patience_s: float = PATIENCE_S) -> Iterator[_HttpDriver]:
    """Plain HTTP, at the cluster of *url*.  *live*: how to wait for content, ``long-poll`` or
    ``sse``.  *patience_s*: for an answer that has to come."""
    driver = _HttpDriver(url, live, patience_s)
    try:
        yield driver
    finally:
        driver.close()


@attrs.frozen
class _Answer:
    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def next_offset(self) -> str:
        return str(self.headers["Stream-Next-Offset"])

    @property
    def word(self) -> str:
        """The name of the status, as the other clients say it."""
        found = json.loads(self.body)["error"]["status"]
        is_lost = (self.status, found) == (410, "offset_out_of_range")
        return "history_lost" if is_lost else str(found)


class _Server:
    """A node, and what a program sends with each request to it."""

    def __init__(self, url: str, token: str | None, timeout_s: float) -> None:
        self._url = url
        self._place = urlsplit(url)
        self._token = token
        self.timeout_s = timeout_s

    def within(self, timeout_s: float) -> _Server:
        """The same, with which requests are repeated for *timeout_s*."""
        return _Server(self._url, self._token, timeout_s)

    def open(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[HTTPConnection, HTTPResponse]:
        """Send a request, and wait for the head of its answer.

        Raises:
          OSError, HTTPException: if there is none.
        """
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self._token is not None:
            named["Authorization"] = f"Bearer {self._token}"
        assert self._place.hostname is not None
        connection = HTTPConnection(self._place.hostname, self._place.port, timeout=self.timeout_s)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # it may have answered already
                connection.request(method, f"/v1/streams/{path}", body, named)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> _Answer:
        """The answer to a request, which is repeated while nobody can give it.

        Raises:
          Refused: if the time is over.
        """
        deadline = time.monotonic() + self.timeout_s
        while True:
            pause_s, word = 0.05, "unreachable"
            with suppress(OSError, HTTPException):
                connection, response = self.open(method, path, body, **headers)
                with closing(connection):
                    answer = _Answer(response.status, response.headers, response.read())
                if "Retry-After" not in answer.headers:
                    return answer
                pause_s, word = float(answer.headers["Retry-After"]), str(answer.status)
            if time.monotonic() > deadline:
                raise Refused(word)
            time.sleep(pause_s)

    def done(self, method: str, path: str, body: bytes | None = None, **headers: str) -> _Answer:
        """The answer of a request that was carried out.

        Raises:
          Refused: if it was not.
        """
        answer = self.ask(method, path, body, **headers)
        if answer.status >= 400:
            raise Refused(answer.word)
        return answer


class _HttpDriver:
    lacks: ClassVar[Mapping[str, str]] = LACKS

    def __init__(self, url: str, live: str, patience_s: float) -> None:
        self._url = url
        self._live = live
        self._patience_s = patience_s
        self._servers: dict[str, _Server] = {}
        self._producers: dict[str, _Producer] = {}
        self._epochs: dict[str, Iterator[int]] = {}
        """Of each name of a producer: the next one.  A program has them in a file."""
        self._readings: dict[str, _Reading] = {}
        self._sendings: dict[str, tuple[Event, Future[list[object]]]] = {}
        self._names = count()
        self._threads = ThreadPoolExecutor()

    def do(self, command: Command) -> Any:  # noqa: ANN401
        """See `tests.conformance.driving.Driver`."""
        said = command.keys() - _OF_THE_JUDGE
        if not said <= _EXPRESSED.get(command["do"], set()):
            raise Inexpressible(f"{command['do']}: {sorted(said)}")
        match command["do"]:
            case "connect":
                self._connect(command)
            case "close":
                self._end_reading(command["as"])
            case "create topic":
                self._server(command).done("PUT", _path(command))
            case "delete topic":
                self._server(command).done("DELETE", _path(command))
            case "produce":
                epoch = next(self._epochs.setdefault(command["name"], count()))
                server = self._server(command)
                self._producers[command["as"]] = _Producer(server, command["name"], epoch)
            case "send":
                producer = self._producers[command.get("as") or command["by"]]
                return producer.send(_path(command), given_bytes(command["value"]), command)
            case "send numbered":
                goes_on = Event()
                goes_on.set()
                sending = self._threads.submit(self._send_numbered, command, goes_on)
                self._sendings[command["by"]] = goes_on, sending
            case "sent":
                goes_on, sending = self._sendings.pop(command["by"])
                goes_on.clear()
                return sending.result(2 * PATIENCE_S)
            case "consume":
                server = self._server(command).within(command.get("give_up_s", self._patience_s))
                self._readings[command["as"]] = _Reading(server, command, self._live)
            case "next":
                return self._readings[command["as"]].next(command.get("sizes"))
            case "position":
                return self._readings[command["as"]].position
        return None

    def _connect(self, command: Command) -> None:
        if isinstance(command.get("server"), list):
            raise Inexpressible("several nodes")
        server = _Server(
            command.get("server", self._url),
            command["token"],
            command.get("timeout_s", self._patience_s),
        )
        name = command["as"]
        self._servers[name] = server
        self._producers[name] = _Producer(server, f"program-{next(self._names)}", 0)

    def _server(self, command: Command) -> _Server:
        return self._servers[command["by"]]

    def _send_numbered(self, command: Command, goes_on: Event) -> list[object]:
        producer, receipts = self._producers[command["by"]], list[object]()
        while goes_on.is_set():
            receipts.append(producer.send(_path(command), b"%d" % len(receipts), command))
        return receipts

    def _end_reading(self, name: str) -> None:
        reading = self._readings.pop(name, None)
        if reading is not None:
            reading.close()

    def reset(self) -> None:
        """See `tests.conformance.driving.Driver`."""
        for goes_on, _ in self._sendings.values():
            goes_on.clear()
        self._sendings.clear()
        for name in list(self._readings):
            self._end_reading(name)
        self._servers.clear()
        self._producers.clear()

    def close(self) -> None:
        """See `tests.conformance.driving.Driver`."""
        self.reset()
        self._threads.shutdown()


def _path(command: Command) -> str:
    if not isinstance(command["topic"], str):
        raise Inexpressible("several topics")
    path = quote(command["topic"], safe="")
    return f"{path}?partition={command['partition']}" if "partition" in command else path


class _Producer:
    """Writes with a sequence for each stream, so that a repetition is recognised."""

    def __init__(self, server: _Server, name: str, epoch: int) -> None:
        self._server = server
        self._name = name
        self._epoch = epoch
        self._sequences: dict[str, int] = {}

    def send(self, path: str, value: bytes, command: Command) -> dict[str, object]:
        """Write *value*; return a receipt.  Its offset is where the stream ended before, since
        nobody else writes."""
        before = self._server.ask("HEAD", path).headers.get("Stream-Next-Offset", "0")
        written = self._write(path, value)
        if written.status == 409 and written.headers.get("Producer-Expected-Seq") == "0":
            self._sequences[path] = 0  # the topic was made again
            written = self._write(path, value)
        if written.status >= 400:
            raise Refused(written.word)
        again = self._write(path, value)
        assert (again.status, again.headers["Producer-Seq"]) == (204, self._sequence(path))
        self._sequences[path] = self._sequences.get(path, 0) + 1
        assert written.next_offset > before
        return {
            "partition": command.get("partition", 0),
            "offset": int(before.partition("~")[0]),
            "duplicate": False,
        }

    def _sequence(self, path: str) -> str:
        return str(self._sequences.get(path, 0))

    def _write(self, path: str, value: bytes) -> _Answer:
        return self._server.ask(
            "POST",
            path,
            value,
            Content_Type="application/x-www-form-urlencoded",  # as `curl -d` says
            Producer_Id=self._name,
            Producer_Epoch=str(self._epoch),
            Producer_Seq=self._sequence(path),
        )


class _Reading:
    """Reads what is there, then what comes."""

    def __init__(self, server: _Server, command: Command, live: str) -> None:
        self._server = server
        self._path = _path(command)
        self._of = {"topic": command["topic"], "partition": command.get("partition", 0)}
        self._stops_at_end = command.get("stop_at_end", False)
        self._skips_gaps = command.get("on_gap") == "skip"
        self._live = live
        self._events: tuple[HTTPConnection, HTTPResponse] | None = None
        self._is_behind = True
        """Whether there may be more than it has read."""
        self._content = b""
        """What was read, from `_begin` on."""
        self._taken = 0
        """How much of it the program has had."""
        self._begin = self._offset = self._start(command["from"])
        self._deadline = 0.0

    def _start(self, start: object) -> str:
        match start:
            case "earliest":
                return "-1"
            case "latest":
                return self._get("now").next_offset
            case int():
                return f"{start:020d}"
            case str():
                offset, _, taken = start.partition(" ")
                self._taken = int(taken or 0)
                return offset
        raise Inexpressible(f"a start at {start}")

    @property
    def position(self) -> str:
        """The offset of an answer, and how much of what is there the program has had."""
        if self._taken == len(self._content):
            return f"{self._offset} 0"
        return f"{f'{0:020d}' if self._begin == '-1' else self._begin} {self._taken}"

    def next(self, sizes: list[int] | None) -> list[dict[str, object]]:
        """The messages with values of these *sizes*, and all the rest if it stops at the end; None:
        what comes next."""
        self._deadline = time.monotonic() + self._server.timeout_s
        messages = [self._message(self._taken + size) for size in sizes or []]
        if sizes is None or self._stops_at_end:
            while self._taken >= len(self._content) and self._read_on():
                pass
            while self._stops_at_end and self._read_on():
                pass
            if self._taken < len(self._content):
                messages.append(self._message(len(self._content)))
        return messages

    def _message(self, end: int) -> dict[str, object]:
        while len(self._content) < end and self._read_on():
            pass
        value = self._content[self._taken : end]
        is_known = self._taken == 0 and self._begin != "-1"
        offset = int(self._begin.partition("~")[0]) if is_known else None
        self._taken = end
        if end == len(self._content):
            self._begin, self._content, self._taken = self._offset, b"", 0
        return {**self._of, "offset": offset, "value": shown_bytes(value)}

    def _read_on(self) -> bool:
        """Read more, and wait for it; return whether there can be more."""
        assert time.monotonic() < self._deadline, "nothing came"
        if self._is_behind:
            self._read_what_is_there()
        elif self._stops_at_end:
            return False
        elif self._live == "sse":
            self._read_event()
        else:
            self._took(self._get(self._offset, "&live=long-poll"))
        return True

    def _read_what_is_there(self) -> None:
        try:
            answer = self._get(self._offset)
        except Refused as refused:
            if str(refused) != "history_lost" or not self._skips_gaps:
                raise
            self._begin, answer = "-1", self._get("-1")
        self._took(answer)
        self._is_behind = "Stream-Up-To-Date" not in answer.headers

    def _get(self, offset: str, how: str = "") -> _Answer:
        path, _, partition = self._path.partition("?")
        query = f"{partition}&" if partition else ""
        return self._server.done("GET", f"{path}?{query}offset={quote(offset)}{how}")

    def _took(self, answer: _Answer) -> None:
        self._content += answer.body
        self._offset = answer.next_offset

    def _read_event(self) -> None:
        """Read content and what says where it ends; together, so that neither comes twice."""
        try:
            if self._events is None:
                path, _, partition = self._path.partition("?")
                query = f"{partition}&" if partition else ""
                where = f"{path}?{query}offset={quote(self._offset)}&live=sse"
                self._events = self._server.open("GET", where)
            content = b""
            while True:
                name, data = _event(self._events[1])
                if name == "control":
                    break
                content += base64.b64decode(data)
        except (OSError, HTTPException):
            self.close()
            self._is_behind = True
        else:
            self._content += content
            self._offset = json.loads(data)["streamNextOffset"]

    def close(self) -> None:
        """End the connection on which events come."""
        if self._events is not None:
            self._events[0].close()
            self._events = None


def _event(response: HTTPResponse) -> tuple[str, str]:
    """The next event: its name and its data.

    Raises:
      OSError: if none comes any more.
    """
    name, data = "", list[str]()
    while (line := response.readline().decode()) not in {"", "\n"}:
        field, _, value = line.rstrip("\n").partition(":")
        if field == "event":
            name = value.strip()
        else:
            data.append(value.removeprefix(" "))
    if not line:
        raise ConnectionResetError
    return name, "\n".join(data)
