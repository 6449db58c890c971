"""A cluster that asks for tokens: what each verb lets its holder do, at every role."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import octopi
from octopi import logger
from octopi.errors import ConnectionLostError, RefusedError, Status
from octopi.operating_system import SystemClock
from octopi.record import encode_opaque
from octopi.security.authenticator import Authenticator, TokenLimits
from octopi.security.grants import Verb
from octopi.transport.connection import Connection
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT, FOLLOW, MEMBERSHIP, PEER, Endpoint
from tests.kit.cluster import Cluster
from tests.security.tokens import key_ring, token

OPTIONS = m.TopicOptions()
RECORD = encode_opaque(bytes(32), b"value")


def fresh(
    ttl_s: float | None = 3600,
    subject: str = "somebody",
    verbs: Iterable[str] = (),
    pattern: str = "*",
    **wanted: str,
) -> str:
    """A token of now: *verbs* for *pattern*, and what else is *wanted*."""
    patterns = {one: [pattern] for one in verbs} | {one: [text] for one, text in wanted.items()}
    return key_ring().sign(subject, patterns, SystemClock().wall_ms(), ttl_s)


def everything() -> str:
    return fresh(verbs=Verb)


class LaterClock(SystemClock):
    """A clock whose wall clock a test sets forward."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


@asynccontextmanager
async def guarded(
    directory: Path,
    brokers: int = 1,
    limits: TokenLimits | None = None,
    clock: SystemClock | None = None,
    **options: object,
) -> AsyncIterator[Cluster]:
    """A cluster whose nodes ask for tokens, and read their dates by *clock*."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, directory)

        def authenticator() -> Authenticator:
            return Authenticator(key_ring(), clock or SystemClock(), limits)

        await cluster.start_register(authenticator=authenticator())
        node_token = fresh(None, "node", replicate="*")
        for number in range(1, brokers + 1):
            await cluster.start_broker(
                f"broker-{number}",
                authenticator=authenticator(),
                token=lambda: node_token,
                **options,
            )
        yield cluster
        nursery.cancel_scope.cancel()


async def ready(cluster: Cluster, topic: str) -> tuple[str, int]:
    """Make *topic*; return its leader's address and its partition."""
    async with octopi.connect(cluster.register.url, token=everything()) as client:
        await client.create_topic(topic, exist_ok=True)
        with trio.fail_after(20):
            while True:
                [place] = (await client.describe_topic(topic)).partitions
                if place.leader is not None:
                    return place.leader_address, place.partition
                await trio.sleep(0.01)  # nothing announces it to clients


async def outcome(connection: Connection, message: Any, answer: type) -> Status | None:  # noqa: ANN401
    """None if *message* was carried out, else why not."""
    try:
        await connection.request(message, answer, 10)
    except RefusedError as error:
        return error.status
    return None


AT_REGISTER: list[tuple[Verb | None, Callable[[int], Any], type]] = [
    (Verb.CREATE, lambda n: m.CreateTopic(n, "orders", 1, None, OPTIONS), m.TopicDescription),
    (Verb.CREATE, lambda n: m.DescribeTopic(n, f"missing-{n}", True), m.TopicDescription),
    (
        Verb.ADMIN,
        lambda n: m.AlterTopic(n, "orders", ["min_insync"], OPTIONS),
        m.TopicDescription,
    ),
    (Verb.ADMIN, lambda n: m.DeleteTopic(n, "orders"), m.Done),
    (Verb.ADMIN, lambda n: m.DrainBroker(n, 99), m.Done),
    (Verb.ADMIN, lambda n: m.AddPartitions(n, 1), m.Done),
    (Verb.ADMIN, lambda n: m.MoveReplica(n, 0, 98, 99), m.Done),
    (Verb.ADMIN, lambda n: m.SetRelays(n, 0, [97, 98, 99]), m.Done),
    (Verb.ADMIN, lambda n: m.RecoverPartition(n, 99, False), m.PartitionRecovery),
    (Verb.ADMIN, lambda n: m.RemoveBroker(n, 99), m.Done),
    (None, lambda n: m.DescribeTopic(n, "orders", False), m.TopicDescription),
    (None, lambda n: m.ListTopics(n, "", 10), m.TopicList),
    (None, m.DescribeCluster, m.ClusterDescription),
    (None, lambda n: m.DescribeEvents(n, 0), m.EventList),
    (None, m.DescribeLoads, m.LoadList),
]

