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
    "codec": 25_000,
    "frames": 10_000,
    "heads": 4_000,
    "bodies": 300,
    "streams": 750,
    "records": 6_250,
    "positions": 50_000,
    "plans": 6_250,
    "toml": 3_750,
    "tokens": 6_250,
    "secrets": 150_000,
    "checkpoints": 37_500,
    "ends": 5_000,
    "segments": 4_375,
}
"""How many inputs of each `--same` tries: 90 s of processor time in all.  Those targets get more
of it of whose code the fewest branches are covered: `heads` and the last five."""
