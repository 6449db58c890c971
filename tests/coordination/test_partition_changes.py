"""The changes of a partition that acceptors agree on: what each needs, and what it makes."""

from __future__ import annotations

import attrs
import pytest

from octopi.agreement.proposals import NoChange
from octopi.agreement.values import first_value
from octopi.coordination.agreed_partition import (
    AgreedPartition,
    RegisteredIncarnation,
    decode_partition,
    encode_partition,
)
from octopi.coordination.election import Election
from octopi.coordination.partition_changes import (
    InSyncVerdict,
    alter_in_sync,
    announce,
    announce_after,
    check_in,
    decide,
    host,
    judge_in_sync,
    of_partition,
    recover,
)
from octopi.identifiers import BrokerId, DirectoryId, Epoch, Incarnation
from octopi.model import PartitionRecord
from octopi.wire.agreement import AcceptorId
from octopi.wire.messages import AcceptEpoch, AlterInSync
from tests.coordination.test_agreed_partition import AGREED, RECORD

JOIN = AlterInSync(3, 4, 1, 7, 2, [1, 2, 3], 5)
ANNOUNCED = attrs.evolve(AGREED, announced=Epoch(5))
LIVE = {BrokerId(1), BrokerId(2), BrokerId(3)}


def back(number: int, incarnation: int) -> RegisteredIncarnation:
    return RegisteredIncarnation(BrokerId(number), Incarnation(incarnation), f"n{incarnation}")


def changed(made: AgreedPartition | NoChange) -> AgreedPartition:
    assert isinstance(made, AgreedPartition), made
    return made


def election(epoch: int, *accepts: tuple[int, int]) -> Election:
    """*accepts*: broker and incarnation of those that accepted."""
    one = Election(Epoch(epoch))
    for broker, incarnation in accepts:
        one.accept(AcceptEpoch(3, epoch, broker, incarnation, 4, 4, []))
    return one


def test_a_leader_s_request_is_checked_against_the_registered_incarnations() -> None:
    made = changed(alter_in_sync(JOIN)(AGREED))
    assert made.record == attrs.evolve(RECORD, version=3, in_sync=[1, 2, 3])
    restarted = AGREED.registered(back(3, 6))
    assert alter_in_sync(JOIN)(restarted) == NoChange(
        "broker 3 was restarted: its log may be shorter now"
    )
    assert isinstance(alter_in_sync(JOIN)(made), NoChange), "it is made once"


@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        (RECORD, InSyncVerdict.REFUSED),
        (attrs.evolve(RECORD, version=3), InSyncVerdict.DECIDED),
        (attrs.evolve(RECORD, version=1), InSyncVerdict.UNKNOWN),
        (attrs.evolve(RECORD, epoch=5, version=0), InSyncVerdict.UNKNOWN),
        (attrs.evolve(RECORD, epoch=5, version=2), InSyncVerdict.UNKNOWN),
    ],
)
def test_a_request_is_refused_only_by_a_record_of_its_own_epoch_and_version(
    record: PartitionRecord, verdict: InSyncVerdict
) -> None:
    assert judge_in_sync(JOIN, record) == verdict


def test_a_record_of_a_later_epoch_does_not_tell_whether_a_request_was_made() -> None:
    """The same record follows whether the leader's request was made before the election or not, so
    a leader that believed it refused would commit without the next leader."""
    decision = decide(election(5, (1, 7)), LIVE, {})
    without = changed(decision(ANNOUNCED)).record
    made = changed(alter_in_sync(JOIN)(ANNOUNCED))
    assert changed(decision(made)).record.version == without.version == 0
    assert judge_in_sync(JOIN, without) == InSyncVerdict.UNKNOWN


def test_a_restarted_broker_is_registered_and_leaves_the_in_sync_set_if_its_log_is_not_intact() -> (
    None
):
    intact = changed(check_in(back(1, 8), ["n7"], Epoch(0), intact=True)(AGREED))
    assert intact == AGREED.registered(back(1, 8))
    lost = changed(check_in(back(1, 8), ["n7"], Epoch(0), intact=False)(AGREED))
    assert (lost.record.version, lost.record.in_sync, lost.record.lost) == (3, [2], [1])
    behind = changed(check_in(back(3, 6), ["n5"], Epoch(0), intact=False)(AGREED))
    assert behind.record == RECORD, "it was not in sync"
    new = changed(check_in(back(2, 1), [], Epoch(0), intact=True)(AGREED))
    assert new.incarnation(BrokerId(2)) == back(2, 1)


