"""The addresses by which a broker joins the ring, one after another."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf

from octopi.limits import JOIN_MEETINGS, STABILISE_S


class Joining:
    """Tries addresses in rounds: those that it was given, in a random order, and then those of the
    address book.  After a round without a member of the ring it waits for a second."""

    def __init__(self, addresses: Collection[str], begins: bool) -> None:
        self._addresses = list(addresses)
        self._begins = begins
        self._round: list[str] | None = None
        """Those of this round that were not tried yet; None: the next round has not begun."""
        self.found_others = False
        """Whether a broker that may be in a ring asked to wait."""
        self.rounds = 0
        """Rounds that are over."""
        self.wakes_at = inf

    @property
    def may_begin(self) -> bool:
        """Whether this broker begins a ring by itself, since there is no other one."""
        return self._begins and self.rounds > 0 and not self.found_others

    def next(self, known: Collection[str], now: float, draw: Callable[[], float]) -> str | None:
        """The address to try now; None: the round is over, and the next one begins at `wakes_at`.
        *known* are the addresses of the address book."""
        self.wakes_at = inf
        if self._round is None:
            given = sorted(self._addresses, key=lambda one: draw())
            others = set(known).difference(given)
            more = sorted(sorted(others), key=lambda one: draw())
            self.found_others = False
            self._round = [*given, *more][:JOIN_MEETINGS]
        if self._round:
            return self._round.pop(0)
        self._round = None
        self.rounds += 1
        self.wakes_at = now + STABILISE_S
        return None
