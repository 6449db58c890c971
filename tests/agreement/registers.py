"""Registers that keep one journal: messages are lost, doubled and reordered, disks keep a part of
what was written or are replaced, and processes stop and start again.

Each action is one step of one part, so that a test or a random walk decides what happens when.  The
rules are checked after each step.
"""

from __future__ import annotations

from random import Random

import attrs

from octopi.agreement.journal.effects import JournalEffect, SendNow, SendWhenDurable, StoreEntry
from octopi.agreement.journal.replica import JournalReplica
from octopi.agreement.journal.stored import (
    Stored,
    StoredState,
    decode_stored,
    encode_stored,
    replayed,
    shortest,
)
from octopi.errors import ProtocolError
from octopi.identifiers import DirectoryId
from octopi.wire.registers import RegisterId, ToRegister


class BrokenRule(AssertionError):
    """The machines did what they must not do."""


@attrs.define
class Register:
    """One register: a process, and a disk."""

    replica: JournalReplica
    disk: list[Stored] = attrs.field(factory=list)
    """What is durable."""
    written: list[Stored | SendWhenDurable] = attrs.field(factory=list)
    """What is not durable yet, and the messages that wait for it."""

    @property
    def address(self) -> str:
        return self.replica.identity.address

    @property
    def unwritten_count(self) -> int:
        """How many entries are not durable yet."""
        return sum(not isinstance(one, SendWhenDurable) for one in self.written)


