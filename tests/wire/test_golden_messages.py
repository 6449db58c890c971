"""The bytes of some messages, fixed: clients in any language may rely on them."""

from __future__ import annotations

import pytest

from octopi.conditions import LastRecord
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode

VECTORS = [
    (
        m.Hello(version=1, agent="octopi/0.1", token=None),
        "a4 6474797065 6568656c6c6f"  # type: hello
        "6776657273696f6e 01"
        "656167656e74 6a6f63746f70692f302e31"
        "65746f6b656e f6",
    ),
    (
        m.Hello(version=1, agent="octopi/0.1", token=None, nonce=b"\x01\x02"),
        "a5 6474797065 6568656c6c6f"
        "6776657273696f6e 01"
        "656167656e74 6a6f63746f70692f302e31"
        "65746f6b656e f6"
        "656e6f6e6365 420102",  # given at endpoints for nodes alone
    ),
    (
        m.Challenge(nonce=b"\x01", proofs=[b"\x02", b"\x03"]),
        "a3 6474797065 696368616c6c656e6765656e6f6e6365 41016670726f6f6673 82 4102 4103",
    ),
    (
        m.Proof(proof=b"\x01", token=None),
        "a3 6474797065 6570726f6f66 6570726f6f66 4101 65746f6b656e f6",
    ),
    (
        m.Heartbeat(),
        "a1 6474797065 69686561727462656174",
    ),
    (
        m.Failure(request=5, status=40, reason="ask", address="ws://a:1"),
        "a5 6474797065 676661696c757265"
        "6772657175657374 05"
        "66737461747573 1828"
        "66726561736f6e 6361736b"
        "6761646472657373 6877733a2f2f613a31",
    ),
    (
        m.Produce(request=1000, topic="orders", partition=3, records=b"\x00\xff"),
        "a5 6474797065 6770726f64756365"
        "6772657175657374 1903e8"
        "65746f706963 666f7264657273"
        "69706172746974696f6e 03"
        "677265636f726473 4200ff",
    ),
    (
        m.Produce(
            request=1,
            topic="t",
            partition=0,
            records=b"",
            expected_end=0,
            after=LastRecord(3, -1),
        ),
        "a7 6474797065 6770726f64756365"
        "6772657175657374 01"
        "65746f706963 6174"
        "69706172746974696f6e 00"
        "677265636f726473 40"
        "6c65787065637465645f656e64 00"
        "656166746572 a2 6565706f6368 03 6873657175656e6365 20",
    ),
    (
        m.Delivery(request=2, offset=2**33, records=b"", highwater=2**16),
        "a5 6474797065 6864656c6976657279"
        "6772657175657374 02"
        "666f6666736574 1b0000000200000000"
        "677265636f726473 40"
        "69686967687761746572 1a00010000",
    ),
    (
        m.Delivery(request=2, offset=0, records=b"", highwater=0, anchor="7-1200.6-800"),
        "a6 6474797065 6864656c6976657279"
        "6772657175657374 02"
        "666f6666736574 00"
        "677265636f726473 40"
        "69686967687761746572 00"
        "66616e63686f72 6c372d313230302e362d383030",
    ),
    (
        m.CreateTopic(
            request=1,
            topic="t",
            partition_count=2,
            partitions=[0, 300],
            options=m.TopicOptions(retention_ms=60_000, flush_before_ack=True),
        ),
        "a6 6474797065 6c6372656174655f746f706963"
        "6772657175657374 01"
        "65746f706963 6174"
        "6f706172746974696f6e5f636f756e74 02"
        "6a706172746974696f6e73 82 00 19012c"
        "676f7074696f6e73 a5"
        "6c726574656e74696f6e5f6d73 19ea60"
        "6f726574656e74696f6e5f6279746573 f6"
        "6d7365676d656e745f6279746573 f6"
        "70666c7573685f6265666f72655f61636b f5"
        "6a6d696e5f696e73796e63 01",
    ),
    (
        m.Join(
            request=1,
            cluster="00c1a5735eed0001",
            broker=2,
            incarnation=3,
            nonce="n3",
            ancestors=["n1", "n2"],
            register=m.RegisterGeneration(generation=4, nonce="r"),
            address="ws://a:1",
        ),
        "a9 6474797065 646a6f696e"
        "6772657175657374 01"
        "67636c7573746572 7030306331613537333565656430303031"
        "6662726f6b6572 02"
        "6b696e6361726e6174696f6e 03"
        "656e6f6e6365 626e33"
        "69616e636573746f7273 82 626e31 626e32"
        "687265676973746572 a2"
        "6a67656e65726174696f6e 04"
        "656e6f6e6365 6172"
        "6761646472657373 6877733a2f2f613a31",
    ),
    (
        m.Joined(
            request=1,
            cluster="00c1a5735eed0001",
            broker=2,
            register=m.RegisterGeneration(generation=4, nonce="r", seal="0a"),
            credential="0b",
        ),
        "a6 6474797065 666a6f696e6564"
        "6772657175657374 01"
        "67636c7573746572 7030306331613537333565656430303031"
        "6662726f6b6572 02"
        "687265676973746572 a3"
        "6a67656e65726174696f6e 04"
        "656e6f6e6365 6172"
        "647365616c 623061"
        "6a63726564656e7469616c 623062",
    ),
    (
        m.TopicDescription(
            request=1,
            topic=m.TopicInfo(
                "t",
                "00",
                [],
                m.TopicOptions(),
                generations=[m.GenerationInfo(1, [3], [7]), m.GenerationInfo(2, [4], [])],
                sealed_partitions=[m.PartitionInfo(3, 2, None, "", [5], [5], [])],
            ),
        ),
        "a3647479706571746f7069635f6465736372697074696f6e67726571756573740165746f706963a6"
        "65746f706963617468746f7069635f69646230306a706172746974696f6e7380676f7074696f6e73"
        "a56c726574656e74696f6e5f6d73f66f726574656e74696f6e5f6279746573f66d7365676d656e74"
        "5f6279746573f670666c7573685f6265666f72655f61636bf46a6d696e5f696e73796e63016b6765"
        "6e65726174696f6e7382a3666e756d626572016a706172746974696f6e738103667365616c656481"
        "07a3666e756d626572026a706172746974696f6e738104667365616c656480717365616c65645f70"
        "6172746974696f6e7381a769706172746974696f6e036565706f636802666c6561646572f66e6c65"
        "616465725f6164647265737360687265706c69636173810567696e5f73796e638105677265616465"
        "727380",
    ),
    (
        m.DescribeLogs(request=1, topic="", after_topic="", after_partition=-1),
        "a5 6474797065 6d64657363726962655f6c6f6773"
        "6772657175657374 01"
        "65746f706963 60"
        "6b61667465725f746f706963 60"
        "6f61667465725f706172746974696f6e 20",
    ),
]


@pytest.mark.parametrize(
    ("message", "vector"), VECTORS, ids=lambda value: getattr(type(value), "__name__", "")
)
def test_the_bytes_of_a_message_stay_the_same(message: object, vector: str) -> None:
    data = bytes.fromhex(vector.replace(" ", ""))
    assert encode(message).hex() == data.hex()
    assert decode(data, frozenset({type(message)})) == message
