"""Kill streaming Spark jobs, and the brokers that lead, at many random moments.

Too long for the tests (a driver takes many seconds to start): `make spark-kills`.  Prints
JSON on standard output, and ends with an error if a message is lost, doubled, changed or out
of order.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.spark.kills import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver-kills", type=int, default=20)
    parser.add_argument("--broker-kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=300, help="messages a second")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        outcome = run(
            Path(directory),
            driver_kills=arguments.driver_kills,
            broker_kills=arguments.broker_kills,
            seed=arguments.seed,
            rate=arguments.rate,
            tell=lambda text: print(f"{time.monotonic() - began:.0f} s: {text}", file=sys.stderr),
        )
    print(json.dumps(attrs.asdict(outcome)))


if __name__ == "__main__":
    main()
