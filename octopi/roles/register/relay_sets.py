"""Relay sets of a register: tells their members, notes what they have brought into force, and
changes them, one member at a time.

The register orders, the set decides: relays go on, and change their sequencer, without a register.
Nothing runs here before there is a relay set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs
import trio

from octopi.coordination.controller import Controller
from octopi.coordination.decisions import RelaySetDecision
from octopi.coordination.relay_balance import wished_sequencers
from octopi.coordination.relay_sets import (
    RelayBrokers,
    balancing_set,
    next_set,
    step_towards,
)
from octopi.environment import Environment
from octopi.errors import NotReadyError, RefusedError, Status, StorageError
from octopi.identifiers import BrokerId, Epoch, PartitionId
from octopi.limits import (
    MOVE_TIMEOUT_S,
    RELAY_FORM_S,
    RELAY_SETS_BALANCE_S,
    RELAY_SETS_LOOK_S,
    RELAYS_MAX,
    RELAYS_MIN,
)
from octopi.logger import get_logger
from octopi.model import RelaySetRecord, TopicRecord
from octopi.roles.register.decision_log import DecisionLog
from octopi.roles.register.member import Member
from octopi.roles.register.members import Members
from octopi.wire import messages as m

_log = get_logger(__name__)


class RelaySets:
    """The relay sets of one register."""

    def __init__(
        self,
        environment: Environment,
        controller: Controller,
        decisions: DecisionLog,
        members: Members,
        tasks: trio.Nursery,
    ) -> None:
        """*tasks*: the register's nursery."""
        self._clock = environment.clock
        self._controller = controller
        self._decisions = decisions
        self._members = members
        self._tasks = tasks
        self._is_running = False
        self._away_since: dict[BrokerId, float] = {}
        self._ordered: set[PartitionId] = set()
        """Partitions whose members an operator changes now."""
        self._changed = trio.Event()
        """Set when a set has come into force."""
        self._wished: dict[PartitionId, BrokerId] = {}
        """Who is to be the sequencer of each partition, as members were told."""
        self._seen: object = None
        """The brokers and sets at the last look."""
        self._same_since = 0.0
        """Since when they are as they are (monotonic, s)."""

    def start(self) -> None:
        """Watch the sets, if there are any and nothing watches them yet."""
        if self._controller.state.relay_sets and not self._is_running:
            self._is_running = True
            self._tasks.start_soon(self._run)

    # --- telling brokers -----------------------------------------------------------------

    async def install(self, topic: TopicRecord) -> None:
        """Have the members of its set hold a new topic, and wait for a while until a new set has
        come into force, so that the topic can be used at once."""
        self.start()
        partition = topic.partitions[0]
        record = self._controller.state.relay_sets[partition]
        await self._tell(record.members, [record], [topic])
        if record.version == 1:
            with self._clock.timeout(RELAY_FORM_S):
                await self._until_in_force(partition)

    async def sync(self, member: Member) -> None:
        """Tell a broker that has just joined of all sets, since it may have left some, and of the
        topics that it holds; and tell the other members where it is."""
        state, broker = self._controller.state, member.broker
        sets = list(state.relay_sets.values())
        if not sets:
            return
        mine = self._controller.view.relay_sets_of(broker)
        topics = [topic for one in mine for topic in state.relay_topics_on(one.partition)]
        wished = {one.partition: self._wished.get(one.partition) for one in mine}
        told = {number: broker for number, broker in wished.items() if broker is not None}
        await member.install_relay_sets(sets, topics, told)
        for one in mine:
            others = [other for other in one.members if other != broker]
            await self._tell(others, [one], [])

    async def _tell(
        self,
        brokers: Iterable[BrokerId],
        sets: list[RelaySetRecord],
        topics: list[TopicRecord],
    ) -> None:
        told = [self._members[one] for one in sorted(set(brokers)) if one in self._members]
        async with trio.open_nursery() as nursery:
            for member in told:
                nursery.start_soon(member.install_relay_sets, sets, topics)

    async def _decide(self, record: RelaySetRecord) -> None:
        """Have a set changed, or note that it is in force, and tell the brokers concerned."""
        state = self._controller.state
        before = state.relay_sets[record.partition]
        await self._decisions.carry_out(RelaySetDecision(before, record))
        _log.info(
            "relay set in force" if record.in_force else "relay set ordered",
            partition=record.partition,
            version=record.version,
            members=record.members,
        )
        if record.in_force:
            self._changed.set()
            self._changed = trio.Event()
        topics = state.relay_topics_on(record.partition)
        # Once it is in force, whoever was a member before has to leave.
        told = [*self._members] if record.in_force else {*before.members, *record.members}
        await self._tell(told, [record], topics)

    # --- what members say ----------------------------------------------------------------

    async def told(self, broker: BrokerId, report: m.RelayReport) -> None:
        """*broker* says that it is the sequencer, by a set that is in force."""
        record = self._controller.state.relay_sets.get(report.partition)
        if record is None or broker not in record.members:
            return
        self._controller.relay_sequencers.told(report.partition, Epoch(report.epoch), broker)
        if report.version == record.version and not record.in_force:
            try:
                await self._decide(attrs.evolve(record, in_force=True))
            except (NotReadyError, StorageError) as error:  # it says so again when it joins
                _log.info("a relay set is not noted", why=str(error.args[0]))

    # --- changes -------------------------------------------------------------------------

    async def change(self, partition: PartitionId, members: Collection[BrokerId]) -> None:
        """Give a relay partition these *members*, one after the other, and leave them there.
        Without *members*, leave it to the register again which ones it has.

        Raises:
          RefusedError: UNKNOWN_PARTITION, INVALID_OPTION; NOT_READY, if the members didn't bring a
              set into force in time; then it is in force later, and the order may be repeated.
        """
        self._check(partition, members)
        self._ordered.add(partition)
        try:
            with self._clock.timeout(MOVE_TIMEOUT_S):
                while True:
                    await self._until_in_force(partition)
                    record = self._controller.state.relay_sets[partition]
                    step = step_towards(record, members) if members else None
                    size = len(members) or record.size
                    wanted = attrs.evolve(step or record, size=size, pinned=bool(members))
                    if wanted != record:
                        await self._decide(wanted)
                    if step is None:
                        return
        finally:
            self._ordered.discard(partition)
        raise RefusedError(
            f"relay partition {partition} did not bring its set into force within "
            f"{MOVE_TIMEOUT_S:g} s: a majority of its members has to be there",
            Status.NOT_READY,
        )

    async def _until_in_force(self, partition: PartitionId) -> None:
        while not self._controller.state.relay_sets[partition].in_force:
            await self._changed.wait()

    def _check(self, partition: PartitionId, members: Collection[BrokerId]) -> None:
        state = self._controller.state
        if partition not in state.relay_sets:
            raise RefusedError(f"there is no relay partition {partition}", Status.UNKNOWN_PARTITION)
        if members and not RELAYS_MIN <= len(set(members)) == len(members) <= RELAYS_MAX:
            raise RefusedError(
                f"a relay set has {RELAYS_MIN} to {RELAYS_MAX} different members",
                Status.INVALID_OPTION,
            )
        for one in members:
            if one not in state.brokers:
                raise RefusedError(f"there is no broker {one}", Status.INVALID_OPTION)
            if one not in state.relay_sets[partition].members and not self._controller.is_live(one):
                raise RefusedError(f"broker {one} is away", Status.NO_BROKER)
        if shared := state.machines.shared(members):
            raise RefusedError(
                f"brokers {', '.join(map(str, shared))} are on one host", Status.INVALID_OPTION
            )
        if partition in self._ordered:
            raise RefusedError(
                f"the members of relay partition {partition} are being changed", Status.NOT_READY
            )

    async def _run(self) -> None:
        while True:
            await self._clock.sleep_until(self._clock.now() + RELAY_SETS_LOOK_S)
            try:
                await self._look()
            except (NotReadyError, StorageError, RefusedError) as error:
                _log.info("a relay set waits", why=str(error.args[0]))

    async def _look(self) -> None:
        """Order what has to change."""
        state, now = self._controller.state, self._clock.now()
        away = {one for one in state.brokers if not self._controller.is_live(one)}
        self._away_since = {one: self._away_since.get(one, now) for one in away}
        away_s = {one: now - since for one, since in self._away_since.items()}
        brokers = self._controller.topics.relay_brokers(away_s)
        for partition in sorted(state.relay_sets):
            if partition in self._ordered:
                continue
            sets = state.relay_sets
            record = next_set(sets[partition], brokers, sets.values())
            if record is not None:
                await self._decide(record)
        await self._spread_sets(brokers, now)
        await self._spread_sequencers(brokers)

    async def _spread_sets(self, brokers: RelayBrokers, now: float) -> None:
        """Have a broker that is in many sets leave one of them for another broker, if brokers and
        sets have been as they are for a while."""
        seen = brokers, dict(self._controller.state.relay_sets)
        if seen != self._seen or self._ordered:
            self._seen, self._same_since = seen, now
        if now - self._same_since < RELAY_SETS_BALANCE_S:
            return
        record = balancing_set(brokers, seen[1].values())
        if record is not None:
            await self._decide(record)

    async def _spread_sequencers(self, brokers: RelayBrokers) -> None:
        """Tell members who is to be the sequencer of their partitions, where that has changed."""
        unfit = {*brokers.gone, *brokers.leaving}
        sets = self._controller.state.relay_sets
        fit = {
            number: [one for one in of.members if one not in unfit] for number, of in sets.items()
        }
        wished = wished_sequencers(fit)
        changed = {one: who for one, who in wished.items() if self._wished.get(one) != who}
        self._wished = wished
        members = {one for number in changed for one in sets[number].members}
        async with trio.open_nursery() as nursery:
            for member in [self._members[one] for one in sorted(members) if one in self._members]:
                mine = {
                    number: who
                    for number, who in changed.items()
                    if member.broker in sets[number].members
                }
                nursery.start_soon(member.install_relay_sets, [], [], mine)
