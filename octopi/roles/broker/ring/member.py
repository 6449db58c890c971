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
    StorageError,
)
from octopi.identifiers import BrokerId, DirectoryId, RingPoint
from octopi.limits import KNOWN_VALUES_S, STABILISE_S
from octopi.logger import get_logger
from octopi.ring.chord import Chord
from octopi.ring.cluster_record import ClusterRecord
from octopi.ring.effects import (
    AnswerNode,
    ConcludeLookup,
    EnterRing,
    RefuseJoining,
    RingEffect,
    SendToAddress,
    SendToNode,
    StoreBook,
)
from octopi.ring.lookup import HolderFound
from octopi.ring.points import choose_point
from octopi.roles.broker.identity import BrokerIdentity
from octopi.roles.broker.ring.admission import ask_for_id
from octopi.roles.broker.ring.cluster_keeper import CLUSTER, ClusterKeeper
from octopi.roles.broker.ring.description import described, refusal_of
from octopi.roles.broker.ring.forming import Forming
from octopi.roles.broker.ring.lookups import AwaitedLookups
from octopi.roles.broker.ring.options import RingOptions
from octopi.roles.broker.ring.own_acceptor import OwnAcceptor
from octopi.roles.broker.ring.peers import RingPeers
from octopi.roles.broker.ring.store import RingStore, StoredRing
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
    ) -> None:
        """*address*: where others reach this broker.  *remember* stores the identity durably.
        *nursery*: the broker's."""
        self.identity = identity
        self.chord: Chord | None = None
        """None: the broker has no place on the ring yet."""
        self.failure: OctopiError | None = None
        """Why this broker ends."""
        self.failed = trio.Event()
        self.address = address
        self._environment = environment
        self._options = options
        self._remember = remember
        self._nursery = nursery
        self._store = RingStore(environment.disk, options.data_directory)
        self._stored = StoredRing()
        self._acceptor = OwnAcceptor(environment, options.data_directory, self.fail)
        self._peers = RingPeers(
            environment, nursery, options.agent, options.credentials, self._said
        )
        self.keeper = ClusterKeeper(environment, self._send, self._tell, self._wake)
        self._forming = Forming(environment, options, address, self._send_founder, self._learn)
        self._is_known = trio.Event()
        """Set when the record of the cluster is known."""
        self._entered = trio.Event()
        """Set when this broker is a member of the ring."""
        self._moved = trio.Event()
        self._unstored: list[tuple[list[RingEffect], Answer]] = []
        """Effects that wait until the address book is durable."""
        self._has_unstored = trio.Event()
        self._lookups = AwaitedLookups()

    def now(self) -> float:
        """The time by this broker's clock."""
        return self._environment.clock.now()

    @property
    def cluster(self) -> str:
        """The id of the cluster; empty: it is not known."""
        return "" if self.keeper.record is None else self.keeper.record.cluster

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
        one, `failed` is set."""
        try:
            async with trio.open_nursery() as nursery:
                try:
                    await self._begin()
                    nursery.start_soon(self._keep_time)
                    nursery.start_soon(self._keep_storing)
                    await self._find_cluster()
                    await self._be_admitted()
                except OctopiError as error:
                    self.fail(error)
                    await trio.sleep_forever()
                self._join()
                await self._entered.wait()
                task_status.started()
                await self._keep_telling()
        finally:
            await self._acceptor.close()

    async def _begin(self) -> None:
        """Read what is on the disk.

        Raises:
          StorageError: if that fails, or it is damaged.
          RefusedError: if the data directory belongs to a cluster with a register.
        """
        if self.identity.register is not None:
            raise RefusedError(
                f"{self._options.data_directory} belongs to a broker of a cluster with a register",
                Status.WRONG_CLUSTER,
            )
        self._stored = self._store.load()
        if self.identity.broker is None and (own := self._forming.own_id) is not None:
            await self._set_identity(attrs.evolve(self.identity, broker=own))
        if self.identity.broker is not None:
            await self._acceptor.open(self.identity.broker)
        if self._stored.cluster is not None:
            self._learn(self._stored.cluster)

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
        if self._stored.is_admitted:
            return
        founders = record.growths[0].members
        own = self._acceptor.identity
        point = next((one.point for one in founders if one.identity == own), None)
        if point is None:
            point = await self._get_id(record)
        await self._set_identity(attrs.evolve(self.identity, cluster=record.cluster))
        self._stored = attrs.evolve(self._stored, is_admitted=True, point=point)
        await self._store_now()

    async def _get_id(self, record: ClusterRecord) -> RingPoint:
        """Have a member give this broker an id; return the point that this broker chooses."""
        founders = [one.address for one in record.growths[0].members]
        addresses = list(dict.fromkeys([*self._forming.others, *founders]))
        admitted = await ask_for_id(self._environment, self._peers, self.address, addresses)
        self._learn(admitted.cluster)
        await self._set_identity(attrs.evolve(self.identity, broker=admitted.broker))
        await self._acceptor.open(admitted.broker)
        return choose_point(admitted.taken, self._environment.randomness.random)

    def _join(self) -> None:
        """Join the ring."""
        identity, acceptor = self.identity, self._acceptor.identity
        record, point = self.keeper.record, self._stored.point
        assert identity.broker is not None
        assert acceptor is not None
        assert record is not None
        assert point is not None
        me = m.RingNode(
            identity.broker,
            acceptor.directory,
            point,
            self._options.host,
            self.address,
            identity.incarnation,
        )
        self.keeper.begin_proposing(identity.broker, identity.incarnation)
        known = (one for one in self._stored.known if one.broker != me.broker)
        self.chord = Chord(me, self._environment.randomness.random, known)
        self.chord.remove_for_good(record.gone)
        founded = any(one.identity == me.identity for one in record.growths[0].members)
        begins = founded or self._stored.was_member
        addresses = [*self._options.join, *(one.address for one in record.growths[0].members)]
        self._perform(self.chord.join(list(dict.fromkeys(addresses)), self.now(), begins=begins))

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
                if message.instance != CLUSTER:
                    raise ProtocolError(f"no value {message.instance} is agreed on here")
                tasks.start_soon(self._acceptor.accept, message, answer)
            case m.ValueChosen():
                self._heard_of(message)
            case m.KnownValues():
                self.keeper.compare(message, answer)
            case m.Meet() | m.Stabilise() | m.Probe() | m.FindHolder() | m.Leave():
                if self.chord is None:
                    raise NotReadyError("this broker has no place on the ring yet")
                self._perform(self.chord.receive(message, self.now()), answer)
            case _:
                raise ProtocolError(f"{type(message).__name__} is no request for a broker")

    def _introduced(self, message: m.Introduce) -> m.Introduced:
        if self.keeper.record is None:
            self._forming.refuse_other_list(message)
        acceptor = self._acceptor.identity
        return m.Introduced(
            message.request,
            self.address,
            BrokerId(0) if acceptor is None else acceptor.broker,
            DirectoryId("") if acceptor is None else acceptor.directory,
            self._options.host,
            self.identity.incarnation,
            self._forming.founders,
            self.keeper.chosen,
        )

    async def admit(self, message: m.Admit) -> m.Admitted:
        """Give a new broker an id.

        Raises:
          NotReadyError: if this broker is no member, or no majority answers.
        """
        chord = self.chord
        if chord is None or not chord.is_member:
            raise NotReadyError("this broker is no member of the ring yet")
        record = await self.keeper.change(ClusterRecord.with_next_id)
        assert self.keeper.chosen is not None
        taken = (chord.me.point, *(one.node.point for one in chord.book))
        broker = BrokerId(record.ids)
        _log.info("a broker gets an id", broker=broker, address=message.address)
        return m.Admitted(message.request, broker, taken, self.keeper.chosen)

    def _said(self, address: str, message: object) -> None:
        """What a broker says on this one's connection to it, without being asked for it."""
        match message:
            case m.ValueChosen():
                self._heard_of(message)
            case m.KnownValues():
                self.keeper.compare(message, partial(self._peers.post, address))
            case (
                m.BallotPromised() | m.ValueAccepted() | m.BallotRefused() | m.AcceptorDeparted()
            ) if message.instance == CLUSTER:
                self._forming.receive(address, message)
                self.keeper.receive(message)
                self._wake()

    def _heard_of(self, message: m.ValueChosen) -> None:
        if message.instance == CLUSTER:
            self._learn(message)
            # An acceptor that has left learns it so.
            self._nursery.start_soon(self._acceptor.accept, message, lambda answer: None)

    def _learn(self, message: m.ValueChosen) -> None:
        """The record of the cluster is *message*, or a newer one."""
        if not self.keeper.learn(message):
            return
        self._is_known.set()
        if self.chord is not None and self.keeper.record is not None:
            self.chord.remove_for_good(self.keeper.record.gone)

    # --- agreeing ----------------------------------------------------------------------------

    def _send(self, acceptor: m.AcceptorId, message: m.PrepareBallot | m.AcceptValue) -> None:
        if self._acceptor.identity == acceptor:
            self._nursery.start_soon(
                self._acceptor.accept, message, partial(self._said, self.address)
            )
        elif (address := self._address_of(acceptor)) is not None:
            self._peers.post(address, message)

    def _send_founder(self, address: str, message: m.PrepareBallot | m.AcceptValue) -> None:
        if address in self._forming.others:
            self._peers.post(address, message)
        else:
            self._nursery.start_soon(
                self._acceptor.accept, message, partial(self._said, self.address)
            )

    def _address_of(self, acceptor: m.AcceptorId) -> str | None:
        entry = None if self.chord is None else self.chord.book.entry(acceptor.broker)
        if entry is not None and entry.node.identity == acceptor:
            return entry.node.address
        record = self.keeper.record
        growths = () if record is None else record.growths
        nodes = (node for one in growths for node in one.members if node.identity == acceptor)
        return next((node.address for node in nodes), None)

    def _tell(self, message: m.ValueChosen) -> None:
        """Tell all that are known."""
        self._is_known.set()
        self._nursery.start_soon(self._acceptor.accept, message, lambda answer: None)
        if self.chord is not None:
            for entry in self.chord.book:
                if not entry.is_silent:
                    self._peers.post(entry.node.address, message)

    # --- the ring ----------------------------------------------------------------------------

    async def locate(self, key: RingPoint) -> HolderFound:
        """The holder of *key*.

        Raises:
          NotReadyError: if this broker is no member, or does not find it.
        """
        chord = self.chord
        if chord is None or not chord.is_member:
            raise NotReadyError(f"this broker is no member of the ring: {self.waits_for}")
        return await self._lookups.look_up(
            lambda number: self._perform(chord.look_up(number, key, self.now()))
        )

    def description(self, request: int) -> m.RingDescription:
        """What people are told about this broker."""
        return described(request, self, self.keeper)

    def _perform(self, effects: list[RingEffect], answer: Answer = lambda message: None) -> None:
        """Do what the machine says.  *answer* answers the message that led to it."""
        for place, effect in enumerate(effects):
            match effect:
                case SendToNode(node, message) if isinstance(message, m.Leave):
                    self._peers.post(node.address, message)
                case SendToNode(m.RingNode(address=address), message) | SendToAddress(
                    address, message
                ):
                    assert not isinstance(message, m.Leave)
                    take = partial(self._answered, message.request)
                    self._peers.ask(address, message, take)
                case AnswerNode(told):
                    answer(told)
                case StoreBook():
                    self._unstored.append((effects[place + 1 :], answer))
                    self._has_unstored.set()
                    break
                case EnterRing():
                    _log.info("in the ring", broker=self.identity.broker)
                    self._entered.set()
                    if not self._stored.was_member:
                        self._stored = attrs.evolve(self._stored, was_member=True)
                        self._unstored.append(([], answer))
                        self._has_unstored.set()
                case RefuseJoining(why):
                    self.fail(refusal_of(why))
                case ConcludeLookup(number, outcome):
                    self._lookups.conclude(number, outcome)
        self._wake()

    def _answered(self, request: int, answer: object) -> None:
        """A question on the ring was answered, or not."""
        assert self.chord is not None
        if isinstance(answer, m.RingAnswer):
            self._perform(self.chord.receive(answer, self.now()))
        else:
            self._perform(self.chord.failed(request, self.now()))

    def fail(self, error: OctopiError) -> None:
        """This broker can't go on."""
        self.failure = self.failure or error
        self.failed.set()

    def _wake(self) -> None:
        self._moved.set()

    # --- tasks ---------------------------------------------------------------------------------

    async def _keep_time(self) -> None:
        clock = self._environment.clock
        while True:
            self._moved = trio.Event()
            wakes_at = min(self.keeper.wakes_at, self._forming.wakes_at)
            if self.chord is not None:
                wakes_at = min(wakes_at, self.chord.wakes_at)
            # Differences of times are inexact: it may seem to be a little too early.
            with clock.timeout(max(_CLOCK_RESOLUTION_S, wakes_at - clock.now())):
                await self._moved.wait()
            now = clock.now()
            self._forming.tick(now)
            self.keeper.tick(now)
            if self.chord is not None and self.chord.wakes_at <= now:
                self._perform(self.chord.tick(now))

    async def _keep_storing(self) -> None:
        """Store the address book, and do what waits for that."""
        while True:
            await self._has_unstored.wait()
            self._has_unstored = trio.Event()
            waiting, self._unstored = self._unstored, []
            try:
                await self._store_now()
            except StorageError as error:
                # Only if others die as well does anybody miss it.
                _log.sparing(self._environment.clock).error("book not stored", why=str(error))
            for effects, answer in waiting:
                self._perform(effects, answer)

    async def _store_now(self) -> None:
        """Store all that is known.

        Raises:
          StorageError: if the disk fails.
        """
        known = self._stored.known if self.chord is None else self.chord.book.nodes()
        self._stored = attrs.evolve(self._stored, cluster=self.keeper.chosen, known=known)
        await self._store.store(self._stored)

    async def _keep_telling(self) -> None:
        """Compare now and then what is agreed on with another broker, and store what is known."""
        clock, randomness = self._environment.clock, self._environment.randomness
        assert self.chord is not None
        since = clock.now()
        while True:
            await self.keeper.replace_acceptor(self.chord.me, self.chord.book, since)
            node = self.chord.book.any_node(randomness.random)
            if node is not None:
                self._peers.post(node.address, self.keeper.known_values())
            known = self.chord.book.nodes()
            if known != self._stored.known or self.keeper.chosen != self._stored.cluster:
                self._unstored.append(([], lambda message: None))
                self._has_unstored.set()
            await self._acceptor.shorten()
            await clock.sleep_until(clock.now() + KNOWN_VALUES_S)
