"""Keys and tokens for tests."""

from __future__ import annotations

import json

from octopi.security.tokens import KeyRing, secret_key

SECRET = bytes(range(32))


def key_ring(*entries: dict[str, str]) -> KeyRing:
    """A ring of these keys; of one with a secret, if none is given."""
    return KeyRing.parse(json.dumps({"keys": entries or [secret_key("test", SECRET)]}))


def token(
    now_ms: int = 0,
    ttl_s: float | None = None,
    subject: str = "somebody",
    *,
    ring: KeyRing | None = None,
    **wanted: str,
) -> str:
    """A token; *wanted* has patterns by verb, with spaces between them."""
    patterns = {verb: text.split() for verb, text in wanted.items()}
    return (ring or key_ring()).sign(subject, patterns, now_ms, ttl_s)
