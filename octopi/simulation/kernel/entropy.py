"""Seeded entropy: the process draws from one seeded source instead of the operating system.

WebSockets need this, because wsproto draws masks and handshake keys.  It covers `os.urandom`, the
functions of `secrets`, `uuid` and `random.SystemRandom` that use it, and generators without a seed;
the state of the global generator is the same in each run.  Entropy that is drawn below Python, as
by hash seeds and OpenSSL, is not covered.
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
"""Called with the name and the caller of a function; returns whether the call belongs to the run
(and not, for instance, to another thread).  Raises if the call is forbidden."""


@contextmanager
def seeded(source: random.Random, watch: Watch) -> Iterator[None]:
    """Use *source* in place of the system's entropy within the block."""
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
