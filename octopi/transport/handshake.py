"""Hello and welcome: from a link to a connection whose sides know each other.

The connecting side speaks first.  Both answers to its hello, `Welcome` and `Failure`, come
within a time limit, and before the hello a peer may neither say much nor anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from octopi.environment import Environment, Link
from octopi.errors import (
    ConnectionLostError,
    ProtocolError,
    RefusedError,
    Status,
    UnreachableError,
)
from octopi.limits import (
    CLOSE_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    HANDSHAKE_TIMEOUT_S,
    HELLO_BYTES_MAX,
    MESSAGE_BYTES_MAX,
)
from octopi.metrics.latencies import Latencies
from octopi.security.doorkeeper import Doorkeeper, Entry
from octopi.transport.close_codes import PROTOCOL_ERROR, close_code
from octopi.transport.connection import Connection
from octopi.transport.failures import failure, refusal
from octopi.transport.intake import Intake
from octopi.transport.memory_budget import ConnectionMemory, MemoryBudget
from octopi.transport.turns import Turn
from octopi.wire.codec import decode, encode
from octopi.wire.endpoints import CLIENT, Endpoint
from octopi.wire.messages import PROTOCOL_VERSION, Failure, Heartbeat, Hello, Welcome

TokenSource = Callable[[], str | None]
"""Gives the token to connect with; asked each time, so that it may be another one by then."""

_ANY_TIME: Final = frozenset({Heartbeat, Failure})

HEARTBEAT_MS_MIN: Final = 10
"""A node that asks for heartbeats faster than this is not taken seriously."""


async def open_connection(
    environment: Environment,
    url: str,
    endpoint: Endpoint,
    agent: str,
    *,
    token: str | None = None,
) -> Connection:
    """Connect to *endpoint* of the node at *url*, within `CONNECT_TIMEOUT_S`.

    The connection works once `Connection.run` does.

    Raises:
      UnreachableError: if nobody answers there, or not in time.
      RefusedError: if the node doesn't want us, such as for our version or token.
      ProtocolError: if the node's answer is no legal one.
      InvalidOptionError: if *url* is none.
    """
    clock = environment.clock
    with clock.timeout(CONNECT_TIMEOUT_S):
        link = await environment.net.connect(url, endpoint.path)
        is_open = False
        try:
            welcome = await _ask_in(link, Hello(PROTOCOL_VERSION, agent, token))
            is_open = True
        except ConnectionLostError as error:
            raise UnreachableError(f"{url} did not welcome us: {error}") from error
        finally:
            if not is_open:
                await link.aclose(PROTOCOL_ERROR, "no welcome")
        return Connection(
            link,
            clock,
            welcome,
            receives=endpoint.back | _ANY_TIME,
            heartbeat_interval_s=welcome.heartbeat_interval_ms / 1000,
            heartbeat_timeout_s=welcome.heartbeat_timeout_ms / 1000,
        )
    raise UnreachableError(f"{url} did not answer within {CONNECT_TIMEOUT_S:g} s")


async def _ask_in(link: Link, hello: Hello) -> Welcome:
    await link.send(encode(hello))
    answer = decode(await link.receive(), frozenset({Welcome, Failure}))
    if isinstance(answer, Failure):
        raise refusal(answer)
    assert isinstance(answer, Welcome)
    if answer.version != PROTOCOL_VERSION:
        raise RefusedError(
            f"{link.peer} speaks version {answer.version} of the protocol, we {PROTOCOL_VERSION}",
            Status.UNSUPPORTED_VERSION,
        )
    if not HEARTBEAT_MS_MIN <= answer.heartbeat_interval_ms < answer.heartbeat_timeout_ms:
        raise ProtocolError(f"welcome.heartbeat_interval_ms: {answer.heartbeat_interval_ms}")
    return answer


async def accept_connection(
    environment: Environment,
    link: Link,
    endpoint: Endpoint,
    *,
    role: str,
    agent: str,
    latencies: Latencies | None = None,
    doorkeeper: Doorkeeper | None = None,
    turn: Turn | None = None,
    budget: MemoryBudget | None = None,
) -> Connection:
    """Hear the hello of whoever connected to *endpoint* and welcome it.

    The connection works once `Connection.run` does.  After a failure the peer was told
    and the link is closed.

    Whom a *doorkeeper* lets in has to be told to leave (`Connection.entry`).  What is done for the
    peer, from its hello on, is done in *turn*.  What is kept for it comes out of *budget*, and has
    to be given back (`Connection.memory`).

    Raises:
      ProtocolError: if it said something else, too much, or nothing in time.
      RefusedError: if its token is no good.
      ConnectionLostError: if it went away.
    """
    hello: Hello | None = None
    entry: Entry | None = None
    problem: ProtocolError | RefusedError = ProtocolError(
        f"no hello within {HANDSHAKE_TIMEOUT_S:g} s", Status.TOO_SLOW
    )
    try:
        with environment.clock.timeout(HANDSHAKE_TIMEOUT_S):
            try:
                data = await link.receive(HELLO_BYTES_MAX)
                if turn is not None and not turn.begin():
                    await turn.wait()
                heard = _read_hello(data)
                if doorkeeper is not None:
                    entry = doorkeeper.enter(heard.token, endpoint)
                expires_ms = entry.identity.expires_ms if entry is not None else None
                if turn is not None:
                    turn.end()
                await link.send(encode(_welcome(endpoint, role, agent, expires_ms)))
                hello = heard
            except (ProtocolError, RefusedError) as error:
                problem = error
        if hello is None:
            with environment.clock.timeout(CLOSE_TIMEOUT_S):
                await link.send(encode(failure(None, problem.status, str(problem.args[0]))))
            raise problem
    finally:
        if turn is not None:
            turn.end()
        if hello is None:
            if entry is not None:
                entry.leave()
            await link.aclose(close_code(problem.status), str(problem.args[0]))
    return Connection(
        link,
        environment.clock,
        attrs.evolve(hello, token=None),  # nobody needs it any more
        receives=(endpoint.to_register if role == "register" else endpoint.to_broker) | _ANY_TIME,
        heartbeat_interval_s=endpoint.heartbeat_interval_s,
        heartbeat_timeout_s=endpoint.heartbeat_timeout_s,
        latencies=latencies,
        entry=entry,
        turn=turn,
        memory=_memory(budget, link, endpoint, entry),
    )


def _memory(
    budget: MemoryBudget | None, link: Link, endpoint: Endpoint, entry: Entry | None
) -> ConnectionMemory | None:
    """What is kept for the peer, beginning with what *link* reads.  Its token says who that is.
    Without tokens each connection is somebody else, as the clients of one machine, or behind one
    proxy, have the same address."""
    if budget is None:
        return None
    subject = link.peer if entry is None else entry.identity.subject
    memory = budget.connection(subject, is_peer=endpoint is not CLIENT)
    link.meter(Intake(memory.incoming))
    return memory


def _read_hello(data: bytes) -> Hello:
    hello = decode(data, frozenset({Hello}))
    assert isinstance(hello, Hello)
    if hello.version < PROTOCOL_VERSION:
        raise ProtocolError(
            f"hello.version: {hello.version} is not spoken here, {PROTOCOL_VERSION} is",
            Status.UNSUPPORTED_VERSION,
        )
    return hello


def _welcome(endpoint: Endpoint, role: str, agent: str, expires_ms: int | None) -> Welcome:
    return Welcome(
        version=PROTOCOL_VERSION,
        role=role,
        agent=agent,
        heartbeat_interval_ms=round(endpoint.heartbeat_interval_s * 1000),
        heartbeat_timeout_ms=round(endpoint.heartbeat_timeout_s * 1000),
        message_bytes_max=MESSAGE_BYTES_MAX,
        expires_ms=expires_ms,
    )
