"""All that is fuzzed."""

from __future__ import annotations

from typing import Final

from tests.fuzz import codec, frames, heads
from tests.fuzz.target import Target

TARGETS: Final[dict[str, Target]] = {
    target.name: target for target in (codec.TARGET, frames.TARGET, heads.TARGET)
}
"""By name."""
