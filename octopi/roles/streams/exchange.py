"""Requests for streams: who asks, their bodies, and answers that report errors."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.parse import parse_qsl

import attrs
import trio

from octopi.environment import Clock
from octopi.errors import STATUS_MEANINGS, Blame, OctopiError, RefusedError, Status
from octopi.limits import ROOM_S
from octopi.printable import without_directory
from octopi.security.authenticator import AuthenticatedPeer
from octopi.security.authorization import not_granted
from octopi.security.grants import EVERYTHING, Grants, Verb
from octopi.security.quotas import NOBODY, Creator
from octopi.streams.problems import StreamProblem, invalid
from octopi.transport.http_requests import HttpAnswer, HttpRequest
from octopi.transport.memory_budget import ConnectionMemory, MemoryBudget
from octopi.transport.memory_pool import UNFINISHED, Waiter

OpenStream = Callable[[str], Awaitable[trio.abc.HalfCloseableStream]]
"""Opens a stream to the node at a url; raises UnreachableError."""

INITIAL = "octopi-initial"
"""The header with which a register writes the initial content of a stream."""
FORK = "octopi-fork"
"""The header with which a register has the content copied that a fork begins with."""
ANYWHERE = ("cross-origin-resource-policy", "cross-origin")
NO_STORE = ("cache-control", "no-store")
_NEEDED = {
    "GET": Verb.SUBSCRIBE, "POST": Verb.PUBLISH, "PUT": Verb.CREATE, "DELETE": Verb.ADMIN,
}  # fmt: skip
"""What a request needs on its topic, by its method."""


class StreamService(Protocol):
    """Answers the requests for streams at one node."""

    async def answer(self, request: HttpRequest, caller: StreamCaller) -> HttpAnswer:
        """The answer; errors are answers, too."""


@attrs.define
class StreamCaller:
    """Who sends a request, and what it may use."""

    peer: str
    """Its address, for people to read."""
    open_stream: OpenStream
    """For forwarding the request."""
    entry: AuthenticatedPeer | None = None
    """None: the node requires no tokens."""
    memory: ConnectionMemory | None = None

    @property
    def grants(self) -> Grants:
        """What its token grants."""
        return EVERYTHING if self.entry is None else self.entry.identity.grants

    @property
    def creator(self) -> Creator:
        """As whom it creates topics."""
        if self.entry is None:
            return NOBODY
        identity = self.entry.identity
        return Creator(identity.subject, identity.quota.topics)

    def require(self, verb: Verb, topic: str) -> None:
        """Check that its token grants *verb* on *topic*.

        Raises:
          RefusedError: FORBIDDEN.
        """
        if not self.grants.allows(verb, topic):
            raise RefusedError(not_granted(verb, topic), Status.FORBIDDEN)

    def require_method(self, method: str, topic: str) -> None:
        """Check that its token grants what a request with *method* needs.  Nothing else is told of
        a topic, not even whether it exists, to those who may not use it.

        Raises:
          RefusedError: FORBIDDEN.
        """
        verb = _NEEDED.get(method)
        if verb is not None:
            self.require(verb, topic)
        elif not self.grants.covers(topic):
            raise RefusedError(f"the token grants nothing on topic {topic!r}", Status.FORBIDDEN)

    def accounts(self, budget: MemoryBudget) -> ConnectionMemory:
        """Its memory, of *budget*."""
        if self.memory is None:
            subject = self.peer if self.entry is None else self.entry.identity.subject
            self.memory = budget.connection(subject, is_peer=False)
        return self.memory

    def leave(self) -> None:
        """The request is over: give everything back."""
        if self.memory is not None:
            self.memory.close()
        if self.entry is not None:
            self.entry.leave()


async def received(
    request: HttpRequest, memory: ConnectionMemory, bytes_max: int, *, what: str = "a request"
) -> bytes:
    """The whole body of *request*, which *memory* holds from now on.

    Raises:
      StreamProblem: if it is longer than *bytes_max*, or there is no memory for it.
      HttpRefusal: if it is malformed, or comes too slowly.
    """
    too_long = StreamProblem(
        f"{what} writes at most {bytes_max} bytes: send several requests",
        Status.MESSAGE_TOO_LARGE,
    )
    if (request.body.announced_bytes or 0) > bytes_max:
        raise too_long
    # No list of the parts: chunks may be tiny, and each part would be an object of its own.
    body = bytearray()
    while part := await request.body.receive():
        if len(body) + len(part) > bytes_max:
            raise too_long
        if not memory.incoming.room(len(part), len(part)):
            raise RefusedError(
                "the node has no memory left for the request (--memory-budget)", Status.TOO_MANY
            )
        memory.incoming.charge(UNFINISHED, len(part))
        body += part
    return bytes(body)


async def room(clock: Clock, memory: ConnectionMemory, kind: str, size_bytes: int) -> None:
    """Wait until *size_bytes* of *kind* are charged.

    Raises:
      RefusedError: TOO_MANY, if that takes longer than `ROOM_S`.
    """
    if memory.outgoing.room(size_bytes, size_bytes):
        memory.outgoing.charge(kind, size_bytes)
        return
    granted = trio.Event()
    waiter: Waiter = memory.outgoing.wait(kind, size_bytes, granted.set)
    try:
        with clock.timeout(ROOM_S):
            await granted.wait()
    except BaseException:
        waiter.withdraw()
        raise
    if not granted.is_set():
        waiter.withdraw()
        raise RefusedError(
            "the node has no memory left for the answer (--memory-budget)", Status.TOO_MANY
        )


def parameters(request: HttpRequest) -> dict[str, str]:
    """The parameters of the query.

    Raises:
      StreamProblem: if one of them comes twice.
    """
    found: dict[str, str] = {}
    try:
        pairs = parse_qsl(request.raw_query, keep_blank_values=True, max_num_fields=50)
    except ValueError:
        raise invalid("the query has too many parameters") from None
    for name, value in pairs:
        if name in found and name in {"offset", "live", "cursor", "partition"}:
            raise invalid(f"the parameter {name} comes twice")
        found[name] = value
    return found


def problem_answer(error: OctopiError) -> HttpAnswer:
    """The answer that reports *error*."""
    status = error.status if isinstance(error, RefusedError | StreamProblem) else Status.INTERNAL
    meaning = STATUS_MEANINGS[status]
    http, headers = meaning.http, [NO_STORE, ANYWHERE]
    if isinstance(error, StreamProblem):
        http = error.http
        headers += error.headers
    if http in {429, 503} and not any(name == "retry-after" for name, _ in headers):
        headers.append(("retry-after", "1"))
    if http == 401:
        headers.append(("www-authenticate", "Bearer"))
    reason = without_directory(str(error.args[0]))
    fields = {"status": status.name.lower(), "reason": reason}
    if meaning.fault is not Blame.CALLER or http in {404, 503}:
        fields["next"] = meaning.next
    body = json.dumps({"error": fields}, separators=(",", ":")).encode() + b"\n"
    return HttpAnswer(http, body, "application/json", tuple(headers))