class Registers:
    """A group of registers, the messages between them, and what was decided."""

    def __init__(self, count: int, random: Random) -> None:
        self.now = 0.0
        self.random = random
        self.messages: list[tuple[str, str, ToRegister]] = []
        """Those on their way: from where, to where, and what."""
        self.addresses = [f"r{number}" for number in range(1, count + 1)]
        self.lists: dict[str, list[str]] = {}
        """The lists of registers that don't have one of all of them."""
        self.disk_count = 0
        self._proposed = 0
        self.active: dict[int, RegisterId] = {}
        """Term -> the register that was active in it."""
        self.decided: list[bytes] = []
        """The contents that were committed, in order."""
        self.registers = {one: Register(self._fresh(one)) for one in self.addresses}
        for one in self.registers.values():
            one.disk = shortest(one.replica.identity.directory, one.replica.state)

    def _fresh(self, address: str) -> JournalReplica:
        self.disk_count += 1
        return self._replica(RegisterId(address, DirectoryId(f"d{self.disk_count}")), [])

    def _replica(self, identity: RegisterId, disk: list[Stored]) -> JournalReplica:
        known = replayed(decode_stored(encode_stored(one)) for one in disk)
        addresses = self.lists.get(identity.address, self.addresses)
        return JournalReplica(identity, addresses, known, self.random.random, self.now)

    def __getitem__(self, address: str) -> JournalReplica:
        return self.registers[address].replica

    @property
    def deciding(self) -> list[JournalReplica]:
        """The registers that may decide, as far as they know."""
        return [one.replica for one in self.registers.values() if one.replica.may_decide]

    # --- what may happen -----------------------------------------------------------------

    def propose(self, address: str, count: int = 1) -> list[bytes]:
        """Have a register append entries; return their contents."""
        register = self.registers[address]
        contents = []
        for _ in range(count):
            self._proposed += 1
            contents.append(b"%d" % self._proposed)
        self._perform(register, register.replica.propose(contents, self.now))
        return contents

    def deliver(self, index: int, *, keep: bool = False) -> None:
        """Deliver one of the messages on their way; *keep*: it will come again."""
        sender, address, message = self.messages[index] if keep else self.messages.pop(index)
        if sender in self[address].others:  # others are refused
            self._receive(self.registers[address], message)

    def sync(self, address: str) -> None:
        """What a register has written becomes durable, and what waits for it goes out."""
        register = self.registers[address]
        written, register.written = register.written, []
        for one in written:
            if not isinstance(one, SendWhenDurable):
                register.disk.append(one)
        for one in written:
            if isinstance(one, SendWhenDurable):
                self._send(register, one.address, one.message)

    def restart(self, address: str, written: int = 0) -> None:
        """A process stops and starts; of what is not durable the first *written* entries are on its
        device."""
        register = self.registers[address]
        unsure = [one for one in register.written if not isinstance(one, SendWhenDurable)]
        register.disk += unsure[:written]
        register.written = []
        register.replica = self._replica(register.replica.identity, register.disk)

    def give_list(self, *numbers: int, to: str = "") -> None:
        """Start one register, or all, with a list of those with these numbers.  Others that are in
        it begin, with an empty disk."""
        listed = [f"r{number}" for number in numbers]
        for address in [to] if to else sorted({*self.addresses, *listed}):
            self.lists[address] = listed
            if address in self.registers:
                self.restart(address, self.registers[address].unwritten_count)
            else:
                register = self.registers[address] = Register(self._fresh(address))
                register.disk = shortest(register.replica.identity.directory, StoredState())
                self.addresses.append(address)

    def voters(self, address: str = "") -> list[int]:
        """The numbers of the voters that the active register, or one, has in force."""
        (one,) = [self[address]] if address else self.deciding
        return [int(voter.address[1:]) for voter in one.history.voters]

    def replace_disk(self, address: str) -> None:
        """A register comes back with an empty disk."""
        register = self.registers[address]
        register.replica = self._fresh(address)
        register.disk = shortest(register.replica.identity.directory, register.replica.state)
        register.written = []

    @property
    def is_whole(self) -> bool:
        """Whether all registers vote, and have said so for good."""
        there = tuple(sorted(one.replica.identity for one in self.registers.values()))
        replicas = [one.replica for one in self.registers.values()]
        most = max(one.committed for one in replicas)
        return most > 0 and all(
            one.history.voters == there and one.history.end >= most for one in replicas
        )

    def shorten(self, address: str) -> None:
        """A register folds what is committed: here, it keeps all contents."""
        register = self.registers[address]
        replica = register.replica
        end = replica.committed
        replica.shorten(end, list(replica.history.contents(end)))
        register.disk = shortest(replica.identity.directory, replica.state)
        register.written = [one for one in register.written if isinstance(one, SendWhenDurable)]

    def lost(self, address: str, other: str) -> None:
        """The connection of *other* to a register breaks."""
        self[address].lost(other, self.now)

    def pass_time(self, seconds: float, *but: str) -> None:
        """Let time pass, and have all registers but these notice."""
        self.now += seconds
        for register in self.registers.values():
            if register.address not in but:
                self._perform(register, register.replica.tick(self.now))

    def stop(self, address: str) -> None:
        """End a register for good."""
        self.addresses.remove(address)
        del self.registers[address]
        self.messages = [one for one in self.messages if one[1] != address]

    def settle(self, *cut_off: str, steps: int = 400) -> None:
        """Let everything go its way, without faults, but for registers that are *cut_off*."""
        for _ in range(steps):
            self.pass_time(0.02)
            for address in self.addresses:
                self.sync(address)
            while self.messages:
                sender, address, _ = self.messages[0]
                is_known = sender in self[address].others
                if not is_known or ({sender, address} & set(cut_off) and sender != address):
                    del self.messages[0]
                else:
                    self.deliver(0)
                for one in self.addresses:
                    self.sync(one)

    # --- what is done about it -----------------------------------------------------------

    def _receive(self, register: Register, message: ToRegister) -> None:
        try:
            effects = register.replica.receive(message, self.now)
        except ProtocolError as error:
            raise BrokenRule(str(error)) from error
        self._perform(register, effects)

    def _perform(self, register: Register, effects: list[JournalEffect]) -> None:
        for effect in effects:
            match effect:
                case StoreEntry(entry):
                    register.written.append(entry)
                case SendNow(address, message):
                    self._send(register, address, message)
                case SendWhenDurable():
                    register.written.append(effect)
        register.replica.check_invariants()
        self._check(register.replica)

    def _send(self, register: Register, address: str, message: ToRegister) -> None:
        if address == register.address:
            self._receive(register, message)
        elif address in self.registers:
            self.messages.append((register.address, address, message))

    # --- the rules -----------------------------------------------------------------------

    def _check(self, replica: JournalReplica) -> None:
        if replica.is_active:
            known = self.active.setdefault(replica.term, replica.identity)
            if known != replica.identity:
                raise BrokenRule(f"two are active in term {replica.term}")
        committed = list(replica.history.contents(replica.committed))
        both = min(len(committed), len(self.decided))
        if committed[:both] != self.decided[:both]:
            raise BrokenRule(f"two histories are decided: {committed} and {self.decided}")
        self.decided += committed[both:]
        if replica.may_decide and len(committed) < len(self.decided):
            newest = max(self.active)
            if replica.term == newest:
                raise BrokenRule(f"what was decided is lost: {self.decided[both:]}")


def walk(seed: int, steps: int, count: int = 3, *, disks: bool = True) -> Registers:
    """A random walk; *disks*: registers also come back with empty disks.

    Raises:
      BrokenRule: if a rule is broken.
    """
    random = Random(seed)
    world = Registers(count, random)
    if seed % 4:
        world.settle(steps=30)  # else the journal begins under faults, too
    for _ in range(steps):
        address = random.choice(world.addresses)
        kind = random.random()
        if world.messages and kind < 0.55:
            world.deliver(random.randrange(len(world.messages)), keep=random.random() < 0.05)
        elif kind < 0.75:
            world.sync(address)
        elif kind < 0.79 and world.messages:
            world.messages.pop(random.randrange(len(world.messages)))
        elif kind < 0.86:
            if world.deciding:
                world.propose(random.choice(world.deciding).identity.address, random.choice([1, 3]))
        elif kind < 0.94:
            late = random.sample(world.addresses, random.choice([0, 0, 1, 2]))
            world.pass_time(random.choice([0.02, 0.1, 0.8]), *late)
        elif kind < 0.96:
            world.restart(address, random.randrange(world.registers[address].unwritten_count + 1))
        elif kind < 0.97:
            world.shorten(address)
        elif kind < 0.99:
            world.lost(address, random.choice(world.addresses))
        elif disks and world.is_whole:
            world.replace_disk(address)
    return world
