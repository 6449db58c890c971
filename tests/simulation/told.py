"""Steps that a test tells of itself."""

from __future__ import annotations

from typing import Any

from octopi.simulation.kernel.world import StepEvent, World
from octopi.tracing.step import Step


def told(step: type[Step], **facts: Any) -> Step:  # noqa: ANN401
    """A *step* of which only *facts* matter: its other fields are None."""
    assert facts.keys() <= {*step.names}, f"{step.text} says nothing of {facts.keys()}"
    return step(**(dict.fromkeys(step.names) | facts))


def step_event(
    step: type[Step],
    host: str = "broker-1",
    life: int = 1,
    number: int = 0,
    at: float = 0.0,
    **facts: Any,  # noqa: ANN401
) -> StepEvent[Any]:
    """What an observer hears when *host* comes to that step."""
    return StepEvent(number, at, host, life, step.text, told(step, **facts))


def tell(world: World, step: type[Step], host: str, life: int, **facts: Any) -> None:  # noqa: ANN401
    """Have *world* record that *host* came to that step."""
    world.record_step(told(step, **facts), host, life)
