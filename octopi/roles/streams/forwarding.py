"""Forwards a request for a stream to the node that serves it, as HTTP.

The answer comes back as it is.  A header of the request names the nodes that it was forwarded to:
at most `HOPS_MAX` of them, none twice.  A node that can't serve a forwarded request says so with
`LOOK_AGAIN`, and the node that forwarded it looks for the leader again.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import Final

import h11
import trio

from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    NotLeaderError,
    NotReadyError,
    OctopiError,
    RefusedError,
    Status,
    UnreachableError,
)
from octopi.limits import FORWARD_S, HOPS_MAX, LONG_POLL_S, SEND_TIMEOUT_S, SSE_LIFE_S
from octopi.roles.streams import exchange
from octopi.roles.streams.exchange import StreamCaller
from octopi.streams.problems import StreamProblem
from octopi.streams.writing import PRODUCER_ID
from octopi.transport.addresses import host_and_port, server_address
from octopi.transport.http_requests import HttpAnswer, HttpRequest, Send
from octopi.transport.memory_budget import OUTBOX

HOPS: Final = "octopi-hops"
LOOK_AGAIN: Final = "octopi-look-again"
ASKED_HOST: Final = "octopi-asked-host"
"""The header with the host that the client has asked."""

PAUSE_S: Final = 0.05
"""Between two looks for what a request waits for."""

_RECEIVE_BYTES: Final = 64 * 1024
_ANSWER_S: Final = LONG_POLL_S + 30.0
_OF_ONE_HOP: Final = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding",
     "upgrade", "host", "origin", HOPS, ASKED_HOST}
)  # fmt: skip
_SAFE: Final = frozenset({"GET", "HEAD", "PUT", "DELETE"})


def hops_of(request: HttpRequest) -> list[str]:
    """The addresses that *request* was forwarded to, the first one first."""
    return request.headers.get(HOPS, "").split()[: HOPS_MAX + 1]


def is_forwarded(request: HttpRequest) -> bool:
    """Whether another node has forwarded *request*."""
    return HOPS in request.headers


def asked_host(request: HttpRequest) -> str:
    """The host and the port that the client has asked."""
    return request.headers.get(ASKED_HOST) or request.headers.get("host", "")


def look_again(reason: str) -> StreamProblem:
    """The refusal of a node that doesn't serve a forwarded request."""
    return StreamProblem(reason, Status.NOT_LEADER, (LOOK_AGAIN, "true"))


async def forward(
    environment: Environment,
    request: HttpRequest,
    body: bytes,
    caller: StreamCaller,
    locate: Callable[[], Awaitable[str]],
) -> HttpAnswer:
    """The answer of the node whose address *locate* returns.

    While that node doesn't serve the request, or can't be reached, it is located again, for
    `FORWARD_S`.

    Raises:
      OctopiError: if no node serves it; UNCOMMITTED if it may have been carried out.
    """
    clock = environment.clock
    ends_at, problem = clock.now() + FORWARD_S, _nobody("no node serves the stream now")
    hops = hops_of(request)
    while True:
        try:
            url = await locate()
            if url in hops or len(hops) >= HOPS_MAX:
                raise look_again("the request was forwarded, and this node doesn't serve it")
            return await _ask(environment, request, body, caller, url)
        except (NotLeaderError, NotReadyError, UnreachableError) as error:
            problem = _nobody(str(error.args[0]))
        except ConnectionLostError as error:
            if request.method not in _SAFE and PRODUCER_ID not in request.headers:
                raise RefusedError(
                    "the node that serves the stream has failed: whether it has stored the "
                    "content is not known",
                    Status.UNCOMMITTED,
                ) from error
            problem = _nobody(str(error.args[0]))
        if clock.now() >= ends_at:
            raise problem
        await clock.sleep_until(clock.now() + PAUSE_S)


def _nobody(reason: str) -> OctopiError:
    return NotReadyError(reason)


async def _ask(
    environment: Environment, request: HttpRequest, body: bytes, caller: StreamCaller, url: str
) -> HttpAnswer:
    """Send *request* to the node at *url*, and return its answer.

    Raises:
      NotLeaderError, UnreachableError: if it was not carried out.
      ConnectionLostError: if it may have been carried out.
    """
    stream = await caller.open_stream(url)
    asking = _Exchange(environment, stream, url)
    is_kept = False
    try:
        answer = await asking.ask(request, body, caller)
        is_kept = answer.stream is not None
    finally:
        if not is_kept:
            await asking.close()
    return answer


