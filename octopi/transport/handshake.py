"""The handshake of a connection: hello and welcome.

The connecting side sends `Hello` first, and nothing else before it; its size is bounded.  The
accepting side answers with `Welcome` or `Failure` within a time limit.

At an endpoint for nodes alone there are two more messages in between, `Challenge` and `Proof`: with
them first the accepting side and then the connecting side proves that it belongs to the cluster
(`octopi.security.join_secret`).  A client may request the same with a nonce in its hello: so an
operator proves to be one, and gets a connection slot when none is left for clients.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
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
    PROTOCOL_VERSION_MIN,
    Challenge,
    Failure,
    Heartbeat,
    Hello,
    Proof,
    Welcome,
)

TokenSource = Callable[[], str | None]
"""Returns the token to connect with.  Called for each connection, since tokens are renewed."""


@attrs.frozen
class NodeCredentials:
    """What a node proves its membership with to other nodes, and the token that it sends."""

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
"""The shortest interval of heartbeats that a welcome may ask for; a shorter one is refused."""


@cache
def _received(endpoint: Endpoint, role: str) -> frozenset[type]:
    """What a node in *role* receives at *endpoint*: one set for all connections."""
    return endpoint.accepted_by(role) | _ANY_TIME


async def open_connection(
    environment: Environment,
    url: str,
    endpoint: Endpoint,
    agent: str,
    *,
    token: str | None = None,
    name: str = "",
) -> Connection:
    """Connect to *endpoint* of the node at *url*, within `CONNECT_TIMEOUT_S`.  *name*: what the
    node shows people for the connection (`Hello.name`).

    The connection works once `Connection.run` does.

    Raises:
      UnreachableError: if no node answers there, or not in time.
      RefusedError: if the node refuses us, such as for our version or token, or because the
          endpoint is for nodes alone (`open_node_connection`).
      ProtocolError: if the node's answer breaks the protocol.
      InvalidOptionError: if *url* is not the address of a node.
    """

    async def ask_in(link: Link) -> Welcome:
        await link.send(encode(Hello(PROTOCOL_VERSION, agent, token, name=name)))
        return await _hear_welcome(link)

    return await _open(environment, url, endpoint, ask_in)


async def open_node_connection(
    environment: Environment,
    url: str,
    endpoint: Endpoint,
    agent: str,
    credentials: NodeCredentials,
    *,
    name: str = "",
) -> Connection:
    """`open_connection` as a node, or at the endpoint of clients as an operator: the node at *url*
    proves that it belongs to the cluster, then this side proves the same.

    Raises:
      RefusedError: also if the proof of either side is not accepted.
      UnreachableError: also if this node has no join secret (yet).
      And what `open_connection` raises.
    """
    secrets = credentials.secrets()
    if not secrets.keys:
        raise UnreachableError(f"no join secret: {secrets.missing}")
    nonce = environment.randomness.token_bytes(JOIN_NONCE_BYTES)

    async def ask_in(link: Link) -> Welcome:
        await link.send(encode(Hello(PROTOCOL_VERSION, agent, nonce=nonce, name=name)))
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
                "that it has the same join secret, so its messages are ignored",
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
    if not PROTOCOL_VERSION_MIN <= answer.version <= PROTOCOL_VERSION:
        raise RefusedError(
            f"{link.peer} speaks version {answer.version} of the protocol, we "
            f"{PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION}",
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
    cluster: str = "",
) -> Connection:
    """Read the hello of a peer that connected to *endpoint*, and welcome it.  If *endpoint* is for
    nodes alone, or the hello asks for it, prove with *secrets* that this node belongs to the
    cluster, and have the peer prove the same; without *secrets* all peers are refused there.
    *cluster*: the id of this node's cluster, which the welcome names.

    The connection works once `Connection.run` does.  After a failure the peer was told why, and
    the link is closed.

    With an *authenticator*, callers have to call ``leave`` on the `Connection.entry` of the result
    when the connection has ended.  The work for the peer up to its welcome counts to the turn
    *opening*, since it is a stranger until then, and later work to *turn*.  Memory for the peer is
    charged to *budget*; callers give it back by closing `Connection.memory`.

    Raises:
      ProtocolError: if the peer sent something else, too much, or nothing in time.
      RefusedError: if its proof or token is not valid, or if the node has no slot for it.
      ConnectionLostError: if the peer went away, or did not accept our proof.
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
                await link.send(encode(_welcome(heard, endpoint, role, agent, expires_ms, cluster)))
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
        attrs.evolve(hello, token=None, nonce=b""),  # they are not needed after the handshake
        receives=_received(endpoint, role),
        heartbeat_interval_s=endpoint.heartbeat_interval_s,
        heartbeat_timeout_s=endpoint.heartbeat_timeout_s,
        latencies=latencies,
        entry=entry,
        turn=turn,
        memory=_memory(budget, link, endpoint, entry),
    )


def _operates(entry: AuthenticatedPeer | None) -> bool:
    """Whether the peer's token makes it an operator: it grants `admin` on ``*``."""
    return entry is not None and entry.identity.grants.allows(Verb.ADMIN, None)


def _memory(
    budget: MemoryBudget | None, link: Link, endpoint: Endpoint, entry: AuthenticatedPeer | None
) -> ConnectionMemory | None:
    """The memory accounts of the peer, to which *link* charges what it reads from now on.

    The subject of its token owns them.  Without tokens each connection is a subject of its own,
    because clients of one machine, or behind one proxy, can't be told apart by their address.
    """
    if budget is None:
        return None
    subject = link.peer if entry is None else entry.identity.subject
    memory = budget.connection(subject, is_peer=endpoint is not CLIENT)
    link.meter(ReceiveBudget(memory.incoming))
    return memory


def _read_hello(data: bytes) -> Hello:
    hello = decode(data, frozenset({Hello}))
    assert isinstance(hello, Hello)
    if hello.version < PROTOCOL_VERSION_MIN:
        raise ProtocolError(
            f"hello.version: {hello.version} is not spoken here, {PROTOCOL_VERSION_MIN} to "
            f"{PROTOCOL_VERSION} are",
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
    """Prove to the peer that this node belongs to the cluster, then check the peer's proof.
    Return the token that came with it.

    Raises:
      RefusedError: NOT_A_MEMBER, if the peer's proof is not valid; NOT_READY, if this node has no
          join secret yet.
      ConnectionLostError: if the peer went away, or did not accept our proof.
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
        raise ConnectionLostError(f"the other node did not accept our proof: {answer.reason}")
    assert isinstance(answer, Proof)
    if opening.proven(secrets, Side.CONNECTING, [answer.proof]) is None:
        raise RefusedError(
            "you did not prove that you have the join secret of this cluster",
            Status.NOT_A_MEMBER,
        )
    return answer.token


def _welcome(
    hello: Hello, endpoint: Endpoint, role: str, agent: str, expires_ms: int | None, cluster: str
) -> Welcome:
    return Welcome(
        version=min(hello.version, PROTOCOL_VERSION),
        role=role,
        agent=agent,
        heartbeat_interval_ms=round(endpoint.heartbeat_interval_s * 1000),
        heartbeat_timeout_ms=round(endpoint.heartbeat_timeout_s * 1000),
        message_bytes_max=MESSAGE_BYTES_MAX,
        expires_ms=expires_ms,
        cluster=cluster,
    )
