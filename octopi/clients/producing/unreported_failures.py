"""Failed messages whose failure was not reported yet: `flush` reports them."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from octopi.clients.producing.batches import Batch
from octopi.errors import DeliveryError


class UnreportedFailures:
    """Counts them, in memory that doesn't grow with their number.

    A failure is reported once: by awaiting the message's receipt, or by `report`.
    """

    def __init__(self) -> None:
        self._count = 0
        self._first: DeliveryError | None = None
        self._batches: WeakKeyDictionary[Batch, None] = WeakKeyDictionary()
        """Failed since the last report; only those whose receipts the program still holds."""

    def add(self, batch: Batch, count: int, error: DeliveryError) -> None:
        """All *count* messages of *batch* failed."""
        self._batches[batch] = None
        self._count += count
        self._first = self._first or error

    def saw(self, batch: Batch) -> None:
        """The program awaited the receipt of one more message of *batch*."""
        if batch in self._batches:
            self._count -= 1
            if not self._count:
                self._first = None

    def report(self) -> None:
        """Raise the failures that were not reported yet, and forget them.

        Raises:
          NotDeliveredError, OutcomeUnknownError: as the first failure was.
        """
        error, count = self._first, self._count
        self._count, self._first = 0, None
        self._batches.clear()
        if error is not None:
            what = "1 message was" if count == 1 else f"{count} messages were"
            raise type(error)(f"{what} not acknowledged; the first: {error}") from error
