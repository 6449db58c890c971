"""What a producer's session asks its driver to do."""

from __future__ import annotations

import attrs

from octopi.clients.producing.batches import Batch
from octopi.errors import OctopiError, RefusedError
from octopi.identifiers import ProducerEpoch


@attrs.frozen
class Send:
    """Send these records to the leader and report the answer with *attempt*."""

    batch: Batch
    attempt: int
    records: bytes
    epoch: ProducerEpoch
    """In which the batch has its sequences."""


@attrs.frozen
class Settled:
    """The batch has its outcome."""

    batch: Batch
    count: int
    """Messages in it."""
    size_bytes: int


@attrs.frozen
class FindLeader:
    """The link is down: find the leader (again), then call `connected`."""

    why: OctopiError
    address: str
    """Where the last leader said it is; may be empty."""
    silent: bool
    """The connection is open but gave no answer in time: give it up."""


@attrs.frozen
class AskLeader:
    """The leader is silent: ask whether it still is the leader."""


@attrs.frozen
class Fenced:
    """Another process writes with the id of this producer: the producer is closed."""

    why: RefusedError


Effect = Send | Settled | FindLeader | AskLeader | Fenced
