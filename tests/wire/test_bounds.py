"""A message between nodes is refused as a whole if any part of it is impossible."""

from __future__ import annotations

import re
from typing import Any

import attrs
import cbor2
import pytest

from octopi.errors import ProtocolError
from octopi.limits import BROKER_ID_MAX, COUNTED_MAX, LIST_COUNT_MAX, OFFSET_MAX
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode, fault_in
from tests.strategies import as_written

EVERY_CLASS = frozenset(m.TYPE_NAMES)
OPTIONS = m.TopicOptions()
TOPIC = m.TopicRecord("orders", "0" * 16, [0], OPTIONS)
RECORD = m.PartitionRecord(0, 3, 0, 1, 1, [1, 2, 3], [1, 2])
LIFE = m.RegisterGeneration(1, "first")
JOIN = m.Join(1, "c" * 16, 1, 1, "n", [], LIFE, "ws://a:1")
ACCEPT = m.AcceptEpoch(0, 1, 1, 1, 0, 0, [])
FOLLOW = m.Follow(0, 1, 1, 1, 1, "", [], 0)

NAMES = [
    "",
    ".",
    "..",
    "../../x",
    "a/b",
    "a\0b",
    "a\nb",
    "a\x1b[2J",
    "é",
    "x" * 201,
    "a b",
    "\u202e",
]
IDS = ["", "0", "0" * 15, "F" * 16, "../" * 5 + "x", "0" * 15 + "\n", "0" * 17, "\0" * 16]

TOPICS: list[dict[str, Any]] = [
    {"partitions": []},
    {"partitions": [0, 0]},
    {"partitions": [LIST_COUNT_MAX]},
    {"partitions": [10**9]},
    {"options": attrs.evolve(OPTIONS, segment_bytes=1)},
    {"options": attrs.evolve(OPTIONS, retention_ms=0)},
    {"options": attrs.evolve(OPTIONS, min_insync=0)},
]
RECORDS: list[dict[str, Any]] = [
    {"partition": 10**9},
    {"partition": LIST_COUNT_MAX},
    {"epoch": 0},
    {"epoch": 1 << 40},
    {"epoch": (1 << 63) - 1},
    {"version": 1 << 40},
    {"recovered_epoch": 4},
    {"leader": 0},
    {"leader": 4},
    {"leader_incarnation": 0},
    {"leader_incarnation": 1 << 62},
    {"replicas": [], "in_sync": []},
    {"replicas": [1, 2, 3, 3]},
    {"replicas": [1, 2, BROKER_ID_MAX + 1]},
    {"in_sync": [4]},
    {"lost": [4]},
]
JOINS: list[dict[str, Any]] = [
    {"cluster": "../x"},
    {"broker": 0},
    {"broker": (1 << 63) - 1},
    {"broker": BROKER_ID_MAX + 1},
    {"incarnation": 0},
    {"incarnation": 1 << 62},
    {"nonce": ""},
    {"nonce": "a\0"},
    {"ancestors": ["\n"]},
    {"register": m.RegisterGeneration(1 << 62, "x")},
    {"register": m.RegisterGeneration(0, "x")},
    {"address": ""},
    {"address": "http://a:1"},
    {"address": "ws://a:1/\x1b"},
]
ACCEPTANCES: list[dict[str, Any]] = [
    {"partition": 10**9},
    {"epoch": 1 << 40},
    {"broker": 0},
    {"incarnation": COUNTED_MAX + 1},
    {"last_epoch": 1 << 40},
    {"log_epoch": 1 << 40},
    {"ends": [m.LogEnd("x", 0)]},
    {"ends": [m.LogEnd("0" * 16, OFFSET_MAX + 1)]},
    {"ends": [m.LogEnd("0" * 16, 0, held_end=OFFSET_MAX + 1)]},
    {"first": (1 << 63) - 1},
]
FOLLOWS: list[dict[str, Any]] = [
    {"partition": 10**9},
    {"epoch": 1 << 40},
    {"broker": 0},
    {"attempt": 1 << 62},
    {"topic_id": "../x"},
    {"epochs": [m.EpochStart(1 << 40, 0)]},
    {"epochs": [m.EpochStart(1, OFFSET_MAX + 1)]},
    {"log_end": OFFSET_MAX + 1},
]
BOUNDED: list[object] = [
    *(m.Inventory([], [attrs.evolve(TOPIC, topic=name)]) for name in NAMES),
    *(m.InstallTopics(1, [attrs.evolve(TOPIC, topic=name)]) for name in NAMES),
    *(m.InstallTopics(1, [attrs.evolve(TOPIC, topic_id=one)]) for one in IDS),
    *(m.RemoveTopics(1, [m.RemovedTopic("a", one)]) for one in IDS),
    *(m.Inventory([], [attrs.evolve(TOPIC, **change)]) for change in TOPICS),
    *(
        attrs.evolve(page, partitions=[attrs.evolve(RECORD, **change)])
        for page in (m.Inventory([], []), m.InstallPartitions(1, [], []))
        for change in RECORDS
    ),
    m.Inventory([], [], [m.ReplicaReport(10**9, 1, True)]),
    m.Inventory([], [], [m.ReplicaReport(0, 1 << 40, True)]),
    *(attrs.evolve(JOIN, **change) for change in JOINS),
    m.Joined(1, "x", 1, LIFE),
    m.Joined(1, "c" * 16, 0, LIFE),
    m.OrderCarriedOut(1, [m.Undone(10**9, "", "")]),
    m.OrderCarriedOut(1, [m.Undone(None, "../x", "")]),
    m.BrokerStatus("", None, None, [m.ReplicaTrouble(10**9, "")]),
    *(attrs.evolve(ACCEPT, **change) for change in ACCEPTANCES),
    m.AnnounceEpoch(0, 1 << 40),
    m.AlterInSync(0, 1, 1, 1, 0, [0], None),
    m.AlterInSync(0, 1, 1, 1, 0, [1], 0),
    m.Resign(10**9, 1, 1, 1, ""),
    m.PrepareHandOver(1, 10**9),
    m.BrokersStopping([0]),
    *(attrs.evolve(FOLLOW, **change) for change in FOLLOWS),
    m.Followed(0, 1, 1, 1, "", OFFSET_MAX + 1, 0),
    m.Followed(0, 1, 1, 1, "", 0, OFFSET_MAX + 1),
]


