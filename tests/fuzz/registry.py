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
    "codec": 100_000,
    "frames": 40_000,
    "heads": 16_000,
    "bodies": 1_200,
    "streams": 3_000,
    "records": 50_000,
    "positions": 200_000,
    "plans": 25_000,
    "toml": 15_000,
    "tokens": 25_000,
    "secrets": 600_000,
    "checkpoints": 150_000,
    "ends": 20_000,
    "segments": 17_500,
}
"""How many inputs of each `--same` tries: 350 s of processor time in all.  Those targets get more
of it of whose code the fewest branches are covered: `heads` and the last five."""
