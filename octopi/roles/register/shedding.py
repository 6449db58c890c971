"""Moves leaderships away from brokers that have much more to do than others.

`octopi.coordination.shedding` decides what moves.  Each move is an ordinary planned hand-over
(`octopi.roles.register.election_driver.ElectionDriver.change`), like those of
`octopi.roles.register.rebalancing`, which evens out by number the leaderships of partitions that
have too little load to be moved for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from octopi.coordination.controller import Controller
from octopi.coordination.election import ElectionGoal
from octopi.coordination.loads import Loads
from octopi.coordination.shedding import Move, Shedding, SheddingRules, WeighedPartition
from octopi.coordination.topic_placement import PlacementRule, TopicPlacement
from octopi.environment import Environment
from octopi.errors import NotReadyError, StorageError
from octopi.identifiers import BrokerId, PartitionId
from octopi.logger import get_logger
from octopi.roles.register.election_driver import ElectionDriver
from octopi.roles.register.event_log import EventLog
from octopi.roles.register.register_tracer import RegisterTracer
from octopi.wire.messages import BrokerLoad

_log = get_logger(__name__)


class LoadShedding:
    """The loads that brokers report, and the moves that follow from them."""

    def __init__(
        self,
        environment: Environment,
        controller: Controller,
        events: EventLog,
        tracer: RegisterTracer,
        election_driver: ElectionDriver,
        rules: SheddingRules | None,
    ) -> None:
        """*rules*: None: nothing is moved by load; loads are known all the same."""
        self._clock = environment.clock
        self._controller = controller
        self._events = events
        self._tracer = tracer
        self._election_driver = election_driver
        self._rules: Final = rules
        known = rules or SheddingRules()
        self._loads = Loads(known.average_s)
        self._shedding = Shedding(known)
        self.moved_count = 0
        """How many leaderships were moved by load."""

    # --- what is known -----------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """Whether leaderships are moved by load at all."""
        return self._rules is not None

    @property
    def goes_by_load(self) -> bool:
        """Whether they are now; otherwise their number counts."""
        return self._shedding.goes_by_load

    def is_light(self, partition: PartitionId) -> bool:
        """Whether the leadership of *partition* counts by number, and not by load."""
        return self._shedding.is_light(partition)

    def reported(self, broker: BrokerId, load: BrokerLoad) -> None:
        """*broker*, which is a member, reported its load."""
        self._tracer.heard_load(broker, load.partitions)
        self._loads.reported(broker, self._clock.now(), load.partitions, self._leaders())

    def of_brokers(self) -> dict[BrokerId, float | None]:
        """The load of each broker that is up; None: it has not reported."""
        controller, now = self._controller, self._clock.now()
        live = [one for one in controller.state.brokers if controller.is_live(one)]
        loads = self._loads.of_brokers(self._leaders(), live)
        return {
            one: load if self._loads.are_known([one], now) else None for one, load in loads.items()
        }

    def placement(self, rule: PlacementRule) -> TopicPlacement:
        """What a new topic's partitions are chosen by."""
        if rule is not PlacementRule.LEAST_LOADED:
            return TopicPlacement(rule)
        known = self.of_brokers()
        return TopicPlacement(rule, {one: load for one, load in known.items() if load is not None})

    def of_partitions(self) -> list[tuple[PartitionId, float, bool, str]]:
        """Of each partition: its load, whether it is hot, and its busiest topic."""
        loads, hot = self._loads, self._shedding.hot
        return [
            (one, loads.of(one), one in hot, loads.busiest_topic(one))
            for one in sorted(self._controller.state.partitions)
        ]

    @property
    def hot_count(self) -> int:
        """How many partitions are hot."""
        return len(self._shedding.hot)

    def _leaders(self) -> dict[PartitionId, BrokerId]:
        records = self._controller.state.partitions.values()
        return {one.partition: one.leader for one in records}

    # --- what is moved -----------------------------------------------------------------

    async def run(self) -> None:
        """Look again and again, until cancelled; returns at once if it is off."""
        if self._rules is None:
            return
        while True:
            await self._clock.sleep_until(self._clock.now() + self._rules.interval_s)
            await self._look()

    async def _look(self) -> None:
        controller, now = self._controller, self._clock.now()
        if controller.elections.changes:
            return  # who leads what is just changing
        brokers = controller.willing()
        led = self._led(brokers)
        if not self._loads.are_known(brokers, now):
            self._shedding.unknown()
            return
        look = self._shedding.look(now, led, brokers)
        if look.hot:
            self._tell_hot(look.hot)
        if look.move is not None:
            await self._move(look.move)

    def _led(self, brokers: Sequence[BrokerId]) -> list[WeighedPartition]:
        """The partitions that *brokers* lead, and who of them could lead instead."""
        return [
            WeighedPartition(
                one.partition,
                one.leader,
                [other for other in one.in_sync if other != one.leader and other in brokers],
                self._loads.of(one.partition),
            )
            for one in self._controller.state.partitions.values()
            if one.leader in brokers
        ]

    async def _move(self, move: Move) -> None:
        _log.info(
            "leadership moves by load",
            partition=move.partition,
            load=round(self._loads.of(move.partition), 2),
            leader=move.leader,
            successor=move.successor,
        )
        self._tracer.shedding(move)
        partitions = self._controller.state.partitions
        try:
            record = await self._election_driver.change(
                move.partition,
                ElectionGoal(leader=move.successor),
                if_still=lambda: partitions[move.partition].leader == move.leader,
            )
        except (NotReadyError, StorageError) as error:
            _log.info("not moved by load", partition=move.partition, why=str(error.args[0]))
            return
        self.moved_count += record.leader == move.successor
        self._tracer.shed(move)

    def _tell_hot(self, hot: Sequence[PartitionId]) -> None:
        """Say that partitions have become too much for one broker."""
        self._tracer.hot(hot)
        for partition in hot:
            topic = self._loads.busiest_topic(partition)
            load = self._loads.of(partition)
            self._events.hot_topic(partition, topic, load)
            _log.warning(
                "partition is too much for one broker",
                partition=partition,
                topic=topic or None,
                load=round(load, 2),
            )
