"""What the register decides: who is a member, who leads, where topics live.

The controller does no I/O.  A question changes nothing: the answer is a decision
(`octopi.coordination.decisions`), and its entries must be durable before brokers or clients are
told.  The caller appends the entries to the journal, then calls `apply` for each, and `admitted`
for a broker that was admitted.  Nothing else changes in between, so decisions are taken one after
another.  If the entries can't be appended, the caller drops the decision, and the controller is as
it was before the question.  The caller reports liveness as it observes it on the membership
connections (`admitted`, `left`).
"""

from __future__ import annotations

from octopi.coordination.admission import (
    Admission,
    UnreportedAdoption,
    adopt,
    adopt_unreported,
    take_over_topics,
)
from octopi.coordination.broker_reports import believe, fault_of
from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.cluster_view import ClusterView
from octopi.coordination.decisions import ClusterDecision
from octopi.coordination.elections import Elections
from octopi.coordination.generation_decisions import GenerationDecisions
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
    TopicRemoved,
)
from octopi.coordination.rebuild import Rebuild
from octopi.coordination.relay_reports import split_reports
from octopi.coordination.relay_sequencers import RelaySequencers
from octopi.coordination.rival_registers import RivalRegisters
from octopi.coordination.seals import Seals
from octopi.coordination.topic_decisions import TopicDecisions
from octopi.coordination.unserved_topics import UnservedTopics
from octopi.errors import (
    RefusedError,
    Status,
)
from octopi.identifiers import BrokerId, Epoch, Incarnation, PartitionId
from octopi.limits import (
    BROKER_ID_MAX,
    BROKERS_MAX,
    LIST_COUNT_MAX,
)
from octopi.wire.messages import (
    Inventory,
    Join,
    RegisterGeneration,
)


