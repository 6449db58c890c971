"""What replicas hold when they accept an epoch, as messages and put together again."""

from __future__ import annotations

import attrs

from octopi.identifiers import BrokerId
from octopi.limits import LIST_COUNT_MAX
from octopi.wire.messages import AcceptEpoch


def pages_of(message: AcceptEpoch, count_max: int = LIST_COUNT_MAX) -> list[AcceptEpoch]:
    """*message* in messages of at most *count_max* log ends each, in the order to send them in."""
    ends = message.ends
    return [
        attrs.evolve(
            message,
            ends=ends[at : at + count_max],
            first=at,
            more=at + count_max < len(ends),
        )
        for at in range(0, max(1, len(ends)), count_max)
    ]


class AcceptancePages:
    """Puts the pages of acceptances together, for one epoch of one partition."""

    def __init__(self) -> None:
        self._begun: dict[BrokerId, AcceptEpoch] = {}

    def add(self, page: AcceptEpoch) -> AcceptEpoch | None:
        """The whole acceptance if *page* was the last one; None: more have to come, or it doesn't
        continue what came before, and the broker has to accept again."""
        if page.first == 0:
            whole = page
        else:
            begun = self._begun.pop(page.broker, None)
            if (
                begun is None
                or begun.incarnation != page.incarnation
                or len(begun.ends) != page.first
            ):
                return None
            whole = attrs.evolve(begun, ends=[*begun.ends, *page.ends], more=page.more)
        if whole.more:
            self._begun[page.broker] = whole
            return None
        self._begun.pop(page.broker, None)
        return whole

    def forget(self, broker: BrokerId) -> None:
        """The broker was restarted."""
        self._begun.pop(broker, None)
