"""All that is fuzzed."""

from __future__ import annotations

from typing import Final

from tests.fuzz import (
    bodies,
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
    streams,
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
        bodies,
        streams,
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

SAME_INPUTS: Final = {
    "codec": 12_500,
    "frames": 5_000,
    "heads": 2_000,
    "bodies": 150,
    "streams": 375,
    "records": 3_125,
    "positions": 25_000,
    "plans": 3_125,
    "toml": 1_875,
    "tokens": 3_125,
    "secrets": 75_000,
    "checkpoints": 18_750,
    "ends": 2_500,
    "segments": 2_187,
}
"""How many inputs of each `--same` tries: 90 s of processor time in all.  Those targets get more
of it of whose code the fewest branches are covered: `heads` and the last five."""
