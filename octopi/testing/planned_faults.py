"""Faults that are planned for a moment: data that can be printed as a line of a test."""

from __future__ import annotations

import json
from math import inf
from typing import Any, Final, TypedDict

import attrs

from octopi.simulation.faults.actions import (
    STEPS,
    Action,
    Cut,
    DriftClock,
    FillDisk,
    JumpClock,
    Kill,
    LosePower,
    Pause,
    Slow,
    Stop,
)
from octopi.testing.errors import MisuseError
from octopi.tracing.step import Step

_CODES: Final = {text: code for code, text in STEPS.items()}


PLAIN_FAULTS: Final[dict[str, Action]] = {
    "kill": Kill(1.0),
    "lose power": LosePower(1.0),
    "stop": Stop(1.0),
    "pause": Pause(1.0),
    "isolate": Cut("others", 1.0),
    "fill disk": FillDisk(1.0),
    "slow": Slow("others", 1.0),
    "skew": JumpClock(1.0),
    "drift": DriftClock(1.1, 1.0),
}
"""The plainest fault of each kind that concerns one host, the one first that is the easiest to
imagine."""


class Moment(TypedDict, total=False):
    """When a fault is to strike; without any of these, at once."""

    step: type[Step] | str
    """When the host takes this step: see `Faults.at`."""
    occurrence: int
    """At the how-manieth time, counted from now on; 1 if it isn't given."""
    after_s: float
    """After this virtual time (s)."""


@attrs.frozen(repr=False)
class PlannedFault:
    """*action* happens to *host*, once."""

    action: Action
    host: str
    step: str = ""
    """The text of the step at which it strikes; empty: at a time."""
    occurrence: int = 1
    after_s: float = 0.0
    """How long after it was planned it strikes (s), if it isn't at a step."""

    @classmethod
    def at(cls, action: Action, host: str, moment: Moment) -> PlannedFault:
        """*action* at *moment*.

        Raises:
          MisuseError: if that is no moment.
        """
        step = moment.get("step", "")
        after_s, occurrence = moment.get("after_s", 0.0), moment.get("occurrence", 1)
        if step and "after_s" in moment:
            raise MisuseError("a fault strikes at a step or after a time: give one of the two")
        if "occurrence" in moment and not step:
            raise MisuseError("occurrence counts a step: give the step as well")
        if after_s < 0:
            raise MisuseError(f"after_s is {after_s}; it can't be negative")
        text = step if isinstance(step, str) else step.text
        return cls(action, host, text, occurrence, after_s)

    def __str__(self) -> str:
        return self.code()

    def __repr__(self) -> str:
        return self.call()

    def _repr_pretty_(self, printer: Any, _: bool) -> None:  # noqa: ANN401  # of IPython
        printer.text(repr(self))  # Hypothesis would show the fields

    def code(self) -> str:
        """The line of a test that plans this fault."""
        about = f"  # {self.step.partition(' ')[2]}" if self.step in _CODES else ""
        return f"{self.call()}{about}"

    def call(self) -> str:
        """The call that plans this fault."""
        name, positional, keywords = _call(self.action)
        arguments = [_quoted(one) for one in (self.host, *positional)]
        if self.step:
            arguments.append(f"step={_quoted(_CODES.get(self.step, self.step))}")
            if self.occurrence != 1:
                arguments.append(f"occurrence={self.occurrence}")
        else:
            arguments.append(f"after_s={self.after_s!r}")
        arguments += [
            f"{key}={value!r}" for key, value in keywords.items() if value not in (None, inf, False)
        ]
        return f"cluster.{name}({', '.join(arguments)})"


def _call(action: Action) -> tuple[str, list[str], dict[str, float | bool | None]]:
    """The name of the method of `Faults` for *action*, and its arguments behind the host."""
    match action:
        case Kill(restart_s=restart_s):
            return "kill", [], {"restart_s": restart_s}
        case LosePower(restart_s=restart_s):
            return "lose_power", [], {"restart_s": restart_s}
        case Stop(restart_s=restart_s):
            return "stop", [], {"restart_s": restart_s}
        case Pause(seconds=seconds):
            return "pause", [], {"seconds": seconds}
        case FillDisk(seconds=seconds):
            return "fill_disk", [], {"seconds": seconds}
        case Cut(peer="others", seconds=seconds):
            return "isolate", [], {"seconds": seconds}
        case Cut(peer=peer, seconds=seconds, way=way):
            return "cut", [peer], {"seconds": seconds, "one_way": way == "out"}
        case JumpClock(jump_s=jump_s):
            return "skew", [], {"by_s": jump_s}
        case DriftClock(rate=rate, seconds=seconds):
            return "drift", [], {"rate": rate, "seconds": seconds}
        case Slow(peer=peer, seconds=seconds, latency_s=latency_s):
            others = [] if peer == "others" else [peer]
            return "slow", others, {"latency_s": latency_s, "seconds": seconds}
    raise MisuseError(f"{action} has no method of its own")


def _quoted(text: str) -> str:
    return repr(text) if '"' in text else json.dumps(text, ensure_ascii=False)
