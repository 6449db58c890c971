"""Queries and durable subscriptions: where they begin, what they store, and who is told what."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from pyspark.sql.streaming.datasource import ReadAllAvailable

import octopi
from harness.spark_cluster import Cluster
from octopi.spark.options import read_options
from octopi.spark.reading import OctopiReader, RangePartition
from octopi.spark.stream_reading import OctopiStreamReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("default::ResourceWarning")]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%04d" % number for number in range(first, last)]


def lag(cluster: Cluster, topic: str, name: str = "billing") -> int:
    """How many bytes the subscription is behind, as `octopi-node subscriptions describe` says."""
    status = cluster.ask(lambda client: client.admin.describe_subscription(topic, name))
    return status.lag_bytes


# --- in Spark ----------------------------------------------------------------------------


class Sink:
    """A query's batches, by number."""

    def __init__(self, spark: SparkSession, cluster: Cluster, topic: str) -> None:
        self._spark = spark
        self._options = {"server": cluster.url, "subscribe": topic, "subscription": "billing"}
        self.values: list[bytes] = []

    def start(self, checkpoint: Path, *, drains: bool, **options: str) -> StreamingQuery:
        def take(frame: DataFrame, _: int) -> None:
            self.values += [bytes(row.value) for row in frame.collect()]

        stream = self._spark.readStream.format("octopi").options(**self._options, **options)
        writer = stream.load().writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(checkpoint))
        return (writer.trigger(availableNow=True) if drains else writer).start()

    def taken(self) -> list[bytes]:
        """What came since this was asked last."""
        values, self.values = self.values, []
        return sorted(values)


