"""All that is fuzzed."""

from __future__ import annotations

from typing import Final

from tests.fuzz import (
    checkpoints,
    codec,
    ends,
    frames,
    heads,
    plans,
    positions,
    records,
    secrets,
    segments,
    tokens,
    toml,
)
from tests.fuzz.target import Target

TARGETS: Final[dict[str, Target]] = {
    module.TARGET.name: module.TARGET
    for module in (
        codec,
        frames,
        heads,
        records,
        positions,
        plans,
        toml,
        tokens,
        secrets,
        checkpoints,
        ends,
        segments,
    )
}
"""By name."""
