"""One consumer of several topics, by name and by pattern."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.limits import (
    RETENTION_CHECK_INTERVAL_S,
    TOPIC_LIST_INTERVAL_S,
    TOPICS_PER_CONSUMER_MAX,
)
from tests.kit.world import REGISTER, running_world


async def send(client: octopi.Client, topic: str, *values: bytes) -> None:
    async with client.producer(batch_bytes=1000) as producer:
        for value in values:
            await producer.submit(topic, value)


async def take(consumer: octopi.MultiTopicConsumer, count: int) -> list[tuple[str, bytes]]:
    messages = [await anext(consumer) for _ in range(count)]
    return [(one.topic, one.value) for one in messages]


async def everything(
    client: octopi.Client,
    topics: list[str],
    start: octopi.Start | Mapping[str, octopi.Start] = "earliest",
) -> list[tuple[str, bytes]]:
    async with client.consumer(topics, start=start, stop_at_end=True) as consumer:
        return [(one.topic, one.value) async for one in consumer]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# --- which topics ------------------------------------------------------------------------


async def test_topics_are_read_by_name_and_by_pattern(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        for topic in ("eu", "eu-x", "eu.", "eu.a", "eu.b", "eu/".replace("/", "0"), "orders", "us"):
            await send(client, topic, topic.encode())
        found = await everything(client, ["orders", "eu.*"])
        assert sorted(found) == [(one, one.encode()) for one in ("eu.", "eu.a", "eu.b", "orders")]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["*"], ["a.x.1", "a.y.2", "b.x.3", "c"]),
        (["a.*", "a.x*", "*.3"], ["a.x.1", "a.y.2", "b.x.3"]),
        (["*.x.*"], ["a.x.1", "b.x.3"]),
        (["a.*", "a.x.1"], ["a.x.1", "a.y.2"]),
        (["c", "c", "d*"], ["c"]),
    ],
)
async def test_a_star_stands_for_any_characters_and_each_topic_is_read_once(
    patterns: list[str], expected: list[str], autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        for topic in ("a.x.1", "a.y.2", "b.x.3", "c"):
            await send(client, topic, b"value")
        assert sorted(await everything(client, patterns)) == [(one, b"value") for one in expected]


async def test_all_pages_of_a_long_list_are_asked_for(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        for number in range(130):
            await client.create_topic(f"many.{number}")
        await client.create_topic("after")
        async with client.consumer(["many.*"], window_bytes=1000) as consumer:
            assert len(consumer.topics) == 130


async def test_a_topic_that_begins_to_match_is_read_from_its_beginning(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await send(client, "eu.old", b"old")
        async with client.consumer(["eu.*"]) as consumer:
            await send(client, "eu.new", b"first", b"second")
            await send(client, "us.new", b"other")
            assert await take(consumer, 2) == [("eu.new", b"first"), ("eu.new", b"second")]
            assert trio.current_time() < 2 * TOPIC_LIST_INTERVAL_S
            await send(client, "eu.old", b"new")
            assert await take(consumer, 1) == [("eu.old", b"new")]


async def test_a_pattern_that_matches_nothing_yet_waits(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        assert await everything(client, ["eu.*"]) == []
        async with client.consumer(["eu.*"]) as consumer:
            assert (consumer.topics, str(consumer.positions), consumer.lag_bytes) == ([], "v1:", 0)
            with trio.move_on_after(60) as scope:
                await anext(consumer)
            assert scope.cancelled_caught
            await send(client, "eu.a", b"first")
            assert await take(consumer, 1) == [("eu.a", b"first")]


async def test_a_deleted_topic_leaves_a_pattern_and_the_others_go_on(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("eu.a")
        await client.create_topic("eu.b")
        async with client.consumer(["eu.*"]) as consumer:
            await client.delete_topic("eu.a")
            with trio.move_on_after(30):
                await anext(consumer)
            assert consumer.topics == ["eu.b"]
            [left] = consumer.left
            assert left.topic == "eu.a"
            assert isinstance(left.why, octopi.UnknownTopicError)
            await send(client, "eu.b", b"goes on")
            assert await take(consumer, 1) == [("eu.b", b"goes on")]


async def test_a_topic_that_is_created_again_is_read_from_its_beginning(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await send(client, "eu.a", b"old")
        async with client.consumer(["eu.*"], start="earliest") as consumer:
            assert await take(consumer, 1) == [("eu.a", b"old")]
            await client.delete_topic("eu.a")
            await send(client, "eu.a", b"new")
            assert await take(consumer, 1) == [("eu.a", b"new")]
            assert [one.topic for one in consumer.left] == ["eu.a"]


async def test_a_named_topic_that_is_deleted_is_an_error_even_if_a_pattern_matches_it(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("eu.a")
        async with client.consumer(["eu.a", "eu.*"]) as consumer:
            await client.delete_topic("eu.a")
            for _ in range(2):
                with pytest.raises(octopi.UnknownTopicError, match=r"eu\.a"):
                    await anext(consumer)
            assert consumer.left == []


async def test_what_is_read_goes_on_while_the_register_is_away_and_new_topics_join_in_later(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await send(client, "eu.a", b"old")
        async with client.consumer(["eu.*"]) as consumer, client.producer() as producer:
            await world.kill(REGISTER)
            await trio.sleep(60)
            await producer.send("eu.a", b"without a register")
            assert await take(consumer, 1) == [("eu.a", b"without a register")]
            await world.start_register()
            await trio.sleep(5)
            await send(client, "eu.b", b"first")
            assert await take(consumer, 1) == [("eu.b", b"first")]


async def test_a_topic_without_a_broker_joins_in_when_it_has_one_again(
    autojump_clock: MockClock,
) -> None:
    async with (
        running_world() as world,
        world.client() as client,
        client.consumer(["eu.*"]) as consumer,
    ):
        await send(client, "eu.a", b"first")
        await world.kill()
        await trio.sleep(30)
        await world.start_broker()
        assert await take(consumer, 1) == [("eu.a", b"first")]


async def test_a_topic_that_has_no_broker_for_too_long_is_an_error(
    autojump_clock: MockClock,
) -> None:
    async with (
        running_world() as world,
        world.client() as client,
        client.consumer(["eu.*"], reconnect_timeout_s=20) as consumer,
    ):
        await client.create_topic("eu.a")
        await world.kill()
        with pytest.raises((octopi.NotReadyError, octopi.UnreachableError)):
            await anext(consumer)
        assert trio.current_time() == pytest.approx(TOPIC_LIST_INTERVAL_S + 20, abs=5)


async def test_a_register_that_takes_long_to_list_its_topics_is_asked_less_often(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at: list[float] = []

    async def slow(*arguments: object) -> list[octopi.TopicInfo]:
        asked_at.append(trio.current_time())
        await trio.sleep(1)
        return []

    monkeypatch.setattr("octopi.clients.consuming.topic_opener.list_matching", slow)
    async with running_world() as world, world.client() as client:
        async with client.consumer(["eu.*"]) as consumer:
            with trio.move_on_after(200):
                await anext(consumer)
        pauses = [later - earlier for earlier, later in pairwise(asked_at[1:])]
        assert pauses == [pytest.approx(21)] * 9


# --- in what order -----------------------------------------------------------------------


async def test_topics_take_turns_however_many_messages_one_of_them_has(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await send(client, "busy", *numbered(5000))
        await send(client, "less-busy", *numbered(50))
        options = {"start": "earliest", "window_bytes": 200}
        async with client.consumer(["busy", "less-busy"], **options) as consumer:  # type: ignore[call-overload]
            counts = Counter[str]()
            await trio.sleep(1)  # both topics have something to hand out by then
            async for batch in consumer.batches():
                counts[batch[0].topic] += 1
                await trio.sleep(0.1)  # and again
                assert abs(counts["busy"] - counts["less-busy"]) <= 1
                if counts.total() == 10:
                    break


async def test_each_message_comes_once_and_in_the_order_of_its_log(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        for topic in ("a", "b", "c"):
            await send(client, topic, *numbered(500))
        found = await everything(client, ["a", "b", "c"])
        for topic in ("a", "b", "c"):
            assert [value for name, value in found if name == topic] == numbered(500)


async def test_many_messages_pass_through_small_windows(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        for topic in ("a", "b"):
            await send(client, topic, *numbered(2000))
        options = {"start": "earliest", "window_bytes": 500, "stop_at_end": True}
        counts = Counter[str]()
        async with client.consumer(["a", "b"], **options) as consumer:  # type: ignore[call-overload]
            async for batch in consumer.batches():
                assert len({one.topic for one in batch}) == 1
                counts[batch[0].topic] += len(batch)
        assert counts == {"a": 2000, "b": 2000}


async def test_batches_begin_with_the_rest_of_the_batch_of_single_messages(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await send(client, "a", b"1", b"2", b"3")
        async with client.consumer(["a"], start="earliest", stop_at_end=True) as consumer:
            assert await take(consumer, 1) == [("a", b"1")]
            rest = [one.value async for batch in consumer.batches() for one in batch]
            assert rest == [b"2", b"3"]


async def test_a_closed_consumer_says_so(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await send(client, "a", b"1")
        async with client.consumer(["a"], start="earliest") as consumer:
            pass
        with pytest.raises(octopi.ClosedError):
            await anext(consumer)


# --- positions ---------------------------------------------------------------------------


@pytest.mark.parametrize("as_text", [False, True])
async def test_a_program_that_resumes_at_its_positions_gets_each_message_exactly_once(
    as_text: bool, autojump_clock: MockClock
) -> None:
    """It ends after every few messages, in the middle of batches, and while topics are created."""
    async with running_world() as world, world.client() as client:
        await client.create_topic("wide", partition_ids=[1, 2, 3])
        saved: octopi.Positions | str = octopi.Positions()
        got: list[tuple[str, bytes]] = []
        for life in range(30):
            topics = ["wide", "wide", f"eu.{life // 10}"]
            for topic in topics:
                await send(client, topic, b"%d-%d" % (life, len(got)))
            start = str(saved) if as_text else saved
            async with client.consumer(["wide", "eu.*"], start=start) as consumer:
                got += await take(consumer, 2)
                saved = consumer.positions
        async with client.consumer(
            ["wide", "eu.*"], start=str(saved), stop_at_end=True
        ) as consumer:
            got += [(one.topic, one.value) async for one in consumer]
        expected = await everything(client, ["wide", "eu.*"])
        assert Counter(got) == Counter(expected)
        assert len(got) == 90
        for topic in ("eu.0", "eu.1", "eu.2"):
            of_topic = [one for one in got if one[0] == topic]
            assert of_topic == [one for one in expected if one[0] == topic]


async def test_positions_count_exactly_what_was_handed_out_when_a_wait_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await send(client, "a", *numbered(10))
        await send(client, "b", *numbered(10))
        got: list[tuple[str, bytes]] = []
        async with client.consumer(["a", "b"], start="earliest") as consumer:
            await trio.sleep(1)
            got += await take(consumer, 3)
            with trio.CancelScope() as scope:
                scope.cancel()
                while True:
                    got += await take(consumer, 1)
            saved = consumer.positions
        got += await everything(client, ["a", "b"], saved)
        assert Counter(got) == Counter((t, v) for t in ("a", "b") for v in numbered(10))


async def test_a_start_for_some_topics_reads_the_others_from_their_beginning_or_as_it_says(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        for topic in ("a", "b", "c"):
            await send(client, topic, b"1", b"2")
        found = await everything(client, ["a", "b", "c"], {"a": "latest", "b": octopi.last(1)})
        assert sorted(found) == [("b", b"2"), ("c", b"1"), ("c", b"2")]
        found = await everything(client, ["a", "*"], {"a": "earliest", "*": "latest"})
        assert sorted(found) == [("a", b"1"), ("a", b"2")]
        position = octopi.Position.parse(str((await _positions(client, "b"))["b"]))
        found = await everything(client, ["b", "c"], position)
        assert sorted(found) == [("c", b"1"), ("c", b"2")]


async def _positions(client: octopi.Client, *topics: str) -> octopi.Positions:
    async with client.consumer(list(topics), start="earliest", stop_at_end=True) as consumer:
        async for _ in consumer.batches():
            pass
        return consumer.positions


async def test_a_matched_topic_that_was_replaced_since_is_read_from_its_beginning_with_a_note(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await send(client, "eu.a", b"old")
        saved = str(await _positions(client, "eu.*"))
        await client.delete_topic("eu.a")
        await send(client, "eu.a", b"new")
        async with client.consumer(["eu.*"], start=saved) as consumer:
            assert await take(consumer, 1) == [("eu.a", b"new")]
            assert isinstance(consumer.left[0].why, octopi.TopicReplacedError)
        with pytest.raises(octopi.TopicReplacedError):
            await everything(client, ["eu.a"], saved)


def test_positions_survive_their_text() -> None:
    text = "v1:a@0123456789abcdef:0=1,3=99~6-0 v1:b.c@0123456789abcdee:2=5"
    positions = octopi.Positions.parse(text)
    assert list(positions) == ["a", "b.c"]
    assert str(positions) == text
    assert len(octopi.Positions.parse("v1:")) == 0


@pytest.mark.parametrize(
    "text", ["", "orders", "v1:a@01:0=1 nonsense", "v1:a@01:0=1 v1:a@01:0=2", "v1: v1:"]
)
def test_what_is_no_text_of_positions_is_refused(text: str) -> None:
    with pytest.raises(octopi.InvalidOptionError, match="position"):
        octopi.Positions.parse(text)


# --- lag, gaps, restarts -----------------------------------------------------------------


async def test_the_lag_is_the_sum_and_brokers_hear_that_everything_was_dealt_with(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client(name="both") as client:
        for topic in ("a", "b"):
            await send(client, topic, b"1", b"2")
        async with client.consumer(["a", "b"], start="earliest") as consumer:
            await trio.sleep(1)
            assert consumer.lag_bytes > 0
            await take(consumer, 4)
            assert consumer.lag_bytes == 0
            with trio.move_on_after(5):
                await anext(consumer)  # the program asks for more, so it has dealt with these
            readings = await client.admin.describe_readings()
            lags = {one.reading.topic: one.reading.lag_bytes for one in readings}
            assert lags == {"a": 0, "b": 0}


@pytest.mark.parametrize("on_gap", ["raise", "skip"])
async def test_what_retention_removed_is_reported_or_skipped(
    on_gap: Literal["raise", "skip"], autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("a", retention_bytes=15_000, segment_bytes=5000)
        await send(client, "a", *[one.zfill(100) for one in numbered(300)])
        await send(client, "b", b"kept")
        await trio.sleep(RETENTION_CHECK_INTERVAL_S * 2)
        start = {"a": 0, "b": 0}
        read = []
        async with client.consumer(
            ["a", "b"], start=start, on_gap=on_gap, stop_at_end=True
        ) as consumer:
            if on_gap == "raise":
                with pytest.raises(octopi.HistoryLostError, match="a/"):
                    async for _ in consumer:
                        pass
                return
            read = [one.value async for one in consumer]
        (gap,) = consumer.gaps
        assert (gap.topic, gap.wanted) == ("a", 0)
        assert b"kept" in read
        assert int(read[-1]) == 299


async def test_an_error_of_the_block_comes_out_as_it_is(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("a")
        with pytest.raises(ZeroDivisionError):
            async with client.consumer(["a", "b*"]):
                _ = 1 / 0


async def test_entering_the_block_can_be_cancelled(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        for topic in ("a", "b"):
            await send(client, topic, b"value")
        await world.kill()
        with trio.move_on_after(3) as scope:
            async with client.consumer(["a", "b*"], start="earliest"):
                raise AssertionError("there is no broker")
        assert scope.cancelled_caught
        await world.start_broker()
        assert len(await everything(client, ["a", "b*"])) == 2


async def test_a_broker_that_restarts_is_not_noticed(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await send(client, "a", *numbered(5))
        await send(client, "b", *numbered(5))
        async with client.consumer(["a", "b"], start="earliest") as consumer:
            got = await take(consumer, 3)
            await world.restart()
            got += await take(consumer, 7)
        assert Counter(got) == Counter((t, v) for t in ("a", "b") for v in numbered(5))


# --- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topics", "options", "error", "why"),
    [
        ([], {}, octopi.InvalidOptionError, "at least one topic"),
        (["~subscriptions"], {}, octopi.InvalidTopicError, "no topic name"),
        (["~*"], {}, octopi.InvalidTopicError, "no pattern"),
        (["orders", ""], {}, octopi.InvalidTopicError, "empty"),
        (["eu*" + "x" * 300], {}, octopi.InvalidTopicError, "no pattern"),
        (["missing"], {}, octopi.UnknownTopicError, "missing"),
        (["orders", "a"], {"partitions": [0]}, octopi.InvalidOptionError, "partitions"),
        (["orders"], {"start": 0}, octopi.InvalidOptionError, "one log"),
        (["orders"], {"start": "newest"}, octopi.InvalidOptionError, "newest"),
        (["orders"], {"start": {"orders": "newest"}}, octopi.InvalidOptionError, "newest"),
        (["orders"], {"start": {"others": 0}}, octopi.InvalidOptionError, "others"),
        (["orders"], {"start": {"*": 0}}, octopi.InvalidOptionError, "one log"),
        (
            ["orders"],
            {"start": "v1:others@0123456789abcdef:0=1"},
            octopi.InvalidOptionError,
            "others",
        ),
        (
            ["orders", "others"],
            {"start": {"orders": "v1:others@0123456789abcdef:0=1"}},
            octopi.InvalidOptionError,
            "another topic",
        ),
        (
            ["orders"],
            {"start": {"*": "v1:orders@0123456789abcdef:0=1"}},
            octopi.InvalidOptionError,
            "can't stand for others",
        ),
        (["orders"], {"on_gap": "fail"}, octopi.InvalidOptionError, "on_gap"),
        ("eu.*", {}, octopi.InvalidTopicError, r"in a list, as in consumer\(\['eu"),
        ("orders", {"start": {"orders": 0}}, octopi.InvalidOptionError, "several topics"),
    ],
)
async def test_bad_input_is_refused_with_its_reason(
    topics: list[str],
    options: dict[str, object],
    error: type[Exception],
    why: str,
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        with pytest.raises(error, match=why):
            async with client.consumer(topics, **options):  # type: ignore[call-overload]
                pass


async def test_one_consumer_reads_a_bounded_number_of_topics(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world() as world, world.client() as client:
        names = [f"t{number}" for number in range(TOPICS_PER_CONSUMER_MAX + 1)]
        with pytest.raises(octopi.InvalidOptionError, match="1001 topics are too many"):
            async with client.consumer(names):
                pass
        monkeypatch.setattr("octopi.clients.consuming.topic_opener.TOPICS_PER_CONSUMER_MAX", 3)
        for topic in ("eu.1", "eu.2", "eu.3"):
            await client.create_topic(topic)
        async with client.consumer(["eu.*"]) as consumer:
            await client.create_topic("eu.4")
            for _ in range(2):
                with pytest.raises(octopi.InvalidOptionError, match="more than 3 topics match"):
                    await anext(consumer)
        with pytest.raises(octopi.InvalidOptionError, match="more than 3 topics match"):
            async with client.consumer(["eu.*"]):
                pass
