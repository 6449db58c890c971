"""A scenario: faults that belong together, and the cluster into which they are injected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from octopi.simulation.faults.actions import InjectedFault

PIPELINED: Final = {"batch_bytes": 1}
"""A load in which each message is a batch, and several batches are on their way."""


@attrs.frozen
class Scenario:
    """Faults, and the options of the plan that they need to be effective."""

    faults: tuple[InjectedFault, ...]
    options: Mapping[str, Any] = attrs.field(factory=dict)
    load: Mapping[str, Any] = attrs.field(factory=dict)
    """Options of the workload."""