AT_BROKER: list[tuple[Verb | None, Callable[[int, int], Any], type]] = [
    (Verb.PUBLISH, lambda n, p: m.Produce(n, "orders", p, RECORD), m.Produced),
    (Verb.SUBSCRIBE, lambda n, p: m.Fetch(n, "orders", p, 0, 100, 0), m.Fetched),
    (Verb.SUBSCRIBE, lambda n, p: m.FindOffset(n, "orders", p, "latest", 0), m.FoundOffset),
    (Verb.SUBSCRIBE, lambda n, p: m.Subscribe(n, "orders", p, 0, 10**6), m.Subscribed),
    (None, lambda n, p: m.DescribeLogs(n, "", "", -1), m.LogList),
    (None, lambda n, p: m.DescribeReadings(n, ""), m.ReadingList),
]


@pytest.mark.parametrize("entrance", ["register", "broker"])
async def test_each_verb_lets_its_holder_do_its_own_at_every_role(
    entrance: str, tmp_path: Path
) -> None:
    """Every verb alone, on this topic, on all topics, and on another one; what the register answers
    is also asked at a broker, which passes it on."""
    async with guarded(tmp_path) as cluster:
        leader, partition = await ready(cluster, "orders")
        numbers = 0
        for verb in Verb:
            for pattern in ("orders", "*", "other*"):
                granted = f"{pattern}/*" if verb is Verb.CONSUME else pattern
                text = fresh(verbs=[verb], pattern=granted)
                found: dict[str, Status | None] = {}
                url = cluster.register.url if entrance == "register" else leader
                async with cluster.connection(url, token=text) as register:
                    for needed, question, answer in AT_REGISTER:
                        numbers += 1
                        message = question(numbers)
                        status = await outcome(register, message, answer)
                        found[type(message).__name__] = status
                        on_topic = getattr(message, "topic", None)
                        allowed = needed in {None, verb} and (
                            pattern == "*" or on_topic in {pattern, None}
                        )
                        if needed is None and on_topic is None:
                            allowed = True
                        if needed is not None and on_topic is None and pattern != "*":
                            allowed = False
                        assert (status is not Status.FORBIDDEN) == allowed, (verb, pattern, message)
                        if isinstance(message, m.DeleteTopic) and status is None:
                            leader, partition = await ready(cluster, "orders")
                async with cluster.connection(leader, token=text) as broker:
                    for needed, ask, answer in AT_BROKER:
                        message = ask(broker.next_request(), partition)
                        status = await outcome(broker, message, answer)
                        matching = pattern in {"*", "orders"}
                        allowed = needed is None or (needed is verb and matching)
                        assert (status is None) == allowed, (verb, pattern, message)
                        assert status in {None, Status.FORBIDDEN}


@pytest.mark.parametrize("endpoint", [MEMBERSHIP, FOLLOW, PEER], ids=lambda one: one.path)
async def test_a_token_without_the_replicate_grant_can_not_join_as_a_broker(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    async with guarded(tmp_path) as cluster:
        leader, _ = await ready(cluster, "orders")
        url = leader if endpoint is FOLLOW else cluster.register.url
        others = set(Verb) - {Verb.REPLICATE}
        for text in (fresh(verbs=others), fresh(verbs=others, replicate="orders")):
            with pytest.raises(RefusedError) as caught:
                async with cluster.connection(url, endpoint, token=text):
                    pass
            assert caught.value.status is Status.FORBIDDEN
        async with cluster.connection(url, endpoint, token=fresh(replicate="*")):
            pass


async def test_lists_leave_out_topics_on_which_the_token_grants_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path) as cluster:
        for name in ("mine", "mine.too", "theirs"):
            leader, _ = await ready(cluster, name)
        for url in (cluster.register.url, leader):
            async with octopi.connect(url, token=fresh(publish="mine*")) as client:
                assert [one.topic for one in await client.topics()] == ["mine", "mine.too"]
                logs = await client.admin.describe_logs()
                assert [one.log.topic for one in logs] == ["mine", "mine.too"]
        async with cluster.connection(leader, token=everything()) as reader:
            log = (await ready(cluster, "theirs"))[1]
            await outcome(reader, m.Subscribe(1, "theirs", log, 0, 0), m.Subscribed)
            async with cluster.connection(leader, token=fresh(subscribe="mine")) as other:
                question = m.DescribeReadings(1, "")
                assert (await other.request(question, m.ReadingList, 5)).readings == []
        for url in (cluster.register.url, leader):
            async with cluster.connection(url, token=fresh(admin="mine")) as other:
                events = (await other.request(m.DescribeEvents(1, 0), m.EventList, 5)).events
                assert {one.topic for one in events} == {"", "mine"}


