"""How a producer batches, how much it holds and how long it tries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from octopi.clients.options import within
from octopi.errors import InvalidOptionError
from octopi.identifiers import consumer_name_fault
from octopi.limits import (
    BATCH_BYTES_MAX,
    GROWN_BATCH_BYTES,
    RECENT_BATCHES_COUNT,
    RECORD_BYTES_MAX,
)

_GROWTH: Final = 4
"""How many times as large as usual a batch may grow."""


@attrs.frozen
class ProducerOptions:
    """How a producer batches, how much it holds and how long it tries (`Client.producer`)."""

    linger_s: float
    batch_bytes: int
    batches_in_flight: int
    buffer_bytes: int
    delivery_timeout_s: float
    create_topics: bool
    name: str | None = None
    topics: Sequence[str] = ()

    def __attrs_post_init__(self) -> None:
        if self.name is None and self.topics:
            raise InvalidOptionError(
                "topics are for named producers: they name the logs in which an earlier life ends"
            )
        if self.name is not None and (fault := consumer_name_fault(self.name)):
            raise InvalidOptionError(f"name: {fault}")
        within("linger_s", self.linger_s, 0, 3600)
        within("batch_bytes", self.batch_bytes, 1, BATCH_BYTES_MAX - RECORD_BYTES_MAX)
        within("batches_in_flight", self.batches_in_flight, 1, RECENT_BATCHES_COUNT)
        within("buffer_bytes", self.buffer_bytes, self.batch_bytes, 2**40)
        within("delivery_timeout_s", self.delivery_timeout_s, 0.001, 86_400)

    @property
    def grown_batch_bytes(self) -> int:
        """The size of a full batch while the producer is saturated.  The buffer has room for twice
        as many of them as may be unanswered."""
        share_bytes = self.buffer_bytes // (2 * self.batches_in_flight)
        grown_bytes = min(_GROWTH * self.batch_bytes, GROWN_BATCH_BYTES, share_bytes)
        return max(self.batch_bytes, grown_bytes)
