"""What brokers agree on about the whole cluster: its bytes, its growth, and first acceptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import cbor2
import pytest

from octopi.identifiers import BrokerId, ClusterId, DirectoryId, Incarnation, PartitionId, RingPoint
from octopi.limits import (
    GONE_BROKERS_MAX,
    GROWTH_MEMBERS_MAX,
    GROWTH_ROWS_MAX,
    HOMES_MAX,
)
from octopi.ring.cluster_record import (
    ClusterRecord,
    Growth,
    PartitionKind,
    decode_cluster,
    encode_cluster,
    first_members,
    formed,
)
from octopi.ring.founders import (
    founder_id,
    founder_list,
    founder_point,
    founders_fault,
    is_founder,
)
from octopi.ring.points import RING_SIZE
from octopi.wire.ring import RingNode
from tests.ring.first_acceptors import FIRST_ACCEPTORS
from tests.ring.nodes import node

LOG, RELAY = PartitionKind.LOG, PartitionKind.RELAY
CLUSTER = ClusterId("0123456789abcdef")
NODES = tuple(node(number, point=number * (RING_SIZE // 8)) for number in range(1, 8))
FORMED = formed(CLUSTER, 4, 2, NODES[:3])
RECORD = FORMED.grown(RELAY, 2, 1, NODES[:1]).grown(LOG, 3, 3, NODES)


def removed(record: ClusterRecord, *brokers: int) -> ClusterRecord:
    """The record after *brokers* have left."""
    for one in map(BrokerId, brokers):
        record = record.with_leaving(one).without(one)
    return record


FIELDS: dict[str, Any] = {
    "cluster": "0123456789abcdef",
    "homes": 1,
    "growths": [
        {
            "kind": "log",
            "first": 0,
            "count": 1,
            "replicas": 2,
            "members": [[7, "07", 7, "rack", "ws://b7:9101", 1]],
        }
    ],
    "ids": 7,
    "drained": [2, 5],
    "leaving": [4],
    "gone": [3, 9],
}


def test_the_bytes_of_a_cluster_record_stay_the_same() -> None:
    record = removed(formed(CLUSTER, 1, 2, (node(7, host="rack"),)), 9, 3, 9)
    record = record.with_leaving(BrokerId(4)).with_leaving(BrokerId(3))
    for one in (5, 2, 3, 4, 5):
        record = record.with_drained(BrokerId(one))
    record = record.undrained(BrokerId(4)).undrained(BrokerId(6))
    assert encode_cluster(record) == cbor2.dumps(FIELDS)
    assert decode_cluster(cbor2.dumps(FIELDS)) == record
    assert decode_cluster(encode_cluster(RECORD)) == RECORD


def test_a_growth_names_brokers_all_around_the_ring_that_are_to_lead() -> None:
    assert first_members(reversed(NODES), ()) == NODES
    assert first_members(NODES, {BrokerId(1), BrokerId(7)}) == NODES[1:-1]
    assert first_members(NODES[:1], {BrokerId(1)}) == NODES[:1]
    many = [node(number) for number in range(1, 3 * GROWTH_MEMBERS_MAX + 1)]
    named = first_members(many, ())
    assert [one.broker for one in named] == list(range(1, len(many), 3))


def test_what_is_no_cluster_record_is_not_read() -> None:
    growth = FIELDS["growths"][0]
    [member] = growth["members"]
    wrong: list[object] = [[], {**FIELDS, "further": 1}, {**FIELDS, "gone": ["3"]}]
    wrong += [{key: FIELDS[key] for key in FIELDS if key != left} for left in FIELDS]
    wrong += [{**FIELDS, key: None} for key in FIELDS]
    growths: list[object] = [None, {**growth, "further": 1}, {**growth, "kind": "other"}]
    growths += [{key: growth[key] for key in growth if key != left} for left in growth]
    growths += [{**growth, "members": [member[:cut]]} for cut in range(6)]
    growths += [{**growth, "members": [[None] * 6]}]
    wrong += [{**FIELDS, "growths": [one]} for one in growths]
    for one in wrong:
        with pytest.raises(ValueError, match="it is no record"):
            decode_cluster(cbor2.dumps(one))
    data = cbor2.dumps(FIELDS)
    for cut in range(len(data)):
        with pytest.raises(ValueError, match="no CBOR"):
            decode_cluster(data[:cut])


def changed(**fields: object) -> ClusterRecord:
    """The record with another growth."""
    growth = attrs.evolve(FORMED.growths[0], **fields)  # type: ignore[arg-type]
    return attrs.evolve(FORMED, growths=(growth,))


def of_node(**fields: object) -> ClusterRecord:
    """The record with another founder."""
    return changed(members=(attrs.evolve(NODES[0], **fields),))  # type: ignore[arg-type]


MANY = tuple(node(number) for number in range(1, GROWTH_MEMBERS_MAX + 2))


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (attrs.evolve(FORMED, cluster=ClusterId("x")), "id of the cluster"),
        (attrs.evolve(FORMED, home_count=5), "homes"),
        (attrs.evolve(FORMED, home_count=0), "homes"),
        (attrs.evolve(FORMED, gone=(BrokerId(2), BrokerId(1))), "in the order"),
        (attrs.evolve(FORMED, drained=(BrokerId(2), BrokerId(2))), "are drained"),
        (attrs.evolve(FORMED, leaving=(BrokerId(2), BrokerId(1))), "not gone"),
        (attrs.evolve(FORMED, leaving=(BrokerId(2),), gone=(BrokerId(2),)), "not gone"),
        (
            attrs.evolve(FORMED, gone=tuple(map(BrokerId, range(1, GONE_BROKERS_MAX + 2)))),
            "at most 4096 brokers",
        ),
        (changed(members=()), "1 to 64 brokers"),
        (changed(members=MANY), "1 to 64 brokers"),
        (changed(members=(NODES[0], NODES[0])), "twice"),
        (changed(first=PartitionId(-1)), "at least one"),
        (changed(first=PartitionId(1)), "don't follow"),
        (changed(count=0), "at least one"),
        (changed(replicas=0), "at least one"),
        (of_node(address="b1"), "the address"),
        (of_node(broker=BrokerId(1_000_001)), "up to 1000000"),
        (attrs.evolve(FORMED, ids=2), "gives ids up to"),
        (attrs.evolve(FORMED, ids=1_000_001), "gives ids up to"),
        (of_node(point=RingPoint(-1)), "52 bits"),
        (of_node(incarnation=Incarnation(0)), "incarnation"),
        (of_node(host="x" * 254), "host label"),
    ],
)
def test_a_record_that_no_cluster_has_says_why_and_is_not_read(
    record: ClusterRecord, why: str
) -> None:
    assert why in record.fault()
    with pytest.raises(ValueError, match=why):
        decode_cluster(encode_cluster(record))


def test_a_cluster_grows_so_often_and_no_more() -> None:
    record = FORMED
    while len(record.growths) < GROWTH_ROWS_MAX:
        record = record.grown(LOG, 1, 1, NODES[:1])
    assert not record.fault()
    assert "64 times" in record.grown(LOG, 1, 1, NODES[:1]).fault()
    large = FORMED
    for _ in range(60):
        large = large.grown(LOG, 1, 1, MANY[:-1])
    assert "65536 bytes" in large.fault()


def test_partitions_of_each_kind_have_numbers_of_their_own() -> None:
    assert not RECORD.fault()
    assert (RECORD.partition_count(LOG), RECORD.partition_count(RELAY)) == (7, 2)
    assert RECORD.growth_of(LOG, PartitionId(3)) == RECORD.growths[0]
    assert RECORD.growth_of(LOG, PartitionId(4)) == RECORD.growths[2]
    assert RECORD.growth_of(RELAY, PartitionId(1)) == RECORD.growths[1]
    for kind, number in ((LOG, 7), (RELAY, 2), (LOG, -1)):
        assert RECORD.growth_of(kind, PartitionId(number)) is None
        assert RECORD.first_acceptors(kind, PartitionId(number)) is None
        assert RECORD.first_replicas(kind, PartitionId(number)) is None


def test_homes_are_as_many_as_partitions_at_first_and_never_more() -> None:
    assert (FORMED.home_count, RECORD.home_count) == (4, 4)
    assert formed(CLUSTER, 5000, 1, NODES).home_count == HOMES_MAX


def test_first_acceptors_are_those_of_the_growth_whatever_comes_later() -> None:
    numbers = [PartitionId(number) for number in range(4)]
    first = [FORMED.first_acceptors(LOG, number) for number in numbers]
    assert all(one is not None and len(one) == 3 for one in first)
    assert [removed(RECORD, 1).first_acceptors(LOG, number) for number in numbers] == first
    assert len(RECORD.first_acceptors(LOG, PartitionId(5)) or ()) == 5
    replicas = RECORD.first_replicas(LOG, PartitionId(5))
    acceptors = RECORD.first_acceptors(LOG, PartitionId(5))
    assert replicas is not None
    assert acceptors is not None
    assert replicas == tuple(one.broker for one in acceptors[:3])


def test_first_acceptors_are_on_different_machines_if_they_can_be() -> None:
    hosts = ("a", "a", "b", "c")
    nodes: tuple[RingNode, ...] = tuple(
        attrs.evolve(one, host=host) for one, host in zip(NODES, hosts, strict=False)
    )
    growth = Growth(LOG, PartitionId(0), 9, 2, nodes)
    record = ClusterRecord(CLUSTER, 1, (growth,))
    for number in range(9):
        chosen = record.first_acceptors(LOG, PartitionId(number))
        assert chosen is not None
        assert len({hosts[one.broker - 1] for one in chosen}) == 3


@pytest.mark.parametrize("scenario", FIRST_ACCEPTORS, ids=lambda one: one.__name__)
def test_one_group_decides_about_a_partition(scenario: Callable[[], None]) -> None:
    scenario()


def test_a_broker_with_an_empty_disk_is_not_one_of_the_first_acceptors() -> None:
    wiped = attrs.evolve(NODES[0], directory=DirectoryId("x"))
    for number in range(4):
        acceptors = FORMED.first_acceptors(LOG, PartitionId(number))
        assert acceptors is not None
        assert wiped.identity not in acceptors


# --- founders ----------------------------------------------------------------------------


def test_a_broker_whose_address_is_in_its_list_is_a_founder() -> None:
    addresses = ["ws://a:1", "ws://B:2/"]
    assert is_founder("ws://b:2", addresses)
    assert not is_founder("ws://c:1", addresses)
    assert founder_list([*addresses, "ws://A:1/"]) == ("ws://a:1", "ws://b:2")


def test_founders_have_ids_and_equal_arcs_by_their_places_in_the_list() -> None:
    addresses = ["ws://b:2", "ws://a:1", "ws://c:3", "ws://d:4"]
    assert [founder_id(one, addresses) for one in addresses] == [2, 1, 3, 4]
    points = [founder_point(BrokerId(number), 4) for number in (1, 2, 3, 4)]
    assert points == [0, RING_SIZE // 4, RING_SIZE // 2, 3 * RING_SIZE // 4]


def test_an_id_is_given_once() -> None:
    assert (FORMED.ids, FORMED.with_next_id().ids, FORMED.with_next_id().with_next_id().ids) == (
        3,
        4,
        5,
    )
    assert decode_cluster(encode_cluster(FORMED.with_next_id())).ids == 4


def test_founders_with_the_same_list_in_another_order_form_a_cluster() -> None:
    assert not founders_fault(["ws://a:1", "ws://b:2"], "ws://b:2", ["ws://B:2/", "ws://a:1"])


def test_founders_with_different_lists_refuse_each_other_in_words() -> None:
    why = founders_fault(["ws://a:1", "ws://b:2"], "ws://b:2", ["ws://b:2", "ws://c:3"])
    assert "(ws://c:3 is in its list only, ws://a:1 is not in its list)" in why


def test_who_is_no_founder_agrees_with_every_list() -> None:
    assert not founders_fault([], "ws://a:1", ["ws://a:1"])
    assert not founders_fault(["ws://a:1"], "ws://b:1", [])
