"""Stories of what brokers keep and remove: retention overtakes those who are away."""

from __future__ import annotations

from random import Random
from typing import Any

from octopi.simulation.failures import AtTime, Fault
from sim.drawing import a_death, an_absence, late, some_seconds, soon
from sim.story import Story


def retention_strikes(chance: Random) -> Story:
    """By bytes, by age, or by both, with producers that go on for some time; now and then somebody
    is away for so long that what comes next for it is gone."""
    faults = [
        Fault(
            AtTime(some_seconds(chance, 0.2, 1.0)),
            chance.choice((an_absence, a_death))(chance),
            chance.choice(("follower", "follower", "leader", "consumer-1")),
        )
    ]
    if chance.random() < 0.5:
        place = chance.choice((soon, late))(chance)
        faults.append(Fault(place, a_death(chance), chance.choice(("leader", "follower"))))
    by = chance.choice(("bytes", "age", "age", "both"))
    options: dict[str, Any] = {
        "segment_bytes": 4096,
        "retention_bytes": None if by == "age" else chance.choice((4096, 12_000)),
        "retention_ms": None if by == "bytes" else chance.choice((200, 600, 1500)),
        "retention_check_interval_s": chance.choice((0.02, 0.1, 0.3)),
        "flush_interval_s": chance.choice((0.05, 0.3)),
    }
    load = {"value_bytes_max": 3_000, "records": 30, "pause_s": 0.05}
    return Story(tuple(faults), options, load)
