"""The cells of an exhaustive search: each step and each I/O, in each role, with the actions there.

The text of a step names the role that performs it.  If that may be the leader or a follower of a
partition, each of the two roles has a cell.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from octopi.simulation.disk.faults import Delay, DiskFault, Fail, Tear
from octopi.simulation.faults.actions import (
    STEPS,
    Action,
    AtEffect,
    AtStep,
    BreakDisk,
    CorruptLink,
    Cut,
    DriftClock,
    FillDisk,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    Refuse,
    Reset,
    Slow,
    Stop,
    Wipe,
)
from octopi.tracing import steps

SERVERS: Final = ("register", "leader", "follower", "broker")
"""Roles of servers.  ``broker`` is the role at steps that are about no partition."""
CLIENTS: Final = ("producer", "consumer", "operator")

_LONG_S: Final = 1.3
"""How long an absence lasts: longer than `octopi.limits.MEMBERSHIP_HEARTBEAT_TIMEOUT_S`, so that
others notice it."""


class Cell(NamedTuple):
    """A place and a role at which faults are injected."""

    place: str
    """The code of a step; or an operation and its edge."""
    role: str
    """The role of the node there."""

    @property
    def is_step(self) -> bool:
        """Whether the place is a step, and not I/O."""
        return self.place in STEPS

    def __str__(self) -> str:
        return f"{STEPS.get(self.place, self.place)} ({self.role})"


class Spot(NamedTuple):
    """One moment of a scenario at which a host reaches a cell."""

    scenario: str
    host: str
    occurrence: int
    """The number of the step or the effect on that host, from 1."""
    call: int
    """The number of the call with that effect, among the host's calls of that operation."""


# --- steps -------------------------------------------------------------------------------

_BY_WORD: Final = {
    "leader": ("leader",),
    "follower": ("follower",),
    "register": ("register",),
    "register's": ("register",),
    "producer": ("producer",),
    "named": ("producer",),
    "consumer": ("consumer",),
    "program": ("consumer",),
    "topic": ("register",),
    "replica": ("leader", "follower"),
    "log": ("leader", "follower"),
    "log's": ("leader", "follower"),
    "old": ("leader", "follower"),
    "broker": ("broker",),
    "acceptor": ("broker",),
    "receiver": ("broker",),
    "sequencer": ("broker",),
    "relay": ("broker",),
}
"""Roles by the first word behind the code in the text of a step."""

_OTHER_ROLES: Final = {
    steps.E9Confirmed.text: ("register",),
    steps.T2Confirmed.text: ("register",),
    steps.T6Confirmed.text: ("register",),
    steps.E11Leading.text: ("leader",),
    steps.E12Following.text: ("follower",),
    steps.D6SettingAside.text: ("follower",),
    steps.D6SetAside.text: ("follower",),
    steps.T3Making.text: ("leader", "follower"),
    steps.T3Made.text: ("leader", "follower"),
    steps.T7Removing.text: ("leader", "follower"),
    steps.T7Removed.text: ("leader", "follower"),
    steps.T9Altering.text: ("leader", "follower"),
    steps.T9Altered.text: ("leader", "follower"),
}
"""Roles of steps whose first word is ``broker``, if they differ: the register performs the step, or
it is about one partition."""

ROLES: Final = {
    step.text: _OTHER_ROLES.get(step.text) or _BY_WORD[step.text.split()[1]] for step in steps.ALL
}
"""The roles that perform each step."""

_SERVER_ACTIONS: Final[dict[str, Action]] = {
    "refuse": Refuse(_LONG_S),
    "wipe": Wipe(0.1),
    "EIO": BreakDisk(DiskFault("")),
    "full disk": FillDisk(0.5),
}
_ACTIONS: Final[dict[str, Action]] = {
    "kill": Kill(0.05),
    "lose power": LosePower(0.05),
    "stop": Stop(0.05),
    "pause": Pause(_LONG_S),
    "cut": Cut("others", _LONG_S),
    "cut in": Cut("others", _LONG_S, "in"),
    "cut out": Cut("others", _LONG_S, "out", resets=True),
    "reset": Reset(),
    "silence": CorruptLink(),
    "slow": Slow("others", 0.5),
    "fast clock": DriftClock(2.0, 1.0),
}

STEP_ACTIONS: Final = (*_ACTIONS, *_SERVER_ACTIONS)
"""The names of actions at steps; the last ones are for servers only."""


def actions(cell: Cell) -> tuple[str, ...]:
    """The names of the actions at *cell*."""
    if not cell.is_step:
        return EFFECT_ACTIONS
    return STEP_ACTIONS if cell.role in SERVERS else tuple(_ACTIONS)


# --- I/O ---------------------------------------------------------------------------------

