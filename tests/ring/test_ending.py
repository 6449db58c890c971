"""How far brokers are in handing their cluster over to registers: the stages, and what a closed
partition takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import cbor2
import pytest

from octopi.agreement.proposals import NoChange
from octopi.agreement.values import first_value
from octopi.coordination.agreed_partition import AgreedPartition, decode_partition, encode_partition
from octopi.coordination.partition_changes import (
    PartitionChange,
    alter_in_sync,
    announce,
    announce_after,
    check_in,
    close,
    host,
    of_partition,
    reopen,
    rest,
)
from octopi.identifiers import BrokerId, ClusterId, DirectoryId, Epoch, Incarnation, RingPoint
from octopi.ring.cluster_record import (
    ClusterRecord,
    PartitionKind,
    decode_cluster,
    encode_cluster,
    formed,
)
from octopi.ring.ending import Ending, EndingStage
from octopi.wire.agreement import AcceptorId
from octopi.wire.messages import AlterInSync
from octopi.wire.ring import RingNode
from tests.coordination.test_agreed_partition import AGREED, RECORD

ALL = (BrokerId(1), BrokerId(2), BrokerId(3))
WHOLE = attrs.evolve(AGREED, record=attrs.evolve(RECORD, in_sync=list(ALL)))
"""A partition all of whose replicas are in sync, in epoch 4."""
RESTING = attrs.evolve(WHOLE, ending=1)
CLOSED = attrs.evolve(RESTING, is_closed=True)
OTHER = AlterInSync(RECORD.partition, Epoch(4), ALL[0], Incarnation(7), 2, [ALL[0], ALL[1]], None)


def record() -> ClusterRecord:
    nodes = tuple(
        RingNode(one, DirectoryId(f"d{one}"), RingPoint(one), "", f"ws://b{one}:1", Incarnation(1))
        for one in ALL
    )
    return formed(ClusterId("0123456789abcdef"), 4, 3, nodes)


def ordered() -> ClusterRecord:
    return record().with_ending(["ws://r:7000"], ALL)


def made(change: PartitionChange, before: AgreedPartition) -> AgreedPartition | str:
    """What becomes of a partition, or why nothing does."""
    acceptors = [AcceptorId(one, DirectoryId(f"d{one}")) for one in ALL]
    value = of_partition(change)(first_value(acceptors, encode_partition(before)))
    return value.why if isinstance(value, NoChange) else decode_partition(value.content)


# --- the stages --------------------------------------------------------------------------------


def test_registers_decide_when_every_broker_has_stated_both_stages_and_not_before() -> None:
    """All orders of statements, also late and repeated ones, of three brokers."""
    found: set[EndingStage] = set()

    def search(
        known: ClusterRecord, said: frozenset[tuple[BrokerId, int, EndingStage]], depth: int
    ) -> None:
        ending = known.ending
        assert ending is not None
        found.add(ending.stage)
        if ending.is_over:
            for stage in (EndingStage.RESTING, EndingStage.CLOSING):
                assert {(one, ending.attempt, stage) for one in ALL} <= said
            assert known.without_ending(ending.attempt) == known
            assert known.with_ending(["ws://s:7000"], ALL) == known
            return
        if depth == 0:
            return
        for attempt in {1, ending.attempt}:
            for stage in (EndingStage.RESTING, EndingStage.CLOSING):
                for broker in ALL:
                    after = known.with_statement(broker, attempt, stage)
                    if after != known:
                        search(after, said | {(broker, attempt, stage)}, depth - 1)
        search(known.without_ending(ending.attempt), said, 0)
        if ending.attempt == 1:
            again = known.without_ending(1).with_ending(["ws://r:7000"], ALL)
            search(again, said, depth - 1)

    search(ordered(), frozenset(), 7)
    assert found == set(EndingStage)


def test_the_record_is_read_as_it_was_written_and_faults_are_found() -> None:
    known = ordered().with_statement(ALL[1], 1, EndingStage.RESTING)
    assert decode_cluster(encode_cluster(known)) == known
    assert decode_cluster(encode_cluster(record())).ending is None
    assert known.ending is not None
    assert known.ending.fields == {
        "attempt": 1,
        "registers": ["ws://r:7000"],
        "brokers": [1, 2, 3],
        "stage": "resting",
        "stated": [2],
    }
    for wrong in (
        {"attempt": 0},
        {"registers": ()},
        {"registers": ("http://r",)},
        {"brokers": ()},
        {"brokers": (ALL[1], ALL[0])},
        {"stated": ALL},
        {"stated": (BrokerId(9),)},
    ):
        faulty = attrs.evolve(known, ending=attrs.evolve(known.ending, **wrong))
        assert faulty.fault(), wrong
        with pytest.raises(ValueError, match=r"register|brokers|counted"):
            decode_cluster(encode_cluster(faulty))
    registers: Any = (7,)
    stranger = attrs.evolve(known, ending=attrs.evolve(known.ending, registers=registers))
    with pytest.raises(ValueError, match="no record of a cluster"):
        decode_cluster(encode_cluster(stranger))


def test_while_it_is_under_way_nothing_else_in_the_record_is_to_change() -> None:
    known = ordered()
    assert known.is_frozen
    assert not record().is_frozen
    assert not known.without_ending(1).is_frozen
    assert known.without_ending(1).partition_count(PartitionKind.LOG) == 4
    again = known.without_ending(1).with_ending(["ws://r:7000"], ALL).ending
    assert again == Ending(2, ("ws://r:7000",), ALL)


# --- a partition -------------------------------------------------------------------------------


def test_a_partition_rests_and_is_closed_and_opened_again() -> None:
    assert made(rest(1, Epoch(4)), WHOLE) == RESTING
    assert made(close(1, ALL), RESTING) == CLOSED
    opened = made(reopen(1), CLOSED)
    assert opened == RESTING
    assert made(rest(2, Epoch(4)), RESTING) == attrs.evolve(RESTING, ending=2)


def test_only_the_leader_of_the_newest_epoch_has_a_partition_rest() -> None:
    assert "the epoch is 4, and 4 is announced" in str(made(rest(1, Epoch(3)), WHOLE))
    announced = attrs.evolve(WHOLE, announced=Epoch(5))
    assert "and 5 is announced" in str(made(rest(1, Epoch(4)), announced))
    assert made(rest(1, Epoch(4)), RESTING) == "it rests in attempt 1"


def test_a_partition_is_closed_only_when_all_replicas_are_in_sync_on_awaited_brokers() -> None:
    behind = attrs.evolve(AGREED, ending=1)
    assert "not all replicas are in sync" in str(made(close(1, ALL), behind))
    announced = attrs.evolve(RESTING, announced=Epoch(5))
    assert "an election is held" in str(made(close(1, ALL), announced))
    assert "not awaited" in str(made(close(1, ALL[:2]), RESTING))
    assert "does not rest" in str(made(close(2, ALL), RESTING))
    assert "does not rest" in str(made(close(1, ALL), WHOLE))


@pytest.mark.parametrize(
    "change",
    [
        alter_in_sync(OTHER),
        announce,
        announce_after(Epoch(4), Epoch(4)),
        host(2 + AGREED.min_insync),
        rest(2, Epoch(4)),
        lambda agreed: attrs.evolve(agreed, record=attrs.evolve(agreed.record, version=9)),
        lambda agreed: attrs.evolve(agreed, announced=Epoch(9)),
        lambda agreed: attrs.evolve(agreed, ending=2, is_closed=False),
    ],
)
def test_a_closed_partition_takes_no_decision(
    change: Callable[[AgreedPartition], AgreedPartition],
) -> None:
    assert made(change, RESTING) != RESTING
    assert made(change, CLOSED) == "the cluster is being handed over to registers"


def test_in_a_closed_partition_a_broker_checks_in_that_has_all_it_had() -> None:
    known = CLOSED.incarnations[0]
    again = attrs.evolve(known, incarnation=Incarnation(known.incarnation + 1), nonce="next")
    registered = made(check_in(again, [known.nonce], Epoch(4), intact=True), CLOSED)
    assert registered == CLOSED.registered(again)
    for late in (
        check_in(again, [known.nonce], Epoch(4), intact=False),
        check_in(again, [known.nonce], Epoch(5), intact=True),
    ):
        assert made(late, CLOSED) == "the cluster is being handed over to registers"


def test_a_partition_of_a_later_attempt_is_not_opened_by_who_gives_up_an_older_one() -> None:
    later = attrs.evolve(CLOSED, ending=2)
    assert "not closed in such an attempt" in str(made(reopen(1), later))
    fields = cbor2.loads(encode_partition(later))
    assert (fields.pop("ending"), fields.pop("is_closed")) == (2, True)
    assert fields == cbor2.loads(encode_partition(WHOLE))
    with pytest.raises(ValueError, match="closed in no attempt"):
        decode_partition(_closed_in_none())


def _closed_in_none() -> bytes:
    fields = cbor2.loads(encode_partition(CLOSED))
    return cbor2.dumps({**fields, "ending": 0})
