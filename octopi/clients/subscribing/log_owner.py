"""What a subscription is to the logs that its member has."""

from __future__ import annotations

from typing import Protocol, TypeVar

from octopi.errors import HistoryForkedError, HistoryLostError
from octopi.identifiers import PartitionId

_Log = TypeVar("_Log", contravariant=True)


class LogOwner(Protocol[_Log]):
    """The subscription, as its logs see it."""

    def take_news(self) -> None:
        """A log may have something to hand out, or an error."""

    def take_gap(self, gap: HistoryLostError) -> None:
        """Records were skipped that retention had removed."""

    def take_fork(self, fork: HistoryForkedError) -> None:
        """Records that were marked are gone; reading goes on before them."""

    async def restore_mark(self, partition: PartitionId) -> None:
        """See `SubscriptionAdministration.restore_mark`."""

    def released(self, log: _Log) -> None:
        """The program has finished with the log."""

    def fenced(self, log: _Log) -> None:
        """The log's leader knows a newer claim."""
