"""How the sessions of a producer batch and how long they try."""

from __future__ import annotations

import attrs


@attrs.frozen
class SessionOptions:
    """How a producer batches and how long it tries (see `ProducerOptions`)."""

    linger_s: float
    batch_bytes: int
    grown_batch_bytes: int
    """The size of a full batch while the producer is saturated (see `ProducerLoad`)."""
    batches_in_flight: int
    delivery_timeout_s: float
    request_timeout_s: float
