"""The shell of a register's replica of the journal: clock, disk, and the other registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

import attrs
import trio

from octopi.agreement.journal.effects import JournalEffect, SendNow, SendWhenDurable, StoreEntry
from octopi.agreement.journal.replica import JournalReplica
from octopi.agreement.journal.voter_changes import unlike
from octopi.environment import Environment
from octopi.errors import LogReadOnlyError, StorageError
from octopi.limits import REGISTER_GOODBYE_S
from octopi.logger import get_logger
from octopi.roles.register.group.links import RegisterPeer
from octopi.roles.register.group.stored_journal import StoredJournal
from octopi.roles.register.group.tracer import GroupTracer
from octopi.storage.time_slices import Slices, in_turns
from octopi.wire.registers import ToRegister, Voters

_log = get_logger(__name__)

_CLOCK_RESOLUTION_S: Final = 1e-3

Fold = Callable[[Sequence[bytes]], Slices[list[bytes]]]
"""The fewest contents of entries that lead to the same state as the given ones."""


class RegisterGroup:
    """This register among the others.  `run` is one task of the register's nursery."""

    def __init__(
        self,
        environment: Environment,
        replica: JournalReplica,
        stored: StoredJournal,
        connect: Callable[[str], RegisterPeer],
        fold: Fold,
        snapshot_entries: int,
    ) -> None:
        """*connect* makes the connection to the register at an address.  *snapshot_entries*: after
        how many entries the journal is folded."""
        self.replica = replica
        self.failure: StorageError | None = None
        """Why this register can't go on: its disk failed."""
        self._environment = environment
        trace = environment.trace
        self._tracer = None if trace is None else GroupTracer(trace, replica)
        self._stored = stored
        self._connect = connect
        self._links = {one: connect(one) for one in replica.others}
        """To the other registers, by address."""
        self._tasks: trio.Nursery | None = None
        self._voters = replica.history.voters_at(replica.committed)
        """Those that are committed, as far as this register knew last."""
        self._voters_told: Voters = ()
        """Those of which the log told last."""
        self._fold = fold
        self._snapshot_entries = snapshot_entries
        self._waiting: list[SendWhenDurable] = []
        self._has_waiting = trio.Event()
        self._changed = trio.Event()
        self._moved = trio.Event()
        """Set when the replica wants to wake earlier than it said."""
        self._is_folding = False
        self._replaced = trio.Event()
        """Set when the journal on the disk has been replaced."""

    @property
    def size_bytes(self) -> int:
        """How long the journal on the disk is."""
        return self._stored.size_bytes

    @property
    def active_address(self) -> str:
        """The address of the active register; empty: this one knows of none."""
        active = self.replica.active
        return "" if active is None else active.address

    @property
    def wants_snapshot(self) -> bool:
        """Whether so much is committed behind the snapshot that it should be a new one."""
        behind = self.replica.committed - self.replica.history.snapshot.end
        return behind > self._snapshot_entries and not self._is_folding

    async def changed(self) -> None:
        """Return when the replica may be active, or not any more, or more is committed."""
        await self._changed.wait()

    # --- events ----------------------------------------------------------------------------

    def receive(self, message: ToRegister) -> None:
        """Another register, or this one, says *message*."""
        self._perform(lambda now: self.replica.receive(message, now))

    def lost(self, address: str) -> None:
        """The connection of the register at *address* has broken."""
        self.replica.lost(address, self._environment.clock.now())
        self._moved.set()

    def propose(self, contents: Sequence[bytes], term: int) -> None:
        """Append entries with these *contents* as the active register of *term*.

        Raises:
          LogReadOnlyError: if it isn't that any more, or its disk failed.
        """
        if not self.replica.may_decide or self.replica.term != term or self.failure is not None:
            raise LogReadOnlyError("this register is not the active one any more")
        self._perform(lambda now: self.replica.propose(contents, now))
        if self.failure is not None:
            raise LogReadOnlyError(str(self.failure)) from self.failure

    async def step_down(self) -> None:
        """Let another register be active soon."""
        self._perform(self.replica.step_down)
        with self._environment.clock.timeout(REGISTER_GOODBYE_S):
            for link in list(self._links.values()):
                await link.drain()

    def _perform(self, event: Callable[[float], list[JournalEffect]]) -> None:
        """Have the replica handle *event*, and do what it says."""
        if self.failure is not None:
            return
        replica = self.replica
        before = replica.may_decide, replica.is_active, replica.term, replica.committed
        wakes_at = replica.wakes_at
        effects = event(self._environment.clock.now())
        try:
            for is_stored, some in groupby(effects, lambda one: isinstance(one, StoreEntry)):
                if is_stored:
                    entries = [one.entry for one in some if isinstance(one, StoreEntry)]
                    if (tracer := self._tracer) is not None:
                        tracer.storing(entries)
                    self._stored.append(entries)
                    continue
                for one in some:
                    self._send(one)
        except StorageError as error:
            # What the replica took for stored isn't: only a restart makes it true again.
            self._fail(error)
            return
        self._keep_linked()
        if before != (replica.may_decide, replica.is_active, replica.term, replica.committed):
            self._tell_voters()
            if (tracer := self._tracer) is not None:
                tracer.changed(*before)
            self.note_change()
        if replica.wakes_at < wakes_at:
            self._moved.set()

    def _send(self, effect: JournalEffect) -> None:
        match effect:
            case SendNow(address, message):
                self._post(address, message)
            case SendWhenDurable():
                self._waiting.append(effect)
                self._has_waiting.set()

    def _post(self, address: str, message: ToRegister) -> None:
        if (link := self._links.get(address)) is not None:
            link.post(message)

    def _keep_linked(self) -> None:
        """Connect to registers that have become voters."""
        if self._tasks is None:
            return
        for address in self.replica.others:
            if address not in self._links:
                link = self._links[address] = self._connect(address)
                self._tasks.start_soon(link.run)

    def _tell_voters(self) -> None:
        """Log whose votes count, if that has changed for good."""
        replica, me = self.replica, self.replica.identity
        before, self._voters = self._voters, replica.history.voters_at(replica.committed)
        if me in before and me not in self._voters and me.address not in replica.addresses:
            _log.warning("the other registers go on without this one: stop it")
        # A standby may only be on its way to what has been decided since.
        if replica.may_decide and self._voters != self._voters_told:
            self._voters_told = self._voters
            addresses = ", ".join(one.address for one in self._voters)
            _log.info("the registers are", addresses=addresses)

    def _tell_lists(self) -> None:
        """Log whose list keeps the voters from being what the list here says, or who has to answer
        before a register that was alone decides."""
        replica, clock = self.replica, self._environment.clock
        if replica.is_active and (others := unlike(replica, clock.now())):
            _log.sparing(clock).warning(
                "registers have another list: give all of them the same --peers", who=others
            )
        elif replica.is_alone and not replica.is_active and replica.others:
            _log.sparing(clock).info(
                "this register was the only one: it decides again when all others in its list have "
                "answered, and have no journal of their own",
                others=replica.others,
            )

    def _fail(self, error: StorageError) -> None:
        self.failure = self.failure or error
        self.note_change()

    def note_change(self) -> None:
        """Wake who waits in `changed`."""
        self._changed.set()
        self._changed = trio.Event()

    # --- tasks -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take part until cancelled."""
        async with trio.open_nursery() as nursery:
            self._tasks = nursery
            for link in self._links.values():
                nursery.start_soon(link.run)
            nursery.start_soon(self._keep_time)
            nursery.start_soon(self._keep_flushing)
            nursery.start_soon(self._keep_short)

    async def _keep_time(self) -> None:
        clock = self._environment.clock
        while self.failure is None:
            self._moved = trio.Event()
            # Differences of times are inexact: it may seem to be a little too early.
            with clock.timeout(max(_CLOCK_RESOLUTION_S, self.replica.wakes_at - clock.now())):
                await self._moved.wait()
            self._perform(self.replica.tick)
            self._tell_lists()

    async def _keep_flushing(self) -> None:
        """Send what waits for the device when it is there."""
        while True:
            await self._has_waiting.wait()
            while self._stored.is_replaced:
                await self._replaced.wait()
            self._has_waiting = trio.Event()
            waiting, self._waiting = self._waiting, []
            try:
                await self._stored.flush()
            except StorageError as error:
                self._fail(error)
                return
            for one in waiting:
                if one.address == self.replica.identity.address:
                    self.receive(one.message)
                else:
                    self._post(one.address, one.message)
                if (tracer := self._tracer) is not None:
                    tracer.told(one.address, one.message)

    async def _keep_short(self) -> None:
        """Fold the journal of a standby; the active register does so itself."""
        while True:
            await self._changed.wait()
            if self.wants_snapshot and not self.replica.is_active:
                end = self.replica.committed
                contents = await in_turns(self._fold(list(self.replica.history.contents(end))))
                try:
                    await self.shorten(end, contents)
                except StorageError as error:
                    _log.error("the journal could not be shortened", why=str(error))

    async def shorten(self, end: int, contents: list[bytes]) -> None:
        """Replace all entries before *end*, which are committed, by *contents*.

        Raises:
          StorageError: if that fails; then the journal is unchanged.
          LogReadOnlyError: if it is unknown what a restart would read.
        """
        replica, tracer = self.replica, self._tracer
        if self._is_folding or replica.history.snapshot.end >= end:
            return
        self._is_folding, self._replaced = True, trio.Event()
        try:
            shorter = replica.history.shortened(end, contents)
            if tracer is not None:
                tracer.folding(end)
            await self._stored.replace(attrs.evolve(replica.state, history=shorter))
            if tracer is not None:
                tracer.folded(end)
            if replica.history.snapshot.end < end:
                replica.shorten(end, contents)
        except LogReadOnlyError as error:
            self._fail(error)
            raise
        finally:
            self._is_folding = False
            self._replaced.set()
