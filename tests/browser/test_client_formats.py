"""The JavaScript client reads and writes the bytes that the Python side reads and writes."""

from __future__ import annotations

import zlib
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings, strategies as st

from octopi.clients.consuming.trail import Trail
from octopi.errors import STATUS_MEANINGS, RecordError
from octopi.identifiers import (
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TopicId,
    TopicName,
)
from octopi.position import Anchor, Place, Position
from octopi.record import BatchBuilder, decode
from tests.browser.tools import JavaScriptError, NodePeer
from tests.clients.digest_cases import CASES, Case
from tests.record.golden import GOLDEN
from tests.record.strategies import BuiltLog, logs

ANCHORS = st.sampled_from(
    [
        "",
        "1-0",
        "7-1200.6-800",
        f"{2**63 - 1}-{2**63 - 1}.5-4.4-3.3-2.2-1.1-0",
        "0.0123456789abcdef",
        "1200.9f3a61c2aa55bb66",
    ]
).map(Anchor)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=6)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | INT64 | st.text(max_size=30) | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=20,
)


def described(value: object) -> list[object]:
    """The value as node_peer.mjs writes it."""
    match value:
        case None:
            return ["null", None]
        case bool():
            return ["boolean", value]
        case int():
            return ["integer", str(value)]
        case str():
            return ["text", value]
        case bytes():
            return ["bytes", value.hex()]
        case list():
            return ["array", [described(one) for one in value]]
        case dict():
            return ["map", [[key, described(one)] for key, one in value.items()]]
    raise AssertionError(value)


def meant(description: list[Any]) -> Any:  # noqa: ANN401
    """The inverse of `described`."""
    kind, content = description
    match kind:
        case "integer":
            return int(content)
        case "bytes":
            return bytes.fromhex(content)
        case "array":
            return [meant(one) for one in content]
        case "map":
            return {key: meant(one) for key, one in content}
    return content


def depth(value: object) -> int:
    match value:
        case list():
            return 1 + max(map(depth, value), default=0)
        case dict():
            return 1 + max(map(depth, value.values()), default=0)
    return 0


@given(VALUES.filter(lambda value: depth(value) <= 8))
def test_the_client_reads_what_cbor2_writes(node: NodePeer, value: object) -> None:
    assert meant(node.ask("decode", cbor2.dumps(value).hex())) == value


@given(VALUES.filter(lambda value: depth(value) <= 8))
def test_cbor2_reads_what_the_client_writes(node: NodePeer, value: object) -> None:
    assert cbor2.loads(bytes.fromhex(node.ask("encode", described(value)))) == value


@given(VALUES, st.data())
def test_damaged_cbor_is_refused_or_means_what_cbor2_says(
    node: NodePeer, value: object, data: st.DataObject
) -> None:
    damaged = bytearray(cbor2.dumps(value))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(at, len(damaged))) :]
    refusal = ""
    try:
        read = meant(node.ask("decode", damaged.hex()))
    except JavaScriptError as error:
        refusal = str(error)
    assert refusal.startswith("CborError: ") or read == cbor2.loads(bytes(damaged))


@pytest.mark.parametrize(
    "data",
    [
        "",
        "f90000",
        "fb3ff8000000000000",
        "c249010000000000000000",
        "9f01ff",
        "5f4101ff",
        "f7",
        "1c",
        "1b8000000000000000",
        "3b8000000000000000",
        "a10102",
        "a2616101616102",
        "61ff",
        "5bffffffffffffffff00",
        "9bffffffffffffffff00",
        "bbffffffffffffffff00",
        "00" * 2,
        "81" * 9 + "00",
    ],
)
def test_cbor_beyond_the_subset_is_refused(node: NodePeer, data: str) -> None:
    with pytest.raises(JavaScriptError, match="CborError"):
        node.ask("decode", data)


@given(st.binary(max_size=2000))
def test_checksums_are_those_of_zlib(node: NodePeer, data: bytes) -> None:
    assert node.ask("crc32", data.hex()) == zlib.crc32(data)


def read_here(data: bytes, offset: int) -> list[dict[str, Any]]:
    return [
        {
            "offset": one.offset,
            "nextOffset": one.next_offset,
            "timestamp": one.timestamp_ms,
            "key": None if one.key is None else one.key.hex(),
            "value": one.value.hex(),
            "headers": {name: value.hex() for name, value in one.headers.items()},
        }
        for one in decode(data, Offset(offset), TopicName("t"), PartitionId(0))
    ]


def read_there(node: NodePeer, data: bytes, offset: int) -> tuple[list[dict[str, Any]], str]:
    found = node.ask("readRecords", {"hex": data.hex(), "offset": offset})
    messages = [{**one, "headers": dict(one["headers"])} for one in found["messages"]]
    return messages, found["error"]


