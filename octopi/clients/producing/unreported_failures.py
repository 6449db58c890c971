"""Failed messages whose failure the program doesn't know yet: `Producer.flush` reports them."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from octopi.clients.producing.batches import Batch
from octopi.errors import DeliveryError


class UnreportedFailures:
    """Counts failed messages, in memory that doesn't grow with their number.

    Each failure is reported once: when the program awaits the message's receipt, or by `report`.
    """

    def __init__(self) -> None:
        self._count = 0
        self._first: DeliveryError | None = None
        self._batches: WeakKeyDictionary[Batch, None] = WeakKeyDictionary()
        """The batches that failed since the last report, if the program still holds receipts of
        them."""

    def add(self, batch: Batch, count: int, error: DeliveryError) -> None:
        """All *count* messages of *batch* failed with *error*."""
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
          NotDeliveredError, OutcomeUnknownError: an error of the first failure's class.
        """
        error, count = self._first, self._count
        self._count, self._first = 0, None
        self._batches.clear()
        if error is not None:
            what = "1 message was" if count == 1 else f"{count} messages were"
            raise type(error)(f"{what} not acknowledged; the first: {error}") from error
