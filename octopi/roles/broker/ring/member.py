"""One broker of the ring: its clock, disk and connections around the machines that decide.

It goes through these states, and comes back to the one that it can when it is restarted:

1. It looks for the cluster, or forms it with the other founders (`Forming`).
2. It is admitted: a founder has its id, any other broker gets one through the record of the cluster
   (`ClusterKeeper`), and chooses its point.
3. It joins the ring (`octopi.ring.chord`), and is a member until it ends.  Its acceptor answers as
   soon as it has an id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import (
    NotReadyError,
    OctopiError,
    ProtocolError,
    RefusedError,
    Status,
)
from octopi.identifiers import InstanceId, RingPoint
from octopi.limits import KNOWN_VALUES_S, STABILISE_S
from octopi.logger import get_logger
from octopi.ring.chord import Chord
from octopi.ring.cluster_record import ClusterRecord
from octopi.ring.hand_over import HandOver, first_known
from octopi.ring.lookup import HolderFound
from octopi.ring.points import choose_point
from octopi.roles.broker.identity import BrokerIdentity
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.ring.admission import ask_for_id, introduced
from octopi.roles.broker.ring.cluster_care import ClusterCare
from octopi.roles.broker.ring.cluster_keeper import CLUSTER, ClusterKeeper
from octopi.roles.broker.ring.description import refusal_of
from octopi.roles.broker.ring.forming import Forming
from octopi.roles.broker.ring.group_following import GroupFollowing
from octopi.roles.broker.ring.lead_moves import LeadMoves
from octopi.roles.broker.ring.options import RingOptions
from octopi.roles.broker.ring.own_acceptor import OwnAcceptor
from octopi.roles.broker.ring.partitions import RingPartitions, RingSurroundings, begin_partitions
from octopi.roles.broker.ring.peers import RingPeers
from octopi.roles.broker.ring.place import RingPlace
from octopi.roles.broker.ring.routes import RingRoutes
from octopi.roles.broker.ring.store import KeptRing, StoredRing
from octopi.roles.broker.ring.taken_over import refusal_with_register, take_over
from octopi.roles.noted_events import NotedEvents
from octopi.wire import messages as m

_log = get_logger(__name__)

_CLOCK_RESOLUTION_S: Final = 1e-3
Answer = Callable[[object], None]
"""Sends a message to whoever asked, if it is still there."""


class RingMember:
    """This broker on the ring.  `run` is one task of the broker's nursery."""

    def __init__(
        self,
        environment: Environment,
        options: RingOptions,
        address: str,
        identity: BrokerIdentity,
        remember: Callable[[BrokerIdentity], Awaitable[None]],
        nursery: trio.Nursery,
        replicas: ReplicaManager,
        hand_over: HandOver | None = None,
    ) -> None:
        """*address*: where others reach this broker.  *remember* stores the identity durably.
        *nursery*: the broker's.  *hand_over*: what a register handed over."""
        self.identity = identity
        self.failure: OctopiError | None = None
        """Why this broker ends, if something is wrong."""
        self.ended = trio.Event()
        """Set when it ends by itself: because of a failure, or because it left for good."""
        self.has_registers = False
        """Whether it ends because registers decide from now on, which is stored."""
        self.address = address
        self.events = NotedEvents(environment.clock)
        """What this broker decides and sees."""
        self._environment = environment
        self.options = options
        self._remember = remember
        self._nursery = nursery
        self._kept = KeptRing(environment, options.data_directory)
        self._acceptor = OwnAcceptor(environment, options.data_directory, self.fail, self._first)
        self._peers = RingPeers(
            environment, nursery, options.agent, options.credentials, self._said
        )
        self.keeper = ClusterKeeper(
            environment, self._send, self._tell, self._note_record, self._wake
        )
        self.routes = RingRoutes(self._peers, self)
        self._replicas = replicas
        self._hand_over = hand_over
        self._takes_over = False
        """Whether this process is the first one without a register."""
        self.partitions: RingPartitions | None = None
        """None: the broker has no place on the ring yet."""
        self._forming = Forming(
            environment, options, address, self._send_founder, self.keeper.learn
        )
        self._is_known = trio.Event()
        """Set when the record of the cluster is known."""
        self._moved = trio.Event()
        self._has_left = False
        """Whether it is known that this broker was removed from the cluster for good."""
        self.place = RingPlace(
            environment, self._peers, self._kept, self.fail, self._wake, self.events
        )
        """Its place on the ring."""

    def now(self) -> float:
        """The time by this broker's clock."""
        return self._environment.clock.now()

    @property
    def record(self) -> ClusterRecord | None:
        """The record of the cluster."""
        return self.keeper.record

    @property
    def cluster(self) -> str:
        """The id of the cluster; empty: it is not known."""
        return "" if self.keeper.record is None else self.keeper.record.cluster

    @property
    def chord(self) -> Chord | None:
        """None: the broker has no place on the ring yet."""
        return self.place.chord

    @property
    def is_member(self) -> bool:
        """Whether this broker is in the ring."""
        return self.chord is not None and self.chord.is_member

    @property
    def waits_for(self) -> str:
        """Why this broker is no member of the ring; empty if it is one."""
        if self.is_member:
            return ""
        if self.keeper.record is None:
            return self._forming.waits_for
        if self.chord is None:
            return "no member of the ring has given this broker an id yet"
        return "no member of the ring has let this broker in yet"

    # --- from the start to being a member --------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Be a broker of the ring until cancelled.  ``started`` when it is a member; if it can't be
        one, `ended` is set."""
        try:
            async with trio.open_nursery() as nursery:
                try:
                    await self._begin()
                    nursery.start_soon(self._keep_time)
                    nursery.start_soon(self._kept.keep_storing, self._newest)
                    await self._find_cluster()
                    await self._be_admitted()
                except OctopiError as error:
                    self.fail(error)
                    await trio.sleep_forever()
                self._join()
                await self.place.entered.wait()
                partitions = await self._begin_partitions()
                nursery.start_soon(partitions.run)
                nursery.start_soon(GroupFollowing(self._environment.clock, self, partitions).run)
                nursery.start_soon(self._note_admitted, partitions)
                nursery.start_soon(self._care(partitions).run)
                task_status.started()
                await self._keep_stored()
        finally:
            await self._acceptor.close()

    async def _begin(self) -> None:
        """Read what is on the disk.

        Raises:
          StorageError: if that fails, or it is damaged.
          RefusedError: if the data directory belongs to a cluster with a register.
        """
        if self.identity.register is not None and self._hand_over is None:
            raise refusal_with_register(self.options.data_directory)
        self._kept.load()
        if self.identity.broker is None and (own := self._forming.own_id) is not None:
            await self._set_identity(attrs.evolve(self.identity, broker=own))
        if self.identity.broker is not None:
            await self._acceptor.open(self.identity.broker)
        if self._hand_over is not None:
            self._takes_over = take_over(
                self._hand_over, self.identity, self._acceptor, self._kept, self.options
            )
        if self._kept.content.cluster is not None:
            self.keeper.learn(self._kept.content.cluster)

    async def _set_identity(self, identity: BrokerIdentity) -> None:
        await self._remember(identity)
        self.identity = identity

    async def _find_cluster(self) -> None:
        """Return when the record of the cluster is known."""
        self._forming.begin(self.identity.incarnation)
        self._wake()
        while self.keeper.record is None:
            for address in self._forming.others:
                question = m.Introduce(1, self.address, self._forming.founders)
                self._peers.ask(address, question, partial(self._met, address))
            with self._environment.clock.timeout(STABILISE_S):
                await self._is_known.wait()
        self._forming.end()

    def _met(self, address: str, answer: object) -> None:
        self._forming.introduced(address, answer)
        self._wake()

    async def _be_admitted(self) -> None:
        """Return when this broker has an id that the cluster knows, and a point."""
        record = self.keeper.record
        assert record is not None
        if self.identity.cluster not in {"", record.cluster}:
            raise RefusedError(
                f"this broker belongs to the cluster {self.identity.cluster}, and those that it "
                f"joins to {record.cluster}",
                Status.WRONG_CLUSTER,
            )
        if self._kept.content.is_admitted:
            return
        founders = record.growths[0].members
        own = self._acceptor.identity
        point = next((one.point for one in founders if one.identity == own), None)
        if point is None:
            point = await self._get_id(record)
        await self._set_identity(attrs.evolve(self.identity, cluster=record.cluster))
        self._kept.content = attrs.evolve(self._kept.content, is_admitted=True, point=point)
        await self._kept.store(self._newest())

    async def _get_id(self, record: ClusterRecord) -> RingPoint:
        """Have a member give this broker an id; return the point that this broker chooses."""
        founders = [one.address for one in record.growths[0].members]
        addresses = list(dict.fromkeys([*self._forming.others, *founders]))
        admitted = await ask_for_id(self._environment, self._peers, self.address, addresses)
        self.keeper.learn(admitted.cluster)
        await self._set_identity(attrs.evolve(self.identity, broker=admitted.broker))
        await self._acceptor.open(admitted.broker)
        return choose_point(admitted.taken, self._environment.randomness.random)

    def _join(self) -> None:
        """Join the ring."""
        identity, acceptor = self.identity, self._acceptor.identity
        record, point = self.keeper.record, self._kept.content.point
        assert identity.broker is not None
        assert acceptor is not None
        assert record is not None
        assert point is not None
        me = m.RingNode(
            identity.broker,
            acceptor.directory,
            point,
            self.options.host,
            self.address,
            identity.incarnation,
        )
        self.keeper.begin_proposing(identity.broker, identity.incarnation)
        gone = {me.broker, *record.gone}
        known = [one for one in self._kept.content.known if one.broker not in gone]
        founded = any(one.identity == me.identity for one in record.growths[0].members)
        begins = founded or self._kept.content.was_member
        addresses = [*self.options.join, *(one.address for one in record.growths[0].members)]
        self.place.join(me, known, list(dict.fromkeys(addresses)), begins=begins)
        self._note_gone()

    def _note_gone(self) -> None:
        """Brokers that were removed for good are let in no more, and end."""
        record = self.keeper.record
        if self.chord is None or record is None:
            return
        self.chord.remove_for_good(record.gone)
        if self.chord.me.broker in record.gone and not self._has_left:
            self._has_left = True
            if not self.is_member:
                self.fail(refusal_of(m.RingRefusal.BROKER_REMOVED))
                return
            _log.info("this broker has left the cluster for good: its data is needed no more")
            self.place.leave()
            self._kept.store_then(self.ended.set)  # it will not even ask to be let in again

    def _note_ended(self) -> None:
        """When registers decide, this broker goes on with them."""
        ending = None if self.keeper.record is None else self.keeper.record.ending
        if ending is None or not ending.is_over or self.has_registers:
            return
        if not self._kept.content.is_admitted:
            self.fail(ending.refusal)
            return
        self.has_registers = True
        _log.info("registers decide from now on", registers=list(ending.registers))
        self._kept.store_then(self.ended.set)

    async def _begin_partitions(self) -> RingPartitions:
        """Decide about partitions from now on.

        Raises:
          StorageError: if a replica can't begin.
        """
        around = RingSurroundings(
            self._environment,
            self._replicas,
            self._acceptor,
            self.routes,
            self._nursery,
            self.events,
            self._hand_over,
        )
        self.partitions = await begin_partitions(around, self.identity, self.fail)
        assert self.keeper.record is not None
        self.partitions.begin(self.keeper.record)
        return self.partitions

    def _care(self, partitions: RingPartitions) -> ClusterCare:
        assert self.chord is not None
        clock = self._environment.clock
        moves = LeadMoves(clock, partitions, self._replicas)
        return ClusterCare(
            self._environment,
            self.chord,
            self.keeper,
            partitions,
            self._peers,
            moves,
            ends_drain=not self._takes_over,
        )

    async def _note_admitted(self, partitions: RingPartitions) -> None:
        """When this process is registered everywhere, none of the earlier ones is."""
        await partitions.admitted.wait()
        page_cache = self._environment.disk.page_cache_id()
        await self._set_identity(attrs.evolve(self.identity, page_cache=page_cache, ancestors=[]))

    # --- what others say -------------------------------------------------------------------

    def receive(self, message: object, answer: Answer, tasks: trio.Nursery) -> None:
        """Another broker asks or tells something.  *tasks*: the nursery of its connection.

        Raises:
          OctopiError: the answer to a request.
        """
        match message:
            case m.Introduce():
                answer(self._introduced(message))
            case m.PrepareBallot() | m.AcceptValue():
                if message.instance == CLUSTER:
                    tasks.start_soon(self._acceptor.accept, message, answer)
                elif self.partitions is not None:
                    self.partitions.asked(message, answer)
            case m.ValueChosen():
                self._heard_of(message)
            case m.KnownValues():
                self._compare(message, answer)
            case m.AnnounceEpoch() | m.Pulse():
                if self.partitions is None:
                    raise NotReadyError("this broker has no place on the ring yet")
                self.partitions.heard(message, answer)
            case m.Meet() | m.Stabilise() | m.Probe() | m.FindHolder() | m.Leave():
                self.place.receive(message, answer)
            case _:
                raise ProtocolError(f"{type(message).__name__} is no request for a broker")

    def _introduced(self, message: m.Introduce) -> m.Introduced:
        if self.keeper.record is None:
            self._forming.refuse_other_list(message)
        own = introduced(message.request, self.address, self.options.host, self._acceptor.identity)
        return attrs.evolve(
            own,
            incarnation=self.identity.incarnation,
            founders=self._forming.founders,
            cluster=self.keeper.chosen,
        )

    def _said(self, address: str, message: object) -> None:
        """What a broker says on this one's connection to it, without being asked for it."""
        match message:
            case m.ValueChosen():
                self._heard_of(message)
            case m.KnownValues():
                self._compare(message, partial(self._peers.post, address))
            case (
                m.BallotPromised() | m.ValueAccepted() | m.BallotRefused() | m.AcceptorDeparted()
            ) if message.instance == CLUSTER:
                self._forming.receive(address, message)
                self.keeper.receive(message)
                self._wake()
            case _ if self.partitions is not None:
                self.partitions.answered(message)

    def _compare(self, message: m.KnownValues, answer: Answer) -> None:
        self.keeper.compare(message, answer)
        if self.partitions is not None:
            self.partitions.compare(message, answer)

    def _heard_of(self, message: m.ValueChosen) -> None:
        if message.instance == CLUSTER:
            self.keeper.learn(message)
            # An acceptor that has left learns it so.
            self._nursery.start_soon(self._acceptor.accept, message, lambda answer: None)
        elif self.partitions is not None:
            self.partitions.learn(message)

    def _note_record(self) -> None:
        """There is a newer record of the cluster."""
        self._is_known.set()
        self._note_gone()
        self._note_ended()
        if self.partitions is not None and self.keeper.record is not None:
            self.partitions.begin(self.keeper.record)

    # --- agreeing ----------------------------------------------------------------------------

    def _send(self, acceptor: m.AcceptorId, message: m.PrepareBallot | m.AcceptValue) -> None:
        if self._acceptor.identity == acceptor:
            self._nursery.start_soon(
                self._acceptor.accept, message, partial(self._said, self.address)
            )
        else:
            self.routes.send(acceptor, message)

    def _send_founder(self, address: str, message: m.PrepareBallot | m.AcceptValue) -> None:
        if address in self._forming.others:
            self._peers.post(address, message)
        else:
            self._nursery.start_soon(
                self._acceptor.accept, message, partial(self._said, self.address)
            )

    def _first(self, instance: InstanceId) -> m.AgreedValue | None:
        return first_known(instance, self.keeper.record, self._hand_over)

    def _tell(self, message: m.ValueChosen) -> None:
        """Tell all that are known."""
        self._nursery.start_soon(self._acceptor.accept, message, lambda answer: None)
        self.routes.tell((), message)

    # --- the ring ----------------------------------------------------------------------------

    async def locate(self, key: RingPoint) -> HolderFound:
        """The holder of *key*.

        Raises:
          NotReadyError: if this broker is no member, or does not find it.
        """
        if not self.is_member:
            raise NotReadyError(f"this broker is no member of the ring: {self.waits_for}")
        return await self.place.locate(key)

    def fail(self, error: OctopiError) -> None:
        """This broker can't go on."""
        self.failure = self.failure or error
        self.ended.set()

    def _wake(self) -> None:
        self._moved.set()

    # --- tasks ---------------------------------------------------------------------------------

    async def _keep_time(self) -> None:
        clock = self._environment.clock
        while True:
            self._moved = trio.Event()
            wakes_at = min(self.keeper.wakes_at, self._forming.wakes_at, self.place.wakes_at)
            # Differences of times are inexact: it may seem to be a little too early.
            with clock.timeout(max(_CLOCK_RESOLUTION_S, wakes_at - clock.now())):
                await self._moved.wait()
            now = clock.now()
            self._forming.tick(now)
            self.keeper.tick(now)
            self.place.tick(now)

    def _newest(self) -> StoredRing:
        """All that is known now and is to be stored."""
        kept, chord = self._kept.content, self.chord
        known = kept.known if chord is None else chord.book.nodes()
        return attrs.evolve(kept, cluster=self.keeper.chosen, known=known)

    async def _keep_stored(self) -> None:
        """Store now and then what is known, and shorten the acceptor's journal."""
        clock = self._environment.clock
        while True:
            if self._newest() != self._kept.content:
                self._kept.store_then()
            await self._acceptor.shorten()
            await clock.sleep_until(clock.now() + KNOWN_VALUES_S)
