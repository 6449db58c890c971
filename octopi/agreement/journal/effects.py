"""What the shell of a register's replica of the journal has to do."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from octopi.agreement.journal.stored import Stored
from octopi.wire.registers import ToRegister


@attrs.frozen
class StoreEntry:
    """Append *entry* to the journal on the disk."""

    entry: Stored


@attrs.frozen
class SendNow:
    """Send *message* to the register at *address*."""

    address: str
    message: ToRegister


@attrs.frozen
class SendWhenDurable:
    """Send *message* to the register at *address*, which may be this one, when everything that was
    stored is durable."""

    address: str
    message: ToRegister


JournalEffect: TypeAlias = StoreEntry | SendNow | SendWhenDurable