class _Exchange:
    """One request to another node, and its answer."""

    def __init__(
        self, environment: Environment, stream: trio.abc.HalfCloseableStream, url: str
    ) -> None:
        self._clock = environment.clock
        self._stream = stream
        self._url = url
        self._protocol = h11.Connection(h11.CLIENT)

    async def close(self) -> None:
        """End the connection."""
        await trio.aclose_forcefully(self._stream)

    async def ask(self, request: HttpRequest, body: bytes, caller: StreamCaller) -> HttpAnswer:
        """See `_ask`."""
        target = request.path + (f"?{request.raw_query}" if request.raw_query else "")
        headers = [(name, value) for name, value in request.headers.items()
                   if name not in _OF_ONE_HOP]  # fmt: skip
        headers.append((HOPS, " ".join([*hops_of(request), self._url])))
        headers.append((ASKED_HOST, asked_host(request)))
        headers += [("host", host_and_port(*server_address(self._url))), ("connection", "close")]
        if body or request.method in {"POST", "PUT"}:
            headers.append(("content-length", str(len(body))))
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        head = h11.Request(method=request.method, target=target.encode("latin-1"), headers=encoded)
        parts = [self._protocol.send(head)]
        if body:
            parts.append(self._protocol.send(h11.Data(data=body)))
        parts.append(self._protocol.send(h11.EndOfMessage()))
        # It may have answered before it has read everything.
        with (
            self._clock.timeout(SEND_TIMEOUT_S) as slow,
            contextlib.suppress(trio.BrokenResourceError),
        ):
            await self._stream.send_all(b"".join(part for part in parts if part))
        if slow.cancelled_caught:
            raise ConnectionLostError(f"{self._url} doesn't take the request")
        event = await self._next(_ANSWER_S)
        while isinstance(event, h11.InformationalResponse):
            event = await self._next(_ANSWER_S)
        if not isinstance(event, h11.Response):
            raise ConnectionLostError(f"{self._url} gave no answer")
        return await self._answer(event, request.method, caller)

    async def _answer(self, event: h11.Response, method: str, caller: StreamCaller) -> HttpAnswer:
        has_body = method != "HEAD"
        headers = [(name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers]
        found = dict(headers)
        if LOOK_AGAIN in found:
            raise NotLeaderError(f"{self._url} doesn't serve the stream")
        kept = tuple(
            (name, value) for name, value in headers
            if name not in _OF_ONE_HOP and name not in {"content-type", "date", "server"}
        )  # fmt: skip
        content_type = found.get("content-type", "")
        if has_body and found.get("transfer-encoding"):
            return HttpAnswer(
                event.status_code, b"", content_type, kept, stream=self._pass, close=self.close
            )
        size_bytes = int(found.get("content-length", "0")) if has_body else 0
        if size_bytes and method == "GET" and caller.memory is not None:
            # Held until the client has taken it.  Others' answers are short.
            await exchange.room(self._clock, caller.memory, OUTBOX, size_bytes)
        body = bytearray()
        while has_body and isinstance(part := await self._next(_ANSWER_S), h11.Data):
            body += part.data
        if not has_body and "content-length" in found:
            kept += (("content-length", found["content-length"]),)
        return HttpAnswer(event.status_code, bytes(body), content_type, kept)

    async def _pass(self, send: Send) -> None:
        """Pass the body on as it comes."""
        while isinstance(part := await self._next(SSE_LIFE_S + 30.0), h11.Data):
            await send(bytes(part.data))

    async def _next(self, wait_s: float) -> h11.Event:
        ends_at = self._clock.now() + wait_s if wait_s < math.inf else math.inf
        while True:
            try:
                event = self._protocol.next_event()
                if event is not h11.NEED_DATA:
                    assert not isinstance(event, type), "the answer is read once"
                    return event
                data: bytes | None = None
                with self._clock.timeout(max(0.0, ends_at - self._clock.now())):
                    data = bytes(await self._stream.receive_some(_RECEIVE_BYTES))
            except (h11.RemoteProtocolError, trio.BrokenResourceError, AssertionError) as error:
                raise ConnectionLostError(f"{self._url} broke its answer off: {error}") from None
            if data is None:
                raise ConnectionLostError(f"{self._url} gave no answer in time")
            self._protocol.receive_data(data)
