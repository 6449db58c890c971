"""The bytes that registers and brokers store: a change of a message must not change them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import cbor2
import pytest
import trio

from octopi.coordination import journal_entries as e
from octopi.generation_record import Generation
from octopi.identifiers import PartitionId
from octopi.limits import (
    COUNTED_MAX,
    GENERATED_PARTITIONS_MAX,
    GENERATIONS_MAX,
    LIST_COUNT_MAX,
    OFFSET_MAX,
    REPLACED_TOPICS_MAX,
    SEAL_BYTES_MAX,
    TOPIC_NAME_BYTES_MAX,
)
from octopi.model import (
    PartitionRecord,
    RegisterGeneration,
    RelaySetRecord,
    StreamDefinition,
    TopicOptions,
    TopicRecord,
)
from octopi.replication.effects import ReplicaState
from octopi.roles.broker.cluster_metadata import ClusterMetadata
from octopi.roles.broker.identity import BrokerIdentity, store_identity, stored_identity
from octopi.roles.broker.replica_state import forget_intact, stored_state
from octopi.roles.register import register_journal
from octopi.storage import checkpoint
from octopi.stored import (
    options_fields,
    partition_fields,
    register_fields,
    relay_set_fields,
    stream_fields,
    topic_fields,
)
from octopi.wire.messages import BrokerInfo

TOPIC = TopicRecord(
    "orders", "1" * 16, [0, 2], TopicOptions(1, None, 4096, True, 2, 60, None), "seal", ["2" * 16]
)
STREAM = attrs.evolve(TOPIC, stream=StreamDefinition("text/plain", 60, None, "source - 0"))
OF_STREAMS = {"stream": STREAM.stream, "generation": 7, "version": 2}
PARTITION = PartitionRecord(2, 3, 1, 4, 5, [4, 6], [4], [6], 2, "seal")
REGISTER = RegisterGeneration(7, "nonce", "seal")

TOPIC_FIELDS = {
    "topic": "orders",
    "topic_id": "1" * 16,
    "partitions": [0, 2],
    "options": {
        "retention_ms": 1,
        "retention_bytes": None,
        "segment_bytes": 4096,
        "flush_before_ack": True,
        "min_insync": 2,
        "hold_ms": 60,
        "hold_bytes": None,
    },
    "seal": "seal",
    "replaces": ["2" * 16],
}
RELAYED = TopicRecord(
    "prices",
    "3" * 16,
    [2],
    TopicOptions(buffer_bytes=1 << 20, buffer_count=50, buffer_age_ms=60),
    kind="relay",
)
GROWN = attrs.evolve(
    TOPIC,
    generation=7,
    version=3,
    generations=[
        Generation(1, [0], "in_force", [70]),
        Generation(2, [0, 2], "in_force"),
        Generation(3, [0, 2, 5], "sealing"),
    ],
)
RELAYS = RelaySetRecord(2, 3, [4, 5, 6], in_force=True, size=3)
RELAYS_FIELDS = {"partition": 2, "version": 3, "members": [4, 5, 6], "in_force": True, "size": 3}
PINNED = attrs.evolve(RELAYS, pinned=True)
PARTITION_FIELDS = {
    "partition": 2,
    "epoch": 3,
    "version": 1,
    "leader": 4,
    "leader_incarnation": 5,
    "replicas": [4, 6],
    "in_sync": [4],
    "lost": [6],
    "recovered_epoch": 2,
    "seal": "seal",
}
REGISTER_FIELDS = {"generation": 7, "nonce": "nonce", "seal": "seal"}

ENTRIES: list[tuple[e.Entry, dict[str, Any]]] = [
    (
        e.ClusterFormed("c", 3, "s"),
        {"cluster": "c", "partition_count": 3, "secret": "s", "entry": "ClusterFormed"},
    ),
    (e.RegisterStarted(REGISTER), {"life": REGISTER_FIELDS, "entry": "RegisterStarted"}),
    (
        e.BrokerRegistered(4, 5, "n", "ws://a:1", True),
        {
            "broker": 4,
            "incarnation": 5,
            "nonce": "n",
            "address": "ws://a:1",
            "replaced": True,
            "entry": "BrokerRegistered",
        },
    ),
    (
        e.BrokerRegistered(4, 5, "n", "ws://a:1", host="rack-1"),
        {
            "broker": 4,
            "incarnation": 5,
            "nonce": "n",
            "address": "ws://a:1",
            "replaced": False,
            "host": "rack-1",
            "entry": "BrokerRegistered",
        },
    ),
    (e.BrokerRemoved(4), {"broker": 4, "entry": "BrokerRemoved"}),
    (e.EpochAnnounced(2, 3), {"partition": 2, "epoch": 3, "entry": "EpochAnnounced"}),
    (e.PartitionDecided(PARTITION), {"record": PARTITION_FIELDS, "entry": "PartitionDecided"}),
    (e.TopicCreated(TOPIC, "me"), {"record": TOPIC_FIELDS, "owner": "me", "entry": "TopicCreated"}),
    (
        e.TopicAltered(attrs.evolve(TOPIC, generation=7, version=2)),
        {
            "record": {**TOPIC_FIELDS, "generation": 7, "version": 2},
            "entry": "TopicAltered",
        },
    ),
    (
        e.TopicAltered(GROWN),
        {
            "record": {
                **TOPIC_FIELDS,
                "generation": 7,
                "version": 3,
                "generations": [
                    {"number": 1, "partitions": [0], "state": "in_force", "sealed": [70]},
                    {"number": 2, "partitions": [0, 2], "state": "in_force", "sealed": []},
                    {"number": 3, "partitions": [0, 2, 5], "state": "sealing", "sealed": []},
                ],
            },
            "entry": "TopicAltered",
        },
    ),
    (
        e.TopicDeleted("t", "1" * 16, [4]),
        {"topic": "t", "topic_id": "1" * 16, "brokers": [4], "entry": "TopicDeleted"},
    ),
    (
        e.OlderTopicFound("t", "1" * 16, 4),
        {"topic": "t", "topic_id": "1" * 16, "broker": 4, "entry": "OlderTopicFound"},
    ),
    (
        e.TopicCreated(RELAYED),
        {
            "record": {
                "topic": "prices",
                "topic_id": "3" * 16,
                "partitions": [2],
                "options": options_fields(TopicOptions())
                | {"buffer_bytes": 1 << 20, "buffer_count": 50, "buffer_age_ms": 60},
                "seal": "",
                "replaces": [],
                "kind": "relay",
            },
            "owner": "",
            "entry": "TopicCreated",
        },
    ),
    (e.RelaySetDecided(RELAYS), {"record": RELAYS_FIELDS, "entry": "RelaySetDecided"}),
    (
        e.RelaySetDecided(PINNED),
        {"record": RELAYS_FIELDS | {"pinned": True}, "entry": "RelaySetDecided"},
    ),
    (
        e.TopicRemoved("1" * 16, 4),
        {"topic_id": "1" * 16, "broker": 4, "entry": "TopicRemoved"},
    ),
    (e.HandOverAnnounced("a1"), {"attempt": "a1", "entry": "HandOverAnnounced"}),
    (e.HandedOver(b"record"), {"record": b"record", "entry": "HandedOver"}),
]


class OneFile:
    """A disk with one file."""

    def __init__(self) -> None:
        self.data = b""

    async def replace_file(self, path: str, data: bytes) -> None:
        """See `octopi.environment.Disk`."""
        self.data = data

    def read_file(self, path: str) -> bytes:
        """See `octopi.environment.Disk`."""
        return self.data


def on(disk: OneFile) -> Any:  # noqa: ANN401
    """An environment with *disk*."""
    return SimpleNamespace(disk=disk, trace=None)


def payload(disk: OneFile) -> bytes:
    """The content of the file behind the header of a checkpoint."""
    return disk.data[16:]


@pytest.mark.parametrize(("entry", "fields"), ENTRIES, ids=lambda one: type(one).__name__)
def test_the_bytes_of_a_journal_entry_stay_the_same(entry: e.Entry, fields: dict[str, Any]) -> None:
    assert register_journal.encode(entry) == cbor2.dumps(fields)
    assert register_journal.decode(cbor2.dumps(fields)) == entry


def test_the_bytes_of_every_kind_of_journal_entry_are_tested() -> None:
    assert {type(entry) for entry, _ in ENTRIES} == set(e.Entry.__args__)


def test_an_entry_without_newer_fields_is_read_with_their_defaults() -> None:
    old = {name: PARTITION_FIELDS[name] for name in list(PARTITION_FIELDS)[:7]}
    read = register_journal.decode(cbor2.dumps({"record": old, "entry": "PartitionDecided"}))
    assert read == e.PartitionDecided(attrs.evolve(PARTITION, lost=[], recovered_epoch=0, seal=""))


def test_the_bytes_of_the_state_of_a_replica_stay_the_same() -> None:
    fields = {
        "promised": 3,
        "sync_flag": True,
        "intact": False,
        "whole": False,
        "log_epoch": 2,
        "ends": True,
        "record": PARTITION_FIELDS,
    }
    disk = OneFile()
    trio.run(checkpoint.store, on(disk).disk, "x", {**fields, "intact": True, "whole": True})
    assert stored_state(on(disk), "x") == ReplicaState(3, True, True, True, 2, True, PARTITION)
    trio.run(forget_intact, on(disk), "x")
    assert payload(disk) == cbor2.dumps(fields)


def test_the_bytes_of_the_state_of_a_new_replica_stay_the_same() -> None:
    disk = OneFile()
    trio.run(checkpoint.store, on(disk).disk, "x", {})
    trio.run(forget_intact, on(disk), "x")
    assert cbor2.loads(payload(disk))["record"] is None
    assert stored_state(on(disk), "x") == ReplicaState(intact=False, whole=False)


@pytest.mark.parametrize(("register", "fields"), [(REGISTER, REGISTER_FIELDS), (None, None)])
def test_the_bytes_of_the_identity_of_a_broker_stay_the_same(
    register: RegisterGeneration | None, fields: object
) -> None:
    identity = BrokerIdentity("c", 4, 5, "n", "cache", ["a"], register, "credential")
    disk = OneFile()
    trio.run(store_identity, on(disk), "x", identity)
    assert payload(disk) == cbor2.dumps(
        {
            "cluster": "c",
            "broker": 4,
            "incarnation": 5,
            "nonce": "n",
            "page_cache": "cache",
            "ancestors": ["a"],
            "register": fields,
            "credential": "credential",
        }
    )
    assert stored_identity(on(disk), "x") == identity


def test_the_bytes_of_the_partition_table_of_a_broker_stay_the_same() -> None:
    disk = OneFile()
    table = ClusterMetadata(on(disk), "x")
    trio.run(table.remember, [PARTITION], [BrokerInfo(4, "ws://a:1", 5, True, 1)])
    assert payload(disk) == cbor2.dumps(
        {"partitions": [PARTITION_FIELDS], "addresses": {4: "ws://a:1"}}
    )
    again = ClusterMetadata(on(disk), "x")
    again.load()
    assert again.partitions == {2: PARTITION}


@pytest.mark.parametrize(
    ("stored", "kept"),
    [
        (
            topic_fields(attrs.evolve(RELAYED, **OF_STREAMS, generations=GROWN.generations)),
            attrs.evolve(RELAYED, **OF_STREAMS, generations=GROWN.generations),
        ),
        (stream_fields(StreamDefinition()), StreamDefinition()),
        (options_fields(RELAYED.options), RELAYED.options),
        (relay_set_fields(PINNED), PINNED),
        (partition_fields(PARTITION), PARTITION),
        (register_fields(REGISTER), REGISTER),
    ],
)
def test_each_field_of_the_model_is_stored(stored: dict[str, Any], kept: Any) -> None:  # noqa: ANN401
    """A field that is not stored on purpose is left out here, and says why in its class."""
    assert stored == attrs.asdict(kept)
    assert list(stored) == [field.name for field in attrs.fields(type(kept))]


def test_a_topic_that_is_a_stream_is_stored_with_what_it_is() -> None:
    stream = {
        "content_type": "text/plain",
        "ttl_s": 60,
        "expires_at_ms": None,
        "forked_from": "source - 0",
    }
    assert cbor2.dumps(topic_fields(STREAM)) == cbor2.dumps(TOPIC_FIELDS | {"stream": stream})
    entry = e.TopicCreated(STREAM, "me")
    assert register_journal.decode(register_journal.encode(entry)) == entry


def test_the_bytes_of_the_topic_in_a_log_checkpoint_stay_the_same() -> None:
    assert cbor2.dumps(topic_fields(TOPIC)) == cbor2.dumps(TOPIC_FIELDS)


def test_the_record_of_a_topic_with_most_generations_fits_into_an_entry_of_the_journal() -> None:
    numbers = range(LIST_COUNT_MAX - 1, 0, -1)
    count = GENERATED_PARTITIONS_MAX - GENERATIONS_MAX + 1
    wide = [PartitionId(one) for one in numbers[:count]]
    widest = Generation(1, wide, "in_force", [OFFSET_MAX] * count)
    others = [
        Generation(number, [PartitionId(numbers[number])], "in_force", [OFFSET_MAX])
        for number in range(2, GENERATIONS_MAX + 1)
    ]
    others[-1] = attrs.evolve(others[-1], sealed=[])
    topic = TopicRecord(
        "x" * TOPIC_NAME_BYTES_MAX,
        "f" * 16,
        others[-1].partitions,
        TopicOptions(2**63 - 1, 2**63 - 1, 2**63 - 1, True, 2**31, 2**63 - 1, 2**63 - 1),
        "s" * SEAL_BYTES_MAX,
        ["f" * 16] * REPLACED_TOPICS_MAX,
        generation=COUNTED_MAX,
        version=COUNTED_MAX,
        generations=[widest, *others],
    )
    assert not topic.fault()
    entry = register_journal.encode(e.TopicCreated(topic, "o" * TOPIC_NAME_BYTES_MAX))
    assert len(entry) < register_journal.REGISTER_ENTRIES.entry_bytes_max
