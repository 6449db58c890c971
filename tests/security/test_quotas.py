"""The quotas of a token: topics, stored bytes, readings."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import octopi
from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.journal_entries import TopicCreated, TopicDeleted
from octopi.errors import InvalidOptionError, RefusedError, Status
from octopi.limits import QUOTA_LOOK_INTERVAL_S, QUOTA_RUN_BYTES_MIN, QUOTA_RUNS_COUNT
from octopi.operating_system import SystemClock
from octopi.security.authenticator import Authenticator, TokenLimits
from octopi.security.grants import Verb
from octopi.security.quotas import NO_QUOTA, LogName, Quota, SubjectUsage, quota_of
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT, MEMBERSHIP
from tests.security.test_authenticator import HandClock
from tests.security.test_authorisation import RECORD, fresh, guarded, outcome, ready
from tests.security.tokens import key_ring, token

LOG: LogName = ("orders", "0" * 16, 0)


def limited(subject: str = "greedy", **quota: int) -> str:
    """A token that grants everything but being a broker, within *quota*."""
    patterns = {str(verb): ["*"] for verb in Verb if verb is not Verb.REPLICATE}
    now_ms = SystemClock().wall_ms()
    return key_ring().sign(subject, patterns, now_ms, 3600, quota=Quota(**quota))


# --- topics ---------------------------------------------------------------------------


async def test_a_token_at_its_topic_quota_can_create_one_after_deleting_one(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as cluster:
        url = cluster.register.url
        async with octopi.connect(url, token=limited(topics=2)) as client:
            for name in ("a", "b"):
                await client.create_topic(name)
            with pytest.raises(RefusedError, match="quota is 2 topics that it created") as caught:
                await client.create_topic("c")
            assert caught.value.status is Status.QUOTA_EXCEEDED
            with pytest.raises(RefusedError, match="quota_exceeded"):
                await client.describe_topic("c", create=True)
            await client.delete_topic("a")
            await client.create_topic("c")
        async with octopi.connect(url, token=limited("other", topics=1)) as client:
            await client.create_topic("d")


async def test_a_register_knows_after_a_restart_who_created_each_topic(tmp_path: Path) -> None:
    async with guarded(tmp_path) as cluster:
        async with octopi.connect(cluster.register.url, token=limited(topics=1)) as client:
            await client.create_topic("a")
        await cluster.kill(cluster.register)
        listen = cluster.register.url.removeprefix("ws://")
        authenticator = Authenticator(key_ring(), SystemClock())
        await cluster.start_register(listen=listen, authenticator=authenticator)
        async with octopi.connect(cluster.register.url, token=limited(topics=1)) as client:
            with pytest.raises(RefusedError, match="quota_exceeded"):
                await client.create_topic("b")
            await client.delete_topic("a")
            await client.create_topic("b")


def test_a_snapshot_says_who_created_each_topic() -> None:
    def record(name: str, number: int) -> m.TopicRecord:
        return m.TopicRecord(name, f"{number:016x}", [], m.TopicOptions())

    state = ClusterState()
    for number, (name, owner) in enumerate({"a": "x", "b": "x", "c": "", "d": "y"}.items()):
        state.apply(TopicCreated(record(name, number), owner))
    state.apply(TopicDeleted("b", f"{1:016x}", []))
    state.apply(TopicCreated(record("a", 0)))  # a broker told of it again
    state.apply(TopicCreated(record("d", 7), "z"))  # another one of that name
    again = ClusterState()
    for entry in state.entries():
        again.apply(entry)
    for one in (state, again):
        assert [one.topic_count_of(owner) for owner in ("x", "y", "z", "")] == [1, 0, 1, 0]


# --- bytes ----------------------------------------------------------------------------


async def test_a_token_at_its_byte_quota_can_store_more_after_deleting_a_topic(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as cluster:
        url, partition = await ready(cluster, "orders")
        room = 3 * len(RECORD)
        async with cluster.connection(url, token=limited(bytes=room)) as connection:
            for number in range(3):
                question = m.Produce(number, "orders", partition, RECORD)
                assert await outcome(connection, question, m.Produced) is None
            question = m.Produce(4, "orders", partition, RECORD)
            assert await outcome(connection, question, m.Produced) is Status.QUOTA_EXCEEDED
        # A connection that ends, and a fresh token, change nothing.
        async with cluster.connection(url, token=limited(bytes=room)) as connection:
            assert await outcome(connection, question, m.Produced) is Status.QUOTA_EXCEEDED
        async with cluster.connection(url, token=limited("modest", bytes=room)) as connection:
            assert await outcome(connection, question, m.Produced) is None
        async with octopi.connect(cluster.register.url, token=fresh(verbs=Verb)) as client:
            await client.delete_topic("orders")
        url, partition = await ready(cluster, "orders")
        with trio.fail_after(20):
            async with cluster.connection(url, token=limited(bytes=room)) as connection:
                question = m.Produce(5, "orders", partition, RECORD)
                while True:
                    if await outcome(connection, question, m.Produced) is None:
                        break
                    await trio.sleep(QUOTA_LOOK_INTERVAL_S / 4)


async def test_a_producer_over_its_quota_gets_an_error_that_says_not_stored(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as cluster:
        await ready(cluster, "orders")
        text = limited(bytes=10_000)
        async with (
            octopi.connect(cluster.register.url, token=text) as client,
            client.producer() as producer,
        ):
            await producer.send("orders", bytes(5_000))
            with pytest.raises(octopi.NotDeliveredError, match="quota is 10,000 bytes stored"):
                await producer.send("orders", bytes(6_000))
            await producer.send("orders", bytes(100))


async def test_refused_and_repeated_batches_do_not_count_against_the_quota(tmp_path: Path) -> None:
    async with guarded(tmp_path) as cluster:
        url, partition = await ready(cluster, "orders")
        async with cluster.connection(url, token=limited(bytes=2 * len(RECORD))) as connection:
            for number, records in enumerate([b"no record", RECORD[:-1], b"x" * 50] * 5):
                question = m.Produce(number, "orders", partition, records)
                assert await outcome(connection, question, m.Produced) not in {
                    None,
                    Status.QUOTA_EXCEEDED,
                }
            for number in range(20, 22):
                question = m.Produce(number, "orders", partition, RECORD)
                assert await outcome(connection, question, m.Produced) is None


def test_bytes_removed_by_retention_make_room_and_are_looked_up_seldom() -> None:
    account, start, looks = SubjectUsage(), 0, 0

    def bounds(log: LogName) -> tuple[int, int]:
        nonlocal looks
        assert log == LOG
        looks += 1
        return start, 10**9

    size, most = 1 << 20, 100 << 20
    for number in range(100):
        account.reserve(size, most, bounds, 0.0)
        account.stored(LOG, number * size, size, most)
    for _ in range(50):
        with pytest.raises(RefusedError, match="bytes stored"):
            account.reserve(size, most, bounds, 0.5)
    assert looks == 1
    start = 10 * size
    account.reserve(size, most, bounds, 0.5 + QUOTA_LOOK_INTERVAL_S)
    assert (looks, account.stored_bytes) == (2, 91 * size)
    account.refused(size)
    assert account.stored_bytes == 90 * size


def test_usage_is_remembered_in_a_bounded_number_of_stretches() -> None:
    account, most = SubjectUsage(), 64 << 20
    for number in range(100_000):
        account.reserve(600, most, lambda log: (0, 0), 0.0)
        account.stored(LOG, number * 600, 600, most)
    assert len(account._runs[LOG]) <= QUOTA_RUNS_COUNT + 1
    with pytest.raises(RefusedError):
        account.reserve(most, most, lambda log: (99_000 * 600, 10**9), 1.0)
    assert account.stored_bytes < 5 * (most // QUOTA_RUNS_COUNT)
    account.reserve(600, most, lambda log: None, 1.0)
    with pytest.raises(RefusedError):
        account.reserve(most, most, lambda log: None, 9.0)
    account.refused(600)
    assert account.is_empty


def test_usage_under_a_small_quota_is_remembered_in_stretches_of_the_least_length() -> None:
    account, most = SubjectUsage(), 16 * QUOTA_RUN_BYTES_MIN
    for number in range(most // 600):
        account.reserve(600, most, lambda log: (0, 0), 0.0)
        account.stored(LOG, number * 600, 600, most)
    assert len(account._runs[LOG]) <= 16


# --- readings --------------------------------------------------------------------


async def test_the_quota_of_readings_counts_over_all_connections_of_a_token(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as cluster:
        url, partition = await ready(cluster, "orders")
        text = limited(readings=3)

        def subscribe(number: int) -> m.Subscribe:
            return m.Subscribe(number, "orders", partition, 0, 10**6)

        async with cluster.connection(url, token=text) as first:
            async with cluster.connection(url, token=text) as second:
                for connection, number in ((first, 1), (first, 2), (second, 1)):
                    assert await outcome(connection, subscribe(number), m.Subscribed) is None
                for connection in (first, second):
                    why = await outcome(connection, subscribe(9), m.Subscribed)
                    assert why is Status.QUOTA_EXCEEDED
                # One that is refused for another reason takes no place.
                await first.request(m.Unsubscribe(2), m.Done, 10)
                bad = m.Subscribe(3, "orders", partition, 10**6, 10**6)
                assert await outcome(first, bad, m.Subscribed) not in {None, Status.QUOTA_EXCEEDED}
                assert await outcome(first, subscribe(4), m.Subscribed) is None
            with trio.fail_after(10):
                while True:
                    if await outcome(first, subscribe(5), m.Subscribed) is None:
                        break
                    await trio.sleep(0.01)  # nothing tells that the other connection is gone


# --- where it stands ------------------------------------------------------------------


def test_the_quota_of_a_token_overrides_that_of_the_node() -> None:
    door = Authenticator(key_ring(), HandClock(), TokenLimits(quota=Quota(topics=5, readings=7)))
    own = key_ring().sign("s", {"create": ["*"]}, 0, None, quota=Quota(topics=9, bytes=0))
    assert door.identify(own).quota == Quota(topics=9, bytes=0, readings=7)
    assert door.identify(token(subscribe="*")).quota == Quota(topics=5, readings=7)


@pytest.mark.parametrize(
    "claim",
    [[], "9", {"topic": 1}, {"topics": "1"}, {"topics": -1}, {"bytes": True}, {"bytes": 1.5}],
)
def test_an_invalid_quota_is_refused(claim: object) -> None:
    with pytest.raises(InvalidOptionError, match="octopi_quota has"):
        quota_of(claim)
    assert quota_of(None) == quota_of({}) == NO_QUOTA


# --- which cluster a token is for -----------------------------------------------------


def test_a_token_for_another_cluster_is_refused() -> None:
    door = Authenticator(key_ring(), HandClock())
    here, there = "00c1a5735eed0001", "00c1a5735eed0002"
    for_here, for_there, for_both, for_any = (
        key_ring().sign("s", {"replicate": ["*"]}, 0, None, clusters=clusters)
        for clusters in ([here], [there], [there, here], [])
    )
    # Before the node knows its cluster only brokers are let in, which tell a register.
    assert door.identify(for_any).subject == "s"
    for text in (for_here, for_there):
        with pytest.raises(RefusedError) as caught:
            door.identify(text)
        assert caught.value.status is Status.NOT_READY
        with pytest.raises(RefusedError):
            door.enter(text, CLIENT)
        door.enter(text, MEMBERSHIP).leave()
    door.cluster = lambda: here
    for text in (for_here, for_both, for_any):
        door.enter(text, CLIENT).leave()
    for endpoint in (CLIENT, MEMBERSHIP):
        with pytest.raises(RefusedError, match="not for cluster") as caught:
            door.enter(for_there, endpoint)
        assert caught.value.status is Status.UNAUTHENTICATED