def rounded(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With time stamps as JavaScript's numbers hold them."""
    return [
        {**one, "timestamp": None if one["timestamp"] is None else float(one["timestamp"])}
        for one in messages
    ]


@given(logs(), st.integers(0, 2**52))
@settings(max_examples=50)
def test_both_clients_read_records_alike(node: NodePeer, log: BuiltLog, offset: int) -> None:
    messages, error = read_there(node, log.data, offset)
    assert error == ""
    assert rounded(messages) == rounded(read_here(log.data, offset))


@given(logs().filter(lambda log: bool(log.sent)), st.data())
@settings(max_examples=50)
def test_damaged_records_are_refused_where_they_are_damaged(
    node: NodePeer, log: BuiltLog, data: st.DataObject
) -> None:
    damaged = bytearray(log.data)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    messages, error = read_there(node, bytes(damaged), 0)
    refusal = ""
    try:
        read = read_here(bytes(damaged), 0)
    except RecordError as found:
        refusal = str(found)
    if refusal:
        assert error == "record_damaged"
        assert f"record at offset {messages[-1]['nextOffset'] if messages else 0}:" in refusal
    else:  # in the request id of version 1, which its checksum doesn't cover
        assert rounded(messages) == rounded(read)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_golden_vectors_are_read(node: NodePeer, golden: Any) -> None:  # noqa: ANN401
    (message,), error = read_there(node, golden.data, 0)
    assert error == ""
    assert bytes.fromhex(message["value"]) == golden.value
    assert message["headers"] == {name: value.hex() for name, value in golden.headers.items()}


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=50),
            st.none() | st.binary(max_size=20),
            # Names of digits are put in order by JavaScript.
            st.dictionaries(
                st.text(st.characters(categories=["L"]), max_size=8),
                st.binary(max_size=12),
                max_size=3,
            ),
            st.integers(0, 2**53 - 1),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**40),
)
@settings(max_examples=50)
def test_both_clients_write_records_alike(
    node: NodePeer,
    messages: list[tuple[bytes, bytes | None, dict[str, bytes], int]],
    epoch: int,
    sequence: int,
) -> None:
    builder = BatchBuilder()
    for value, key, headers, timestamp_ms in messages:
        builder.add(value, key, headers, timestamp_ms)
    producer = bytes(range(16))
    expected = builder.encode(ProducerId(producer), ProducerEpoch(epoch), Sequence(sequence))
    question = {
        "messages": [
            {
                "value": value.hex(),
                "key": None if key is None else key.hex(),
                "headers": [[name, one.hex()] for name, one in headers.items()],
                "timestamp": timestamp_ms,
            }
            for value, key, headers, timestamp_ms in messages
        ],
        "producer": producer.hex(),
        "epoch": epoch,
        "sequence": sequence,
    }
    assert node.ask("encodeRecords", question) == expected.hex()


@given(
    st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True),
    st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    st.dictionaries(
        st.integers(0, 999).map(PartitionId),
        st.builds(Place, st.integers(0, 2**53 - 1).map(Offset), ANCHORS),
        max_size=5,
    ),
)
def test_both_clients_write_a_position_as_the_same_text(
    node: NodePeer, topic: str, topic_id: str, places: dict[PartitionId, Place]
) -> None:
    text = str(Position(TopicName(topic), TopicId(topic_id), places))
    listed = [[one, place.offset, place.anchor] for one, place in sorted(places.items())]
    said = {"topic": topic, "topicId": topic_id, "places": listed}
    assert node.ask("formatPosition", said) == text
    assert node.ask("parsePosition", text) == said


@given(st.integers(0, 100), ANCHORS, st.lists(st.integers(-30, 30), max_size=20), st.data())
def test_both_clients_keep_the_same_trail(
    node: NodePeer, start: int, anchor: Anchor, moves: list[int], data: st.DataObject
) -> None:
    """Forwards by reading, backwards where a broker disagrees."""
    trail = Trail(Place(Offset(start), anchor))
    steps: list[list[object]] = []
    expected: list[list[object]] = []
    for move in moves:
        if move > 0:
            behind = data.draw(st.sampled_from(["", "1-0", "2-9", "3-9.2-5"]).map(Anchor))
            steps.append(["read", trail.offset + move, behind])
            trail.read(Offset(trail.offset + move), behind)
        elif trail.offset:
            steps.append(["fallBack", max(0, trail.offset - 1 + move)])
            trail.fall_back(Offset(max(0, trail.offset - 1 + move)))
        else:
            steps.append(["know", "4-0"])
            trail.know(Anchor("4-0"))
        expected.append([trail.place.offset, trail.place.anchor])
    assert node.ask("trail", {"start": [start, anchor], "steps": steps}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1:",
        "v1:t@xyz:",
        "v2:t@0f:0=1",
        "v1:t@0f:0=1,",
        "v1:t@0f:0=1,0=2",
        "v1:t@0f:0=-1",
        "v1:t@0f:0=01",
        "v1:t@0f:0=1~",
        "v1:t@0f:0=1~7",
        "v1:t@0f:0=1~0-0",
        "v1:t@0f:0=1~07-1",
        "v1:t@0f:0=1~7-01",
        "v1:t@0f:0=1~7-1.",
        "v1:t@0f:0=1~7-6.6-5.5-4.4-3.3-2.2-1.1-0",
        "v1:t@0f:0=1~9223372036854775808-0",
        "v1:t@0f:0=1~7-9223372036854775808",
        "v1:t@0f:0=1~1200.9F3A61C2AA55BB66",
        "v1:t@0f:0=1~1200.9f3a61c2aa55bb6",
    ],
)
def test_an_invalid_position_is_refused(node: NodePeer, text: str) -> None:
    with pytest.raises(JavaScriptError, match="invalid_option"):
        node.ask("parsePosition", text)


def test_the_status_table_is_the_same(node: NodePeer) -> None:
    here = {
        str(int(status)): [status.name.lower(), meaning.retryable]
        for status, meaning in STATUS_MEANINGS.items()
    }
    found = node.ask("statuses")
    assert found == here, "octopi/console/static/client/errors.js has the same statuses"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_page_finds_in_deliveries_with_proofs_what_a_python_client_finds(
    node: NodePeer, case: Case
) -> None:
    hexed = [[offset, records.hex(), data.hex()] for offset, records, data in case.deliveries]
    found = node.ask("digests", {"anchor": case.anchor, "deliveries": hexed})
    failed = 1 if case.code else 0
    assert found == {
        "taken": len(case.deliveries) - failed,
        "code": case.code,
        "offset": case.offset,
    }
