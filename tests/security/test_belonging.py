"""Registers and brokers prove to each other that they are of one cluster: strangers can't."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import octopi
from octopi.environment import Link
from octopi.errors import OctopiError, RefusedError, Status, UnreachableError
from octopi.limits import MESSAGE_BYTES_MAX
from octopi.roles.register.node import RegisterNode
from octopi.security.join_secret import JoinSecrets, SecretSource
from octopi.transport.connection import Connection
from octopi.transport.handshake import (
    NodeCredentials,
    accept_connection,
    open_connection,
    open_node_connection,
)
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode
from octopi.wire.endpoints import FOLLOW, MEMBERSHIP, PEER, REGISTERS, Endpoint
from tests.kit.cluster import Cluster, describe, eventually, running_cluster
from tests.kit.join_secrets import SECRETS, secrets_of
from tests.kit.links import MemoryLink, MemoryNet, link_pair
from tests.transport.serving import environment_of

EVERY_CLASS = frozenset(m.TYPE_NAMES)
WELCOME = m.Welcome(1, "register", "an impostor", 250, 1000, MESSAGE_BYTES_MAX)

each_endpoint = pytest.mark.parametrize(
    "endpoint", [MEMBERSHIP, FOLLOW, PEER, REGISTERS], ids=lambda one: one.path
)


# --- who is let in -----------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "x" * 43])
async def test_a_local_program_without_the_join_secret_opens_no_endpoint_of_nodes(
    tmp_path: Path, token: str | None
) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = (await describe(cluster, "orders")).partitions[0].leader_address
        register = cluster.register.url
        for url, endpoint in ((register, MEMBERSHIP), (leader, FOLLOW), (register, PEER)):
            with trio.fail_after(10), pytest.raises(RefusedError) as refused:
                await open_connection(cluster.environment, url, endpoint, "stranger", token=token)
            assert refused.value.status.name == "NOT_A_MEMBER"
            assert not refused.value.retryable
            stranger = NodeCredentials(secrets_of(b"guessed"))
            with trio.fail_after(10), pytest.raises(RefusedError, match="does not belong to"):
                await open_node_connection(cluster.environment, url, endpoint, "stranger", stranger)


@asynccontextmanager
async def accepting(
    endpoint: Endpoint, secrets: SecretSource | None = SECRETS
) -> AsyncIterator[tuple[MemoryLink, list[OctopiError | None]]]:
    """A link to a node that lets in who proves to be one, and how that ended (None: let in)."""
    peer, link = link_pair()
    outcomes: list[OctopiError | None] = []

    async def accept() -> None:
        try:
            await accept_connection(
                environment_of(MemoryNet()),
                link,
                endpoint,
                role="register",
                agent="test",
                secrets=secrets,
            )
        except OctopiError as error:
            outcomes.append(error)
        else:
            outcomes.append(None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        yield peer, outcomes
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def said(peer: Link, message: object) -> object:
    """The answer to *message*."""
    await peer.send(encode(message))
    return decode(await peer.receive(), EVERY_CLASS)


@attrs.frozen
class Overheard:
    """What a node that proves to be one said, as somebody on the network hears it."""

    hello: m.Hello
    proof: m.Proof


class Wiretap:
    """A `Link` of the connecting side, on which all is noted that it says."""

    def __init__(self, link: MemoryLink) -> None:
        self._link = link
        self.sent: list[object] = []

    async def send(self, data: bytes) -> None:
        self.sent.append(decode(data, EVERY_CLASS))
        await self._link.send(data)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._link, name)


class OneLink(MemoryNet):
    """A net on which every address is at the other end of one link."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    async def connect(self, url: str, path: str, *, owner: str = "") -> Link:
        return self._link


async def opened(
    link: MemoryLink | Wiretap,
    endpoint: Endpoint,
    secrets: SecretSource = SECRETS,
    token: str | None = None,
) -> Connection:
    """A connection of a node, over *link*."""
    here, shown = (
        environment_of(OneLink(cast("Link", link))),
        NodeCredentials(secrets, lambda: token),
    )
    return await open_node_connection(here, "ws://a:1", endpoint, "test", shown)


async def overheard(endpoint: Endpoint) -> Overheard:
    """What a node says that is let in."""
    async with accepting(endpoint) as (peer, outcomes):
        tap = Wiretap(peer)
        await opened(tap, endpoint)
    assert outcomes == [None]
    hello, proof = tap.sent
    assert isinstance(hello, m.Hello)
    assert isinstance(proof, m.Proof)
    return Overheard(hello, proof)


@each_endpoint
async def test_the_secret_never_crosses_the_wire(
    endpoint: Endpoint, autojump_clock: MockClock
) -> None:
    (secret,) = SECRETS().keys
    heard = await overheard(endpoint)
    assert heard.hello.token is None
    for message in (heard.hello, heard.proof):
        assert secret not in encode(message)
        assert secret.hex().encode() not in encode(message)