def test_a_query_begins_at_its_checkpoint_or_without_one_at_the_marks(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.topic(2)
    cluster.fill(topic, numbers(0, 100))
    sink = Sink(spark, cluster, topic)
    sink.start(tmp_path / "1", drains=True, startingOffsets="earliest").awaitTermination()
    assert sink.taken() == numbers(0, 100)
    assert lag(cluster, topic) == 0
    cluster.fill(topic, numbers(100, 200))
    assert lag(cluster, topic) > 0
    query = sink.start(tmp_path / "1", drains=False, startingOffsets="earliest")
    query.processAllAvailable()
    query.stop()
    assert sink.taken() == numbers(100, 200)
    assert lag(cluster, topic) == 0
    cluster.fill(topic, numbers(200, 300))
    sink.start(tmp_path / "2", drains=True, startingOffsets="earliest").awaitTermination()
    assert sink.taken() == numbers(200, 300)
    # The checkpoint counts: it knows nothing of the last run, so that is read again.
    sink.start(tmp_path / "1", drains=True, startingOffsets="earliest").awaitTermination()
    assert sink.taken() == numbers(200, 300)


def test_the_older_of_two_queries_fails_when_the_newer_one_takes_its_subscription(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.topic()
    sink = Sink(spark, cluster, topic)
    older = sink.start(tmp_path / "1", drains=False)
    older.processAllAvailable()
    newer = sink.start(tmp_path / "2", drains=False)
    try:
        newer.processAllAvailable()
        cluster.fill(topic, numbers(0, 10))
        with pytest.raises(Exception, match="another program has joined") as told:
            older.awaitTermination()
        assert "subscription billing as the same member, spark (spark on " in str(told.value)
        assert "stop one of the two, or give each a subscription of its own" in str(told.value)
        newer.processAllAvailable()
        assert lag(cluster, topic) == 0
    finally:
        newer.stop()


def test_a_batch_begins_at_the_marks_and_moves_none(spark: SparkSession, cluster: Cluster) -> None:
    topic = cluster.topic(2)
    cluster.fill(topic, numbers(0, 10))
    cluster.ask(lambda client: client.admin.create_subscription(topic, "billing", start="latest"))
    cluster.fill(topic, numbers(10, 20))
    reader = spark.read.format("octopi").option("server", cluster.url).option("subscribe", topic)
    for _ in range(2):
        rows = reader.option("subscription", "billing").load().collect()
        assert sorted(bytes(row.value) for row in rows) == numbers(10, 20)
    assert lag(cluster, topic) > 0


# --- as Spark calls a reader -------------------------------------------------------------


class Driver:
    """A driver that was just started, with the reader that Spark makes in it."""

    def __init__(self, cluster: Cluster, topic: str, **options: str) -> None:
        given = {"server": cluster.url, "subscribe": topic, "subscription": "billing", **options}
        self.reader = OctopiStreamReader(read_options(given, streaming=True), ["value"])

    def begin(self) -> dict[str, Any]:
        """The end of a first batch."""
        return self.reader.latestOffset(self.reader.initialOffset(), ReadAllAvailable())

    def sizes(self, start: dict[str, Any], end: dict[str, Any]) -> int:
        parts = self.reader.partitions(start, end)
        return sum(one.part.size_bytes for one in parts if isinstance(one, RangePartition))


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = cluster.topic(2)
    cluster.fill(name, numbers(0, 100))
    return name


def test_a_first_batch_that_is_repeated_is_the_same_although_the_marks_were_moved(
    cluster: Cluster, topic: str
) -> None:
    driver = Driver(cluster, topic, startingOffsets="earliest")
    end = driver.begin()
    size = driver.sizes(driver.reader.initialOffset(), end)
    assert size == lag(cluster, topic) > 0
    driver.reader.stop()
    cluster.ask(
        lambda client: client.admin.reset_subscription(topic, "billing", "latest", force=True)
    )
    driver = Driver(cluster, topic, startingOffsets="earliest")
    assert driver.sizes(driver.reader.initialOffset(), end) == size


def test_offsets_that_spark_commits_become_marks(cluster: Cluster, topic: str) -> None:
    driver = Driver(cluster, topic, startingOffsets="earliest")
    end = driver.begin()
    assert lag(cluster, topic) > 0
    driver.reader.commit(end)
    assert lag(cluster, topic) == 0


def test_a_new_subscription_begins_where_the_options_say(cluster: Cluster, topic: str) -> None:
    driver = Driver(cluster, topic)  # a stream begins at the latest
    assert driver.sizes(driver.reader.initialOffset(), driver.begin()) == 0
    cluster.fill(topic, numbers(100, 110))
    driver = Driver(cluster, topic)
    assert driver.sizes(driver.reader.initialOffset(), driver.begin()) > 0


def test_a_subscription_created_for_a_checkpoint_does_not_begin_behind_it(
    cluster: Cluster, topic: str
) -> None:
    end = Driver(cluster, topic, startingOffsets="earliest").begin()
    cluster.fill(topic, numbers(100, 110))
    cluster.ask(lambda client: client.admin.delete_subscription(topic, "billing"))
    driver = Driver(cluster, topic)
    later = driver.reader.latestOffset(end, ReadAllAvailable())
    assert driver.sizes(end, later) == lag(cluster, topic) > 0


def test_a_query_is_refused_with_the_names_of_the_members(cluster: Cluster, topic: str) -> None:
    async def share(client: octopi.Client) -> None:
        async with client.subscription(topic, "billing", mode="failover", member="ann"):
            with pytest.raises(octopi.SubscriptionBusyError, match="has the member ann"):
                await trio.to_thread.run_sync(Driver(cluster, topic).begin)

    cluster.ask(share)


def test_a_subscription_that_has_no_marks_is_refused(cluster: Cluster, topic: str) -> None:
    cluster.ask(lambda client: client.admin.create_subscription(topic, "billing", mode="shared"))
    with pytest.raises(octopi.InvalidOptionError, match="has the mode shared"):
        Driver(cluster, topic).begin()
    given = {"server": cluster.url, "subscribe": topic}
    queue = read_options(given | {"subscription": "billing"}, streaming=False)
    with pytest.raises(octopi.InvalidOptionError, match="has no marks to begin at"):
        OctopiReader(queue, ["value"]).partitions()
    missing = read_options(given | {"subscription": "nosuch"}, streaming=False)
    with pytest.raises(octopi.UnknownSubscriptionError, match="nosuch"):
        OctopiReader(missing, ["value"]).partitions()


def test_records_removed_by_retention_fail_a_query_or_are_passed(cluster: Cluster) -> None:
    topic = cluster.topic(segment_bytes=10_000)
    for first in range(0, 100, 10):  # a segment takes a whole batch at least
        cluster.fill(topic, [b"%0500d" % number for number in range(first, first + 10)])
    cluster.ask(lambda client: client.admin.create_subscription(topic, "billing", mode="failover"))
    cluster.retain(topic)
    with pytest.raises(octopi.HistoryLostError, match="removed by retention"):
        Driver(cluster, topic).begin()
    driver = Driver(cluster, topic, failOnDataLoss="false")
    end = driver.begin()
    left = sum(len(one.value) for one in cluster.messages(topic))
    assert driver.sizes(driver.reader.initialOffset(), end) > left > 0
    driver.reader.commit(end)
    assert lag(cluster, topic) == 0


def test_a_lost_position_fails_a_query_or_is_passed(cluster: Cluster, topic: str) -> None:
    driver = Driver(cluster, topic, startingOffsets="earliest")
    end = driver.begin()
    text = json.dumps(end)
    ahead = json.loads(re.sub(r"=(\d+)~", lambda found: f"={int(found[1]) + 5000}~", text))
    assert ahead != end
    with pytest.raises(octopi.HistoryForkedError, match="the records that were read before"):
        driver.reader.commit(ahead)
    driver = Driver(cluster, topic, startingOffsets="earliest", failOnDataLoss="false")
    driver.begin()
    driver.reader.commit(ahead)
    driver.reader.commit(end)
    assert lag(cluster, topic) == 0


def test_topics_of_a_pattern_have_a_subscription_each(cluster: Cluster) -> None:
    for name in ("paid-1", "paid-2"):
        cluster.topic(name=name)
        cluster.fill(name, numbers(0, 10))
    options = {"subscribePattern": "paid-.*", "startingOffsets": "earliest"}
    given = {"server": cluster.url, "subscription": "billing", **options}
    reader = OctopiStreamReader(read_options(given, streaming=True), ["value"])
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    cluster.topic(name="paid-3")
    cluster.fill("paid-3", numbers(0, 10))
    later = reader.latestOffset(json.loads(json.dumps(end)), ReadAllAvailable())
    assert (lag(cluster, "paid-1"), lag(cluster, "paid-2")) == (0, 0)
    assert lag(cluster, "paid-3") > 0
    reader.commit(later)
    assert lag(cluster, "paid-3") == 0
