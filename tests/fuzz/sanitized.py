"""Runs kernels that were compiled with sanitizers over bytes of every kind:
``python -m tests.fuzz.sanitized MODULE INPUTS SEED``.

Prints how many inputs were tried.  A read outside of a buffer, or anything else that C leaves
undefined, ends the process with a report on standard error; so does anything that kernels and
Python say differently.  AddressSanitizer has to be loaded first, and Python has to allocate with
``malloc`` (`environment_for`): each input is a block of its own, with nothing that may be read
around it.
"""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Final, cast

from octopi.kernels import Kernels
from tests.fuzz.corpus import CORPUS, stored
from tests.fuzz.mutation import mutated
from tests.record.comparing import check_agreement, using
from tests.record.crafting import plain_batch, with_checksums
from tests.record.golden import GOLDEN, GOLDEN_LOG

OPTIONS: Final = (
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)
"""Of the compiler."""
_INPUT_BYTES_MAX: Final = 4096


def environment_for(compiler: str) -> dict[str, str]:
    """The environment of a process that loads such kernels."""
    found = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    return {
        **os.environ,
        "LD_PRELOAD": found.stdout.strip(),
        "PYTHONMALLOC": "malloc",
        # Python itself keeps memory until its end.
        "ASAN_OPTIONS": "detect_leaks=0",
        "OCTOPI_KERNELS": "0",
    }


def load(path: Path) -> Kernels:
    spec = importlib.util.spec_from_file_location("octopi._kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Kernels, module)


def inputs(count: int, seed: int) -> list[bytes]:
    """The corpus of the fuzzer, valid records, and *count* changed ones, each also with checksums
    that match."""
    known = [*stored(CORPUS, "records").values(), *(one.data for one in GOLDEN), GOLDEN_LOG]
    known += [plain_batch(count, size) for count, size in ((1, 0), (3, 15), (40, 40), (9, 300))]
    randomness = random.Random(seed)
    tried = list(known)
    for _ in range(count):
        one, other = randomness.choice(known), randomness.choice(known)
        changed = mutated(randomness, one, other, (b"\xff" * 4, bytes(4)), _INPUT_BYTES_MAX)
        tried += [changed, with_checksums(changed)]
    return tried


def main(module: str, count: str, seed: str) -> None:
    kernels = load(Path(module))
    tried = inputs(int(count), int(seed))
    for data in tried:
        with using(None):
            check_agreement(kernels, memoryview(array("B", data)), base_offset=2**40)
    for size in range(200):
        for way in ("tables", "clmul"):
            kernels.crc32(way, memoryview(array("B", bytes(size))))
    sys.stdout.write(f"{len(tried)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