@each_endpoint
async def test_an_overheard_proof_is_not_valid_on_another_connection(
    endpoint: Endpoint, autojump_clock: MockClock
) -> None:
    heard = await overheard(endpoint)
    async with accepting(endpoint) as (peer, outcomes):
        assert isinstance(await said(peer, heard.hello), m.Challenge)
        answer = await said(peer, heard.proof)
        assert isinstance(answer, m.Failure)
        assert answer.status == Status.NOT_A_MEMBER
    (problem,) = outcomes
    assert isinstance(problem, RefusedError)


@each_endpoint
async def test_a_proof_that_is_sent_back_is_refused(
    endpoint: Endpoint, autojump_clock: MockClock
) -> None:
    async with accepting(endpoint) as (peer, outcomes):
        challenge = await said(peer, m.Hello(1, "mirror", nonce=b"n" * 32))
        assert isinstance(challenge, m.Challenge)
        answer = await said(peer, m.Proof(challenge.proofs[0]))
        assert isinstance(answer, m.Failure)
        assert answer.status == Status.NOT_A_MEMBER
    assert outcomes != [None]


async def test_a_proof_obtained_from_another_node_is_refused(autojump_clock: MockClock) -> None:
    """A stranger gives the challenge of one connection to a node on another one: to prove itself
    as accepting with the nonces of a connecting side is of no use."""
    async with accepting(MEMBERSHIP) as (first, outcomes), accepting(MEMBERSHIP) as (second, _):
        challenge = await said(first, m.Hello(1, "stranger", nonce=b"n" * 32))
        assert isinstance(challenge, m.Challenge)
        helped = await said(second, m.Hello(1, "stranger", nonce=challenge.nonce))
        assert isinstance(helped, m.Challenge)
        answer = await said(first, m.Proof(helped.proofs[0]))
        assert isinstance(answer, m.Failure)
    assert outcomes != [None]


async def test_a_proof_is_valid_at_one_endpoint_only(autojump_clock: MockClock) -> None:
    async with accepting(FOLLOW) as (peer, outcomes):
        with pytest.raises(RefusedError, match="does not belong"):
            await opened(peer, MEMBERSHIP)
    assert outcomes != [None]


@each_endpoint
@pytest.mark.parametrize("nonce", [b"", b"n" * 31])
async def test_an_unauthenticated_peer_receives_nothing_derived_from_the_secret(
    endpoint: Endpoint, nonce: bytes, autojump_clock: MockClock
) -> None:
    async with accepting(endpoint) as (peer, outcomes):
        answer = await said(peer, m.Hello(1, "stranger", "token", nonce))
        assert answer == m.Failure(
            None, Status.NOT_A_MEMBER, f"{endpoint.path} is for nodes of the cluster"
        )
    assert [type(one) for one in outcomes] == [RefusedError]


@each_endpoint
async def test_a_node_without_a_secret_admits_no_node(
    endpoint: Endpoint, autojump_clock: MockClock
) -> None:
    for none in (None, lambda: JoinSecrets((), "/home/of/octopi/secret is not there")):
        async with accepting(endpoint, none) as (peer, outcomes):
            answer = await said(peer, m.Hello(1, "stranger", nonce=b"n" * 32))
            assert isinstance(answer, m.Failure)
            assert answer.status == Status.NOT_READY
            assert "/home" not in answer.reason
        assert outcomes != [None]


@each_endpoint
async def test_random_bytes_open_no_endpoint_and_end_no_node(
    endpoint: Endpoint, autojump_clock: MockClock
) -> None:
    randomness = random.Random(43)
    heard = await overheard(endpoint)
    for number in range(500):
        async with accepting(endpoint) as (peer, outcomes):
            if number % 2:
                await said(peer, m.Hello(1, "stranger", nonce=randomness.randbytes(32)))
            match number % 3:
                case 0:
                    data = randomness.randbytes(randomness.randrange(200))
                case 1:
                    data = encode(m.Proof(randomness.randbytes(randomness.choice([0, 31, 32]))))
                case _:  # one bit of a proof is another one
                    changed = bytearray(encode(heard.proof))
                    changed[randomness.randrange(len(changed))] ^= 1 << randomness.randrange(8)
                    data = bytes(changed)
            await peer.send(data)
            assert isinstance(decode(await peer.receive(), EVERY_CLASS), m.Failure)
        assert len(outcomes) == 1
        assert outcomes != [None]


# --- which nodes are believed ------------------------------------------------------------


