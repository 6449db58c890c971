"""The join secret of clusters under test."""

from __future__ import annotations

from typing import Final

from octopi.environment import Link
from octopi.security.join_secret import JoinSecrets, ProofContext, SecretSource, Side
from octopi.transport.handshake import NodeCredentials
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode


def secrets_of(*keys: bytes) -> SecretSource:
    """A node's secrets, each made of a short text."""
    found = JoinSecrets(tuple(key.ljust(32, b".") for key in keys))
    return lambda: found


SECRETS: Final = secrets_of(b"of the tests")

MEMBER: Final = NodeCredentials(SECRETS)
"""The join secret that a node played by the test proves to have."""


_NONCE: Final = b"of a test's".ljust(32, b".")


async def prove(link: Link, path: str, secrets: JoinSecrets, agent: str) -> None:
    """Say hello on *link* as a node that has *secrets*; return when it is let in."""
    await link.send(encode(m.Hello(1, agent, nonce=_NONCE)))
    challenge = decode(await link.receive(), frozenset({m.Challenge}))
    assert isinstance(challenge, m.Challenge)
    opening = ProofContext(path, _NONCE, challenge.nonce)
    await link.send(encode(m.Proof(opening.proof(secrets.keys[0], Side.CONNECTING))))
    decode(await link.receive(), frozenset({m.Welcome}))


async def be_asked(link: Link, secrets: JoinSecrets, welcome: m.Welcome) -> None:
    """Let another node in, which is shown that this one has *secrets*."""
    hello = decode(await link.receive(), frozenset({m.Hello}))
    assert isinstance(hello, m.Hello)
    opening = ProofContext(link.path, hello.nonce, _NONCE)
    await link.send(encode(m.Challenge(_NONCE, opening.proofs(secrets, Side.ACCEPTING))))
    decode(await link.receive(), frozenset({m.Proof}))
    await link.send(encode(welcome))
