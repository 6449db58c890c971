"""A log of a topic as its leader's subscriptions see it."""

from __future__ import annotations

from octopi.errors import InvalidOptionError, NeedsTimeError, NotReadyError, RefusedError
from octopi.identifiers import Offset
from octopi.position import Anchor, epochs_of
from octopi.record import record_timestamp_ms
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.subscriptions.place_proofs import PlaceProofs


class LedLog:
    """See `octopi.subscriptions.log_view.LogView`."""

    def __init__(self, log: LocalLog, proofs: PlaceProofs) -> None:
        self._log = log
        self._proofs = proofs

    @property
    def start(self) -> Offset:
        """The oldest record that retention has left."""
        return self._log.start

    @property
    def highwater(self) -> Offset:
        """What is committed ends here."""
        return self._log.highwater

    @property
    def end(self) -> Offset:
        """The log ends here."""
        return self._log.end

    def held_bytes(self, begin: Offset) -> int:
        """How much from *begin* on retention keeps for subscriptions alone."""
        return self._log.kept.held_bytes(begin)

    def has_place(self, offset: Offset) -> bool:
        """Whether a record begins at *offset*, or the log ends there.

        Raises:
          NeedsTimeError: if that takes long to find out; it is being found out.
          StorageError: if it can't be found out.
        """
        try:
            self._log.read_uncommitted(offset, 0)
        except NeedsTimeError:
            self._proofs.begin(self._log, offset)
            raise
        except RefusedError:
            return False
        return True

    def anchor_before(self, offset: Offset) -> Anchor:
        """The anchor of the place at *offset*."""
        return self._log.anchor_before(offset)

    def fork(self, offset: Offset, anchor: Anchor) -> Offset | None:
        """Where the log parts from one with *anchor* at *offset*; None: it doesn't.

        Raises:
          InvalidOptionError: if *anchor* is none of a place at *offset* in a log.
          NotReadyError: if it is of an epoch that began after this broker's leadership.
        """
        epochs, state = epochs_of(anchor), self._log.state
        if not epochs:
            return None
        epoch, start = epochs[0]
        if start >= offset:
            raise InvalidOptionError(f"anchor {anchor!r} is none of offset {offset}")
        if epoch > self._log.epoch:
            raise NotReadyError(
                f"what was read before offset {offset} is of epoch {epoch}, and this broker "
                f"knows of none after {self._log.epoch} yet"
            )
        return state.epochs.fork(offset, epochs, state.end, is_leader=True)


async def lag_ms(log: LocalLog, mark: Offset, wall_ms: int) -> int:
    """How long ago the message at *mark* was produced; 0: none is committed there, or it has no
    time stamp.

    Raises:
      StorageError, RefusedError: if it can't be read.
    """
    if not log.start <= mark < log.highwater:
        return 0
    await log.prove(mark)
    records = log.read(mark, 1)
    timestamp_ms = record_timestamp_ms(records, 0) if records else -1
    return max(0, wall_ms - timestamp_ms) if timestamp_ms >= 0 else 0
