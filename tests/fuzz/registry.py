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
    "codec": 50_000,
    "frames": 20_000,
    "heads": 8_000,
    "bodies": 600,
    "streams": 1_500,
    "records": 25_000,
    "positions": 100_000,
    "plans": 12_500,
    "toml": 7_500,
    "tokens": 12_500,
    "secrets": 300_000,
    "checkpoints": 75_000,
    "ends": 10_000,
    "segments": 8_750,
}
"""How many inputs of each `--same` tries: 175 s of processor time in all.  Those targets get more
of it of whose code the fewest branches are covered: `heads` and the last five."""
