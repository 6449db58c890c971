"""Proves to a leader that a follower is the broker whose id it uses.

An acknowledgement makes a leader commit, so it must come from the broker that it names.  The
register gives each pair of brokers a key that no other broker gets.  The follower begins a session
with a code of that session under this key (keyed BLAKE2b, RFC 7693).  The leader checks the code,
which is valid for no other session.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from hmac import compare_digest

import attrs

from octopi.identifiers import BrokerId
from octopi.limits import SEAL_BYTES_MAX
from octopi.wire.messages import Acknowledge, BrokerInfo, Follow


class StreamKeys:
    """The keys of one broker; the register sends them again whenever the broker joins."""

    def __init__(self) -> None:
        self._keys: dict[BrokerId, tuple[str, ...]] = {}
        """The newest key with each broker, and the one before: after the register lost its disk,
        the other broker may not have the new key yet."""

    def learn(self, brokers: Iterable[BrokerInfo]) -> None:
        """Store the keys with *brokers*, which the register sent."""
        for one in brokers:
            known = self._keys.get(one.broker, ())
            if one.stream_key and known[:1] != (one.stream_key,):
                self._keys[one.broker] = (one.stream_key, *known[:1])

    def signed(self, leader: BrokerId, message: Follow | Acknowledge) -> Follow | Acknowledge:
        """Add the proof for *leader* to *message*, if it begins a session and a key is known."""
        if not isinstance(message, Follow) or not (keys := self._keys.get(leader)):
            return message
        return attrs.evolve(message, proof=_code(keys[0], message))

    def is_proven(self, follow: Follow) -> bool:
        """Whether *follow* comes from the broker that it names.  Without a key with that broker,
        this can't be checked, and the result is true."""
        keys = self._keys.get(follow.broker, ())
        codes = [_code(key, follow).encode() for key in keys]
        return not codes or any(compare_digest(one, follow.proof.encode()) for one in codes)


def _code(key: str, follow: Follow) -> str:
    session = (follow.partition, follow.epoch, follow.broker, follow.incarnation, follow.attempt)
    return blake2b(
        repr(session).encode(), key=key.encode(), digest_size=SEAL_BYTES_MAX // 2
    ).hexdigest()
