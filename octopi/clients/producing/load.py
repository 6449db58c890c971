"""How busy a producer is, over all its logs: what the sessions of its logs share.

Pure.
"""

from __future__ import annotations

from octopi.clients.producing.batches import Batch
from octopi.clients.producing.session_options import SessionOptions
from octopi.limits import FEW_BATCHES_COUNT, MANY_BATCHES_LINGER_S


class ProducerLoad:
    """The batches of one producer that take messages, and whether its buffer is full."""

    def __init__(self) -> None:
        self.open_count = 0
        """The number of batches that take messages."""
        self.is_saturated = False
        """Whether the program had to wait for room in the buffer, and it is at least half full
        since.  So messages wait in any case."""

    def linger_s(self, least_s: float) -> float:
        """How long a batch waits for more messages: *least_s*, and longer if many batches wait.

        Messages that go to many logs in turn come to each of them rarely.  A batch costs the same
        whatever it holds, so each waits long enough to get several.  While the buffer is full that
        would only hold up the program.
        """
        if self.open_count <= FEW_BATCHES_COUNT or self.is_saturated:
            return least_s
        grown_s = least_s * (self.open_count / FEW_BATCHES_COUNT)
        return max(least_s, min(grown_s, MANY_BATCHES_LINGER_S))

    def linger_until(self, batch: Batch, least_s: float) -> float:
        """When *batch* is sent even if it isn't full.  One whose receipt is awaited doesn't wait
        for messages of other logs."""
        return batch.begun_at + (least_s if batch.urgent else self.linger_s(least_s))

    def full_bytes(self, options: SessionOptions, is_waiting: bool) -> int:
        """The size of a full batch of a log.  It grows while messages wait in any case: the buffer
        is full, and the log waits for answers, which make room."""
        is_grown = self.is_saturated and is_waiting
        return options.grown_batch_bytes if is_grown else options.batch_bytes
