"""What people get wrong, and what goes wrong for them: an error that says so, or what the
documents promise."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trustme

import octopi
from harness.processes import node_processes
from harness.spark_cluster import Cluster, by_partition
from octopi.operating_system import SystemClock
from octopi.security.tokens import secret_key
from tests.security.tokens import SECRET, token

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("default::ResourceWarning")]


def failure(act: Callable[[], object]) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # Spark has many classes
        act()
    return str(raised.value)


def batch(spark: SparkSession, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("octopi").options(**given).load()


def stream(spark: SparkSession, directory: Path, **options: object) -> Any:
    """A stream into Parquet files in *directory*, to be started."""
    given = {name: str(value) for name, value in options.items()}
    return (
        spark.readStream.format("octopi")
        .options(**given)
        .load()
        .writeStream.format("parquet")
        .option("path", str(directory / "rows"))
        .option("checkpointLocation", str(directory / "checkpoint"))
    )


def read_what_there_is(spark: SparkSession, directory: Path, **options: object) -> None:
    query: StreamingQuery = stream(spark, directory, **options).trigger(availableNow=True).start()
    query.awaitTermination()


def stored(spark: SparkSession, directory: Path) -> dict[int, list[bytes]]:
    rows = spark.read.parquet(str(directory / "rows")).orderBy("partition", "offset")
    return by_partition(rows.collect())


# --- what is asked for -------------------------------------------------------------------


def test_a_missing_topic_partition_or_server_is_a_clear_error(
    spark: SparkSession, cluster: Cluster
) -> None:
    topic = cluster.topic()
    cluster.fill(topic, [b"message"])
    (partition,) = by_partition(cluster.messages(topic))

    def said(**options: object) -> str:
        return failure(lambda: batch(spark, **{"server": cluster.url, **options}).collect())

    assert "no topic nosuch" in said(subscribe="nosuch")
    nowhere = said(server="ws://127.0.0.1:1", subscribe=topic, requestTimeout="1s")
    assert "127.0.0.1:1" in nowhere
    assert "no JSON" in said(subscribe=topic, startingOffsets="{malformed")
    assert "say what to read" in said()
    ends = json.dumps({topic: {str(partition): 10**15}})
    assert f"there is no offset {10**15} in {topic}/{partition}" in said(
        subscribe=topic, endingOffsets=ends
    )


# --- what retention removed --------------------------------------------------------------


def fill_segments(cluster: Cluster, topic: str, first: int) -> None:
    for at in range(first, first + 100, 10):  # a segment takes a whole batch at least
        cluster.fill(topic, [b"%0500d" % n for n in range(at, at + 10)])


def test_a_batch_fails_on_lost_history_or_goes_on_behind_it(
    spark: SparkSession, cluster: Cluster
) -> None:
    topic = cluster.topic(segment_bytes=10_000)
    fill_segments(cluster, topic, 0)
    cluster.retain(topic)
    start = json.dumps({topic: {str(p): 0 for p in by_partition(cluster.messages(topic))}})
    options = {"server": cluster.url, "subscribe": topic, "startingOffsets": start}
    text = failure(lambda: batch(spark, **options).collect())
    assert "were removed by retention" in text
    rows = batch(spark, **options, failOnDataLoss=False).collect()
    assert by_partition(rows) == by_partition(cluster.messages(topic))


def test_a_stream_fails_on_lost_history_or_goes_on_behind_it(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.topic(segment_bytes=10_000)
    options = {"server": cluster.url, "subscribe": topic, "startingOffsets": "earliest"}
    fill_segments(cluster, topic, 0)
    read_what_there_is(spark, tmp_path, **options)
    before = stored(spark, tmp_path)
    fill_segments(cluster, topic, 100)
    cluster.retain(topic)  # far beyond the stream's place
    text = failure(lambda: read_what_there_is(spark, tmp_path, **options))
    assert "were removed by retention" in text
    assert stored(spark, tmp_path) == before
    read_what_there_is(spark, tmp_path, **options, failOnDataLoss=False)
    left = by_partition(cluster.messages(topic))
    assert stored(spark, tmp_path) == {p: before[p] + values for p, values in left.items()}


def positions_ahead(cluster: Cluster, topic: str, size_bytes: int) -> str:
    """A position behind the end, as if the log had been longer before a failure of power."""

    async def read(client: octopi.Client) -> str:
        async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
            async for _ in consumer:
                pass
            return str(consumer.position)

    return re.sub(r"=(\d+)~", lambda found: f"={int(found[1]) + size_bytes}~", cluster.ask(read))


def test_a_query_fails_at_a_fork_or_begins_at_the_last_common_offset(
    spark: SparkSession, cluster: Cluster
) -> None:
    topic = cluster.topic()
    cluster.fill(topic, [b"%d" % number for number in range(100)])
    start = positions_ahead(cluster, topic, 5000)
    options = {"server": cluster.url, "subscribe": topic, "startingOffsets": start}
    text = failure(lambda: batch(spark, **options).collect())
    assert "were lost after they were read" in text
    assert batch(spark, **options, failOnDataLoss=False).collect() == []


def test_a_stream_fails_if_the_records_that_it_read_are_lost(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.topic()
    options = {"server": cluster.url, "subscribe": topic, "startingOffsets": "earliest"}
    cluster.fill(topic, [b"%d" % number for number in range(100)])
    read_what_there_is(spark, tmp_path, **options)
    newest = max(
        (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda one: int(one.name)
    )
    text = newest.read_text()
    ahead = re.sub(r"=(\d+)~", lambda found: f"={int(found[1]) + 5000}~", text)
    assert ahead != text
    newest.write_text(ahead)
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    assert "were lost after they were read" in failure(
        lambda: read_what_there_is(spark, tmp_path, **options)
    )


# --- what comes while a stream goes on ---------------------------------------------------


def test_a_partition_that_is_added_while_a_stream_goes_on_is_read(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    first = cluster.topic(name="growing-1")
    cluster.fill(first, [b"before"])
    options = {"subscribePattern": "growing-.*", "startingOffsets": "earliest"}
    query = stream(spark, tmp_path, server=cluster.url, **options).start()
    try:
        query.processAllAvailable()
        count = cluster.ask(lambda client: client.admin.add_partitions(1))
        second = "growing-2"
        cluster.ask(lambda client: client.create_topic(second, partition_ids=[count - 1]))
        cluster.fill(second, [b"on the new partition"])
        cluster.fill(first, [b"after"])
        query.processAllAvailable()
    finally:
        query.stop()
    found = stored(spark, tmp_path)
    assert found.pop(count - 1) == [b"on the new partition"]
    assert list(found.values()) == [[b"before", b"after"]]


# --- nodes that ask for tokens, over TLS -------------------------------------------------


@attrs.frozen
class Protected:
    """A register and a broker that trust few."""

    url: str
    ca: str
    keys: Path

    def token_file(self, name: str, **grants: str) -> str:
        path = self.keys / name
        path.write_text(token(SystemClock().wall_ms(), 3600, name, **grants))  # type: ignore[arg-type]
        return str(path)


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    directory = tmp_path_factory.mktemp("protected")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(directory / "node.pem")
    authority.cert_pem.write_to_path(directory / "ca.pem")
    (directory / "keys.json").write_text(json.dumps({"keys": [secret_key("test", SECRET)]}))
    found = Protected("", str(directory / "ca.pem"), directory)
    files = {
        "tls-cert": str(directory / "node.pem"),
        "tls-key": str(directory / "node.pem"),
        "tls-ca": found.ca,
        "auth-keys": str(directory / "keys.json"),
        "token-file": found.token_file("node", replicate="*"),
    }
    options = [text for name, path in files.items() for text in (f"--{name}", path)]
    with node_processes(directory) as nodes:
        register = nodes.register("register", *options)
        nodes.broker(register, "broker-1", *options)
        yield attrs.evolve(found, url=register.url)


def test_a_token_and_an_authority_give_access_to_a_secured_cluster(
    spark: SparkSession, protected: Protected
) -> None:
    assert protected.url.startswith("wss://")
    mine = protected.token_file("mine", create="mine", publish="mine", subscribe="mine")
    access = {"server": protected.url, "tlsCa": protected.ca, "requestTimeout": "5s"}
    rows = spark.range(10).selectExpr("cast(id as string) as value").coalesce(1)
    writer = rows.write.format("octopi").options(**access, tokenFile=mine, topic="mine")
    writer.mode("append").save()
    read = batch(spark, **access, tokenFile=mine, subscribe="mine").orderBy("offset").collect()
    assert [int(row.value) for row in read] == list(range(10))

    # Another topic, nobody's word, no word at all, no authority: each its own answer.
    other = protected.token_file("other", subscribe="other")
    denied = batch(spark, **access, tokenFile=other, subscribe="mine")
    assert "mine" in failure(denied.collect)
    wrong = batch(spark, **access, token="not.a.token", subscribe="mine")
    assert "token" in failure(wrong.collect)
    none = batch(spark, **access, subscribe="mine")
    assert "token" in failure(none.collect)
    missing = batch(spark, **access, tokenFile="/nonexistent", subscribe="mine")
    assert "tokenFile /nonexistent can't be read" in failure(missing.collect)
    stranger = batch(spark, server=protected.url, requestTimeout="1s", subscribe="mine")
    assert "certificate" in failure(stranger.collect)
    nonsense = batch(spark, **{**access, "tlsCa": mine}, tokenFile=mine, subscribe="mine")
    assert "no authority" in failure(nonsense.collect)
