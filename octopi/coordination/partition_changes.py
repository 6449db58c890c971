"""The changes of what acceptors agree on about a partition, each with its guard.

A change is a function of the value that was read and of nothing else, so that a proposer may call
it again for a newer value (`octopi.agreement.proposals`).  Whether it applies is seen in the value:
epochs, versions and incarnations only grow.

A leader that asked for another in-sync set needs more than the outcome of its request.  That the
request does not apply to a chosen value proves that it was not made only if the value has the epoch
and version of the request (`judge_in_sync`).  A record of a later epoch begins with version 0 again
and may have been decided after the request was made, so the set that the leader asked for may have
been in force when the election was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum, unique
from typing import TypeAlias

import attrs

from octopi.agreement.proposals import Change, NoChange
from octopi.coordination.agreed_partition import (
    AgreedPartition,
    RegisteredIncarnation,
    decode_partition,
    encode_partition,
)
from octopi.coordination.election import NO_GOAL, Election, ElectionGoal
from octopi.coordination.in_sync_changes import alter, without
from octopi.identifiers import BrokerId, Epoch
from octopi.model import PartitionRecord
from octopi.wire.agreement import AgreedValue
from octopi.wire.messages import AcceptEpoch, AlterInSync

PartitionChange: TypeAlias = Callable[[AgreedPartition], AgreedPartition | NoChange]


def of_partition(change: PartitionChange) -> Change:
    """*change* as a change of the agreed value."""

    def changed(value: AgreedValue) -> AgreedValue | NoChange:
        before = decode_partition(value.content)
        made = change(before)
        if (
            isinstance(made, AgreedPartition)
            and before.is_closed
            and not _fits_closed(before, made)
        ):
            return NoChange("the cluster is being handed over to registers")
        return made if isinstance(made, NoChange) else value.with_content(encode_partition(made))

    return changed


def _fits_closed(closed: AgreedPartition, made: AgreedPartition) -> bool:
    """Whether a partition that is closed may change so: it is opened again, or a broker checks in
    that has all it had."""
    if not made.is_closed:
        return attrs.evolve(made, is_closed=True) == closed
    same = attrs.evolve(closed, incarnations=made.incarnations, announced=made.announced)
    return made == same and made.announced == made.record.epoch


def alter_in_sync(request: AlterInSync) -> PartitionChange:
    """A leader asks for another in-sync set."""

    def change(agreed: AgreedPartition) -> AgreedPartition | NoChange:
        incarnations = {one.broker: one.incarnation for one in agreed.incarnations}
        altered = alter(agreed.record, request, incarnations)
        if isinstance(altered, str):
            return NoChange(altered)
        return attrs.evolve(agreed, record=altered)

    return change


@unique
class InSyncVerdict(Enum):
    """What a leader may conclude from a chosen record about a request that was not made with it."""

    DECIDED = "decided"
    """The record has a later version: its in-sync set is in force, and the request has no effect
    any more."""
    REFUSED = "refused"
    """The request was not made and never will be."""
    UNKNOWN = "unknown"
    """The request may have been made: the leader counts both sets and steps down."""


def judge_in_sync(request: AlterInSync, record: PartitionRecord) -> InSyncVerdict:
    """What *record* says about *request*, which did not apply to it.

    *record* was chosen after every attempt at the request
    (`octopi.agreement.proposer.ChangeNotMade`).
    """
    if record.epoch != request.epoch:
        return InSyncVerdict.UNKNOWN
    if record.version == request.version:
        return InSyncVerdict.REFUSED
    return InSyncVerdict.DECIDED if record.version > request.version else InSyncVerdict.UNKNOWN


def check_in(
    incarnation: RegisteredIncarnation,
    ancestors: Collection[str],
    promised: Epoch,
    *,
    intact: bool,
) -> PartitionChange:
    """A broker was restarted.

    *ancestors*: the nonces of its earlier incarnations of which one may be registered.  *promised*:
    the highest epoch that its replica has accepted.  *intact*: whether its logs have all that it
    ever acknowledged; if not, it leaves the in-sync set.
    """

    def change(agreed: AgreedPartition) -> AgreedPartition | NoChange:
        known = agreed.incarnation(incarnation.broker)
        if known == incarnation:
            return NoChange("it is registered")
        if known is not None and (
            incarnation.incarnation <= known.incarnation or known.nonce not in ancestors
        ):
            return NoChange(
                f"incarnation {known.incarnation} is registered, which is no earlier one"
            )
        record = agreed.record
        if not intact and incarnation.broker in record.in_sync:
            record = without(record, incarnation.broker)
        announced = max(agreed.announced, promised)
        return attrs.evolve(agreed.registered(incarnation), record=record, announced=announced)

    return change


def announce(agreed: AgreedPartition) -> AgreedPartition | NoChange:
    """An election begins: its epoch is spent, whether or not it is decided."""
    return attrs.evolve(agreed, announced=Epoch(agreed.announced + 1))


def announce_after(epoch: Epoch, announced: Epoch) -> PartitionChange:
    """An election begins, unless another one has begun or was decided since *epoch* was the
    record's, and *announced* the highest epoch that was announced.

    Otherwise a broker that wants to replace a leader, and hears late that others have done so,
    would replace their leader as well.
    """

    def change(agreed: AgreedPartition) -> AgreedPartition | NoChange:
        if (agreed.record.epoch, agreed.announced) != (epoch, announced):
            return NoChange(
                f"the epoch is {agreed.record.epoch}, and {agreed.announced} is announced"
            )
        return announce(agreed)

    return change


def decide(
    election: Election,
    live: Collection[BrokerId],
    leaderships: Mapping[BrokerId, int],
    *,
    topics: Collection[str] = (),
    goal: ElectionGoal = NO_GOAL,
    serves: Callable[[BrokerId], bool] = lambda broker: True,
) -> PartitionChange:
    """The election of the announced epoch is decided; see `Election.decide`.

    Acceptances count as they are now, each only from the registered incarnation of its broker.
    """
    accepts = dict(election.accepts)

    def change(agreed: AgreedPartition) -> AgreedPartition | NoChange:
        counted = _counted(election.epoch, accepts, agreed)
        if isinstance(counted, NoChange):
            return counted
        decided = counted.decide(
            agreed.record,
            live,
            leaderships,
            topics=topics,
            min_insync=agreed.min_insync,
            goal=goal,
            serves=serves,
        )
        if decided is None:
            return NoChange("no in-sync replica has accepted the epoch")
        return attrs.evolve(agreed, record=decided)

    return change


def recover(
    election: Election,
    live: Collection[BrokerId],
    leaderships: Mapping[BrokerId, int],
    *,
    topics: Collection[str] = (),
    ordered: bool = False,
) -> PartitionChange:
    """The election is decided although no in-sync replica can lead; see `Election.recover`."""
    accepts = dict(election.accepts)

    def change(agreed: AgreedPartition) -> AgreedPartition | NoChange:
        counted = _counted(election.epoch, accepts, agreed)
        if isinstance(counted, NoChange):
            return counted
        if agreed.record.in_sync and not ordered:
            return NoChange("a replica is in sync")
        decided = counted.recover(agreed.record, live, leaderships, topics=topics, ordered=ordered)
        if decided is None:
            return NoChange("no replica can lead that was in sync until it lost data")
        return attrs.evolve(agreed, record=decided)

    return change


def _counted(
    epoch: Epoch, accepts: Mapping[BrokerId, AcceptEpoch], agreed: AgreedPartition
) -> Election | NoChange:
    """The election of *epoch*, with those of *accepts* that count."""
    if epoch != agreed.announced or epoch <= agreed.record.epoch:
        return NoChange(
            f"epoch {epoch} is not to be decided: the epoch is {agreed.record.epoch}, and "
            f"{agreed.announced} is announced"
        )
    election = Election(epoch)
    for broker, accepted in accepts.items():
        known = agreed.incarnation(broker)
        if known is not None and known.incarnation == accepted.incarnation:
            election.accepts[broker] = accepted
    return election


def host(min_insync: int) -> PartitionChange:
    """The least number of in-sync replicas that a topic in this partition asks for."""

    def change(agreed: AgreedPartition) -> AgreedPartition | NoChange:
        if agreed.min_insync == min_insync:
            return NoChange("it is the same")
        return attrs.evolve(agreed, min_insync=min_insync)

    return change


# --- handing the cluster over to registers (`octopi.ring.ending`) ------------------------------


def rest(attempt: int, epoch: Epoch) -> PartitionChange:
    """The leader of *epoch* has finished all that it had begun about topics, and begins nothing
    more in that *attempt*.

    It applies only while that leader's epoch is the newest one: a later leader may have begun
    something.  Leaders after this change see it in the value by which they lead.
    """

    def change(agreed: AgreedPartition) -> AgreedPartition | NoChange:
        if agreed.ending >= attempt:
            return NoChange(f"it rests in attempt {agreed.ending}")
        if (agreed.record.epoch, agreed.announced) != (epoch, epoch):
            return NoChange(
                f"the epoch is {agreed.record.epoch}, and {agreed.announced} is announced"
            )
        return attrs.evolve(agreed, ending=attempt, is_closed=False)

    return change


def close(attempt: int, brokers: Collection[BrokerId]) -> PartitionChange:
    """Nothing more is decided about the partition, unless that *attempt* is given up.

    It applies only while all replicas are in sync, and on *brokers*: so all of them have what was
    decided about topics, and are awaited before anybody else decides.
    """

    def change(agreed: AgreedPartition) -> AgreedPartition | NoChange:
        record = agreed.record
        if not set(record.replicas) <= set(brokers):
            return NoChange("a broker that is not awaited has a replica")
        if agreed.ending != attempt or agreed.is_closed:
            return NoChange("it does not rest in this attempt, or is closed")
        if set(record.in_sync) != set(record.replicas) or agreed.announced != record.epoch:
            return NoChange("not all replicas are in sync, or an election is held")
        return attrs.evolve(agreed, is_closed=True)

    return change


def reopen(attempt: int) -> PartitionChange:
    """Attempts up to *attempt* were given up."""

    def change(agreed: AgreedPartition) -> AgreedPartition | NoChange:
        if not agreed.is_closed or agreed.ending > attempt:
            return NoChange("it is not closed in such an attempt")
        return attrs.evolve(agreed, is_closed=False)

    return change
