"""Options, checked before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from octopi.errors import InvalidOptionError
from octopi.spark.options import EARLIEST, LATEST, read_options, write_options

TOPIC = {"subscribe": "orders"}


def test_a_read_needs_only_a_topic() -> None:
    options = read_options(TOPIC, streaming=False)
    assert options.subscribe == ("orders",)
    assert (options.starting, options.ending) == ("earliest", "latest")
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.connection.servers == ("ws://127.0.0.1:7000",)
    assert read_options(TOPIC, streaming=True).starting == "latest"


def test_names_are_taken_in_any_case_and_numbers_in_units() -> None:
    given = TOPIC | {
        "MAXBYTESPERTRIGGER": "64m",
        "maxRecordsPerTrigger": "500",
        "minBytesPerTrigger": "1 kb",
        "maxTriggerDelay": "15m",
        "minPartitions": "4",
        "requestTimeout": "500ms",
    }
    options = read_options(given, streaming=True)
    assert (options.max_bytes, options.max_records, options.min_bytes) == (64 << 20, 500, 1024)
    assert (options.max_delay_s, options.min_partitions) == (900, 4)
    assert options.connection.request_timeout_s == 0.5


def test_offsets_are_given_as_for_kafka_or_as_positions() -> None:
    def places(text: str) -> object:
        return read_options(TOPIC | {"startingOffsets": text}, streaming=True).starting

    assert places('{"orders": {"0": 12, "1": -2, "2": -1}}') == {
        "orders": {0: 12, 1: EARLIEST, 2: LATEST}
    }
    assert places("v1:orders@5f0c:0=12,3=99") == {"orders": {0: 12, 3: 99}}
    assert places("earliest") == "earliest"


def test_times_are_read_in_milliseconds_or_iso_format() -> None:
    def stamp(text: str) -> int | None:
        options = read_options(TOPIC | {"startingTimestamp": text}, streaming=True)
        return options.starting_timestamp_ms

    assert stamp("1234") == 1234
    assert stamp("1970-01-01T00:00:02") == 2000
    assert stamp("1970-01-01T02:00:00+02:00") == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "say what to read"),
        ({"subscribe": "a", "subscribePattern": "b"}, "not both"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"subscribe": "no topic!"}, "no topic"),
        (TOPIC | {"startingOffsets": "{nonsense"}, "no JSON"),
        (TOPIC | {"startingOffsets": "[1]"}, "for each topic"),
        (TOPIC | {"startingOffsets": '{"orders": 5}'}, "for each partition"),
        (TOPIC | {"startingOffsets": '{"orders": {"0": -3}}'}, "for each partition"),
        (TOPIC | {"startingOffsets": "latest", "startingTimestamp": "1"}, "not both"),
        (TOPIC | {"startingTimestamp": "noon"}, "milliseconds"),
        (TOPIC | {"maxBytesPerTrigger": "many"}, "must be bytes"),
        (TOPIC | {"minPartitions": "0"}, "whole number"),
        (TOPIC | {"maxTriggerDelay": "soon"}, "must be a time"),
        (TOPIC | {"failOnDataLoss": "maybe"}, "true or false"),
        (TOPIC | {"kafka.bootstrap.servers": "x"}, "use server instead"),
        (TOPIC | {"maxOffsetsPerTrigger": "5"}, "use maxRecordsPerTrigger instead"),
        (TOPIC | {"maxBytesPerTriger": "5"}, "no option maxbytespertriger"),
        (TOPIC | {"server": "http://x"}, "ws://"),
        (TOPIC | {"token": "a", "tokenEnv": "B"}, "give one of"),
    ],
)
def test_invalid_options_are_refused_with_the_reason(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        read_options(given, streaming=False)


@pytest.mark.parametrize(
    ("given", "streaming", "words"),
    [
        (TOPIC | {"subscription": "no name!"}, True, "no name"),
        ({"path": "/data", "subscription": "billing"}, True, "needs a cluster"),
        (TOPIC | {"subscription": "b", "startingTimestamp": "1"}, True, "not both"),
        (TOPIC | {"subscription": "b", "startingTimestamp": "1"}, False, "not both"),
        (TOPIC | {"subscription": "b", "startingOffsets": "v1:orders@5f:0=1"}, True, "reset"),
        (TOPIC | {"subscription": "b", "startingOffsets": '{"orders": {}}'}, True, "reset"),
        (TOPIC | {"subscription": "b", "startingOffsets": "earliest"}, False, "not both"),
    ],
)
def test_a_query_begins_at_the_marks_of_its_subscription(
    given: dict[str, str], streaming: bool, words: str
) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        read_options(given, streaming=streaming)


def test_the_start_option_of_a_stream_applies_to_a_new_subscription() -> None:
    given = TOPIC | {"subscription": "billing"}
    assert read_options(given, streaming=True).starting == "latest"
    given |= {"startingOffsets": "earliest"}
    assert read_options(given, streaming=True).starting == "earliest"
    assert read_options(given, streaming=None).subscription == "billing"


def test_a_stream_has_no_end() -> None:
    with pytest.raises(InvalidOptionError, match="batch"):
        read_options(TOPIC | {"endingOffsets": "latest"}, streaming=True)


def test_a_secret_is_looked_up_where_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def secret(**given: str) -> str | None:
        return read_options(TOPIC | given, streaming=False).connection.secret()

    (tmp_path / "token").write_text("from a file\n")
    monkeypatch.setenv("OCTOPI_TEST_TOKEN", "from outside")
    assert secret() is None
    assert secret(token="plain") == "plain"
    assert secret(tokenFile=str(tmp_path / "token")) == "from a file"
    assert secret(tokenEnv="OCTOPI_TEST_TOKEN") == "from outside"
    with pytest.raises(InvalidOptionError, match="can't be read on this machine"):
        secret(tokenFile=str(tmp_path / "none"))
    with pytest.raises(InvalidOptionError, match="is not set"):
        secret(tokenEnv="OCTOPI_TEST_NO_TOKEN")


def test_a_write_may_leave_the_topic_to_its_rows() -> None:
    assert write_options({}).topic == ""
    assert write_options({"topic": "orders", "jobId": "j"}).job_id == "j"
    with pytest.raises(InvalidOptionError, match="no option subscribe"):
        write_options(TOPIC)
