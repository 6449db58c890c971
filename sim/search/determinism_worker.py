"""One process of `sim.search.determinism`: prints the digests of its seeds, a line each."""

from __future__ import annotations

import sys

from sim.generate.swarm import draw
from sim.run.simulation import simulate


def main() -> None:
    """``python -m sim.search.determinism_worker FIRST COUNT TIER``; tier ``drawn``: the seed's
    own."""
    first, count, tier = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    for seed in range(first, first + count):
        plan = draw(seed, None if tier == "drawn" else tier)  # type: ignore[arg-type]
        print(simulate(plan, events_kept=0).digest)


if __name__ == "__main__":
    main()
