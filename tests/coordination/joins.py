"""How brokers ask to join, for tests that don't care about most of it."""

from __future__ import annotations

from octopi.coordination.seals import Seals
from octopi.wire.messages import Join, RegisterGeneration

SECRET = "5eed" * 8
"""Of the registers in these tests."""
SEALS = Seals(SECRET)

REGISTER = RegisterGeneration(1, "first")
"""The first generation of a register that formed a cluster in a test."""


def join(
    broker: int | None,
    incarnation: int = 1,
    *,
    cluster: str,
    copy: str = "",
    copied_at: int = 0,
    register: RegisterGeneration | None = REGISTER,
    credential: str | None = None,
) -> Join:
    """The next start of a data directory that counts *incarnation* starts; of its *copy*, which
    was made after the start *copied_at*, if that is named.  *credential*: None: the right one."""
    lives = [f"{number}{copy if number > copied_at else ''}" for number in range(incarnation + 1)]
    return Join(
        request=1,
        cluster=cluster,
        broker=broker,
        incarnation=incarnation,
        nonce=lives[incarnation],
        ancestors=lives[1:incarnation][-64:],
        register=register if cluster else None,
        address=f"ws://broker-{broker}",
        credential=SEALS.credential(broker or 0) if credential is None else credential,
    )
