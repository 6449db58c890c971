"""Tokens (JWT), and the key sets that they are verified with."""

from __future__ import annotations

import base64
import hmac
import json
from contextlib import suppress
from typing import Final

from hypothesis import strategies as st

from octopi.errors import InvalidOptionError, RefusedError, Status
from octopi.limits import PATTERNS_PER_VERB_MAX
from octopi.security.grants import Verb
from octopi.security.tokens import (
    SUBJECT_BYTES_MAX,
    KeyRing,
    Principal,
    read_unverified,
    secret_key,
)
from tests.fuzz.target import Target

_SECRET: Final = bytes(range(32))
_RING: Final = KeyRing.parse(json.dumps({"keys": [secret_key("test", _SECRET)]}))
_NOW_MS: Final = 1_000_000
_HEADER: Final = b'{"alg":"HS256","kid":"test","typ":"JWT"}'


def check(data: bytes) -> bool:
    """It is tried as a token, as what the holder of the key signed, as a header, and as keys."""
    text = data.decode(errors="replace")
    assert not _is_verified(text) or _is_signed(text), "nobody who has the key signed it"
    assert not _is_verified(signed(data, b"{}")), "it has no claims"
    is_granted = _is_verified(signed(_HEADER, data))
    return _check_keys(text) or is_granted or data.count(b".") == 2 or data[:1] == b"{"


def _check_keys(text: str) -> bool:
    try:
        ring = KeyRing.parse(text)
    except InvalidOptionError as error:
        said = str(error)
    else:
        assert not _is_verified(signed(_HEADER, b"{}"), ring), "it has no claims"
        return True
    assert len(said) < 300, "the error repeats what may be a secret"
    return False


def _is_signed(token: str) -> bool:
    said, _, signature = token.rpartition(".")
    wanted = hmac.digest(_SECRET, said.encode(), "sha256")
    return base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4)) == wanted


def signed(header: bytes, claims: bytes) -> str:
    """The token with that header and those claims, whatever they are."""
    said = b".".join(base64.urlsafe_b64encode(one).rstrip(b"=") for one in (header, claims))
    signature = hmac.digest(_SECRET, said, "sha256")
    return (said + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def _is_verified(token: str, ring: KeyRing = _RING) -> bool:
    with suppress(InvalidOptionError):
        read_unverified(token)
    try:
        identity = ring.verify(token, _NOW_MS)
    except RefusedError as error:
        status = error.status
    else:
        _check_identity(identity)
        return True
    assert status in {Status.UNAUTHENTICATED, Status.EXPIRED}
    return False


def _check_identity(identity: Principal) -> None:
    assert 0 < len(identity.subject.encode()) <= SUBJECT_BYTES_MAX
    assert identity.expires_ms is None or identity.expires_ms > _NOW_MS
    assert all(isinstance(one, str) for one in identity.clusters)
    for verb, patterns in identity.grants.patterns.items():
        assert verb in Verb
        assert len(patterns) <= PATTERNS_PER_VERB_MAX


@st.composite
def _claims(draw: st.DrawFn) -> bytes:
    claims: dict[str, object] = {
        "sub": draw(st.text(max_size=8)) or "somebody",
        "octopi": draw(
            st.dictionaries(st.sampled_from([*Verb]), st.lists(st.sampled_from(["*", "a-*"])))
        ),
    }
    others: dict[str, st.SearchStrategy[object]] = {
        "exp": st.integers(0, 2**41) | st.floats(0, 2**41),
        "nbf": st.integers(0, 2000),
        "aud": st.text(max_size=4) | st.lists(st.text(max_size=4), max_size=2),
        "octopi_quota": st.dictionaries(
            st.sampled_from(["topics", "stored_bytes", "readings"]), st.integers(0, 2**63)
        ),
        "iat": st.integers(),
    }
    for name, values in others.items():
        if draw(st.booleans()):
            claims[name] = draw(values)
    return json.dumps(claims).encode()


TARGET = Target(
    "tokens",
    "any token and any key set is refused as documented; only what the key has signed grants "
    "anything, and only what a token can grant",
    st.one_of(
        _claims(),
        _claims().map(lambda claims: signed(_HEADER, claims).encode()),
        st.just(_HEADER),
        st.just(json.dumps({"keys": [secret_key("a", _SECRET)]}).encode()),
        st.just(
            b'{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "a", "alg": "EdDSA", '
            b'"x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'
        ),
    ),
    check,
    ("octopi/security/tokens.py", "octopi/security/grants.py", "octopi/security/quotas.py"),
    words=(
        b'"sub":', b'"exp":', b'"nbf":', b'"aud":', b'"iat":', b'"octopi":', b'"octopi_quota":',
        b'"kid":', b'"alg":"none"', b'"alg":"EdDSA"', b'"crit":["a"]', b'"b64":false', b'"jku":""',
        b'"keys":', b'"kty":"oct"', b'"k":""', b'"x":1', b'"d":""', b'"crv":"Ed448"', b"null",
        b"true", b"NaN", b"Infinity", b"-Infinity", b"1e400", b"[", b"]", b"{", b"}",
        b'"\\ud800"', b'"*"',
        b",", b"..", b"=", b"\\u0000", b'"subscribe":["*"]', b'"topics":1', b'""', b"9" * 5000,
    ),
)  # fmt: skip
