"""The connections between relays that share a set: one for each two, over which both speak.

The relay with the greater id connects.  Each side first says which incarnation it is, and which
mesh it belongs to (`octopi.wire.relay.RelayGreet`); then messages go in both directions until the
connection ends.  What can't be sent is lost: the machines repeat what matters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    OctopiError,
    ProtocolError,
    RefusedError,
    Status,
)
from octopi.identifiers import BrokerId, Incarnation, PartitionId
from octopi.limits import (
    OUTBOX_BYTES_MAX,
    RELAY_CLOCK_APART_S,
    RELAY_CONNECT_S,
    RELAY_GREET_S,
    RELAY_NAMES_TOLD_MAX,
)
from octopi.logger import get_logger
from octopi.relay.incarnations import RelayLife
from octopi.relay.messages import RelayBeat, RelayMessage
from octopi.roles.broker.relay.forms import Pages, RelayHead, RelayPaged, heard, told
from octopi.roles.broker.relay.mesh import Mesh
from octopi.roles.broker.relay.peer_clock import PeerClock
from octopi.transport.connection import Connection
from octopi.transport.failures import refusal
from octopi.transport.handshake import NodeCredentials, open_node_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import RELAY

_log = get_logger(__name__)

_NEVER_GREETED: Final = Incarnation(0)

TakeMessage = Callable[[BrokerId, PartitionId, RelayLife, RelayMessage], None]
"""Takes a message of another relay: who sent it, about which partition, and in which life."""


@attrs.frozen
class OwnGreeting:
    """What this relay says of itself."""

    broker: BrokerId
    incarnation: Incarnation
    nonce: str


@attrs.define(eq=False)
class _Peer:
    """Another relay, as far as it is known."""

    incarnation: Incarnation = _NEVER_GREETED
    nonce: str = ""
    emptied: dict[PartitionId, int] = attrs.field(factory=dict)
    """How often it gave up what it held, in that incarnation."""
    connection: Connection | None = None
    is_sought: bool = False
    """Whether this relay connects to it, again and again."""
    pages: dict[PartitionId, Pages] = attrs.field(factory=dict)
    clock: PeerClock = attrs.field(factory=PeerClock)
    """As the beats of the present connection show it."""


class RelayLinks:
    """The connections of one relay to all others.

    Invariant: a message is handed over only if it was sent to the present life of this relay in its
    partition.
    """

    def __init__(
        self,
        environment: Environment,
        mesh: Mesh,
        me: OwnGreeting,
        agent: str,
        credentials: NodeCredentials,
        take: TakeMessage,
        forgot: Callable[[Incarnation], None],
    ) -> None:
        """*forgot*: the data directory has forgotten starts: another relay knows that
        incarnation of this one."""
        self._environment = environment
        self._mesh = mesh
        self._me = me
        self._agent, self._credentials = agent, credentials
        self._take, self._forgot = take, forgot
        self._peers: dict[BrokerId, _Peer] = {}
        self._emptied: dict[PartitionId, int] = {}
        self._nursery: trio.Nursery | None = None
        self.topics: dict[str, None] = {}
        """The names of topics that are known to be in use, of a static list."""
        self.meet()

    @property
    def incarnations(self) -> dict[BrokerId, Incarnation]:
        """The relays that are connected, and their incarnations."""
        peers = self._peers.items()
        return {one: peer.incarnation for one, peer in peers if peer.connection is not None}

    @property
    def clocks(self) -> dict[BrokerId, float]:
        """By how much the clock of each connected relay is ahead of this one's (s)."""
        return {
            one: ahead_s
            for one, peer in self._peers.items()
            if peer.connection is not None and (ahead_s := peer.clock.ahead_s) is not None
        }

    # --- sending -------------------------------------------------------------------------

    def send(self, to: BrokerId, partition: PartitionId, message: RelayMessage) -> None:
        """Send *message* to another relay; without a connection, or if too much waits there, it is
        lost."""
        peer = self._peers.get(to)
        connection = peer.connection if peer is not None else None
        if peer is None or connection is None or connection.outbox.size_bytes > OUTBOX_BYTES_MAX:
            return
        mine, others = self._emptied.get(partition, 0), peer.emptied.get(partition, 0)
        wall_ms = self._environment.clock.wall_ms() if isinstance(message, RelayBeat) else 0
        head = RelayHead(partition, mine, others, wall_ms)
        try:
            for one in told(head, message):
                connection.post(one)
        except ConnectionLostError:
            pass
        except ValueError as error:  # a fault of ours, or what a broken peer made us say
            _log.sparing(self._environment.clock).error("message not sent", why=str(error))

    def begin_life(self, partition: PartitionId, emptied: int) -> None:
        """This relay gave up what it held of *partition*; what is sent to its former life is not
        for it any more."""
        self._emptied[partition] = emptied

    def learn_topic(self, name: str) -> None:
        """A topic is in use."""
        if name in self.topics:
            return
        self.topics[name] = None
        for peer in self._peers.values():
            if peer.connection is not None:
                self._tell(peer.connection, [name])

    def _tell(self, connection: Connection, names: list[str]) -> None:
        with contextlib.suppress(ConnectionLostError):
            for begin in range(0, len(names), RELAY_NAMES_TOLD_MAX):
                connection.post(m.RelayTopics(tuple(names[begin : begin + RELAY_NAMES_TOLD_MAX])))

    # --- connecting ----------------------------------------------------------------------

    def meet(self) -> None:
        """The mesh may have other relays than before."""
        for other in sorted(self._mesh.relays.keys() - {self._me.broker}):
            peer = self._peers.setdefault(other, _Peer())
            if self._nursery is not None and other < self._me.broker and not peer.is_sought:
                peer.is_sought = True
                self._nursery.start_soon(self._stay_connected, other, peer)
        for other, peer in self._peers.items():
            if self._nursery is not None and other not in self._mesh.relays and peer.connection:
                self._nursery.start_soon(peer.connection.close)

    async def run(self) -> None:
        """Stay connected with all relays of smaller ids."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.meet()
            await trio.sleep_forever()

    async def _stay_connected(self, other: BrokerId, peer: _Peer) -> None:
        """Until the mesh has it no more."""
        clock = self._environment.clock
        while (address := self._mesh.relays.get(other)) is not None:
            try:
                connection = await open_node_connection(
                    self._environment, address, RELAY, self._agent, self._credentials
                )
                await self._run(other, connection)
            except OctopiError as error:
                _log.sparing(clock).info("relay not reached", relay=other, why=str(error))
            await clock.sleep_until(clock.now() + RELAY_CONNECT_S)
        peer.is_sought = False

    async def _run(self, other: BrokerId, connection: Connection) -> None:
        """Greet, and then take what comes until *connection* ends."""
        problems: list[OctopiError] = []
        greeted = trio.Event()

        def take(answer: object) -> None:
            """In the reader, so nothing that follows is handled before."""
            connection.forget(request)
            try:
                self._answered(other, connection, answer)
            except OctopiError as error:
                problems.append(error)
            greeted.set()

        async def greet() -> None:
            with self._environment.clock.timeout(RELAY_GREET_S):
                await greeted.wait()
            if problems or not greeted.is_set():
                await connection.close()

        request = connection.next_request()
        connection.ask(m.RelayGreet(request, *self._greeting(other)), take)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(greet)
            await connection.run(
                lambda message: self.take(other, connection, message),
                on_end=lambda: self.ended(connection),
            )
            nursery.cancel_scope.cancel()
        if problems:
            raise problems[0]

    def _answered(self, other: BrokerId, connection: Connection, answer: object) -> None:
        match answer:
            case m.RelayGreeted(broker=broker) if broker == other:
                self._greeted(connection, answer)
                self._tell(connection, list(self.topics))
            case m.RelayGreeted(broker=broker):
                raise RefusedError(
                    f"relay {broker} answers at {self._mesh.relays.get(other)}, which is the "
                    f"address of relay {other}",
                    Status.WRONG_CLUSTER,
                )
            case m.Failure():
                raise refusal(answer)
            case OctopiError():
                raise answer
            case _:
                raise ProtocolError(f"{type(answer).__name__} is no greeting of a relay")

    def _greeting(
        self, to: BrokerId
    ) -> tuple[BrokerId, Incarnation, str, bytes, tuple[m.EmptiedPartition, ...], Incarnation, str]:
        me, peer = self._me, self._peers[to]
        emptied = tuple(m.EmptiedPartition(*one) for one in self._emptied.items())
        return (
            me.broker,
            me.incarnation,
            me.nonce,
            self._mesh.digest,
            emptied,
            peer.incarnation,
            peer.nonce,
        )

    # --- hearing -------------------------------------------------------------------------

    def accept(self, connection: Connection, message: m.RelayGreet) -> BrokerId:
        """A relay has connected, and greets; return its id.

        Raises:
          RefusedError: if it is none of the list, has another list, or is an earlier incarnation.
        """
        if message.broker <= self._me.broker or message.broker not in self._mesh.relays:
            raise RefusedError(
                f"relay {message.broker} is none that connects to relay {self._me.broker}: "
                f"{self._mesh.text}",
                Status.WRONG_CLUSTER,
            )
        self._greeted(connection, message)
        connection.post(m.RelayGreeted(message.request, *self._greeting(message.broker)))
        self._tell(connection, list(self.topics))
        return message.broker

    def _greeted(self, connection: Connection, message: m.RelayGreet | m.RelayGreeted) -> None:
        me, peer = self._me, self._peers[message.broker]
        if message.mesh != self._mesh.digest:
            raise RefusedError(
                f"relay {message.broker} and relay {me.broker} have different lists "
                f"(--relay-peers), or clusters; here it is {self._mesh.text}",
                Status.WRONG_CLUSTER,
            )
        is_another = message.known == me.incarnation and message.known_nonce != me.nonce
        if message.known > me.incarnation or is_another:
            self._forgot(message.known)
            raise RefusedError(
                f"relay {me.broker} has forgotten starts: it is at incarnation {me.incarnation}, "
                f"and relay {message.broker} knows {message.known}",
                Status.BROKER_FENCED,
            )
        is_older = message.incarnation < peer.incarnation
        is_copy = message.incarnation == peer.incarnation and message.nonce != peer.nonce
        if is_older or is_copy:
            raise RefusedError(
                f"a later start of relay {message.broker}, or another copy of it, is known: "
                f"incarnation {peer.incarnation}",
                Status.BROKER_FENCED,
            )
        peer.incarnation, peer.nonce = message.incarnation, message.nonce
        peer.emptied = {one.partition: one.emptied for one in message.emptied}
        peer.pages, peer.clock = {}, PeerClock()
        peer.connection = connection
        _log.info("relay connected", relay=message.broker, incarnation=message.incarnation)

    def ended(self, connection: Connection) -> None:
        """*connection* has ended."""
        for broker, peer in self._peers.items():
            if peer.connection is connection:
                peer.connection = None
                _log.info("relay disconnected", relay=broker)

    def take(self, sender: BrokerId, connection: Connection, message: object) -> None:
        """Handle what *sender* says.  If another connection has taken the place of *connection*,
        it is of an earlier life, or doubled, and is dropped.

        Raises:
          ProtocolError: if it is not about anything that there is.
        """
        if self._peers[sender].connection is not connection:
            return
        match message:
            case m.RelayTopics(names):
                self.topics.update(dict.fromkeys(names))
            case m.OfPartition():
                self._take_of_partition(sender, message)
            case _:
                raise ProtocolError(f"{type(message).__name__} is no message for a relay")

    def _take_of_partition(self, sender: BrokerId, message: m.OfPartition) -> None:
        mine = self._emptied.get(message.partition, 0)
        peer = self._peers[sender]
        if message.life >= peer.emptied.get(message.partition, 0):
            peer.emptied[message.partition] = message.life
        if message.to != mine:
            return
        if isinstance(message, m.BeatTold) and message.wall_ms:
            self._look_at_clock(sender, peer.clock, message.wall_ms)
        life = RelayLife(peer.incarnation, message.life)
        whole: RelayMessage | None
        if isinstance(message, RelayPaged):
            whole = peer.pages.setdefault(message.partition, Pages()).take(message)
        else:
            whole = heard(message)
        if whole is not None:
            self._take(sender, message.partition, life, whole)

    def _look_at_clock(self, sender: BrokerId, clock: PeerClock, wall_ms: int) -> None:
        own = self._environment.clock
        clock.heard(wall_ms, own.wall_ms())
        ahead_s = clock.ahead_s
        if ahead_s is not None and abs(ahead_s) > RELAY_CLOCK_APART_S:
            _log.sparing(own).warning(
                "the clock of another relay differs", relay=sender, ahead_s=round(ahead_s, 3)
            )


@attrs.frozen
class PartitionLinks:
    """The connections, for messages about one partition."""

    links: RelayLinks
    partition: PartitionId

    def send(self, to: BrokerId, message: RelayMessage) -> None:
        """See `RelayLinks.send`."""
        self.links.send(to, self.partition, message)

    def begin_life(self, emptied: int) -> None:
        """See `RelayLinks.begin_life`."""
        self.links.begin_life(self.partition, emptied)
