"""Clocks that are wrong, each host's by itself.

A program sees its host's clock in `time.time` and `datetime.now` (the wall clock), in
`time.monotonic` and `time.perf_counter` (which drift, and never jump), and in
`Host.environment.clock`.  What waits by Trio, such as `trio.sleep`, waits by the time of the test:
all hosts share one event loop, so its clock can't be wrong on one of them.
"""

from __future__ import annotations

from math import inf
from typing import Unpack

from octopi.simulation.faults.actions import DriftClock, JumpClock
from octopi.testing.errors import MisuseError
from octopi.testing.faults import Faults
from octopi.testing.planned_faults import Moment


class ClockFaults(Faults):
    """Faults of the clocks of one cluster's hosts."""

    def skew(self, host: str, by_s: float, **moment: Unpack[Moment]) -> bool:
        """Set the host's wall clock forward by *by_s* seconds, or back if that is below 0.  It
        stays so, also when all is healed; `skew` it back to end that.  *moment*: see `kill`."""
        return self._have(JumpClock(by_s), host, moment)

    def drift(
        self, host: str, rate: float, *, seconds: float = inf, **moment: Unpack[Moment]
    ) -> bool:
        """Have *rate* seconds pass on the host's clocks in each second, for *seconds* or until
        `heal`; what the clocks are then behind or ahead stays.  *moment*: see `kill`.

        Raises:
          MisuseError: if *rate* isn't above 0: a monotonic clock doesn't stand still.
        """
        if rate <= 0:
            raise MisuseError(f"rate is {rate}; it has to be above 0")
        return self._have(DriftClock(rate, seconds), host, moment)