_LOOKING: Final = ("read_file", "list_directory", "pread")
_CHANGING: Final = (
    *("open", "append", "truncate", "replace_file", "rename", "remove", "remove_directory"),
    *("make_directory", "lock_directory"),
)
_SYNCING: Final = ("sync", "sync_directory")

EFFECT_ACTIONS: Final = ("kill", "lose power", "EIO")
"""The names of actions at I/O.  A connection has no EIO: it breaks."""

_TORN: Final = "append during"
"""The middle of an append.  Only a signal interrupts a long write, so a kill is the only action."""


def cells() -> list[Cell]:
    """All cells: those of steps, then those of I/O."""
    found = [Cell(step.code, role) for step in steps.ALL for role in ROLES[step.text]]
    places = [f"{operation} before" for operation in (*_LOOKING, *_CHANGING, *_SYNCING)]
    places += [f"{operation} after" for operation in (*_CHANGING, *_SYNCING)]
    places += [f"{operation} during" for operation in _SYNCING]
    found += [Cell(place, role) for place in (*sorted(places), _TORN) for role in SERVERS]
    ways = ("send before", "send after")
    roles = ("register", "broker", *CLIENTS)
    return found + [Cell(place, role) for place in ways for role in roles]


# --- what happens there --------------------------------------------------------------------


def faults(cell: Cell, action: str, spot: Spot) -> tuple[InjectedFault, ...]:
    """The faults that do *action* to the node that reaches *cell* at *spot*.  The last one is the
    action itself; those before prepare it."""
    if cell.is_step:
        at = AtStep(cell.place, spot.host, spot.occurrence)
        return (InjectedFault(at, {**_ACTIONS, **_SERVER_ACTIONS}[action]),)
    operation, edge = cell.place.split()
    if action != "EIO":
        died = _ACTIONS[action]
        if cell.place == _TORN:
            tear = BreakDisk(DiskFault("append", Tear()))
            return (
                InjectedFault(AtEffect("append", "before", spot.host, spot.call), tear),
                InjectedFault(AtEffect("append", "during", spot.host), died),
            )
        return (InjectedFault(AtEffect(operation, edge, spot.host, spot.occurrence), died),)
    if operation == "send":
        return (InjectedFault(AtEffect(operation, edge, spot.host, spot.occurrence), Reset()),)
    # How a call ends is decided at its first edge.
    before = AtEffect(operation, "before", spot.host, spot.call)
    failing = InjectedFault(before, BreakDisk(DiskFault(operation, Fail(done=edge == "after"))))
    if edge == "during":
        return InjectedFault(before, BreakDisk(DiskFault(operation, Delay(0.05)))), failing
    return (failing,)


# --- what can't be -------------------------------------------------------------------------

_NEVER: Final[dict[Cell, str]] = {
    Cell(f"{operation} {edge}", role): why
    for operation, edges, roles, why in (
        (
            "lock_directory",
            ("before", "after"),
            ("leader", "follower"),
            "a node locks its data directory as a whole, never a log's",
        ),
        (
            "remove",
            ("after",),
            ("broker",),
            "outside of its logs a broker removes files only after another failure: a file that a "
            "process left half written, and the file with which it tests a full disk for space",
        ),
        (
            "remove_directory",
            ("before", "after"),
            ("broker",),
            "outside of its logs a broker removes only directories of retired replicas, which it "
            "keeps for longer than a scenario lasts",
        ),
    )
    for edge in edges
    for role in roles
}
_MAY_BE_DECISIVE: Final = frozenset(
    {steps.E4Heard.text, steps.E5Left.text, steps.E6Accepting.text, steps.E6Accepted.text}
)
_STOPPING: Final = frozenset(
    {steps.E21Stopping.text, steps.E21Told.text, steps.E24Leaving.text, steps.E24Left.text}
)


def impossible(cell: Cell, action: str) -> str:
    """Why *action* can't be done at *cell*; empty: it can."""
    if cell in _NEVER:
        return _NEVER[cell]
    if steps.BY_CODE.get(cell.place) in steps.OF_GENERATIONS:
        return (
            "producers of plans name the log of each message, so topics of plans don't grow; "
            "tests/testing/test_topics_that_grow_under_faults.py has nodes and programs fail there"
        )
    if action == "wipe" and steps.BY_CODE.get(cell.place) in steps.OF_RINGS:
        return (
            "others would have to take the place of the broker with the lost disk, which they do "
            "after ten minutes only"
        )
    if action == "stop" and STEPS.get(cell.place) in _STOPPING:
        return "the broker is stopping"
    if action == "wipe" and cell.role == "leader" and STEPS.get(cell.place) in _MAY_BE_DECISIVE:
        return (
            "the leader is in sync, and may be the only one in sync to accept the next epoch, so "
            "its disk is spared until that is decided (octopi.simulation.faults.data_safety)"
        )
    return ""