class Controller:
    """Decides about the cluster in its `ClusterState`.  The controller itself decides which brokers
    are members, `elections` decides which replicas lead, and `topics` decides which topics exist
    and where they are stored.  `view` describes the result to clients and brokers.

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
        self._live: dict[BrokerId, Incarnation] = {}
        self.health = Health()
        """Which of the live brokers' replicas take records."""
        self.draining: set[BrokerId] = set()
        """Brokers that get no leadership while others can have it."""
        self.stopping: set[BrokerId] = set()
        """Brokers that are about to stop or have stopped, and have not joined with a new
        incarnation since: they get no leadership and no replica while other brokers can have
        them."""
        self._rivals = RivalRegisters(self.state, self._live)
        self._rebuild = Rebuild()
        self.unserved = UnservedTopics(self.state)
        """Topics that brokers hold and the register doesn't serve to clients."""
        self.elections = Elections(self.state, self._live, self._is_doubted, health=self.health)
        self.topics = TopicDecisions(
            self.state,
            self._live,
            self.health,
            self.unserved,
            lambda: self._rebuild,
            replica_count=replica_count,
            draining=self.draining,
            stopping=self.stopping,
        )
        self.generations = GenerationDecisions(self.state, self.topics)
        self.relay_sequencers = RelaySequencers(self._live)
        """Who puts messages in order in which relay partition."""
        self.view = ClusterView(
            self.state, self._live, self.elections, self.health, self.relay_sequencers
        )

    def _is_doubted(self, partition: PartitionId) -> bool:
        """Whether a broker reported a newer record of *partition* than the register knows, and not
        all brokers have reported yet that are needed to adopt it."""
        return partition in self._rebuild.newest

    @property
    def is_learning(self) -> bool:
        """Whether brokers have reported decisions that this register lacks and can't take over
        yet."""
        return bool(self._rebuild.newest or self._rebuild.topics)

    @property
    def has_lost_all_leaders(self) -> bool:
        """Whether all is learned, all brokers with a replica are live, and each broker that led was
        started again since: so there is no leader that may come back."""
        records = self.state.partitions.values()
        replicas = {one for record in records for one in record.replicas}
        return (
            not self.is_learning
            and replicas <= self._live.keys()
            and all(self._live.get(one.leader) != one.leader_incarnation for one in records)
        )

    @property
    def live(self) -> frozenset[BrokerId]:
        """The brokers that are members now."""
        return frozenset(self._live)

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
    ) -> ClusterDecision:
        """Form a new cluster, or take over an existing one that brokers reported; then *generation*
        is above the generations that they reported.
        *secret*: hexadecimal digits; see `octopi.coordination.seals`."""
        assert not self.state.cluster, "a cluster is formed once"
        entries: list[Entry] = [
            # In this order: a register that crashes in between finds no cluster, and forms one.
            RegisterStarted(RegisterGeneration(generation, nonce)),
            ClusterFormed(cluster, self._partition_count, secret),
        ]
        return ClusterDecision(entries)

    def add_partitions(self, count: int) -> ClusterDecision:
        """Add *count* partitions to the cluster.

        Raises:
          RefusedError: INVALID_OPTION; NO_BROKER before there is a cluster.
        """
        state = self.state
        if not state.cluster:
            raise RefusedError("no broker has joined", Status.NO_BROKER)
        if not 1 <= count <= LIST_COUNT_MAX - state.partition_count:
            raise RefusedError(
                f"a cluster has at most {LIST_COUNT_MAX} partitions, this one has "
                f"{state.partition_count}",
                Status.INVALID_OPTION,
            )
        return ClusterDecision([ClusterFormed(state.cluster, state.partition_count + count)])

    def start(self, nonce: str, *, secret: str = "") -> ClusterDecision:
        """The register was started again with its journal; *secret* is used if the journal has
        none."""
        entries: list[Entry] = [
            RegisterStarted(RegisterGeneration(self.state.life.generation + 1, nonce))
        ]
        if not self.state.secret:
            formed = ClusterFormed(self.state.cluster, self.state.partition_count, secret)
            entries.append(formed)
        return ClusterDecision(entries)

    def admit(self, join: Join, inventory: list[Inventory]) -> Admission:
        """A broker asks to join the formed cluster.  Nothing changes before `admitted`, except that
        the controller remembers which brokers have joined another register.

        Before the broker may act, it is removed from the in-sync set of each partition whose logs
        it reports as not intact, or of all partitions if it comes without the data directory that
        it joined with last.  Where the broker is the only replica, it leads again, in a new epoch
        if it was restarted.  If the register's disk was lost or replaced by an older copy, the
        decisions that the register lacks are taken over from the reports as soon as that is safe
        (`octopi.coordination.rebuild`).  Other reports of unknown decisions are not believed
        (`octopi.coordination.broker_reports`).

        Raises:
          SupersededError: if it is proven that brokers have joined another register; this register
              has to stop.
          RefusedError: WRONG_CLUSTER, DUPLICATE_BROKER, BROKER_FENCED or TOO_MANY;
              REGISTER_SUPERSEDED if the broker says without proof that it has joined another
              register;
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
        self._rivals.require(broker, join)
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
        inventory, relayed = split_reports(state, inventory)
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
            host=join.host,
        )
        if registration != known:
            entries.append(registration)
        believed = believe(state, broker, inventory, is_proven=is_proven(state, join))
        standings = believed.standings
        rebuild = self._rebuild.copy()
        rebuild.promise(standings)
        if join.cluster and not has_lost_data:
            # A broker that lost its data can't know that nothing newer was decided.
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
                    again = reappointed(record, incarnation, Epoch(spent[partition] + 1))
                    entries.append(PartitionDecided(again))
            elif partition in damaged and broker in record.in_sync:
                entries.append(PartitionDecided(without(record, broker)))
        return Admission(
            broker,
            join.incarnation,
            entries + relayed,
            conflicts,
            rebuild,
            learned,
            is_back,
            believed.unserved,
            believed.proofs,
        )

    def missing_reports(self, partition: PartitionId) -> list[BrokerId]:
        """The brokers that have to report before anything is decided about *partition*, which this
        register learns again; empty: none."""
        return sorted(self._rebuild.missing(partition))

    def adopt_unreported(self, partition: PartitionId) -> UnreportedAdoption:
        """Go on without them, by order of an operator who knows that they are lost for good."""
        return adopt_unreported(self.state, self._rebuild, partition)

    def adopted(self, adoption: UnreportedAdoption) -> None:
        """The entries of *adoption* are in the journal and applied."""
        self._rebuild = adoption.rebuild

    def admitted(self, admission: Admission) -> None:
        """The entries of *admission*, the answer to the last question, are in the journal and
        applied: from now on the broker is live."""
        self._rebuild = admission.rebuild
        self.unserved.reported(admission.broker, admission.unserved)
        self._rivals.admitted(admission.broker)
        self.joined(admission.broker, admission.incarnation)
        self.health.reconnected(admission.broker)

    def is_later_life(self, join: Join) -> bool:
        """See `octopi.coordination.incarnations.is_later_life`."""
        return is_later_life(self.state, join)

    def _next_broker(self) -> BrokerId:
        """An id that no broker has or had and that no known record names: the one above all such
        ids, or the smallest free id if none above is left."""
        replicas = {one for record in self.state.partitions.values() for one in record.replicas}
        known = {*self.state.brokers, *self.state.removed_brokers}
        taken = known | replicas | self._rebuild.mentioned_brokers()
        above = max(taken, default=0) + 1
        if above <= BROKER_ID_MAX:
            return BrokerId(above)
        return BrokerId(next(one for one in range(1, BROKER_ID_MAX + 1) if one not in taken))

    def remove(self, broker: BrokerId) -> ClusterDecision:
        """Forget a broker that is away for good.

        Raises:
          RefusedError: INVALID_OPTION for an unknown one, BROKER_IN_USE if it is live or
              holds replicas.
        """
        state = self.state
        if broker in state.removed_brokers:
            return ClusterDecision([])
        if broker not in state.brokers:
            raise RefusedError(f"there is no broker {broker}", Status.INVALID_OPTION)
        if broker in self._live:
            raise RefusedError(
                f"broker {broker} runs, at {state.brokers[broker].address}", Status.BROKER_IN_USE
            )
        # A relay set needs no order: it replaces a member that was removed.
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
        return ClusterDecision([BrokerRemoved(broker)])

    def removed(self, topic_id: str, broker: BrokerId) -> ClusterDecision:
        """A broker confirmed that it has removed a deleted topic."""
        return ClusterDecision([TopicRemoved(topic_id, broker)])

    def joined(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """The membership connection of an admitted broker is up."""
        self._live[broker] = incarnation

    def left(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """The membership connection of that incarnation of the broker ended."""
        if self._live.get(broker) == incarnation:
            del self._live[broker]
            self.health.forget(broker)

    def serves(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """A joined broker has answered all decisions that it was sent: clients may be sent to
        it."""
        if self._live.get(broker) == incarnation:
            self.health.informed(broker)

    def is_live(self, broker: BrokerId) -> bool:
        """Whether the broker's membership connection is up."""
        return broker in self._live

    def serving(self, broker: BrokerId) -> bool:
        """Whether clients are sent to the broker."""
        return self.health.is_informed(broker)

    def willing(self) -> list[BrokerId]:
        """The brokers to which leaderships may be given: those that clients are sent to, that take
        records, and that are neither drained nor about to stop."""
        return [
            one
            for one in self.state.brokers
            if self.serving(one)
            and one not in self.stopping | self.draining
            and not self.health.is_troubled(one)
        ]

    def learning(self) -> tuple[list[PartitionId], list[BrokerId]]:
        """The partitions that are being learned again from brokers, and the brokers that have to
        report for that."""
        return sorted(self._rebuild.newest)[:LIST_COUNT_MAX], self._rebuild.away()[:LIST_COUNT_MAX]

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
