"""What goes wrong in a run, as data: a place, an action, and the node that it happens to.

A fault is frozen, so that it can be printed, stored, and left out of a plan to see whether
the plan still fails.  `octopi.simulation.faults.injector` carries faults out.

**Who** is a word for hosts:

================ =======================================================================
``register``     the register
``broker``       any broker
``leader``       the broker that leads: the partition that the step is about; without a
                 partition, any.  ``leader/2``: partition 2
``follower``     a broker that holds a replica of that partition and doesn't lead it
``client``       any client
``any``          anybody
``here``         (of a target) the host where the place was
``others``       (of a peer) everybody else
a name           that host
================ =======================================================================
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from octopi.simulation.disk.faults import DiskFault
from octopi.simulation.faults.damage import Damage
from octopi.simulation.network.route import Mishap
from octopi.tracing import steps

STEPS: Final = {step.code: step.text for step in steps.ALL}
"""The texts of `octopi.tracing.steps`, each by its code, the first word of its text."""


Way = Literal["both", "in", "out"]

Link = Literal["", "membership", "follow", "client"]
"""What a connection is for: the last part of its endpoint; empty: anything."""


# --- places ----------------------------------------------------------------------------
# One that is *behind* waits until the fault that stands before it in the plan has struck, or
# was skipped; for the first fault of a plan that is the beginning of the run.


@attrs.frozen
class AtTime:
    """So many virtual seconds after the run began."""

    seconds: float
    behind: bool = False
    """Whether they count from the fault before it in the plan."""

    def __str__(self) -> str:
        return f"{self.seconds:g} s later" if self.behind else f"at {self.seconds:g} s"


@attrs.frozen
class AtStep:
    """When a node comes to a step of the protocols for the n-th time."""

    step: str
    """Its code: a key of `STEPS`."""
    who: str = "any"
    occurrence: int = 1
    behind: bool = False
    """Whether it counts from the fault before it in the plan."""

    def __str__(self) -> str:
        step = STEPS.get(self.step, self.step)
        return f"at {step!r} of {self.who}, time {self.occurrence}{_since(self.behind)}"


@attrs.frozen
class AtEffect:
    """When the I/O of a node comes to an edge for the n-th time; for operations and their edges
    see `octopi.simulation.disk.disk`, and ``send`` has ``before`` and ``after``."""

    operation: str
    """Empty: any."""
    edge: str
    who: str = "any"
    occurrence: int = 1
    behind: bool = False
    """Whether it counts from the fault before it in the plan."""

    def __str__(self) -> str:
        what = self.operation or "I/O"
        return f"{self.edge} {what} of {self.who}, time {self.occurrence}{_since(self.behind)}"


@attrs.frozen
class When:
    """When something holds for the first time; ``here`` is whoever's step made it so.

    ``acknowledged``: so many batches are.  ``epoch``: a partition has that epoch, or a greater
    one.  ``in_sync``: the in-sync set of a partition has so few members.  ``lag``: a leader has
    so many uncommitted bytes.
    """

    condition: str
    count: int

    def __str__(self) -> str:
        return f"when {self.condition} is {self.count}"


Place: TypeAlias = AtTime | AtStep | AtEffect | When


def _since(behind: bool) -> str:
    return " since then" if behind else ""


# --- actions ---------------------------------------------------------------------------
# A restart after None is one when everything is healed; after infinity, never, if the others can
# do without that broker.


@attrs.frozen
class Kill:
    """SIGKILL."""

    restart_s: float | None = 0.1


@attrs.frozen
class LosePower:
    """What was not synced may be lost, and nobody is told."""

    restart_s: float | None = 0.1


@attrs.frozen
class Stop:
    """SIGTERM."""

    restart_s: float | None = 0.1


@attrs.frozen
class Pause:
    """SIGSTOP, and SIGCONT after so long."""

    seconds: float = 2.0


@attrs.frozen
class Cut:
    """What travels between a host and *peer* is lost for so long."""

    peer: str = "others"
    seconds: float = 2.0
    way: Way = "both"
    """``in``: only what comes to the host, ``out``: only what it sends."""
    holds: bool = False
    """Whether it is held instead, and arrives at the end."""
    resets: bool = False
    """Whether the connections break at the end."""


@attrs.frozen
class Reset:
    """All connections between a host and *peer* break; or, with a *link*, a single one of that
    kind, and all others stay."""

    peer: str = "others"
    link: Link = ""


@attrs.frozen
class CorruptLink:
    """A mishap befalls all connections between a host and *peer*."""

    mishap: Mishap = Mishap.SILENCE
    peer: str = "others"
    way: Way = "both"
    after_bytes: int = 0
    """So many bytes still arrive."""


@attrs.frozen
class Slow:
    """The routes between a host and *peer* become slow for so long, both ways."""

    peer: str = "others"
    seconds: float = 2.0
    latency_s: float = 0.2
    bytes_per_s: float = 1e9
    loss_chance: float = 0.0


@attrs.frozen
class Refuse:
    """A host refuses new connections for so long."""

    seconds: float = 2.0


@attrs.frozen
class BlackholeAccepts:
    """A host accepts connections for so long that its program never hears of."""

    seconds: float = 2.0


@attrs.frozen
class SwizzleClog:
    """Half of all hosts are clogged one after the other, and freed in another order."""

    seconds: float = 2.0


@attrs.frozen
class BreakDisk:
    """Calls to the disk fail, or take their time, from now on."""

    fault: DiskFault


@attrs.frozen
class FillDisk:
    """There is no space on the disk for so long."""

    seconds: float = 2.0


@attrs.frozen
class ProtectDisk:
    """The disk is mounted read-only for so long."""

    seconds: float = 2.0


@attrs.frozen
class Wipe:
    """The process dies and its disk is lost; it starts with an empty one."""

    restart_s: float | None = 0.5


@attrs.frozen
class BitFlip:
    """The process dies, and while it is down a bit of a log turns over."""

    restart_s: float | None = 0.5


@attrs.frozen
class RollBack:
    """The machine dies, and starts with what was on its disk at an earlier time."""

    taken_s: float = 0.5
    """When the copy was made, in seconds since the run began."""
    restart_s: float | None = 0.5


@attrs.frozen
class DriftClock:
    """The clock runs at another rate for so long."""

    rate: float = 1.05
    seconds: float = 5.0


@attrs.frozen
class JumpClock:
    """The wall clock is set."""

    jump_s: float = 3600.0


Action: TypeAlias = (
    Kill
    | LosePower
    | Stop
    | Pause
    | Cut
    | Reset
    | CorruptLink
    | Slow
    | Refuse
    | BlackholeAccepts
    | SwizzleClog
    | BreakDisk
    | FillDisk
    | ProtectDisk
    | Wipe
    | BitFlip
    | RollBack
    | DriftClock
    | JumpClock
    | Damage
)

Destroying: TypeAlias = LosePower | Wipe | BitFlip | RollBack | Damage
"""Actions that may take data away."""


@attrs.frozen
class InjectedFault:
    """*action* happens to *target* at *place*, once."""

    place: Place
    action: Action
    target: str = "here"

    def __str__(self) -> str:
        return f"{self.action} to {self.target} {self.place}"
