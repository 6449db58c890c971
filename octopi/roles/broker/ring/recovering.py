"""Recovery of a partition without a leader by an operator, in a cluster without a register: any
broker finds out what its replicas have, and has the best of them lead if that is ordered.

Replicas say what they have when they accept an epoch, so the question announces the next epoch.
That does no harm while no broker leads; while one may, no epoch is announced.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

import trio

from octopi.coordination.election import Election
from octopi.coordination.in_sync_changes import newest_set
from octopi.coordination.recovery_answers import holding, led_answer
from octopi.environment import Clock
from octopi.errors import NotReadyError, RefusedError, Status
from octopi.identifiers import BrokerId
from octopi.limits import (
    ACCEPTANCES_WAIT_S,
    AGREEMENT_TIMEOUT_S,
    ELECTION_TURN_S,
    RING_ANSWER_S,
)
from octopi.logger import get_logger
from octopi.ring.partition import RingPartition
from octopi.roles.broker.ring.partitions import RingPartitions
from octopi.roles.broker.ring.routes import RingRoutes
from octopi.wire import messages as m

_log = get_logger(__name__)

_LOST_COUNT_MAX: Final = 1_000


async def recovered(
    order: m.RecoverPartition, clock: Clock, partitions: RingPartitions, routes: RingRoutes
) -> m.PartitionRecovery:
    """Carry out *order*; return the answer.

    Raises:
      RefusedError: UNKNOWN_PARTITION; INVALID_OPTION, while a replica in sync runs, or if it shall
          begin again empty; NO_BROKER, if no replica runs.
      NotReadyError: if the partition may get a leader without an order, or no majority of those
          that decide about it answers; try again later.
    """
    machine = partitions.partition(order.partition)
    if machine is None:
        raise RefusedError(f"there is no partition {order.partition}", Status.UNKNOWN_PARTITION)
    if order.empty_on is not None:
        raise RefusedError(
            "in a cluster without a register no partition begins again empty yet: start a broker "
            "that has a replica",
            Status.INVALID_OPTION,
        )
    live = await _answering(machine.agreed.record.replicas, clock, partitions, routes)
    _require_leaderless(machine, live)
    stands = await _gathered(machine, live, clock, partitions)
    if stands is None:
        return led_answer(order.request, machine.agreed.record)
    answer = _described(order, machine, stands, live)
    if not order.accept_loss:
        return answer
    if answer.candidate is None:
        names = " ".join(map(str, machine.agreed.record.replicas))
        raise RefusedError(
            f"no replica of partition {order.partition} answers: start one of brokers {names}",
            Status.NO_BROKER,
        )
    _log.warning("an operator accepts a loss", partition=order.partition)
    return await _with_loss(answer, machine, stands, live, clock, partitions)


async def _answering(
    brokers: Collection[BrokerId], clock: Clock, partitions: RingPartitions, routes: RingRoutes
) -> frozenset[BrokerId]:
    """Those of *brokers* that answer now, this one among them."""
    me = partitions.me
    answering = {one for one in brokers if one == me.broker}
    asked = set(brokers) - answering
    all_said = trio.Event()

    def take(broker: BrokerId, answer: object) -> None:
        if isinstance(answer, m.PulseHeard):
            answering.add(broker)
        asked.discard(broker)
        if not asked:
            all_said.set()

    for one in sorted(asked):
        pulse = m.Pulse(1, me.broker, me.incarnation, ())
        routes.ask(one, pulse, partial(take, one))
    if asked:
        with clock.timeout(RING_ANSWER_S):
            await all_said.wait()
    return frozenset(answering)


def _require_leaderless(machine: RingPartition, live: Collection[BrokerId]) -> None:
    record = machine.agreed.record
    running = sorted(set(record.in_sync).intersection(live))
    if running:
        raise RefusedError(
            f"partition {record.partition}: broker {running[0]} is in sync and runs, nothing has "
            "to be given up",
            Status.INVALID_OPTION,
        )


async def _gathered(
    machine: RingPartition, live: frozenset[BrokerId], clock: Clock, partitions: RingPartitions
) -> Election | None:
    """What those replicas have said that run; None: the partition got a leader meanwhile.

    Raises:
      NotReadyError: if somebody in sync runs and has said nothing yet, or nobody can be asked.
    """
    epoch = machine.agreed.record.epoch
    until = clock.now() + AGREEMENT_TIMEOUT_S + ACCEPTANCES_WAIT_S
    wanted = live.intersection(machine.agreed.record.replicas)
    stands: Election | None = None
    while clock.now() < until:
        if machine.agreed.record.epoch != epoch:
            return None
        partitions.inquire(machine)
        inquiry = machine.inquiry
        stands = None if inquiry is None else inquiry.acceptances
        if stands is not None and wanted <= stands.accepts.keys():
            break
        await clock.sleep_until(clock.now() + ELECTION_TURN_S)
    if stands is None:
        raise NotReadyError(
            f"no majority of those that decide about partition {machine.partition} answers: start "
            "those that are down"
        )
    members = newest_set(machine.agreed.record)
    if slow := sorted(live.intersection(members) - stands.accepts.keys()):
        raise NotReadyError(
            f"partition {machine.partition}: brokers {slow} run and have not said yet what they "
            "have"
        )
    return stands


def _described(
    order: m.RecoverPartition, machine: RingPartition, stands: Election, live: frozenset[BrokerId]
) -> m.PartitionRecovery:
    record = machine.agreed.record
    topics = sorted(
        {
            log.topic_id
            for one in stands.accepts.values()
            for log in one.ends
            if not log.topic_id.startswith("~")  # internal ones
        }
    )
    decided = stands.recover(record, live, {}, topics=topics, ordered=True)
    losses = [] if decided is None else stands.losses(decided.leader, topics)
    members = newest_set(record) | set(record.lost)
    return m.PartitionRecovery(
        order.request,
        order.partition,
        leader=None,
        epoch=record.epoch,
        recovered=False,
        candidate=None if decided is None else decided.leader,
        waits_for=sorted(stands.missing(record, live)),
        replicas=[
            holding(one, stands, topics, is_live=one in live, was_in_sync=one in members)
            for one in record.replicas
        ],
        lost=[
            m.LostRange(one.topic_id, one.kept_end, one.known_end)
            for one in losses[:_LOST_COUNT_MAX]
        ],
        lost_log_count=len(losses),
    )


async def _with_loss(
    answer: m.PartitionRecovery,
    machine: RingPartition,
    stands: Election,
    live: frozenset[BrokerId],
    clock: Clock,
    partitions: RingPartitions,
) -> m.PartitionRecovery:
    """*answer*, after the best replica was made the leader.

    Raises:
      NotReadyError: if that was not decided in time.
    """
    until = clock.now() + AGREEMENT_TIMEOUT_S
    partitions.accept_loss(machine, live)
    while machine.agreed.record.epoch < stands.epoch and clock.now() < until:
        await clock.sleep_until(clock.now() + ELECTION_TURN_S)
    record = machine.agreed.record
    if record.recovered_epoch != record.epoch or record.epoch != stands.epoch:
        raise NotReadyError(f"partition {machine.partition} is not recovered yet: try again")
    return m.PartitionRecovery(
        answer.request,
        answer.partition,
        leader=record.leader,
        epoch=record.epoch,
        recovered=True,
        candidate=record.leader,
        waits_for=answer.waits_for,
        replicas=answer.replicas,
        lost=answer.lost,
        lost_log_count=answer.lost_log_count,
    )
