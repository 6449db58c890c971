"""Compares compiled kernels with Python: ``python -m benchmarks.kernels``.

In one process, for messages of 100 B and of 1 KiB in batches of 128 KiB: scanning, decoding and
encoding a batch, and taking its values and offsets.  Each is repeated for a while with kernels and
without, one directly after the other, in an order that turns from round to round.

What is compared is processor time for a record.  A ratio compares two runs of one round: above 1,
the kernels are quicker.  Prints JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Final

import attrs

from benchmarks.machine import machine
from octopi import kernels
from octopi.identifiers import Offset, PartitionId, ProducerEpoch, ProducerId, Sequence, TopicName
from octopi.kernels import Kernels
from octopi.limits import KIB
from octopi.operating_system import keep_freed_memory
from octopi.record import BatchBuilder, decode, scan
from octopi.record_columns import columns

SIZES: Final = (100, 1024)
BATCH_BYTES: Final = 128 * KIB
_NOW_MS: Final = 1_800_000_000_000
_PRODUCER: Final = (ProducerId(b"benchmarks------"), ProducerEpoch(1), Sequence(0))

Work = Callable[[], object]


@attrs.frozen
class Comparison:
    """One work on a batch, done with kernels and without."""

    work: Work
    count: int
    """The records of the batch."""
    runs: list[tuple[float, float]] = attrs.field(factory=list)
    """Microseconds for a record: with kernels, and without."""

    def measure(self, compiled: Kernels, records: int, *, python_first: bool) -> None:
        """Add a pair of runs, of so many *records* each."""
        repetitions = max(1, records // self.count)
        if python_first:
            slow = self._time(None, repetitions)
            fast = self._time(compiled, repetitions)
        else:
            fast = self._time(compiled, repetitions)
            slow = self._time(None, repetitions)
        self.runs.append((fast, slow))

    def _time(self, chosen: Kernels | None, repetitions: int) -> float:
        kernels.KERNELS = chosen
        work = self.work
        began = time.process_time()
        for _ in range(repetitions):
            work()
        return (time.process_time() - began) / (repetitions * self.count) * 1e6

    def report(self) -> dict[str, float]:
        ratios = [slow / fast for fast, slow in self.runs]
        low, ratio, high = statistics.quantiles(ratios, n=4)
        return {
            "ratio": round(ratio, 2),
            "ratio_low_quartile": round(low, 2),
            "ratio_high_quartile": round(high, 2),
            "compiled_us": round(statistics.median(fast for fast, _ in self.runs), 4),
            "python_us": round(statistics.median(slow for _, slow in self.runs), 4),
        }


def comparisons(size: int) -> dict[str, Comparison]:
    """All works on a batch of messages of *size* bytes, by name."""
    builder = BatchBuilder()
    while builder.size_bytes < BATCH_BYTES:
        # As a producer in a loop: some messages in each millisecond.
        builder.add(bytes(size), timestamp_ms=_NOW_MS + len(builder) // 100)
    batch = builder.encode(*_PRODUCER)
    start, topic, partition = Offset(1 << 40), TopicName("topic"), PartitionId(0)
    works: dict[str, Work] = {
        "scan": lambda: scan(batch),
        "decode": lambda: decode(batch, start, topic, partition),
        "encode": lambda: builder.encode(*_PRODUCER),
        "values and offsets": lambda: columns(batch, start),
    }
    return {f"{name}, {size} B": Comparison(work, len(builder)) for name, work in works.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000, help="of each run")
    parser.add_argument("--rounds", type=int, default=25)
    arguments = parser.parse_args()
    compiled = kernels.KERNELS
    if compiled is None:
        print(f"benchmarks.kernels: no compiled kernels: {kernels.WHY_NONE}", file=sys.stderr)
        return 1
    keep_freed_memory()  # as in a node: otherwise pages are mapped for every batch
    all_of_them = {name: one for size in SIZES for name, one in comparisons(size).items()}
    for number in range(arguments.rounds):
        for one in all_of_them.values():
            one.measure(compiled, arguments.records, python_first=number % 2 == 1)
    figures = {name: one.report() for name, one in all_of_them.items()}
    print(json.dumps({"machine": machine(), **figures}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