async def test_the_subscription_that_retention_waits_for_is_named_only_to_permitted_clients(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, retention_check_interval_s=0.01) as cluster:
        url = cluster.register.url
        async with octopi.connect(url, token=everything()) as client:
            await client.create_topic(
                "orders", segment_bytes=4096, retention_bytes=1, hold_bytes=10**6
            )
            await client.admin.create_subscription("orders", "billing")
            async with client.producer() as producer:
                for _ in range(3):
                    await producer.send("orders", bytes(4000))
            with trio.fail_after(20):
                while True:
                    told = (await client.admin.describe_logs("orders"))[0].log
                    if told.held_bytes:
                        break
                    await trio.sleep(0.01)  # nothing announces it to clients
            assert told.held_for == "billing"
        for verb, pattern, name in (
            ("subscribe", "orders", ""),
            ("consume", "orders/other", ""),
            ("consume", "orders/bill*", "billing"),
        ):
            async with octopi.connect(url, token=fresh(**{verb: pattern})) as client:
                (one,) = await client.admin.describe_logs("orders")
                assert (one.log.held_bytes, one.log.held_for) == (told.held_bytes, name)


@pytest.mark.parametrize("text", [None, "", "nonsense", "expired"])
async def test_a_client_without_a_valid_token_is_refused_and_does_not_try_again(
    text: str | None, tmp_path: Path
) -> None:
    status = Status.EXPIRED if text == "expired" else Status.UNAUTHENTICATED
    text = token(0, 1, publish="*") if text == "expired" else text
    async with guarded(tmp_path) as cluster:
        leader, _ = await ready(cluster, "orders")
        for url in (cluster.register.url, leader):
            for endpoint in (CLIENT, MEMBERSHIP if url != leader else FOLLOW):
                with pytest.raises(RefusedError) as caught:
                    async with cluster.connection(url, endpoint, token=text):
                        pass
                assert caught.value.status is status
        with trio.fail_after(3):  # at once: the client's own time-out is much longer
            async with octopi.connect(cluster.register.url, token=text) as client:
                with pytest.raises(RefusedError) as caught:
                    await client.topics()
                assert caught.value.status is status


async def test_tokens_are_not_logged_whether_valid_or_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(logger, "STRANGERS_LINE_INTERVAL_S", 0.0)  # no line is left out
    good, denied = everything(), fresh(subscribe="orders")
    ended, changed = token(0, 1, publish="*"), everything()[:-9] + "forged000"
    async with guarded(tmp_path) as cluster:
        leader, _ = await ready(cluster, "orders")
        for url in (cluster.register.url, leader):
            for text in (ended, changed):
                with pytest.raises(RefusedError):
                    async with cluster.connection(url, token=text):
                        pass
            async with cluster.connection(url, token=good) as opened:
                opened.post(m.Authenticate(opened.next_request(), changed))
            endpoint = FOLLOW if url == leader else MEMBERSHIP
            with pytest.raises(RefusedError):
                async with cluster.connection(url, endpoint, token=denied):
                    pass
        # A refusal reaches the client before the node has logged it.
        with trio.fail_after(5):
            while sum(one.getMessage() == "handshake_failed" for one in caplog.records) < 6:  # noqa: ASYNC110
                await trio.sleep(0.01)
    lines = [repr(vars(one)) + one.getMessage() for one in caplog.records]
    for text in (good, denied, ended, changed):
        *_, payload, signature = text.split(".")
        assert [one for one in lines if payload in one or signature in one] == []


async def test_a_redirected_client_needs_the_grant_at_the_leader_too(tmp_path: Path) -> None:
    """The leader's address comes from the register; the leader asks for the token again."""
    async with guarded(tmp_path, brokers=3) as cluster:
        await ready(cluster, "orders")
        async with octopi.connect(cluster.register.url, token=fresh(subscribe="orders")) as client:
            with trio.fail_after(5):
                async with client.producer() as producer:
                    with pytest.raises(octopi.NotDeliveredError) as caught:
                        await producer.send("orders", b"not mine to write")
        assert "forbidden" in str(caught.value)
        async with octopi.connect(cluster.register.url, token=fresh(publish="orders")) as client:
            async with client.producer() as producer:
                await producer.send("orders", b"mine")
            with pytest.raises(RefusedError) as refused, trio.fail_after(5):
                async with client.consumer("orders", start="earliest") as consumer:
                    await anext(consumer)
            assert refused.value.status is Status.FORBIDDEN


async def test_a_session_ends_when_its_token_does(tmp_path: Path) -> None:
    async with guarded(tmp_path) as cluster:
        leader, _ = await ready(cluster, "orders")
        for url in (cluster.register.url, leader):
            async with cluster.connection(url, token=fresh(2, subscribe="*")) as connection:
                welcome = connection.greeting
                assert isinstance(welcome, m.Welcome)
                assert welcome.expires_ms is not None
                with trio.fail_after(10):
                    while connection.end_reason is None:  # noqa: ASYNC110
                        await trio.sleep(0.01)
                assert SystemClock().wall_ms() >= welcome.expires_ms
                assert "the token has expired" in connection.end_reason
                with pytest.raises(ConnectionLostError):
                    await connection.request(m.ListTopics(1, "", 1), m.TopicList, 1)