def test_the_epoch_that_a_broker_promised_is_not_announced_again() -> None:
    made = changed(check_in(back(1, 8), ["n7"], Epoch(9), intact=True)(AGREED))
    assert made.announced == 9
    assert changed(announce(made)).announced == 10


@pytest.mark.parametrize(
    ("incarnation", "ancestors"), [(6, ["n7"]), (7, ["n7"]), (8, []), (8, ["n6"])]
)
def test_an_older_copy_of_a_data_directory_is_not_registered(
    incarnation: int, ancestors: list[str]
) -> None:
    other = attrs.evolve(back(1, incarnation), nonce="other")
    assert check_in(other, ancestors, Epoch(0), intact=True)(AGREED) == NoChange(
        "incarnation 7 is registered, which is no earlier one"
    )
    assert check_in(back(1, 7), [], Epoch(0), intact=True)(AGREED) == NoChange("it is registered")


def test_an_election_that_others_have_begun_is_not_begun_again() -> None:
    begins = announce_after(AGREED.record.epoch, AGREED.announced)
    begun = changed(begins(AGREED))
    assert begun == changed(announce(AGREED))
    assert isinstance(begins(begun), NoChange)


def test_an_election_that_was_decided_is_not_followed_by_another_one() -> None:
    begins = announce_after(ANNOUNCED.record.epoch, ANNOUNCED.announced)
    assert isinstance(begins(ANNOUNCED), AgreedPartition)
    decided = attrs.evolve(ANNOUNCED, record=attrs.evolve(RECORD, epoch=Epoch(5)))
    assert isinstance(begins(decided), NoChange)


def test_only_the_announced_epoch_is_decided_and_only_once() -> None:
    assert isinstance(decide(election(4, (1, 7)), LIVE, {})(AGREED), NoChange)
    assert isinstance(decide(election(4, (1, 7)), LIVE, {})(ANNOUNCED), NoChange)
    assert isinstance(decide(election(6, (1, 7)), LIVE, {})(ANNOUNCED), NoChange)
    made = changed(decide(election(5, (1, 7)), LIVE, {})(ANNOUNCED))
    assert (made.record.epoch, made.record.leader, made.record.version) == (5, 1, 0)
    assert isinstance(decide(election(5, (1, 7)), LIVE, {})(made), NoChange)


def test_only_registered_incarnations_of_in_sync_replicas_elect() -> None:
    for accepts in ([], [(1, 6)], [(3, 5)], [(2, 1)]):
        assert decide(election(5, *accepts), LIVE, {})(ANNOUNCED) == NoChange(
            "no in-sync replica has accepted the epoch"
        )
    both = ANNOUNCED.registered(back(2, 1))
    made = changed(decide(election(5, (1, 7), (2, 1)), LIVE, {BrokerId(1): 3})(both))
    assert (made.record.leader, made.record.in_sync) == (2, [1, 2])


def test_acceptances_that_come_after_the_question_do_not_count() -> None:
    """A change depends on nothing but the value that was read."""
    one = election(5)
    change = decide(one, LIVE, {})
    one.accept(AcceptEpoch(3, 5, 1, 7, 4, 4, []))
    assert isinstance(change(ANNOUNCED), NoChange)


def test_a_recovery_is_decided_only_if_no_replica_is_in_sync_or_by_order() -> None:
    one = election(5, (3, 5))
    assert recover(one, LIVE, {})(ANNOUNCED) == NoChange("a replica is in sync")
    ordered = changed(recover(one, LIVE, {}, ordered=True)(ANNOUNCED))
    assert (ordered.record.leader, ordered.record.recovered_epoch) == (3, 5)
    lost = attrs.evolve(ANNOUNCED, record=attrs.evolve(RECORD, in_sync=[], lost=[BrokerId(3)]))
    assert changed(recover(one, LIVE, {})(lost)).record.leader == 3
    assert isinstance(recover(election(5, (1, 7)), LIVE, {})(lost), NoChange)
    assert isinstance(recover(election(4, (3, 5)), LIVE, {})(lost), NoChange)


def test_the_least_number_of_in_sync_replicas_is_kept_with_the_record() -> None:
    assert changed(host(3)(AGREED)).min_insync == 3
    assert host(2)(AGREED) == NoChange("it is the same")


def test_a_change_of_a_partition_is_a_change_of_the_agreed_value() -> None:
    value = first_value([AcceptorId(BrokerId(1), DirectoryId("d"))], encode_partition(AGREED))
    made = of_partition(host(3))(value)
    assert not isinstance(made, NoChange)
    assert made.follows(value)
    assert decode_partition(made.content) == attrs.evolve(AGREED, min_insync=3)
    assert of_partition(host(3))(made) == NoChange("it is the same")