@pytest.mark.parametrize("message", BOUNDED, ids=lambda one: m.TYPE_NAMES[type(one)])
def test_illegal_names_ids_and_numbers_of_nodes_are_neither_read_nor_written(
    message: object,
) -> None:
    name = m.TYPE_NAMES[type(message)]
    with pytest.raises(ProtocolError) as caught:
        decode(cbor2.dumps(as_written(message)), EVERY_CLASS)
    place = str(caught.value).partition(":")[0]
    assert place.startswith(f"{name}.")
    with pytest.raises(ValueError, match=f"^{re.escape(place)}: "):
        encode(message)


def test_an_error_contains_no_control_characters_of_a_message() -> None:
    for name in NAMES:
        page = m.Inventory([], [attrs.evolve(TOPIC, topic=name)])
        with pytest.raises(ProtocolError) as caught:
            decode(cbor2.dumps(as_written(page)), EVERY_CLASS)
        assert str(caught.value).isascii() or "é" in name
        assert str(caught.value).isprintable()


def test_the_greatest_allowed_numbers_are_encoded_and_decoded() -> None:
    record = attrs.evolve(
        RECORD, partition=LIST_COUNT_MAX - 1, epoch=COUNTED_MAX, replicas=[1, 2, BROKER_ID_MAX]
    )
    messages = [
        m.Inventory([record], [TOPIC], [m.ReplicaReport(0, COUNTED_MAX, True)]),
        attrs.evolve(JOIN, cluster="", broker=None, register=None, address="wss://[::1]:7000"),
        m.Follow(0, 1, 1, 1, 1, "0" * 16, [m.EpochStart(0, OFFSET_MAX)], OFFSET_MAX),
    ]
    for message in messages:
        assert decode(encode(message), EVERY_CLASS) == message


def test_stored_records_are_checked_against_the_same_bounds() -> None:
    assert fault_in(RECORD) == fault_in(TOPIC) == ""
    assert fault_in(attrs.evolve(RECORD, epoch=1 << 40)).startswith("epoch: it is 1099511627776")
    assert fault_in(attrs.evolve(RECORD, leader=4)).startswith("its leader 4 is not among")
    assert fault_in(attrs.evolve(TOPIC, partitions=[])).startswith("its partitions are none")
    assert fault_in(attrs.evolve(TOPIC, topic="a/b")).startswith("topic: 'a/b' is no topic name")
    odd: dict[str, Any] = {"epoch": "1"}
    assert fault_in(attrs.evolve(RECORD, **odd)) == "a field is of another type"
    odd = {"options": None}
    assert fault_in(attrs.evolve(TOPIC, **odd)) == "a field is of another type"
