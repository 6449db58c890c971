"""`export` and `import` of Parquet files."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from octopi import Message, MessageBatch, Offset, PartitionId, TopicName
from octopi.cli import parquet_files
from octopi.identifiers import ProducerEpoch, ProducerId, Sequence
from octopi.record import BatchBuilder, encode_opaque
from octopi.spark.columns import TIMESTAMP_MS_MAX
from tests.cli.conftest import Consume, Program, produce
from tests.record.crafting import NO_KEY, craft_header, craft_structured

CONTENT = rb"%k|%h|%T|%v\0".decode()


@pytest.mark.process
def test_an_exported_topic_is_imported_as_the_same_messages(
    program: Program,
    consume: Consume,
    tmp_path: Path,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet_files, "_GROUP_ROWS", 2)
    monkeypatch.setattr(parquet_files, "_READ_ROWS", 3)
    assert program("produce", topic, "a", "b\nb", "-k", "k", "-H", "n=1").exit_code == 0
    produce(program, tmp_path, topic, b"\xff\xfe\n\n5\n")
    file = tmp_path / "messages.parquet"
    assert program("export", topic, str(file)).exit_code == 0
    imported = program("import", f"{topic}-copy", str(file))
    assert imported.exit_code == 0, imported.stderr
    assert "\n5 messages, " in imported.stderr
    assert consume(f"{topic}-copy", "-e", "-f", CONTENT) == consume(topic, "-e", "-f", CONTENT)
    table = pq.read_table(file)
    offsets = consume(topic, "-e", "-f", r"%o\n").decode().split()
    assert [str(one) for one in table.column("offset").to_pylist()] == offsets
    assert table.column("topic").to_pylist() == [topic] * 5


def batch_of(records: bytes) -> MessageBatch:
    return MessageBatch(TopicName("orders"), PartitionId(3), Offset(1000), records)


def new_records() -> bytes:
    """Records of version 2, of every kind."""
    builder = BatchBuilder()
    for stamp in (0, TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX + 1):
        for key in (None, b"", b"key"):
            for headers in ({}, {"name": b"content", "other": b""}):
                builder.add(b"value", key, headers, stamp)
    return builder.encode(ProducerId(b"p" * 16), ProducerEpoch(1), Sequence(0))


MIXED = new_records() + encode_opaque(bytes(32), b"of version 1") + new_records()


def row_of(message: Message) -> dict[str, object]:
    stamp = message.timestamp_ms
    is_written = stamp is not None and stamp <= TIMESTAMP_MS_MAX
    headers = [{"key": name, "value": value} for name, value in message.headers.items()]
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "next_offset": message.next_offset,
        "timestamp": message.timestamp if is_written else None,
        "key": message.key,
        "value": message.value,
        "headers": headers or None,
    }


def written(file: Path, *batches: MessageBatch) -> tuple[tuple[int, int], list[dict[str, object]]]:
    """What was counted when *batches* were written to *file*, and its rows."""
    writer = parquet_files.ParquetWriter(file)
    counted = [writer.write(one) for one in batches]
    writer.close()
    count, size_bytes = (sum(some) for some in zip(*counted, strict=True))
    return (count, size_bytes), pq.read_table(file).to_pylist()


@pytest.mark.parametrize("records", [new_records(), MIXED], ids=["new", "mixed"])
def test_a_file_has_the_messages_of_every_kind(records: bytes, tmp_path: Path) -> None:
    messages = batch_of(records).messages()
    counted, rows = written(tmp_path / "a.parquet", batch_of(records), batch_of(records))
    assert rows == [row_of(one) for one in messages] * 2
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 1
    size_bytes = sum(len(one.value) + len(one.key or b"") for one in messages)
    assert counted == (2 * len(messages), 2 * size_bytes)


@pytest.mark.parametrize("good", [new_records(), MIXED], ids=["new", "mixed"])
@pytest.mark.parametrize("damage", ["checksum", "cut", "headers"])
def test_a_file_ends_before_a_damaged_record(damage: str, good: bytes, tmp_path: Path) -> None:
    if damage == "checksum":
        bad = craft_structured(b"value", key_length=NO_KEY, headers_length=0)[:-1] + b"?"
    elif damage == "cut":
        bad = craft_structured(b"value", key_length=NO_KEY, headers_length=0)[:-1]
    else:
        twice = craft_header(b"n", b"1") * 2
        bad = craft_structured(twice + b"value", key_length=NO_KEY, headers_length=len(twice))
    batch = batch_of(good + bad)
    _, rows = written(tmp_path / "a.parquet", batch)
    assert rows == [row_of(one) for one in batch_of(good)]
    assert f"record at offset {1000 + len(good)}: " in str(batch.damage)


def test_the_documented_function_makes_rows_of_a_batch() -> None:
    page = (Path(__file__).parents[2] / "docs/clients.md").read_text()
    [block] = re.findall(r"^```python\n(import pyarrow.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    batch = batch_of(MIXED)
    rows = names["rows_of"](batch)
    assert rows.column("offset").to_pylist() == [one.offset for one in batch]
    assert rows.column("value").to_pylist() == [one.value for one in batch]


@pytest.mark.process
def test_a_row_that_is_no_message_is_named_and_the_import_goes_on_behind_it(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    file = tmp_path / "messages.parquet"
    pq.write_table(pa.table({"value": ["1", "2", None, "4"]}), file)
    failed = program("import", topic, str(file))
    assert failed.exit_code == 1
    assert "row 3 is no message: it has no value; the 2 messages before it were" in failed.stderr
    assert "--skip 2, or leave this row out with --skip 3" in failed.stderr
    assert program("import", topic, str(file), "--skip", "3").exit_code == 0
    assert consume(topic, "-e") == b"1\n2\n4\n"
    assert program("import", topic, str(file), "--skip", "5").exit_code == 2


def test_files_of_other_programs_are_read(tmp_path: Path) -> None:
    file = tmp_path / "other.parquet"
    pq.write_table(
        pa.table(
            {
                "value": ["text"],
                "key": [b"\xff"],
                "timestamp": pa.array([datetime(2026, 1, 1, 0, 0, 0, 1999)], pa.timestamp("ns")),
                "headers": pa.array([[("n", "1")]], pa.map_(pa.string(), pa.string())),
                "price": [7],
            }
        ),
        file,
    )
    [[message]] = parquet_files.ParquetReader(file).portions(0)
    assert (message.value, message.key, message.headers) == (b"text", b"\xff", {"n": b"1"})
    assert message.timestamp == datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)


def test_a_file_that_can_not_be_read_is_refused(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "messages.parquet"
    file.write_bytes(b"no such thing")
    assert f"{file} is no Parquet file" in program("import", "orders", str(file)).stderr
    pq.write_table(pa.table({"text": ["1"]}), file)
    assert "has no column value, but text" in program("import", "orders", str(file)).stderr
