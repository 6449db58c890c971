"""Whether a broker with a register goes on without one, which it asks whenever it connects.

The register knows it, unless it has another journal than the one that announced the hand-over.
Then the other brokers are asked (`octopi.ring.hand_over_fate`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import NotReadyError, RefusedError, Status, StorageError
from octopi.identifiers import BrokerId, DirectoryId
from octopi.limits import HAND_OVER_PATIENCE_S, REQUEST_TIMEOUT_S
from octopi.logger import get_logger
from octopi.ring.cluster_record import ClusterRecord, decode_cluster
from octopi.ring.hand_over_fate import HandOverFate, ToldState, fate
from octopi.roles.broker.announced_hand_over import (
    AnnouncedHandOver,
    load_announced,
    store_announced,
)
from octopi.roles.broker.hand_over_peers import HandOverPeers
from octopi.roles.broker.identity import BrokerIdentity
from octopi.roles.broker.taking_over import (
    ANNOUNCED_FILE,
    acceptor_number,
    check_takes_over,
    hand_over_of,
    load_entries,
    store_hand_over,
)
from octopi.roles.hand_over_pages import hand_over_page
from octopi.transport.connection import Connection
from octopi.transport.handshake import NodeCredentials
from octopi.wire import messages as m

_log = get_logger(__name__)


class HandOverQuestion:
    """Asks the register, and other brokers where that is necessary."""

    def __init__(
        self,
        environment: Environment,
        data_directory: str,
        directory: DirectoryId,
        announced: AnnouncedHandOver | None,
        peers: HandOverPeers,
        *,
        is_prepared: bool,
    ) -> None:
        """*directory*: the number of this broker's acceptor.  *announced*: what was announced last.
        *is_prepared*: whether it was started with addresses by which it joins a ring."""
        self.directory: Final = directory
        self.is_prepared: Final = is_prepared
        self.is_done: Final = trio.Event()
        """Set when this broker has stored what was handed over, and joins no register any more."""
        self.waits_for = ""
        """Why this broker does not join its register; empty: it does, as soon as it can."""
        self.has_register: Callable[[], bool] = lambda: False
        """Whether the register counts this broker as a member now."""
        self._environment = environment
        self._data_directory = data_directory
        self._announced = announced
        self._peers = peers
        self._open_since = math.inf
        self._storing = trio.Lock()
        """Held while this broker takes over or gives up: it never does both."""

    @property
    def is_announced(self) -> bool:
        """Whether a register has ever announced a hand-over."""
        return self._announced is not None

    # --- what the register says ----------------------------------------------------------------

    async def announce(self, message: m.AnnounceHandOver) -> None:
        """Store that the register is about to hand over.

        Raises:
          RefusedError: if this broker is not prepared, or the record is none.
          StorageError: if the disk fails.
        """
        if not self.is_prepared:
            raise RefusedError("this broker was started without --join", Status.INVALID_OPTION)
        try:
            decode_cluster(message.record)
        except ValueError as error:
            raise RefusedError(f"the record: {error}", Status.INVALID_OPTION) from error
        async with self._storing:
            await self._store(AnnouncedHandOver(message.attempt, message.record))

    async def ask(self, connection: Connection, identity: BrokerIdentity) -> bool:
        """Ask the register on *connection*; whether it has handed over, and that is stored.  If
        not, this broker may join it.

        Raises:
          NotReadyError: while that can't be known; `waits_for` says why.
          RefusedError: if this broker is not among those that take over.
          ConnectionLostError, ProtocolError: if the register does not answer.
          StorageError: if the disk fails, or this broker's acceptor is another one than the
              register knows.
        """
        announced = self._announced
        page = await self._page(connection, 0)
        if page.is_handed_over and not (announced and announced.has_given_up):
            entries = list(page.entries)
            while page.more:
                page = await self._page(connection, len(entries))
                entries += page.entries
            await self._take_over(entries, identity)
            return True
        if announced is None or identity.broker is None:
            return False
        if not page.is_handed_over and (announced.is_given_up or page.knows_attempt):
            self._settled()
            return False
        if await self._has_taken_place(announced, identity, identity.broker):
            return True
        if page.is_handed_over:
            raise self._waiting(
                "the register at this address has handed the cluster over, which its brokers had "
                "given up when another register took its place: stop it"
            )
        self._settled()
        return False

    async def _page(self, connection: Connection, after: int) -> m.HandOverPage:
        attempt = self._announced.attempt if self._announced else ""
        question = m.AskHandOver(connection.next_request(), after, attempt)
        return await connection.request(question, m.HandOverPage, REQUEST_TIMEOUT_S)

    # --- what other brokers say ----------------------------------------------------------------

    async def _has_taken_place(
        self, announced: AnnouncedHandOver, identity: BrokerIdentity, own: BrokerId
    ) -> bool:
        """Ask the other brokers whether the hand-over took place, and take over if it did; False:
        it never will.

        Raises:
          NotReadyError: while that can't be known.
        """
        now = self._environment.clock.now()
        self._open_since = min(self._open_since, now)
        is_patient = now < self._open_since + HAND_OVER_PATIENCE_S
        record = announced.cluster
        others = [one for one in record.growths[0].members if one.broker != own]
        told: dict[BrokerId, ToldState] = {}
        found = HandOverFate.WAIT
        for give_up in (False, True):
            told = await self._peers.states(others, announced.attempt, give_up=give_up)
            found = fate(record, self._has_given_up, told, is_patient=is_patient)
            if found is not HandOverFate.GIVE_UP:
                break
            await self._give_up()
        if found is HandOverFate.TAKE_OVER:
            for one in others:
                if one.broker in told and told[one.broker].is_taken_over:
                    entries = await self._peers.entries(one, announced.attempt)
                    if entries is not None:
                        await self._take_over(entries, identity, may_have_given_up=True)
                        return True
        if found is HandOverFate.GIVEN_UP:
            async with self._storing:
                if self._announced is not None:
                    await self._store(attrs.evolve(self._announced, is_given_up=True))
            _log.warning("the hand-over never took place: another register decides")
            return False
        raise self._waiting(_why(record, own, told))

    async def state(self, message: m.AskHandOverState) -> m.HandOverState:
        """Answer another broker.

        Raises:
          StorageError: if the disk fails.
        """
        announced = self._announced
        if announced is None:
            return m.HandOverState(message.request, self.directory, False, False, False)
        if announced.attempt != message.attempt:  # it takes over by no other one
            given_up = not self.has_register()
            return m.HandOverState(message.request, self.directory, False, given_up, given_up)
        if message.give_up and not self.has_register():
            await self._give_up()
        taken_over, given_up = self.is_done.is_set(), self._has_given_up
        may = not (taken_over or self.has_register())
        return m.HandOverState(message.request, self.directory, taken_over, given_up, may)

    def page(self, message: m.AskHandOver) -> m.HandOverPage:
        """Answer another broker.

        Raises:
          StorageError: if the disk fails.
        """
        if not self.is_done.is_set():
            return m.HandOverPage(message.request, False, [], False)
        return hand_over_page(message, load_entries(self._environment, self._data_directory))

    # --- what this broker has stored -----------------------------------------------------------

    @property
    def _has_given_up(self) -> bool:
        return self._announced is not None and self._announced.has_given_up

    async def _give_up(self) -> None:
        """Promise never to take over, unless this broker has."""
        async with self._storing:
            announced = self._announced
            if announced is not None and not announced.has_given_up and not self.is_done.is_set():
                await self._store(attrs.evolve(announced, has_given_up=True))

    async def _store(self, announced: AnnouncedHandOver) -> None:
        disk = self._environment.disk
        await store_announced(disk, self._data_directory, announced)
        self._announced = announced

    async def _take_over(
        self, entries: list[bytes], identity: BrokerIdentity, *, may_have_given_up: bool = False
    ) -> None:
        """Raises: see `ask`."""
        try:
            hand_over = hand_over_of(entries)
        except ValueError as error:
            raise StorageError(f"what was handed over can't be used: {error}") from error
        if identity.broker is None:
            raise RefusedError(
                "this cluster has no register any more: start this new broker with --join alone",
                Status.WRONG_CLUSTER,
            )
        if not self.is_prepared:
            addresses = ",".join(one.address for one in hand_over.record.growths[0].members[:3])
            raise RefusedError(
                f"this cluster has no register any more: start the broker with --join {addresses} "
                "beside --register",
                Status.WRONG_CLUSTER,
            )
        check_takes_over(hand_over, identity, self.directory, self._data_directory)
        async with self._storing:
            announced = self._announced
            if announced is not None and hand_over.attempt not in {"", announced.attempt}:
                raise self._waiting(
                    "the cluster was handed over by another order than the last one that this "
                    "broker was told of"
                )
            if self._has_given_up and not may_have_given_up:
                raise self._waiting("this broker has just promised not to take over")
            await store_hand_over(self._environment.disk, self._data_directory, entries)
            self.is_done.set()
        _log.info("the cluster has no register from now on", broker=identity.broker)

    def _settled(self) -> None:
        self.waits_for, self._open_since = "", math.inf

    def _waiting(self, why: str) -> NotReadyError:
        self.waits_for = why
        return NotReadyError(why)


def _why(record: ClusterRecord, own: BrokerId, told: dict[BrokerId, ToldState]) -> str:
    """Why a broker can't know whether the hand-over took place."""
    begun = (
        "the register does not know of the hand-over to the brokers that was begun (`octopi-node "
        "cluster to-ring`): it has lost its disk, or has an older copy. "
    )
    nodes = [one for one in record.growths[0].members if one.broker != own]
    if bound := [one for one in nodes if (said := told.get(one.broker)) and _is_bound(said)]:
        names = ", ".join(f"{one.broker} at {one.address}" for one in bound)
        return f"{begun}Another register still counts broker {names} as its own: stop one of them"
    silent = ", ".join(f"{one.broker} at {one.address}" for one in nodes if one.broker not in told)
    if not silent:
        return f"{begun}Others have taken over, and do not say now what they have: it asks again"
    return (
        f"{begun}This broker goes on when others say whether they have taken over; start broker "
        f"{silent}, or, if they are lost for good, remove {ANNOUNCED_FILE} in the data directory "
        "of this one"
    )


def _is_bound(said: ToldState) -> bool:
    return not (said.is_taken_over or said.is_given_up or said.may_give_up)


async def begin_question(
    environment: Environment,
    data_directory: str,
    agent: str,
    credentials: NodeCredentials,
    *,
    is_prepared: bool,
) -> HandOverQuestion:
    """The question of the broker of *data_directory*; see `HandOverQuestion`.

    Raises:
      StorageError: if the disk fails, or a file is damaged.
    """
    return HandOverQuestion(
        environment,
        data_directory,
        await acceptor_number(environment, data_directory),
        load_announced(environment, data_directory),
        HandOverPeers(environment, agent, credentials),
        is_prepared=is_prepared,
    )
