"""What collectors of metrics have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from prometheus_client.registry import Collector

LOGS_COUNT_MAX: Final = 2_000
"""The number of logs with series of their own: the ones with the most traffic.  More would occupy
the node for longer than a tenth of a second."""


class SlowCollector(Collector):
    """Metrics that take long: they are looked at first, with turns for other tasks, and collecting
    them gives what the last look found."""

    @abstractmethod
    async def look(self) -> None:
        """Look at all that the metrics tell of."""
