"""Plans of simulated runs: tokens, what is in them, and JSON."""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any, cast

import attrs
import cbor2
from hypothesis import strategies as st

from sim.generate.swarm import draw
from sim.run.plan import (
    TOKEN_PREFIX,
    Plan,
    PlanError,
    from_json,
    from_token,
    is_stale,
    to_json,
    to_token,
    versions_digest,
)
from tests.fuzz.target import Target


def check(data: bytes) -> bool:
    """It is tried as a token, as the CBOR in one, and as JSON."""
    text = data.decode(errors="surrogateescape")
    found = [_plan_of_token(text), _plan_of_token(token_of(data)), _plan_of_json(text)]
    for plan in found:
        if plan is not None and not _has_odd_numbers(plan):
            assert from_token(to_token(plan)) == plan
            assert from_json(to_json(plan)) == plan
    return text.startswith((TOKEN_PREFIX, "{")) or 0xA0 <= data[0] < 0xC0 if data else False


def token_of(content: bytes) -> str:
    """The token with *content* as its CBOR."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = versions_digest()[:2] + deflate.compress(content) + deflate.flush()
    return TOKEN_PREFIX + base64.b85encode(packed).decode()


def _plan_of_token(text: str) -> Plan | None:
    try:
        is_stale(text)
        return from_token(text)
    except PlanError:
        return None


def _plan_of_json(text: str) -> Plan | None:
    try:
        return from_json(text)
    except PlanError:
        return None


def _has_odd_numbers(value: object) -> bool:
    """Whether it has a number that equals no other, or that JSON has no word for."""
    if attrs.has(type(value)):
        return any(
            _has_odd_numbers(getattr(value, one.name))
            for one in attrs.fields(cast(Any, type(value)))
        )
    if isinstance(value, tuple):
        return any(map(_has_odd_numbers, value))
    return isinstance(value, float) and not math.isfinite(value)


_PLANS = st.integers(0, 2**40).map(draw)


def _content(plan: Plan) -> bytes:
    packed = base64.b85decode(to_token(plan)[len(TOKEN_PREFIX) :])
    return zlib.decompress(packed[2:], -zlib.MAX_WBITS)


_VALUES: tuple[object, ...] = (0, 1, -1, [], "x", 0.5)

TARGET = Target(
    "plans",
    "any text is refused as documented, or is a plan whose token and whose JSON mean the same plan",
    st.one_of(
        _PLANS.map(_content),
        _PLANS.map(lambda plan: to_token(plan).encode()),
        _PLANS.map(lambda plan: to_json(plan).encode()),
    ),
    check,
    ("sim/run/plan.py",),
    words=(
        *(cbor2.dumps(one) for one in ({}, [], {0: 1}, [0], None, True, -1, 1.5, "x", b"x", 2**64)),
        *(cbor2.dumps({at: value}) for at in range(24) for value in _VALUES),
        b"\xc2\x41\x01", b"\xc4\x82\x00\x01", b"\xd8\x1e\x82\x01\x00", b"\xd8\x23\x61(",
        b"\xd8\x1d", b"\xd9\x01\x02\x80", b"\xc1\x1b" + b"\xff" * 8, b"\xc0\x61x", b"\x9f", b"\xbf",
        b"\x81", b"\xf9\x7e\x00", b"\xf9\x7c\x00", b"\x9b" + b"\xff" * 8, b"\x5b\x7f" + b"\xff" * 7,
        b"oc1-", b"[", b"{", b'"', b"null", b"1e400", b"NaN", b'"kind": "AtStep"', b'"seed": 1',
    ),
)  # fmt: skip
