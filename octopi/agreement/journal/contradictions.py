"""What a register can't be sent while every register keeps its votes and its journal.

Whoever starts a register on an older copy of its data directory, or two registers on copies of one,
takes away what agreement rests on.  A register that sees it refuses, and goes on with what it has.
"""

from __future__ import annotations

from typing import Final

from octopi.agreement.journal.history import JournalHistory
from octopi.errors import ProtocolError
from octopi.wire.registers import EntriesSent, RegisterId, SnapshotSent

_ADVICE: Final = (
    "one of the registers was started on an older copy of its data directory, or on one that is "
    "used twice; stop it, move the directory `replica` there away, and start it again"
)


def check_sent(
    sent: EntriesSent | SnapshotSent,
    me: RegisterId,
    term: int,
    history: JournalHistory,
    committed: int,
    *,
    is_active: bool,
) -> None:
    """Check what an active register has sent to *me*, a register that is in *term* and has
    *history*, the entries before the index *committed* of it being committed.

    *is_active*: this register is active in *term*.

    Raises:
      ProtocolError: if two registers are active in one term, or an entry that is committed would be
        replaced, or another register is active although nobody but this one votes.
    """
    if history.voters == (me,) and sent.sender not in history.voters_before:
        raise ProtocolError(
            f"{sent.sender.address} and this register have each a journal of their own: stop the "
            "wrong one, move the directories `journal` and `replica` there away, and start it again"
        )
    if sent.term < term:
        return  # it is active no more
    if is_active and sent.term == term:
        raise ProtocolError(
            f"{sent.sender.address} and this register are both active in term {term}: {_ADVICE}"
        )
    if isinstance(sent, SnapshotSent):
        return
    first = max(sent.start, history.snapshot.end)
    for index in range(first, min(committed, sent.start + len(sent.entries))):
        if history.term_before(index + 1) != sent.entries[index - sent.start].term:
            raise ProtocolError(
                f"{sent.sender.address} replaces entry {index} of the journal, which is committed "
                f"here: {_ADVICE}"
            )
