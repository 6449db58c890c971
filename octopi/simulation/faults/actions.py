"""The faults of a run, as data: a place, an action, and the node that it happens to.

A fault is frozen, so that it can be printed, stored, and omitted from a plan to see whether the
plan still fails.  `octopi.simulation.faults.injector` carries faults out.

**Who** is a word for hosts:

================ =======================================================================
``register``     the register
``broker``       any broker
``leader``       the broker that leads: the partition that the step is about; without a
                 partition, any.  ``leader/2``: partition 2
``follower``     a broker that holds a replica of that partition and doesn't lead it
``client``       any client
``active``       of several registers the one that decides, or decided last
``standby``      a register that isn't the active one
``sequencer``    the sequencer of a relay partition
``relay``        a member of a relay set that isn't the sequencer
``any``          anybody
``here``         (of a target) the host where the place was
``others``       (of a peer) everybody else
a name           that host
================ =======================================================================
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from octopi.simulation.disk.faults import DiskFault, Fail
from octopi.simulation.faults.damage import Damage
from octopi.simulation.network.route import Mishap
from octopi.tracing import steps

STEPS: Final = {step.code: step.text for step in steps.ALL}
"""The texts of `octopi.tracing.steps` by their codes, which are the first words of the texts."""


Way = Literal["both", "in", "out"]

Link = Literal["", "membership", "follow", "client", "relay"]
"""The purpose of a connection: the last part of its endpoint; empty: any."""


# A place that is *behind* counts from the moment when the fault before it in the plan has struck or
# was skipped; for the first fault of a plan, from the beginning of the run.


@attrs.frozen
class AtTime:
    """A number of virtual seconds after the run began."""

    seconds: float
    behind: bool = False
    """Whether the seconds count from the fault before it in the plan."""

    def __str__(self) -> str:
        return f"{self.seconds:g} s later" if self.behind else f"at {self.seconds:g} s"


@attrs.frozen
class AtStep:
    """When a node takes a step of the protocols for the n-th time."""

    step: str
    """The code of the step: a key of `STEPS`."""
    who: str = "any"
    occurrence: int = 1
    behind: bool = False
    """Whether the steps count from the fault before it in the plan."""

    def __str__(self) -> str:
        step = STEPS.get(self.step, self.step)
        return f"at {step!r} of {self.who}, time {self.occurrence}{_since(self.behind)}"


@attrs.frozen
class AtEffect:
    """When the I/O of a node reaches an edge for the n-th time.  `octopi.simulation.disk.disk`
    defines operations and their edges; ``send`` has ``before`` and ``after``."""

    operation: str
    """Empty: any operation."""
    edge: str
    who: str = "any"
    occurrence: int = 1
    behind: bool = False
    """Whether the edges count from the fault before it in the plan."""

    def __str__(self) -> str:
        what = self.operation or "I/O"
        return f"{self.edge} {what} of {self.who}, time {self.occurrence}{_since(self.behind)}"


@attrs.frozen
class When:
    """When a condition holds for the first time; ``here`` is the node whose step made it true.

    ``acknowledged``: that many batches are acknowledged.  ``epoch``: a partition has that epoch, or
    a later one.  ``in_sync``: the in-sync set of a partition has that many members.  ``lag``: a
    leader has that many uncommitted bytes.
    """

    condition: str
    count: int

    def __str__(self) -> str:
        return f"when {self.condition} is {self.count}"


Place: TypeAlias = AtTime | AtStep | AtEffect | When


def _since(behind: bool) -> str:
    return " since then" if behind else ""


# A restart after None happens when everything is healed.  A restart after infinity never happens,
# if the cluster can do without that broker.


@attrs.frozen
class Kill:
    """SIGKILL."""

    restart_s: float | None = 0.1


@attrs.frozen
class LosePower:
    """Data that was not synced may be lost, and peers aren't told."""

    restart_s: float | None = 0.1


@attrs.frozen
class Stop:
    """SIGTERM."""

    restart_s: float | None = 0.1


@attrs.frozen
class Pause:
    """SIGSTOP, and SIGCONT after a time."""

    seconds: float = 2.0


@attrs.frozen
class Cut:
    """Packets between a host and *peer* are lost for a time."""

    peer: str = "others"
    seconds: float = 2.0
    way: Way = "both"
    """``in``: only packets to the host; ``out``: only packets from it."""
    holds: bool = False
    """Whether packets are held instead, and arrive at the end."""
    resets: bool = False
    """Whether the connections break at the end."""


@attrs.frozen
class Reset:
    """All connections between a host and *peer* break; with a *link*, only one connection of that
    kind does."""

    peer: str = "others"
    link: Link = ""


@attrs.frozen
class CorruptLink:
    """All connections between a host and *peer* suffer a mishap."""

    mishap: Mishap = Mishap.SILENCE
    peer: str = "others"
    way: Way = "both"
    after_bytes: int = 0
    """The number of bytes that still arrive before it."""


@attrs.frozen
class Slow:
    """The routes between a host and *peer* become slow for a time, both ways."""

    peer: str = "others"
    seconds: float = 2.0
    latency_s: float = 0.2
    bytes_per_s: float = 1e9
    loss_chance: float = 0.0


@attrs.frozen
class Refuse:
    """A host refuses new connections for a time."""

    seconds: float = 2.0


@attrs.frozen
class BlackholeAccepts:
    """For a time a host accepts connections without its program learning of them."""

    seconds: float = 2.0


@attrs.frozen
class SwizzleClog:
    """Half of all hosts are cut off one after another, and reconnected in another order."""

    seconds: float = 2.0


@attrs.frozen
class BreakDisk:
    """Calls to the disk fail or take longer from now on."""

    fault: DiskFault

    @property
    def may_lose_names(self) -> bool:
        """Whether a sync of a directory may fail: no later one makes up for that."""
        is_struck = self.fault.operation in {"", "sync_directory"}
        return is_struck and isinstance(self.fault.how, Fail)


@attrs.frozen
class FillDisk:
    """There is no space on the disk for a time."""

    seconds: float = 2.0


@attrs.frozen
class ProtectDisk:
    """The disk is mounted read-only for a time."""

    seconds: float = 2.0


@attrs.frozen
class Wipe:
    """The process dies and its disk is lost; it starts again with an empty one."""

    restart_s: float | None = 0.5


@attrs.frozen
class BitFlip:
    """The process dies, and a bit of a log flips while it is down."""

    restart_s: float | None = 0.5


@attrs.frozen
class RollBack:
    """The machine dies, and starts with the content that its disk had at an earlier time."""

    taken_s: float = 0.5
    """When the copy was made, in seconds since the run began."""
    restart_s: float | None = 0.5


@attrs.frozen
class DriftClock:
    """The clock runs at another rate for a time."""

    rate: float = 1.05
    seconds: float = 5.0


@attrs.frozen
class JumpClock:
    """The wall clock is set to another time."""

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
"""Actions that may destroy data."""


def goes_unnoticed(action: object) -> bool:
    """Whether *action* changes what is on a disk in a way that its node can't detect: it goes on
    with what it finds, until an operator gives it an empty disk."""
    if isinstance(action, Damage):
        return not action.is_noticed
    return isinstance(action, BitFlip | RollBack)


@attrs.frozen
class InjectedFault:
    """*action* happens to *target* at *place*, once."""

    place: Place
    action: Action
    target: str = "here"

    def __str__(self) -> str:
        return f"{self.action} to {self.target} {self.place}"
