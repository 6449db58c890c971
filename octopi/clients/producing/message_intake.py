"""The part of a `octopi.clients.producing.producer_session.ProducerSession` that takes messages.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from octopi.clients.producing.batches import Batch
from octopi.clients.producing.load import ProducerLoad
from octopi.clients.producing.session_options import SessionOptions
from octopi.conditions import Condition
from octopi.limits import RECORDS_PER_PRODUCE_MAX
from octopi.record import STRUCTURED_BYTES_MIN


class MessageIntake:
    """The batches of one producer for one log, and the one of them that takes the next message.

    Invariant: only the last waiting batch is open.
    """

    def __init__(self, options: SessionOptions, load: ProducerLoad | None) -> None:
        """*load*: that of the producer, if it has other sessions, too."""
        self._options = options
        self._load = load or ProducerLoad()
        self._maybe_full_bytes = min(
            options.batch_bytes, RECORDS_PER_PRODUCE_MAX * STRUCTURED_BYTES_MIN
        )
        self._unanswered: deque[Batch] = deque()
        """Those that were sent."""
        self._waiting: deque[Batch] = deque()
        """Those that were not."""
        self._open: Batch | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the session has no batches, neither waiting nor unanswered."""
        return not self._unanswered and not self._waiting

    @property
    def open_batch(self) -> Batch | None:
        """The batch that takes the next message, if there is one."""
        return self._open

    @property
    def unsettled(self) -> list[Batch]:
        """The batches without an outcome, oldest first."""
        return [batch for batch in [*self._unanswered, *self._waiting] if batch.outcome is None]

    def add(
        self,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes],
        timestamp_ms: int,
        now: float,
        condition: Condition | None = None,
        *,
        pinned: bool = False,
    ) -> Batch:
        """Take a message; return its batch, whose last one it is; with a *condition* the only one.
        *pinned*: as in `Batch`.

        Raises:
          MalformedRecordError: if the message doesn't fit the record format; it isn't taken.
        """
        batch = self._open
        if batch is None or batch.pinned is not pinned or condition is not None:
            batch = self._new_batch(now, condition, pinned=pinned)
        batch.last_position = batch.builder.add(value, key, headers, timestamp_ms)
        if batch is not self._open:
            self.seal()
            self._begin(batch)
            if condition is not None:
                self.seal()
        self._seal_if_full(batch)
        return batch

    def add_many(
        self,
        values: list[bytes],
        begin: int,
        headers: Mapping[str, bytes],
        timestamp_ms: int,
        now: float,
        *,
        pinned: bool = False,
    ) -> tuple[Batch, int]:
        """Take messages without keys, from ``values[begin]`` on, as many as the batch holds; return
        the batch and their number.  `octopi.record.check_values` must have accepted the values.

        Raises:
          MalformedRecordError: if headers or time stamp don't fit; none is taken.
        """
        batch = self._open
        if batch is None or batch.pinned is not pinned:
            batch = self._new_batch(now, pinned=pinned)
        count = batch.builder.add_many(
            values,
            begin,
            headers,
            timestamp_ms,
            size_bytes_max=self._load.full_bytes(self._options, bool(self._unanswered)),
            count_max=RECORDS_PER_PRODUCE_MAX,
        )
        if batch is not self._open:
            self.seal()
            self._begin(batch)
        self._seal_if_full(batch)
        return batch, count

    def seal(self) -> None:
        """Close the open batch, if any, so that it is sent without waiting for more."""
        if self._open is not None:
            self._open.sealed = True
            self._open = None
            self._load.open_count -= 1

    def hurry(self, batch: Batch) -> None:
        """A task awaits a receipt of *batch*: it doesn't linger while no batch is unanswered."""
        batch.urgent = True

    def _new_batch(self, now: float, condition: Condition | None = None, *, pinned: bool) -> Batch:
        deadline = now + self._options.delivery_timeout_s
        return Batch(deadline, now, condition=condition, pinned=pinned)

    def _begin(self, batch: Batch) -> None:
        """*batch* has its first message."""
        self._waiting.append(batch)
        self._open = batch
        self._load.open_count += 1

    def _seal_if_full(self, batch: Batch) -> None:
        size_bytes = batch.builder.size_bytes
        # This runs for each message, so it counts records only where they could be too many.
        if size_bytes >= self._maybe_full_bytes and (
            size_bytes >= self._load.full_bytes(self._options, bool(self._unanswered))
            or len(batch.builder) >= RECORDS_PER_PRODUCE_MAX
        ):
            self.seal()
