"""Seeded entropy: what the process would ask the operating system for comes from one source.

WebSockets need it: wsproto masks with it and makes its handshake keys of it.  `os.urandom`,
what `secrets`, `uuid` and `random.SystemRandom` make of it, and generators that nobody
seeded are covered, and the state of the global generator is the same in each run.  What
draws entropy below Python, as hash seeds and OpenSSL do, is not.
"""

from __future__ import annotations

import os
import random
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Watch = Callable[[str, FrameType], bool]
"""Told what was called and from where; whether the call is of the run (and not of another
thread, say).  Raises if it must not be."""


@contextmanager
def seeded(source: random.Random, watch: Watch) -> Iterator[None]:
    """Have *source* stand for the system's entropy within the block."""
    system_urandom, system_seed, system_uuid1 = os.urandom, random.Random.seed, uuid.uuid1
    changed_random: Any = random

    def urandom(size: int, /) -> bytes:
        if watch("os.urandom", sys._getframe(1)):
            return source.randbytes(size)
        return system_urandom(size)

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:  # noqa: ANN401
        if a is None and watch("random.seed", sys._getframe(1)):
            a = source.getrandbits(64)
        system_seed(self, a, version)

    def uuid1(node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
        if watch("uuid.uuid1", sys._getframe(1)):
            return uuid.UUID(bytes=source.randbytes(16), version=1)
        return system_uuid1(node, clock_seq)

    state = random.getstate()
    random.seed(source.getrandbits(64))
    os.urandom = urandom
    changed_random._urandom = urandom  # what SystemRandom calls
    changed_random.Random.seed = seed
    uuid.uuid1 = uuid1
    try:
        yield
    finally:
        os.urandom = system_urandom
        changed_random._urandom = system_urandom
        changed_random.Random.seed = system_seed
        uuid.uuid1 = system_uuid1
        random.setstate(state)
