"""Hello and welcome: from a link to a connection whose sides know each other.

The connecting side sends `Hello` first, and nothing else before it; its size is bounded.  The
answer, `Welcome` or `Failure`, comes within a time limit.

At an endpoint for nodes alone there are two messages more in between, `Challenge` and `Proof`, by
which first the accepting side and then the connecting side proves that it belongs to the cluster
(`octopi.security.join_secret`).  A client may request the same with a nonce in its hello: so an
operator proves to be one, and gets a connection slot when none is left for clients.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs

from octopi.environment import Environment, Link
from octopi.errors import (
    ConnectionLostError,
    NotReadyError,
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
    JOIN_NONCE_BYTES,
    MESSAGE_BYTES_MAX,
)
from octopi.metrics.latencies import Latencies
from octopi.security.authenticator import AuthenticatedPeer, Authenticator
from octopi.security.grants import Verb
from octopi.security.join_secret import NO_SECRETS, ProofContext, SecretSource, Side
from octopi.transport.close_codes import PROTOCOL_ERROR, close_code
from octopi.transport.connection import Connection
from octopi.transport.failures import failure, refusal
from octopi.transport.memory_budget import ConnectionMemory, MemoryBudget
from octopi.transport.receive_budget import ReceiveBudget
from octopi.transport.turns import ConnectionTurn
from octopi.wire.codec import decode, encode
from octopi.wire.endpoints import CLIENT, Endpoint
from octopi.wire.messages import (
    PROTOCOL_VERSION,
    Challenge,
    Failure,
    Heartbeat,
    Hello,
    Proof,
    Welcome,
)

TokenSource = Callable[[], str | None]
"""Returns the token to connect with; called for each connection, as it may have been refreshed."""


@attrs.frozen
class NodeCredentials:
    """What a node shows to other nodes of its cluster."""

    secrets: SecretSource = lambda: NO_SECRETS
    token: TokenSource = lambda: None


_DOUBTED: Final = "this node's join secret is another one than that of the node that connected"

_NO_PROOF: Final = f"no proof within {HANDSHAKE_TIMEOUT_S:g} s"

_NO_PLACE: Final = (
    "the node has no place for another client; an operator gets one with --join-secret FILE, or "
    "with a token that grants admin on *"
)

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
      UnreachableError: if no node answers there, or not in time.
      RefusedError: if the node doesn't want us, such as for our version or token, or because
          the endpoint is for nodes alone (`open_node_connection`).
      ProtocolError: if the node's answer is no legal one.
      InvalidOptionError: if *url* is none.
    """

    async def ask_in(link: Link) -> Welcome:
        await link.send(encode(Hello(PROTOCOL_VERSION, agent, token)))
        return await _hear_welcome(link)

    return await _open(environment, url, endpoint, ask_in)


async def open_node_connection(
    environment: Environment,
    url: str,
    endpoint: Endpoint,
    agent: str,
    credentials: NodeCredentials,
) -> Connection:
    """`open_connection` as a node, or at the endpoint of clients as an operator: proves to the
    node at *url* that this side belongs to the cluster, once that node has proven the same.

    Raises:
      RefusedError: also if either doesn't believe the other.
      UnreachableError: also if this node has no join secret (yet).
      And what `open_connection` raises.
    """
    secrets = credentials.secrets()
    if not secrets.keys:
        raise UnreachableError(f"no join secret: {secrets.missing}")
    nonce = environment.randomness.token_bytes(JOIN_NONCE_BYTES)

    async def ask_in(link: Link) -> Welcome:
        await link.send(encode(Hello(PROTOCOL_VERSION, agent, nonce=nonce)))
        answer = decode(await link.receive(), frozenset({Challenge, Welcome, Failure}))
        if isinstance(answer, Failure):
            raise refusal(answer)
        challenge = answer if isinstance(answer, Challenge) else Challenge(b"", [])
        opening = ProofContext(endpoint.path, nonce, challenge.nonce)
        key = opening.proven(secrets, Side.ACCEPTING, challenge.proofs)
        if key is None:
            with environment.clock.timeout(CLOSE_TIMEOUT_S):
                await link.send(encode(failure(None, Status.NOT_A_MEMBER, _DOUBTED)))
            raise RefusedError(
                f"the node at {url} does not belong to the cluster of this one: it did not prove "
                "that it has the same join secret, and nothing is done that it says",
                Status.NOT_A_MEMBER,
            )
        proof = opening.proof(key, Side.CONNECTING)
        await link.send(encode(Proof(proof, credentials.token())))
        return await _hear_welcome(link)

    return await _open(environment, url, endpoint, ask_in)


async def _open(
    environment: Environment,
    url: str,
    endpoint: Endpoint,
    ask_in: Callable[[Link], Awaitable[Welcome]],
) -> Connection:
    clock = environment.clock
    with clock.timeout(CONNECT_TIMEOUT_S):
        link = await environment.net.connect(url, endpoint.path)
        is_open = False
        try:
            welcome = await ask_in(link)
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


