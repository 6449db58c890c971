"""The encoding of messages: each is the same after decoding, and all other bytes are refused."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import Any

import attrs
import cbor2
import pytest
from hypothesis import assume, example, given, strategies as st

from octopi.errors import ProtocolError, Status
from octopi.identifiers import Offset
from octopi.limits import BATCH_BYTES_MAX, KIB, MIB, PARTITIONS_PER_TOPIC_MAX, TEXT_BYTES_MAX
from octopi.wire import messages as m
from octopi.wire.codec import EncodedAnswer, EncodedList, decode, encode, encode_parts
from tests import strategies

EVERY_CLASS = frozenset(m.TYPE_NAMES)
INTEGERS = [0, 23, 24, 255, 256, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**63 - 1, -1, -24, -25]

FIND = {
    "type": "find_offset",
    "request": 7,
    "topic": "orders",
    "partition": 0,
    "at": "earliest",
    "value": 0,
}


def refused(data: bytes | memoryview, allowed: frozenset[type] = EVERY_CLASS) -> ProtocolError:
    """The error that *data* has to end in."""
    with pytest.raises(ProtocolError) as caught:
        decode(data, allowed)
    return caught.value


def find_with(**changes: object) -> bytes:
    """`FIND` with other fields, as another CBOR encoder writes it."""
    return cbor2.dumps(FIND | changes)


as_map = strategies.as_written


# --- what goes in comes out ----------------------------------------------------------


@given(strategies.messages())
def test_every_message_is_the_same_after_encoding_and_decoding(message: object) -> None:
    assert decode(encode(message), EVERY_CLASS) == message


@given(strategies.messages())
@example(m.Delivery(1, Offset(8), b"records", Offset(15)))
def test_a_message_in_a_view_is_the_same_and_keeps_nothing_of_it_but_records(
    message: object,
) -> None:
    memory = bytearray(encode(message))
    found = decode(memoryview(memory).toreadonly(), EVERY_CLASS)
    assert found == message
    records = getattr(found, "records", b"")
    assert isinstance(records, memoryview) == isinstance(message, m.Delivery)
    del records
    if not isinstance(message, m.Delivery):
        memory.clear()  # refused while a view of it exists
        assert found == message


@given(strategies.messages())
def test_another_cbor_library_reads_and_writes_the_same(message: object) -> None:
    assert cbor2.loads(encode(message)) == as_map(message)
    assert cbor2.dumps(as_map(message)) == encode(message)


def test_only_messages_are_encoded() -> None:
    with pytest.raises(KeyError):
        encode(m.TopicOptions())  # a part of messages


@given(strategies.messages(), st.randoms(use_true_random=False))
def test_fields_come_in_any_order_behind_the_type(message: object, random: Random) -> None:
    kind, *fields = as_map(message).items()
    random.shuffle(fields)
    assert decode(cbor2.dumps(dict([kind, *fields])), EVERY_CLASS) == message


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (m.Failure(5, 40, "no"), {}),
        (m.Failure(5, 40, "no", epoch=7), {"epoch": 7}),
        (m.Failure(5, 46, "no", offset=0), {"offset": 0}),
        (m.Failure(5, 46, "no", epoch=0, offset=9), {"epoch": 0, "offset": 9}),
    ],
)
def test_an_optional_field_with_its_default_is_not_written(
    message: m.Failure, fields: dict[str, int]
) -> None:
    data = encode(message)
    written = cbor2.loads(data)
    assert {name: written[name] for name in ("epoch", "offset") if name in written} == fields
    assert decode(data, EVERY_CLASS) == message


def test_an_optional_field_may_stand_anywhere_and_may_hold_its_default() -> None:
    required = {"request": 5, "status": 46, "reason": "", "address": ""}
    for fields, expected in (
        ({"offset": 9, **required}, m.Failure(5, 46, "", offset=9)),
        ({**required, "offset": 9, "epoch": 3}, m.Failure(5, 46, "", epoch=3, offset=9)),
        ({**required, "epoch": None}, m.Failure(5, 46, "")),
    ):
        assert decode(cbor2.dumps({"type": "failure", **fields}), EVERY_CLASS) == expected


def test_an_optional_field_does_not_replace_a_missing_one() -> None:
    fields = {"type": "failure", "request": 5, "status": 46, "reason": "", "offset": 9}
    assert str(refused(cbor2.dumps(fields))) == "failure: field 'address' is missing"
    assert str(refused(cbor2.dumps({**fields, "address": "", "more": 1}))) == (
        "failure: there is no field 'more'"
    )
    assert str(refused(cbor2.dumps({**fields, "address": "", "offset": -1}))) == (
        "failure.offset: it can't be negative"
    )
    twice = b"\xa7" + cbor2.dumps({**fields, "address": ""})[1:] + cbor2.dumps({"offset": 9})[1:]
    assert str(refused(twice)) == "failure: field 'offset' comes twice"


@pytest.mark.parametrize("value", [*INTEGERS, -(2**63)])
def test_integers_are_signed_and_have_64_bits(value: int) -> None:
    message = m.DescribeLogs(1, "", "", value)
    assert decode(encode(message), EVERY_CLASS) == message


def test_lengths_may_be_written_longer_than_needed() -> None:
    assert decode(b"\xb9\x00\x02\x64type\x78\x04done\x67request\x19\x00\x05", EVERY_CLASS) == (
        m.Done(5)
    )


def test_a_field_may_be_as_large_as_its_bound_and_no_larger() -> None:
    batch = m.Produce(1, "t" * TEXT_BYTES_MAX, 0, bytes(BATCH_BYTES_MAX))
    assert decode(encode(batch), EVERY_CLASS) == batch
    for change, where in (
        ({"topic": "t" * (TEXT_BYTES_MAX + 1)}, "produce.topic"),
        ({"topic": "é" * (TEXT_BYTES_MAX // 2 + 1)}, "produce.topic"),
        ({"records": bytes(BATCH_BYTES_MAX + 1)}, "produce.records"),
    ):
        with pytest.raises(ValueError, match=f"^{where}: it has .* at most"):
            encode(attrs.evolve(batch, **change))
        error = refused(cbor2.dumps(as_map(batch) | change))
        assert str(error).startswith(f"{where}: it has ")


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**64])
def test_an_integer_that_does_not_fit_is_not_sent(value: int) -> None:
    with pytest.raises(ValueError, match=r"^credit\.until: it does not fit into 64 bits"):
        encode(m.Credit(1, value))


def test_a_text_that_is_not_valid_utf_8_is_not_sent() -> None:
    with pytest.raises(ValueError, match=r"^delete_topic\.topic: it has no form in UTF-8"):
        encode(m.DeleteTopic(1, "\ud800"))


def test_a_value_out_of_bounds_is_named_with_its_field_and_entry() -> None:
    partition = m.PartitionInfo(0, 1, 1, "", [1, 2**70], [], [])
    topic = m.TopicInfo("t", "0", [partition], m.TopicOptions())
    with pytest.raises(
        ValueError, match=r"^topic_description\.topic\.partitions\[0\]\.replicas\[1\]: it does not"
    ):
        encode(m.TopicDescription(1, topic))


def test_negative_counts_and_numbers_are_not_sent() -> None:
    with pytest.raises(ValueError, match=r"^credit\.until: it can't be negative"):
        encode(m.Credit(1, -1))


# --- nothing else comes in -----------------------------------------------------------


@given(st.binary(max_size=200))
@example(b"\xa2\x64type\x64done\x67request")
@example(b"\xa1\x64type\x7f")
def test_arbitrary_bytes_are_a_message_or_refused(data: bytes) -> None:
    refused_or_a_message(data)


@given(strategies.messages(), st.data())
def test_a_damaged_message_is_refused_or_decodes_as_another_one(
    message: object, choice: st.DataObject
) -> None:
    data = bytearray(encode(message))
    start = choice.draw(st.integers(0, len(data) - 1))
    end = choice.draw(st.integers(start, min(len(data), start + 9)))
    data[start:end] = choice.draw(st.binary(max_size=9))
    refused_or_a_message(bytes(data))


def integers(value: object, place: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Where the integers are in a message as a map, but for those that may be negative."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != "after_partition":
                yield from integers(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from integers(inner, (*place, index))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield place


@given(strategies.messages(), st.integers(-(2**63), -1), st.data())
def test_a_negative_number_is_refused_with_the_name_of_its_field(
    message: object, negative: int, choice: st.DataObject
) -> None:
    fields: Any = as_map(message)
    places = list(integers(fields))
    assume(places)
    *way, last = choice.draw(st.sampled_from(places))
    owner = fields
    for step in way:
        owner = owner[step]
    owner[last] = negative
    error = refused(cbor2.dumps(fields))
    name = f"[{last}]" if isinstance(last, int) else f".{last}"
    assert str(error).endswith(f"{name}: it can't be negative")
    assert error.status is Status.MALFORMED_MESSAGE


def refused_or_a_message(data: bytes) -> None:
    message: object = None
    error: ProtocolError | None = None
    try:
        message = decode(data, EVERY_CLASS)
    except ProtocolError as caught:
        error = caught
        assert str(refused(memoryview(data))) == str(error)
    if error is None:
        assert decode(encode(message), EVERY_CLASS) == message
    else:
        assert error.status in {Status.MALFORMED_MESSAGE, Status.UNKNOWN_MESSAGE}
        assert str(error).isprintable()
        assert len(str(error)) < 200


@given(strategies.messages(), st.data())
def test_a_message_cut_short_or_followed_by_more_is_refused(
    message: object, choice: st.DataObject
) -> None:
    data = encode(message)
    cut = choice.draw(st.integers(0, len(data) - 1))
    assert refused(data[:cut]).status is Status.MALFORMED_MESSAGE
    assert str(refused(data + b"\x00")).endswith(": 1 bytes follow it")


@given(st.integers(0, 2**64 - 1), st.sampled_from([name for name in FIND if name != "type"]))
@example(2, "request")  # a bignum would be an integer
@example(55799, "topic")  # "this is CBOR" would vanish
@example(28, "topic")  # a shared value, too
def test_cbor_tags_are_refused(tag: int, name: str) -> None:
    content = b"\x01" if tag in (2, 3) else FIND[name]
    error = refused(find_with(**{name: cbor2.CBORTag(tag, content)}))
    assert str(error).startswith(f"find_offset.{name}: it has to be ")
    assert str(error).endswith(", not a tag")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"request": 7.0}, "find_offset.request: it has to be an integer, not a float"),
        ({"request": True}, "find_offset.request: it has to be an integer, not a boolean"),
        ({"request": None}, "find_offset.request: it has to be an integer, not null"),
        ({"request": "7"}, "find_offset.request: it has to be an integer, not a text"),
        ({"request": [7]}, "find_offset.request: it has to be an integer, not a list"),
        ({"request": {}}, "find_offset.request: it has to be an integer, not a map"),
        (
            {"request": cbor2.undefined},
            "find_offset.request: it has to be an integer, not a simple value",
        ),
        ({"request": 2**63}, "find_offset.request: it does not fit into 64 bits with sign"),
        ({"request": -(2**63) - 1}, "find_offset.request: it does not fit into 64 bits with sign"),
        ({"topic": b"orders"}, "find_offset.topic: it has to be a text, not a byte string"),
        ({"topic": 5}, "find_offset.topic: it has to be a text, not an integer"),
        ({"topic": -5}, "find_offset.topic: it has to be a text, not a negative integer"),
        ({"extra": 1}, "find_offset: there is no field 'extra'"),
        ({"e" * 41: 1}, "find_offset: there is no field of that name"),
        ({"\n": 1}, "find_offset: there is no field of that name"),
        ({"é": 1}, "find_offset: there is no field of that name"),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(
    changes: dict[str, object], problem: str
) -> None:
    error = refused(find_with(**changes))
    assert (str(error), error.status) == (problem, Status.MALFORMED_MESSAGE)


@pytest.mark.parametrize("name", [name for name in FIND if name != "type"])
def test_a_missing_field_is_refused_by_name(name: str) -> None:
    error = refused(cbor2.dumps({key: FIND[key] for key in FIND if key != name}))
    assert str(error) == f"find_offset: field '{name}' is missing"


def test_an_integer_is_not_accepted_as_a_boolean() -> None:
    fields = {"type": "describe_topic", "request": 1, "topic": "t", "create": 1}
    error = refused(cbor2.dumps(fields))
    assert str(error) == "describe_topic.create: it has to be a boolean, not an integer"


def test_a_list_longer_than_its_bound_is_refused_before_it_is_read() -> None:
    fields = {"type": "create_topic", "request": 1, "partitions": "*"}
    count = PARTITIONS_PER_TOPIC_MAX + 1
    for entries in (b"\x00" * count, b""):
        data = cbor2.dumps(fields).replace(b"\x61*", b"\x99" + count.to_bytes(2, "big") + entries)
        assert str(refused(data)) == (
            "create_topic.partitions: it has 1001 entries, at most 1000 are allowed"
        )


def test_an_invalid_entry_of_a_list_is_named_by_its_index() -> None:
    fields = {"type": "create_topic", "request": 1, "partitions": [0, 1, "2"]}
    assert str(refused(cbor2.dumps(fields))) == (
        "create_topic.partitions[2]: it has to be an integer, not a text"
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "message: it ends too early"),
        (b"\xa1", "message: the first key has to be 'type'"),
        (b"\xa0", "message: the first key has to be 'type'"),
        (b"\xa0\x64type\x69heartbeat", "message: the first key has to be 'type'"),
        (cbor2.dumps({"request": 1, "type": "done"}), "message: the first key has to be 'type'"),
        (cbor2.dumps([FIND]), "message: it has to be a map, not a list"),
        (cbor2.dumps("text"), "message: it has to be a map, not a text"),
        (cbor2.dumps({"type": 5}), "message: it has to be a text, not an integer"),
        (b"\xa2\x64type\x64done\x67request", "done.request: it ends too early"),
        (b"\xa2\x64type\x64done\x67request\x1b\x00", "done.request: it ends too early"),
        (b"\xa2\x64type\x64done\x05\x05", "done: a key is no text"),
        (b"\xa2\x64type\x64done\x67reque", "done: there is no field 'reque'"),
        (
            b"\xa3\x64type\x64done\x67request\x05\x67request\x05",
            "done: field 'request' comes twice",
        ),
        (
            b"\xa2\x64type\x6cdelete_topic\x65topic\x62\xff\xfe",
            "delete_topic.topic: it is not UTF-8",
        ),
        (
            b"\xa2\x64type\x6cdelete_topic\x65topic\x7f\x61a\xff",
            "delete_topic.topic: indefinite lengths and reserved values are not allowed",
        ),
        (
            b"\xbf\x64type\x64done\x67request\x05\xff",
            "message: indefinite lengths and reserved values are not allowed",
        ),
        (
            b"\xa2\x64type\x64done\x67request\x1c",
            "done.request: indefinite lengths and reserved values are not allowed",
        ),
        (
            cbor2.dumps({"type": "describe_topic", "create": ""})[:-1],
            "describe_topic.create: it ends too early",
        ),
    ],
)
def test_bytes_that_are_not_a_message_are_refused_with_the_reason(
    data: bytes, problem: str
) -> None:
    error = refused(data)
    assert (str(error), error.status) == (problem, Status.MALFORMED_MESSAGE)


def test_an_unknown_message_type_is_refused_as_unknown() -> None:
    error = refused(cbor2.dumps({"type": "steal", "request": 9}))
    assert (str(error), error.status) == ("message: there is no type 'steal'", 2)
    assert error.status is Status.UNKNOWN_MESSAGE
    assert error.request == 9
    assert "of that name" in str(refused(cbor2.dumps({"type": "x" * 41})))


def test_a_message_of_another_endpoint_is_refused_before_its_fields_are_read() -> None:
    data = cbor2.dumps({"type": "produce", "request": 9, "records": None})
    error = refused(data, frozenset({m.Fetch}))
    assert str(error) == "produce: it may not be sent here now"
    assert error.status is Status.WRONG_ENDPOINT
    assert error.request == 9


def test_a_refusal_names_the_request_if_that_could_be_read() -> None:
    assert refused(find_with(value=None)).request == 7
    assert refused(cbor2.dumps({"type": "done", "request": "x"})).request is None
    assert refused(cbor2.dumps({"type": "done", "x": 1})).request is None


# --- what hostile input costs --------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"\x5b" + b"\x7f" * 8, id="bytes of 9 exabytes"),
        pytest.param(b"\x9b" + b"\x7f" * 8, id="list of 9 quintillion"),
        pytest.param(b"\xbb" + b"\x7f" * 8, id="map of 9 quintillion"),
        pytest.param(b"\x9a\x01\x00\x00\x00" + b"\xa0" * 16 * MIB, id="16 Mi empty maps"),
        pytest.param(b"\x81" * 16 * MIB, id="16 Mi lists within each other"),
        pytest.param(b"\xc2\x5a\x01\x00\x00\x00" + b"\xff" * 16 * MIB, id="bignum of 16 MiB"),
    ],
)
@pytest.mark.parametrize("field", ["topic", "records", "nonsense", "partitions"])
def test_decoding_hostile_input_takes_little_memory(value: bytes, field: str) -> None:
    kind = "create_topic" if field == "partitions" else "produce"
    start = cbor2.dumps({"type": kind, "request": 1, field: 0})[:-1]
    data = start + value
    tracemalloc.start()
    try:
        refused(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * 1024


@pytest.mark.parametrize("character", ["\n", "\x1b", "\x7f", "\x9b", "\u202e", "\u2028", "\u061c"])
def test_a_program_s_name_with_a_control_character_is_refused(character: str) -> None:
    agent = f"console/1{character}[2J"
    fields = {"type": "hello", "version": 1, "agent": agent, "token": None}
    assert str(refused(cbor2.dumps(fields))) == "hello.agent: it has a control character"
    with pytest.raises(ValueError, match=r"^hello\.agent: it has a control character$"):
        encode(m.Hello(version=1, agent=agent))


def test_a_program_s_name_is_bounded() -> None:
    fields = {"type": "hello", "version": 1, "agent": "a" * 201, "token": None}
    assert str(refused(cbor2.dumps(fields))).startswith("hello.agent: it has 201 bytes")


@pytest.mark.parametrize("character", ["\n", "\x1b", "\u202e"])
def test_a_connections_name_with_a_control_character_is_refused(character: str) -> None:
    fields = {"type": "hello", "version": 1, "agent": "a", "token": None, "name": f"a{character}b"}
    assert str(refused(cbor2.dumps(fields))) == "hello.name: it has a control character"
    with pytest.raises(ValueError, match=r"^hello\.name: it has a control character$"):
        encode(m.Hello(version=1, agent="a", name=f"a{character}b"))


def test_a_hello_without_a_connection_name_omits_the_field() -> None:
    assert "name" not in cbor2.loads(encode(m.Hello(version=1, agent="a")))


def test_a_list_of_entries_encoded_earlier_has_the_same_bytes() -> None:
    brokers = [m.BrokerInfo(one, f"ws://host-{one}:1", 1, True, 0) for one in range(1, 30)]
    before = EncodedList(m.BrokerInfo)
    before.add(brokers[:10])
    before.add(brokers[10:])
    plain = m.ClusterDescription(1, "c", 0, 1, brokers, [])
    assert encode(attrs.evolve(plain, brokers=before)) == encode(plain)
    assert before == brokers
    with pytest.raises(ValueError, match="broker"):
        before.add([attrs.evolve(brokers[0], broker=-1)])


def test_an_answer_that_is_encoded_already_is_sent_as_it_is() -> None:
    data = encode(m.Done(7))
    assert encode(EncodedAnswer(7, data)) == data


@pytest.mark.parametrize("size_bytes", [0, 100, 8 * KIB - 1, 8 * KIB, 512 * KIB])
def test_the_parts_of_a_message_are_its_encoding_and_long_records_are_not_copied(
    size_bytes: int,
) -> None:
    records = bytes(range(256)) * (size_bytes // 256) + bytes(size_bytes % 256)
    message = m.Replicate(1, 2, 3, 4, "0" * 16, 5, 6, records, 7)
    parts = encode_parts(message)
    assert b"".join(parts) == encode(message)
    if size_bytes < 8 * KIB:
        assert len(parts) == 1
    else:
        assert parts[1] is records
        assert len(parts) == 3


def test_a_message_that_ends_with_a_long_byte_string_has_no_empty_part() -> None:
    message = m.Produce(1, "orders", 0, bytes(8 * KIB))
    assert len(encode_parts(message)) == 2
    assert b"".join(encode_parts(message)) == encode(message)


def test_a_message_with_a_field_out_of_bounds_has_no_parts() -> None:
    with pytest.raises(ValueError, match="reason"):
        encode_parts(m.Failure(1, 1, "y" * (TEXT_BYTES_MAX + 1)))
