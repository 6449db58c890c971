"""Hands the cluster over to its brokers alone, by order of an operator."""

from __future__ import annotations

import trio

from octopi.coordination.controller import Controller
from octopi.coordination.decisions import ClusterDecision
from octopi.coordination.journal_entries import HandedOver, HandOverAnnounced
from octopi.environment import Environment
from octopi.errors import NotLeaderError, NotReadyError, RefusedError, Status
from octopi.identifiers import BrokerId
from octopi.logger import get_logger
from octopi.ring.cluster_record import ClusterRecord, decode_cluster, encode_cluster
from octopi.ring.hand_over import handed_over_entries
from octopi.ring.handing_over import record_to_hand_over
from octopi.roles.hand_over_pages import hand_over_page
from octopi.roles.register.decision_log import DecisionLog
from octopi.roles.register.gathering import Gathering
from octopi.roles.register.member import Member
from octopi.roles.register.members import Members
from octopi.roles.register.register_journal import encode
from octopi.wire import messages as m

_log = get_logger(__name__)


class HandingOver:
    """Whether this register has handed over, and what it tells since."""

    def __init__(
        self,
        environment: Environment,
        controller: Controller,
        decisions: DecisionLog,
        gathering: Gathering,
        members: Members,
        replica_count: int,
    ) -> None:
        self.is_done = trio.Event()
        """Set when the register decides nothing any more, for ever."""
        self._environment = environment
        self._controller = controller
        self._decisions = decisions
        self._gathering = gathering
        self._members = members
        self._replica_count = replica_count
        self._entries: list[bytes] | None = None
        self._is_announcing = False

    def replayed(self) -> None:
        """The journal was read."""
        if self._controller.state.handed_over is not None:
            self.is_done.set()

    @property
    def record(self) -> ClusterRecord | None:
        """The record of the cluster without a register; None: this register decides."""
        handed_over = self._controller.state.handed_over
        if handed_over is None or not self.is_done.is_set():
            return None
        return decode_cluster(handed_over.record)

    async def order(self, message: m.HandOverToRing) -> m.ClusterHandedOver:
        """Hand over, unless that is done.

        Raises:
          RefusedError, NotReadyError: why it is not done; ANSWER_LOST if that is not known.
        """
        if self._controller.state.handed_over is None:
            record = self._next_record()
            if not message.dry_run:
                await self._announce(record)
                self._decisions.persist(ClusterDecision([HandedOver(encode_cluster(record))]))
                await self._decisions.durable()
                _log.info(
                    "the cluster has no register from now on",
                    brokers=len(record.growths[0].members),
                )
                self.is_done.set()
            return _answer(message, record)
        await self._decisions.durable()
        done = self.record
        if done is None:
            raise NotReadyError("the register is just handing over")
        return _answer(message, done)

    async def _announce(self, record: ClusterRecord) -> None:
        """Have all brokers store what the cluster will be, so that none of them goes on with a
        register that has lost its disk while others have taken over.

        Raises:
          NotReadyError: if a broker has not stored it, or anything else was decided meanwhile.
        """
        if self._is_announcing:
            raise NotReadyError("another order to hand over is being carried out")
        self._is_announcing = True
        try:
            attempt = self._environment.randomness.token_bytes(8).hex()
            content = encode_cluster(record)
            self._decisions.persist(ClusterDecision([HandOverAnnounced(attempt)]))
            await self._decisions.durable()
            faults: dict[BrokerId, str] = {}

            async def announce(broker: BrokerId, member: Member) -> None:
                if why := await member.announce_hand_over(attempt, content):
                    faults[broker] = why

            async with trio.open_nursery() as nursery:
                for broker, member in list(self._members.items()):
                    nursery.start_soon(announce, broker, member)
            if faults:
                broker = min(faults)
                raise NotReadyError(
                    f"broker {broker} has not stored that the cluster is handed over, so it is "
                    f"not: {faults[broker]}"
                )
            if encode_cluster(self._next_record()) != content:
                raise NotReadyError("a broker was started again meanwhile: repeat the order")
        finally:
            self._is_announcing = False

    def _next_record(self) -> ClusterRecord:
        """Raises: see `order`."""
        controller = self._controller
        self._gathering.require_over()
        if controller.is_learning:
            raise NotReadyError("the register still learns from brokers what it had decided")
        if unserved := controller.unserved.found():
            one = unserved[0]
            raise RefusedError(
                f"broker {one.broker} keeps messages of a topic {one.topic} that is not served: "
                f"`octopi-node topics delete --id {one.topic_id}`",
                Status.INVALID_OPTION,
            )
        for topic in controller.state.topics_after("", controller.state.topic_count):
            if topic.generations:
                raise RefusedError(
                    f"topic {topic.topic} has had other partitions: a cluster without a register "
                    "can't hold such topics yet",
                    Status.INVALID_OPTION,
                )
        directories = {
            broker: member.directory
            for broker, member in self._members.items()
            if member.directory and not member.is_closed
        }
        return record_to_hand_over(
            controller.state,
            self._replica_count,
            directories,
            controller.live,
            controller.draining,
        )

    # --- afterwards ----------------------------------------------------------------------------

    def page(self, message: m.AskHandOver) -> m.HandOverPage:
        """The next entries for a broker that may change over."""
        if not self.is_done.is_set():
            knows = message.attempt in self._controller.state.hand_over_attempts
            return m.HandOverPage(message.request, False, [], False, knows)
        if self._entries is None:
            self._entries = list(map(encode, handed_over_entries(self._controller.state)))
        return hand_over_page(message, self._entries)

    def refuse_client(self) -> None:
        """Send a client to a broker.

        Raises:
          NotLeaderError: with the address of one.
        """
        record = self.record
        assert record is not None
        members = record.growths[0].members
        drawn = int(self._environment.randomness.random() * len(members))
        address = members[min(drawn, len(members) - 1)].address
        raise NotLeaderError(
            f"this cluster has no register any more: its brokers decide; ask {address}",
            address=address,
        )

    def refuse_broker(self) -> None:
        """Refuse a broker that wants to join.

        Raises:
          RefusedError: which says how to start it.
        """
        record = self.record
        assert record is not None
        addresses = ",".join(one.address for one in record.growths[0].members[:3])
        raise RefusedError(
            f"this cluster has no register any more: start the broker with --join {addresses} "
            "beside --register; when it has what the register handed over, it needs --join alone",
            Status.WRONG_CLUSTER,
        )


def _answer(message: m.HandOverToRing, record: ClusterRecord) -> m.ClusterHandedOver:
    members = record.growths[0].members
    return m.ClusterHandedOver(message.request, [one.address for one in members])