async def test_a_fresh_token_keeps_a_session_and_ends_readings_that_it_does_not_grant(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as cluster:
        leader, partition = await ready(cluster, "orders")
        first = fresh(2, subscribe="orders", publish="orders")
        async with cluster.connection(leader, token=first) as connection:
            heard: list[object] = []
            connection.ask(m.Subscribe(1, "orders", partition, 0, 10**6), heard.append)
            longer = fresh(3600, subscribe="orders")
            answer = await connection.request(
                m.Authenticate(2, longer), m.Authenticated, timeout_s=5
            )
            assert answer.expires_ms is not None
            assert answer.expires_ms > SystemClock().wall_ms() + 3_000_000
            question = m.Produce(3, "orders", partition, RECORD)
            assert await outcome(connection, question, m.Produced) is Status.FORBIDDEN
            await trio.sleep(2.1)
            assert connection.end_reason is None
            assert [type(one) for one in heard] == [m.Subscribed]
            less = m.Authenticate(4, fresh(3600, publish="orders"))
            await connection.request(less, m.Authenticated, timeout_s=5)
            assert isinstance(heard[-1], m.Failure)
            assert heard[-1].status == Status.FORBIDDEN
            for text in ("nonsense", fresh(subject="somebody else", admin="*")):
                bad = m.Authenticate(connection.next_request() + 10, text)
                assert await outcome(connection, bad, m.Authenticated) is Status.UNAUTHENTICATED
            question = m.Produce(5, "orders", partition, RECORD)
            assert await outcome(connection, question, m.Produced) is None


async def test_the_limit_of_connections_counts_for_each_token(tmp_path: Path) -> None:
    async with (
        guarded(tmp_path, limits=TokenLimits(connections_max=20)) as cluster,
        trio.open_nursery() as nursery,
    ):
        url, refused = cluster.register.url, list[Status]()
        at_once = trio.Semaphore(10)  # more, and a busy machine would not answer each in time
        text = fresh(subject="greedy", subscribe="*")

        async def hold() -> None:
            try:
                async with cluster.connection(url, token=text):
                    at_once.release()
                    await trio.sleep_forever()
            except RefusedError as error:
                refused.append(error.status)
                at_once.release()

        with trio.fail_after(60):
            for _ in range(100):
                await at_once.acquire()
                nursery.start_soon(hold)
            for _ in range(10):
                await at_once.acquire()
        assert refused == [Status.OVER_LIMIT] * 80
        async with cluster.connection(url, token=fresh(subject="modest", subscribe="*")):
            pass
        nursery.cancel_scope.cancel()


async def test_a_token_that_writes_too_much_is_slowed_down_and_not_cut_off(tmp_path: Path) -> None:
    limits = TokenLimits(bytes_per_s=20_000)
    async with guarded(tmp_path, limits=limits) as cluster:
        await ready(cluster, "orders")
        writer = fresh(subject="writer", publish="*", subscribe="*")
        async with octopi.connect(cluster.register.url, token=writer) as client:
            began = trio.current_time()
            async with client.producer(linger_s=0) as producer:
                for _ in range(6):
                    await producer.send("orders", bytes(10_000))
            assert trio.current_time() - began > 1.0, "two seconds' worth, a second's is free"
            async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
                assert len([message async for message in consumer]) == 6


async def test_a_redirected_client_is_refused_after_its_token_ended(tmp_path: Path) -> None:
    """The leader's address was learnt in time; the leader looks at the token again."""
    clock = LaterClock()
    async with guarded(tmp_path, clock=clock) as cluster:
        leader, _ = await ready(cluster, "orders")
        short = fresh(60, publish="orders", subscribe="orders")
        async with octopi.connect(cluster.register.url, token=short) as client:
            [place] = (await client.describe_topic("orders")).partitions
            assert place.leader_address == leader
            clock.ahead_ms = 61_000
            with trio.fail_after(20):
                async with client.producer() as producer:
                    with pytest.raises(octopi.NotDeliveredError, match="expired"):
                        await producer.send("orders", b"too late")
                with pytest.raises(RefusedError) as refused:
                    async with client.consumer("orders", start="earliest") as consumer:
                        await anext(consumer)
            assert refused.value.status is Status.EXPIRED


async def test_creating_a_topic_beside_another_does_not_reveal_that_other(tmp_path: Path) -> None:
    async with guarded(tmp_path) as cluster:
        await ready(cluster, "orders")
        token = fresh(None, "maker", create="mine*")
        async with cluster.connection(cluster.register.url, token=token) as register:
            for beside in ("orders", "nothing"):
                message = m.CreateTopic(
                    register.next_request(), "mine", 0, None, OPTIONS, beside=beside
                )
                refused = await outcome(register, message, m.TopicDescription)
                assert refused == Status.FORBIDDEN
