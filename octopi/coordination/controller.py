"""What the register decides: who is a member, who leads, where topics live.

Pure.  A question to it changes nothing; its answer is journal entries that must be durable
before anyone hears of them.  The caller appends them, then calls `apply` for each, and
`admitted` for a broker that was let in; nothing changes in between, so decisions are taken
one after another.  Entries that could not be appended are forgotten, and with them all that
was learned from the question.  Liveness is what the caller observed on the membership
connections (`admitted`, `left`).
"""

from __future__ import annotations

from collections import Counter

from octopi.coordination.admission import Admission, adopt, take_over_topics
from octopi.coordination.broker_reports import believe, fault_of
from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.consistent_hash import HashCircle
from octopi.coordination.elections import Elections
from octopi.coordination.health import Health
from octopi.coordination.in_sync_changes import reappointed, without
from octopi.coordination.incarnations import is_later_life, is_proven, is_same_life, lost_data
from octopi.coordination.journal_entries import (
    BrokerRegistered,
    BrokerRemoved,
    ClusterFormed,
    Entry,
    PartitionDecided,
    RegisterStarted,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
)
from octopi.coordination.placement import place
from octopi.coordination.rebuild import Rebuild
from octopi.coordination.rival_registers import RivalRegisters
from octopi.coordination.seals import Seals
from octopi.coordination.unserved_topics import UnservedTopics
from octopi.errors import (
    NotReadyError,
    RefusedError,
    Status,
    TopicExistsError,
    UnknownTopicError,
)
from octopi.identifiers import id_fault, topic_name, topic_name_fault
from octopi.limits import (
    BROKER_ID_MAX,
    BROKERS_MAX,
    LIST_COUNT_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    REPLACED_TOPICS_MAX,
    TOPIC_COUNT_MAX,
)
from octopi.security.quotas import NOBODY, Creator, exceeded
from octopi.wire.messages import (
    BrokerInfo,
    Inventory,
    Join,
    PartitionInfo,
    PartitionRecord,
    RegisterGeneration,
    RemovedTopic,
    TopicInfo,
    TopicOptions,
    TopicRecord,
)


