"""What has to hold of a log when records are appended to it."""

from __future__ import annotations

from typing import Annotated, Final

import attrs

from octopi.field_bounds import MayBeNegative
from octopi.identifiers import Offset


@attrs.frozen
class LastRecord:
    """The newest record of a producer in a log."""

    epoch: int
    """The producer epoch."""
    sequence: Annotated[int, MayBeNegative()]
    """The sequence; -1: the log has no record of the producer."""


NO_RECORD: Final = LastRecord(0, -1)
"""The log has no record of the producer."""


@attrs.frozen
class Condition:
    """What has to hold of a log when records are appended to it; otherwise nothing is."""

    expected_end: Offset | None = None
    """The log ends there; None: anywhere."""
    after: LastRecord | None = None
    """This is the newest record of their producer in the log; None: whatever is."""