async def _hear_welcome(link: Link) -> Welcome:
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
    authenticator: Authenticator | None = None,
    opening: ConnectionTurn | None = None,
    turn: ConnectionTurn | None = None,
    budget: MemoryBudget | None = None,
    secrets: SecretSource | None = None,
) -> Connection:
    """Read the hello of a peer that connected to *endpoint*, and welcome it.  If *endpoint* is for
    nodes alone, or the hello asks for it, prove with *secrets* that this node is of the cluster,
    and let the peer prove the same; without *secrets* all peers are refused there.

    The connection works once `Connection.run` does.  After a failure the peer was told
    and the link is closed.

    A peer that a *doorkeeper* lets in has to be told to leave (`Connection.entry`).  What is done
    for the peer up to its welcome is done in the turn *opening*, as it is a stranger so long, and
    then in *turn*.  What is kept for it comes out of *budget*, and has to be given back
    (`Connection.memory`).

    Raises:
      ProtocolError: if it said something else, too much, or nothing in time.
      RefusedError: if its proof or its token is no good, or if the node has no place for it.
      ConnectionLostError: if it went away, or doesn't believe us.
    """
    hello: Hello | None = None
    entry: AuthenticatedPeer | None = None
    problem: ProtocolError | RefusedError = ProtocolError(
        f"no hello within {HANDSHAKE_TIMEOUT_S:g} s", Status.TOO_SLOW
    )
    try:
        with environment.clock.timeout(HANDSHAKE_TIMEOUT_S):
            try:
                data = await link.receive(HELLO_BYTES_MAX)
                if opening is not None and not opening.begin():
                    await opening.wait()
                heard = _read_hello(data)
                token = heard.token
                is_proven = endpoint.is_for_nodes or bool(heard.nonce)
                if is_proven:
                    problem = ProtocolError(_NO_PROOF, Status.TOO_SLOW)
                    nonce = heard.nonce
                    token = await _be_shown(environment, link, endpoint, nonce, secrets, opening)
                if authenticator is not None:
                    entry = authenticator.enter(token, endpoint)
                if not link.settle(is_client=not (is_proven or _operates(entry))):
                    raise RefusedError(_NO_PLACE, Status.OVER_LIMIT)
                expires_ms = entry.identity.expires_ms if entry is not None else None
                if opening is not None:
                    opening.end()
                await link.send(encode(_welcome(endpoint, role, agent, expires_ms)))
                hello = heard
            except (ProtocolError, RefusedError) as error:
                problem = error
        if hello is None:
            with environment.clock.timeout(CLOSE_TIMEOUT_S):
                await link.send(encode(failure(None, problem.status, str(problem.args[0]))))
            raise problem
    finally:
        if opening is not None:
            opening.end()
        if hello is None:
            if entry is not None:
                entry.leave()
            await link.aclose(close_code(problem.status), str(problem.args[0]))
    return Connection(
        link,
        environment.clock,
        attrs.evolve(hello, token=None, nonce=b""),  # nobody needs them any more
        receives=endpoint.accepted_by(role) | _ANY_TIME,
        heartbeat_interval_s=endpoint.heartbeat_interval_s,
        heartbeat_timeout_s=endpoint.heartbeat_timeout_s,
        latencies=latencies,
        entry=entry,
        turn=turn,
        memory=_memory(budget, link, endpoint, entry),
    )


def _operates(entry: AuthenticatedPeer | None) -> bool:
    """Whether a token says that its holder operates the cluster."""
    return entry is not None and entry.identity.grants.allows(Verb.ADMIN, None)


def _memory(
    budget: MemoryBudget | None, link: Link, endpoint: Endpoint, entry: AuthenticatedPeer | None
) -> ConnectionMemory | None:
    """What is kept for the peer, beginning with what *link* reads.  Its token says who that is.
    Without tokens each connection is somebody else, as the clients of one machine, or behind one
    proxy, have the same address."""
    if budget is None:
        return None
    subject = link.peer if entry is None else entry.identity.subject
    memory = budget.connection(subject, is_peer=endpoint is not CLIENT)
    link.meter(ReceiveBudget(memory.incoming))
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


async def _be_shown(
    environment: Environment,
    link: Link,
    endpoint: Endpoint,
    their_nonce: bytes,
    source: SecretSource | None,
    turn: ConnectionTurn | None,
) -> str | None:
    """Prove to another node that this one is of its cluster, and be shown the same; return the
    token that came with its proof.

    Raises:
      RefusedError: NOT_A_MEMBER, if that one is not; NOT_READY, if this one has no secret yet.
      ConnectionLostError: if the other one went away, or doesn't believe us.
    """
    secrets = source() if source is not None else NO_SECRETS
    if not secrets.keys:
        raise NotReadyError("this node has no join secret itself")
    opening = ProofContext(
        endpoint.path, their_nonce, environment.randomness.token_bytes(JOIN_NONCE_BYTES)
    )
    if not opening.is_sound:
        raise RefusedError(f"{endpoint.path} is for nodes of the cluster", Status.NOT_A_MEMBER)
    proofs = opening.proofs(secrets, Side.ACCEPTING)
    challenge = encode(Challenge(opening.accepting_nonce, proofs))
    if turn is not None:
        turn.end()
    await link.send(challenge)
    data = await link.receive(HELLO_BYTES_MAX)
    if turn is not None and not turn.begin():
        await turn.wait()
    answer = decode(data, frozenset({Proof, Failure}))
    if isinstance(answer, Failure):
        raise ConnectionLostError(f"the other node turned away: {answer.reason}")
    assert isinstance(answer, Proof)
    if opening.proven(secrets, Side.CONNECTING, [answer.proof]) is None:
        raise RefusedError(
            "you did not prove that you have the join secret of this cluster",
            Status.NOT_A_MEMBER,
        )
    return answer.token


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