class Controller:
    """Decides over a `ClusterState`.

    Invariants: every broker that is live is registered with the incarnation that is live;
    no record appoints an incarnation that was never registered.
    """

    def __init__(
        self,
        partition_count: int,
        replica_count: int = 1,
    ) -> None:
        """*partition_count* is what a new cluster gets, *replica_count* what a new partition
        gets if there are as many brokers."""
        self.state = ClusterState()
        self._partition_count = partition_count
        self._replica_count = replica_count
        self._circle: HashCircle | None = None
        self._live: dict[int, int] = {}
        self.health = Health()
        """Which of the live brokers' replicas take records."""
        self.draining: set[int] = set()
        """Brokers that get no leadership while others can have it."""
        self.stopping: set[int] = set()
        """Brokers that are about to stop, or did, and have not joined in a new life since: they
        get nothing while others can have it."""
        self._obedience = RivalRegisters(self.state, self._live)
        self._turns: Counter[int] = Counter()
        self._rebuild = Rebuild()
        self.unserved = UnservedTopics(self.state)
        self.elections = Elections(self.state, self._live, self._is_doubted, health=self.health)

    def _is_doubted(self, partition: int) -> bool:
        """Whether a broker was told something newer about *partition* than what is known here,
        and not all that it takes to believe it have reported."""
        return partition in self._rebuild.newest

    def apply(self, entry: Entry) -> None:
        """Take note of *entry*, which is in the journal."""
        self.state.apply(entry)
        self.elections.apply(entry)
        self.unserved.apply(entry)

    # --- brokers ---------------------------------------------------------------------

    @property
    def seals(self) -> Seals:
        """Seals what brokers are told, and checks what they repeat of it."""
        return Seals(self.state.secret)

    def form(
        self, cluster: str, nonce: str, generation: int = 1, *, secret: str = ""
    ) -> list[Entry]:
        """Begin a new cluster, or take up an old one of which brokers told; then *generation*
        is above theirs.  *secret*: hexadecimal digits; see `octopi.coordination.seals`."""
        assert not self.state.cluster, "a cluster is formed once"
        return [
            # In this order: a register that died in between finds no cluster, and forms one.
            RegisterStarted(RegisterGeneration(generation, nonce)),
            ClusterFormed(cluster, self._partition_count, secret),
        ]

    def start(self, nonce: str, *, secret: str = "") -> list[Entry]:
        """The register was started again, with what its journal says; *secret* is used if that has
        none."""
        entries: list[Entry] = [
            RegisterStarted(RegisterGeneration(self.state.life.generation + 1, nonce))
        ]
        if not self.state.secret:
            formed = ClusterFormed(self.state.cluster, self.state.partition_count, secret)
            entries.append(formed)
        return entries

    def admit(self, join: Join, inventory: list[Inventory]) -> Admission:
        """A broker asks to join the formed cluster.  Nothing changes before `admitted`, except that
        it is remembered who obeys another register.

        It leaves the in-sync set of partitions whose logs it says are not intact, or of all if
        its data directory is not the one that was here last, before it may act.  What it leads
        as their only replica it leads again, in a new epoch if it was restarted.  What was
        decided and the register doesn't know (its disk was lost, or an older copy of it put back)
        is taken over as soon as that is safe (`octopi.coordination.rebuild`).  What else it reports
        is not believed (`octopi.coordination.broker_reports`).

        Raises:
          SupersededError: if it is proven that another register is obeyed; this one has to stop.
          RefusedError: WRONG_CLUSTER, DUPLICATE_BROKER, BROKER_FENCED or TOO_MANY;
              REGISTER_SUPERSEDED for one that says without a proof that it obeys another register;
              MALFORMED_MESSAGE for reports that make no sense.
        """
        state = self.state
        if join.cluster not in {"", state.cluster}:
            raise RefusedError(
                f"the broker belongs to cluster {join.cluster}, this register keeps "
                f"{state.cluster}",
                Status.WRONG_CLUSTER,
            )
        broker = self._next_broker() if join.broker is None else join.broker
        is_back = is_same_life(self.state, self._live, join)
        if broker in self._live and not is_back:
            raise RefusedError(
                f"a live broker has the id {broker} already, at {state.brokers[broker].address}",
                Status.DUPLICATE_BROKER,
            )
        if broker in state.removed_brokers:
            raise RefusedError(
                f"broker {broker} was removed for good: start one with an empty data directory and "
                "without an id",
                Status.BROKER_FENCED,
            )
        has_lost_data = lost_data(self.state, broker, join)
        self._obedience.require(broker, join)
        known = state.brokers.get(broker)
        if known is None and len(state.brokers) >= BROKERS_MAX:
            raise RefusedError(
                f"a cluster has at most {BROKERS_MAX} brokers: remove some that are away for good",
                Status.TOO_MANY,
            )
        if fault := fault_of(inventory):
            raise RefusedError(
                f"broker {broker} reports what no register ever decided: {fault}",
                Status.MALFORMED_MESSAGE,
            )
        entries: list[Entry] = []
        registration = BrokerRegistered(
            broker,
            join.incarnation,
            join.nonce,
            join.address,
            replaced=has_lost_data
            or (
                known is not None
                and known.replaced
                and any(broker in one.lost for one in state.partitions.values())
            ),
        )
        if registration != known:
            entries.append(registration)
        believed = believe(state, broker, inventory, is_proven=is_proven(state, join))
        standings = believed.standings
        rebuild = self._rebuild.copy()
        rebuild.promise(standings)
        if join.cluster and not has_lost_data:
            # Who has lost its data can't know that nothing newer was decided.
            rebuild.report(broker, believed.records, standings, state.partitions)
        partitions, spent, learned = adopt(state, rebuild, standings, entries)
        conflicts = take_over_topics(
            state, rebuild, broker, believed.topics, partitions, entries, believed.unserved
        )
        conflicts += believed.shortened()
        damaged = {one.partition for one in standings if not one.intact}
        if has_lost_data:
            damaged.update(partitions)
        live = {**self._live, broker: join.incarnation}
        for partition, record in partitions.items():
            if partition in rebuild.newest:
                continue  # the record is not the newest
            if record.replicas == [broker] and has_lost_data:
                conflicts.append(
                    f"what was in partition {partition} is lost: the broker was its only "
                    "replica and comes without its data, or with an older copy of it"
                )
            if len(record.replicas) == 1:
                incarnation = live.get(record.leader)
                if incarnation is not None and incarnation != record.leader_incarnation:
                    again = reappointed(record, incarnation, spent[partition] + 1)
                    entries.append(PartitionDecided(again))
            elif partition in damaged and broker in record.in_sync:
                entries.append(PartitionDecided(without(record, broker)))
        return Admission(
            broker,
            join.incarnation,
            entries,
            conflicts,
            rebuild,
            learned,
            is_back,
            believed.unserved,
            believed.proofs,
        )

    def admitted(self, admission: Admission) -> None:
        """The entries of *admission*, the last question that was answered, are in the journal and
        applied: the broker's membership connection counts."""
        self._rebuild = admission.rebuild
        self.unserved.reported(admission.broker, admission.unserved)
        self._obedience.admitted(admission.broker)
        self.joined(admission.broker, admission.incarnation)
        self.health.reconnected(admission.broker)

    def is_later_life(self, join: Join) -> bool:
        """See `octopi.coordination.incarnations.is_later_life`."""
        return is_later_life(self.state, join)

    def _next_broker(self) -> int:
        """An id that no broker has or had, nor any that is only known as somebody's replica: the
        one above all these, or the smallest if there is none above."""
        replicas = {one for record in self.state.partitions.values() for one in record.replicas}
        known = {*self.state.brokers, *self.state.removed_brokers}
        taken = known | replicas | self._rebuild.mentioned_brokers()
        above = max(taken, default=0) + 1
        if above <= BROKER_ID_MAX:
            return above
        return next(one for one in range(1, BROKER_ID_MAX + 1) if one not in taken)

    def remove(self, broker: int) -> list[Entry]:
        """Forget a broker that is away for good.

        Raises:
          RefusedError: INVALID_OPTION for one that nobody knows, BROKER_IN_USE if it is live or
              holds replicas.
        """
        state = self.state
        if broker in state.removed_brokers:
            return []
        if broker not in state.brokers:
            raise RefusedError(f"there is no broker {broker}", Status.INVALID_OPTION)
        if broker in self._live:
            raise RefusedError(
                f"broker {broker} runs, at {state.brokers[broker].address}", Status.BROKER_IN_USE
            )
        held = [one.partition for one in state.partitions.values() if broker in one.replicas]
        if held:
            some = " ".join(str(partition) for partition in sorted(held)[:10])
            raise RefusedError(
                f"broker {broker} holds replicas of partitions {some}"
                f"{' ...' if len(held) > 10 else ''}",
                Status.BROKER_IN_USE,
            )
        if broker in self._rebuild.mentioned_brokers():
            raise RefusedError(
                f"broker {broker} may hold replicas: the register does not know all partitions "
                "again yet",
                Status.NOT_READY,
            )
        return [BrokerRemoved(broker)]

    def joined(self, broker: int, incarnation: int) -> None:
        """The membership connection of an admitted broker is up."""
        self._live[broker] = incarnation

    def left(self, broker: int, incarnation: int) -> None:
        """That connection ended."""
        if self._live.get(broker) == incarnation:
            del self._live[broker]
            self.health.forget(broker)

    def serves(self, broker: int, incarnation: int) -> None:
        """A joined broker has answered to all that it was told: clients may be sent to it."""
        if self._live.get(broker) == incarnation:
            self.health.briefed(broker)

    def is_live(self, broker: int) -> bool:
        """Whether the broker's membership connection is up."""
        return broker in self._live

    def serving(self, broker: int) -> bool:
        """Whether clients are sent to the broker."""
        return self.health.is_briefed(broker)

    # --- topics ----------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        topic_id: str,
        *,
        partition_count: int = 1,
        partitions: list[int] | None = None,
        options: TopicOptions,
        creator: Creator = NOBODY,
    ) -> tuple[TopicRecord, list[Entry]]:
        """Create a topic on partitions whose leaders are live, placing partitions that no
        broker has yet.

        Raises:
          InvalidTopicError: if *name* is none.
          TopicExistsError: if there is such a topic.
          NotReadyError: if there may be such a topic; see `require_topic`.
          RefusedError: INVALID_OPTION, TOO_MANY, QUOTA_EXCEEDED, or (retryable) NO_BROKER.
        """
        checked = topic_name(name)
        _check_options(options)
        if self.state.topic(checked) is not None:
            raise TopicExistsError(f"topic {name} exists already")
        self._require_told(checked)
        if self.state.topic_count >= TOPIC_COUNT_MAX:
            raise RefusedError(f"a cluster has at most {TOPIC_COUNT_MAX} topics", Status.TOO_MANY)
        most_topics = creator.topics_max
        if most_topics is not None and self.state.topic_count_of(creator.subject) >= most_topics:
            raise exceeded("topics that it created", most_topics)
        total = self.state.partition_count
        chosen: list[int]
        if partitions is not None:
            chosen = partitions
            if (
                not chosen
                or len(set(chosen)) < len(chosen)
                or not all(0 <= one < total for one in chosen)
            ):
                raise RefusedError(
                    f"partitions are different numbers from 0 to {total - 1}", Status.INVALID_OPTION
                )
        else:
            most = min(total, PARTITIONS_PER_TOPIC_MAX)
            if not 1 <= partition_count <= most:
                raise RefusedError(
                    f"a topic has 1 to {most} partitions here, not {partition_count}",
                    Status.INVALID_OPTION,
                )
            if self._circle is None or self._circle.partition_count != total:
                self._circle = HashCircle(total)
            chosen = list(self._circle.partitions(checked, partition_count))
        entries: list[Entry] = [PartitionDecided(record) for record in self._place(chosen)]
        deleted = [one for one, removal in self.state.removals.items() if removal.topic == checked]
        replaced = deleted[-REPLACED_TOPICS_MAX:]
        topic = TopicRecord(checked, topic_id, chosen, options, replaces=replaced)
        entries.append(TopicCreated(topic, creator.subject))
        return topic, entries

    def _place(self, partitions: list[int]) -> list[PartitionRecord]:
        """Records for those of *partitions* that have none, spread evenly over live brokers."""
        for partition in partitions:
            record = self.state.partitions.get(partition)
            if record is not None and record.leader not in self._live:
                raise RefusedError(
                    f"partition {partition} lies on broker {record.leader}, which is away",
                    Status.NO_BROKER,
                )
        new = [one for one in partitions if one not in self.state.partitions]
        if new and not self._live:
            raise RefusedError("no broker has joined", Status.NO_BROKER)
        staying = self._live.keys() - self.stopping or self._live.keys()
        willing = staying - self.draining or staying
        # A log could not be made on a full disk: only where there are too few others.
        well = {one for one in willing if not self.health.is_troubled(one)}
        if len(well) >= self._replica_count:
            willing = well
        placed = place(new, self._replica_count, willing, self.state.partitions.values())
        for replicas in placed.values():
            replicas.sort(key=self.health.is_troubled)  # who is well leads
        return [
            PartitionRecord(
                partition=partition,
                epoch=1,
                version=0,
                leader=replicas[0],
                leader_incarnation=self._live[replicas[0]],
                replicas=replicas,
                in_sync=sorted(replicas),  # all hold all there is: nothing
            )
            for partition, replicas in placed.items()
        ]

    def delete_topic(self, name: str) -> list[Entry]:
        """Delete a topic.

        Raises:
          UnknownTopicError: if there is none.
        """
        return self._deletion(self.require_topic(name))

    def topic_of_id(self, topic_id: str) -> TopicRecord:
        """The topic of that id, whatever its name is; also one that only brokers hold.

        Raises:
          UnknownTopicError: if there is none.
        """
        record = self.state.topic_of_id(topic_id) or self.unserved.of_id(topic_id)
        if record is None:
            raise UnknownTopicError(f"there is no topic with id {topic_id}")
        return record

    def delete_topic_by_id(self, topic_id: str) -> list[Entry]:
        """Delete a topic, whatever its name is; also one that only brokers hold.

        Raises:
          UnknownTopicError: if there is none.
        """
        return self.unserved.deletion(topic_id) or self._deletion(self.topic_of_id(topic_id))

    def _deletion(self, record: TopicRecord) -> list[Entry]:
        brokers = {
            broker
            for partition in record.partitions
            for broker in self.state.partitions[partition].replicas
        }
        if record.topic_id in self.state.unfit_topics:
            brokers = set()  # none was told of it
        return [TopicDeleted(record.topic, record.topic_id, sorted(brokers))]

    def removed(self, topic_id: str, broker: int) -> list[Entry]:
        """A broker confirmed that it has removed a deleted topic."""
        return [TopicRemoved(topic_id, broker)]

    def require_topic(self, name: str) -> TopicRecord:
        """The topic of that name.

        Raises:
          InvalidTopicError, UnknownTopicError.
          NotReadyError: if there may be one: the register's disk was lost, and not all brokers
              have told yet what they hold.
        """
        checked = topic_name(name)
        record = self.state.topic(checked)
        if record is None:
            self._require_told(checked)
            raise UnknownTopicError(f"there is no topic {name}")
        return record

    def _require_told(self, name: str) -> None:
        """See that no topic of that name is still to be heard of."""
        away = self._rebuild.away()
        if away or name in self._rebuild.topics:
            raise NotReadyError(
                f"topic {name} may exist: the register's disk was lost, and brokers "
                f"{away or 'that hold it'} have not told yet what they know"
            )

    # --- questions -------------------------------------------------------------------

    def describe_topic(self, record: TopicRecord) -> TopicInfo:
        """Where *record*'s partitions are now."""
        return TopicInfo(
            record.topic,
            record.topic_id,
            [self.describe_partition(self.state.partitions[one]) for one in record.partitions],
            record.options,
        )

    def describe_partition(self, record: PartitionRecord) -> PartitionInfo:
        """Where a partition is now; each asker is sent to the next of its readers."""
        partition, health = record.partition, self.health
        leads = (
            health.is_led_to(record.leader, partition)
            and partition not in self.elections.changes
            and self._live[record.leader] == record.leader_incarnation
        )
        reachable = [one for one in record.in_sync if health.is_led_to(one, partition)]
        # Who takes no records may be behind soon, but reading there is better than nowhere.
        serving = [one for one in reachable if health.serves(one, partition)] or reachable
        readers = [self.state.brokers[broker].address for broker in serving]
        if len(readers) > 1:
            # Each partition has turns of its own: with one for all, a topic of as many
            # partitions as there are readers would send everybody to the same ones.
            self._turns[record.partition] += 1
            turn = (record.partition + self._turns[record.partition]) % len(readers)
            readers = readers[turn:] + readers[:turn]
        return PartitionInfo(
            partition=record.partition,
            epoch=record.epoch,
            leader=record.leader if leads else None,
            leader_address=self.state.brokers[record.leader].address if leads else "",
            replicas=record.replicas,
            in_sync=record.in_sync,
            readers=readers,
            waits_for=[] if leads else self.elections.waits_for(record.partition),
            is_stuck=not leads and self.elections.is_stuck(record.partition),
            recovered_epoch=record.recovered_epoch,
            troubles=health.troubles(partition, record.replicas),
        )

    def describe_brokers(self) -> list[BrokerInfo]:
        """All brokers that ever registered, by id."""
        led: dict[int, int] = {}
        for record in self.state.partitions.values():
            led[record.leader] = led.get(record.leader, 0) + 1
        return [
            self._describe_broker(known, led.get(broker, 0))
            for broker, known in sorted(self.state.brokers.items())
        ]

    def _describe_broker(self, known: BrokerRegistered, partitions_led: int) -> BrokerInfo:
        status = self.health.status(known.broker)
        return BrokerInfo(
            known.broker,
            known.address,
            known.incarnation,
            self.is_live(known.broker),
            partitions_led,
            disk_free_bytes=None if status is None else status.disk_free_bytes,
            disk_total_bytes=None if status is None else status.disk_total_bytes,
            disk_trouble=self.health.disk_trouble(known.broker),
        )

    def learning(self) -> tuple[list[int], list[int]]:
        """The partitions that are being learned again from brokers, and the brokers that have to
        report for that."""
        return sorted(self._rebuild.newest)[:LIST_COUNT_MAX], self._rebuild.away()[:LIST_COUNT_MAX]

    def removals_of(self, broker: int) -> list[RemovedTopic]:
        """The deleted topics that *broker* has not confirmed to have removed."""
        return [
            RemovedTopic(removal.topic, topic_id)
            for topic_id, removal in self.state.removals.items()
            if broker in removal.brokers
            and not (id_fault(topic_id) or topic_name_fault(removal.topic))
        ]

    def topics_of(self, broker: int) -> list[TopicRecord]:
        """The topics that *broker* keeps logs for."""
        return self.state.topics_on(
            {one.partition for one in self.state.partitions.values() if broker in one.replicas}
        )

    def tellable(self, topics: list[TopicRecord]) -> list[TopicRecord]:
        """Those of *topics* that brokers can hold."""
        unfit = self.state.unfit_topics
        return [one for one in topics if one.topic_id not in unfit] if unfit else topics

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        self.state.check_invariants()
        self.elections.check_invariants()
        self._rebuild.check_invariants()
        self.health.check_invariants()
        assert self.health.brokers <= self._live.keys()
        for broker, incarnation in self._live.items():
            assert self.state.brokers[broker].incarnation == incarnation
        for record in self.state.partitions.values():
            known = self.state.brokers.get(record.leader)
            assert known is None or record.leader_incarnation <= known.incarnation


def _check_options(options: TopicOptions) -> None:
    if fault := options.fault():
        raise RefusedError(fault, Status.INVALID_OPTION)