@each_endpoint
@pytest.mark.parametrize(
    "answer",
    [
        WELCOME,
        m.Challenge(b"n" * 32, []),
        m.Challenge(b"n" * 32, [b""]),
        m.Challenge(b"n" * 32, [b"p" * 32, b"q" * 32]),
        m.Challenge(b"", [b"p" * 32]),
    ],
    ids=["welcome", "no proof", "empty proof", "false proofs", "no nonce"],
)
async def test_a_node_sends_no_proof_to_a_node_that_can_not_prove_itself(
    endpoint: Endpoint, answer: object, autojump_clock: MockClock
) -> None:
    peer, link = link_pair()
    await peer.send(encode(answer))
    tap = Wiretap(link)
    with pytest.raises(RefusedError, match="its messages are ignored") as refused:
        await opened(tap, endpoint, token="a secret token")
    assert refused.value.status is Status.NOT_A_MEMBER
    assert [type(one) for one in tap.sent] == [m.Hello, m.Failure], "neither a proof nor the token"
    assert tap.sent[0].token is None  # type: ignore[attr-defined]


async def test_a_node_with_another_secret_is_told_why_it_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with accepting(MEMBERSHIP) as (peer, outcomes):
        with pytest.raises(RefusedError):
            await opened(peer, MEMBERSHIP, secrets_of(b"another one"))
    (problem,) = outcomes
    assert "join secret is another one" in str(problem)


async def test_a_node_without_a_secret_connects_to_no_node(autojump_clock: MockClock) -> None:
    peer, link = link_pair()
    with pytest.raises(UnreachableError, match="no join secret: it is not there"):
        await opened(link, FOLLOW, lambda: JoinSecrets((), "it is not there"))
    assert peer.closed_with is None


async def test_nodes_with_one_secret_in_common_believe_each_other(
    autojump_clock: MockClock,
) -> None:
    for theirs, ours in (
        ((b"old",), (b"old", b"new")),
        ((b"old", b"new"), (b"new",)),
        ((b"new", b"old"), (b"old", b"new")),
    ):
        async with accepting(FOLLOW, secrets_of(*theirs)) as (peer, outcomes):
            await opened(peer, FOLLOW, secrets_of(*ours))
        assert outcomes == [None]


# --- clusters ----------------------------------------------------------------------------


async def test_a_new_broker_with_another_secret_ends_and_says_what_to_do(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        with pytest.raises(BaseExceptionGroup) as group:
            await cluster.start_broker(secrets=secrets_of(b"another one"))
        (error,) = _leaves(group.value)
        assert isinstance(error, RefusedError)
        assert error.status is Status.NOT_A_MEMBER


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in _leaves(one)]
    return [error]


async def test_an_impostor_at_the_registers_address_orders_no_broker_that_leads(
    tmp_path: Path,
) -> None:
    """Brokers go on leading while it is there, and join again when the register is back."""
    shown: list[RegisterNode] = []
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, tmp_path)
        await cluster.start_register()
        listen = cluster.register.url.removeprefix("ws://")
        for number in (1, 2, 3):
            await cluster.start_broker(f"broker-{number}")
        await describe(cluster, "orders")
        async with octopi.connect(cluster.register.url) as client, client.producer() as producer:
            await producer.send("orders", b"before")
            await cluster.kill(cluster.register)
            came: list[None] = []

            def its_own() -> JoinSecrets:
                came.append(None)  # a broker says hello
                return secrets_of(b"its own")()

            impostor = await cluster.start_register(
                name="impostor", listen=listen, secrets=its_own, show=shown.append
            )
            await eventually(lambda: len(came) >= 6)
            assert not shown[-1].members
            await producer.send("orders", b"meanwhile")
            await cluster.kill(impostor)
            shown.clear()
            await cluster.start_register(listen=listen, show=shown.append)
            await eventually(lambda: len(shown[0].members) == 3, within_s=20)
            receipt = await producer.send("orders", b"after")
            assert receipt.epoch == 1, "nobody led instead meanwhile"
        nursery.cancel_scope.cancel()


async def test_the_join_secret_is_replaced_while_the_cluster_works(tmp_path: Path) -> None:
    secrets = {name: [b"old"] for name in ("register", "broker-1", "broker-2")}

    def source(name: str) -> SecretSource:
        return lambda: secrets_of(*secrets[name])()

    shown: list[RegisterNode] = []
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, tmp_path)
        await cluster.start_register(secrets=source("register"), show=shown.append)
        listen = cluster.register.url.removeprefix("ws://")
        for name in ("broker-1", "broker-2"):
            await cluster.start_broker(name, secrets=source(name))
        steps: list[list[bytes]] = [[b"old", b"new"], [b"new"]]
        for after in steps:
            for name in secrets:
                secrets[name] = after
                await cluster.kill(cluster.register)
                shown.clear()
                await cluster.start_register(
                    listen=listen, secrets=source("register"), show=shown.append
                )
                await eventually(lambda: len(shown[0].members) == 2, within_s=20)
        nursery.cancel_scope.cancel()
