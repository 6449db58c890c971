"""A scenario: faults that belong together, and the cluster that they strike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from octopi.simulation.faults.actions import InjectedFault

PIPELINED: Final = {"batch_bytes": 1}
"""A load of which each message is a batch, and several are under way."""


@attrs.frozen
class Scenario:
    """Faults, and what of the plan has to be so for them to tell anything."""

    faults: tuple[InjectedFault, ...]
    options: Mapping[str, Any] = attrs.field(factory=dict)
    load: Mapping[str, Any] = attrs.field(factory=dict)
    """Of the workload."""
