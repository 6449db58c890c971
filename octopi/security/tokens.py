"""Tokens: signed statements of an identity and what it is granted, and the keys for them.

A token is a JSON Web Token (RFC 7519): ``sub`` names its holder, ``exp`` says when it ends,
the claim ``octopi`` has the grants (verb -> patterns), ``octopi_quota`` bounds, ``aud`` the
clusters that it is for.  Keys stand in a JSON Web Key Set
(RFC 7517), each with its id and its one algorithm: HS256, where a node that verifies can also sign,
or EdDSA with Ed25519, where nodes need only the public half.  So the token never chooses how it is
verified, and a key is replaced by keeping both keys in the set for a while.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import jwt
from jwt.exceptions import MissingCryptographyError

from octopi.errors import InvalidOptionError, RefusedError, Status
from octopi.limits import AGENT_BYTES_MAX, CONNECTION_NAME_BYTES_MAX, HELLO_BYTES_MAX
from octopi.security.grants import Grants, grants
from octopi.security.quotas import CLAIM as QUOTA_CLAIM, NO_QUOTA, Quota, quota_of

CLAIM: Final = "octopi"

SECRET_BYTES_MIN: Final = 32
"""HS256 is as strong as its key, up to this (RFC 7518 section 3.2)."""

SUBJECT_BYTES_MAX: Final = 200

_SHOWN_CHARACTERS: Final = 60
"""The number of characters of a name that an error message shows."""

_ONLY_THE_SIGNATURE: Final[Any] = {
    f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}


@attrs.frozen
class Principal:
    """The identity that a token states."""

    subject: str
    grants: Grants
    expires_ms: int | None
    """ms since 1970; None: never."""
    clusters: tuple[str, ...] = ()
    """The clusters that the token is for, by their ids; empty: any that knows its key."""
    quota: Quota = NO_QUOTA


@attrs.frozen
class _Key:
    name: str
    algorithm: str
    key: jwt.PyJWK = attrs.field(repr=False)
    can_sign: bool


class KeyRing:
    """The keys of a cluster."""

    def __init__(self, keys: list[_Key]) -> None:
        self._keys: Final = {key.name: key for key in keys}

    @classmethod
    def parse(cls, text: str) -> KeyRing:
        """Read a key set.

        Raises:
          InvalidOptionError: if it is none, or has a key that is not safe to use.  The message
              quotes nothing of its content.
        """
        try:
            entries = json.loads(text)["keys"]
            keys = [_key(entry) for entry in entries]
        except InvalidOptionError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InvalidOptionError('no key set: write {"keys": [...]} (RFC 7517)') from None
        if not keys:
            raise InvalidOptionError("the key set has no key")
        if len({key.name for key in keys}) < len(keys):
            raise InvalidOptionError("two keys have the same kid")
        return cls(keys)

    def sign(
        self,
        subject: str,
        wanted: Mapping[str, list[str]],
        now_ms: int,
        ttl_s: float | None,
        *,
        clusters: Sequence[str] = (),
        quota: Quota = NO_QUOTA,
    ) -> str:
        """A token for *subject* that lasts *ttl_s* (None: for ever), by the first key that can;
        for *clusters*, or for any.

        Raises:
          InvalidOptionError: if no key can sign, or what is wanted can't be granted.
        """
        key = next((one for one in self._keys.values() if one.can_sign), None)
        if key is None:
            raise InvalidOptionError("the key set has only public keys: use the file that signs")
        if not _names_somebody(subject):
            raise InvalidOptionError(f"a subject has 1 to {SUBJECT_BYTES_MAX} bytes")
        grants(wanted)
        claims: dict[str, Any] = {"sub": subject, "iat": now_ms // 1000, CLAIM: dict(wanted)}
        if ttl_s is not None:
            claims["exp"] = now_ms // 1000 + max(1, round(ttl_s))
        if clusters:
            claims["aud"] = list(clusters)
        bounds = {name: value for name, value in attrs.asdict(quota).items() if value is not None}
        if bounds:
            quota_of(bounds)
            claims[QUOTA_CLAIM] = bounds
        token = jwt.encode(claims, key.key, algorithm=key.algorithm, headers={"kid": key.name})
        if len(token) > HELLO_BYTES_MAX - AGENT_BYTES_MAX - CONNECTION_NAME_BYTES_MAX - 100:
            raise InvalidOptionError("the token is too long for a hello: grant fewer patterns")
        return token

    def verify(self, token: str, now_ms: int) -> Principal:
        """The identity that *token* states.

        Raises:
          RefusedError: UNAUTHENTICATED, or EXPIRED if nothing but its time is wrong.
        """
        try:
            name = jwt.get_unverified_header(token).get("kid")
            key = self._keys.get(name) if isinstance(name, str) else None
            if key is None:
                raise _invalid("it was made with a key that is not known here")
            # `_identity` checks the times, by the clock of the node.
            claims = jwt.decode(
                token, key.key, algorithms=[key.algorithm], options=_ONLY_THE_SIGNATURE
            )
        except (jwt.PyJWTError, RecursionError) as error:  # the latter: of deeply nested JSON
            raise _invalid(type(error).__name__) from None
        return _identity(claims, now_ms)


def read_unverified(token: str) -> dict[str, Any]:
    """The claims of a token, for display; the signature is not verified.

    Raises:
      InvalidOptionError: if it is none.
    """
    try:
        header = jwt.get_unverified_header(token)
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, RecursionError) as error:
        raise InvalidOptionError(f"no token: {type(error).__name__}") from None
    return {"kid": header.get("kid"), "alg": header.get("alg"), **claims}


def secret_key(name: str, secret: bytes) -> dict[str, str]:
    """The entry of a key set for HS256."""
    return {"kty": "oct", "kid": name, "alg": "HS256", "k": _encoded(secret)}


def signing_key_pair(name: str) -> tuple[dict[str, str], dict[str, str]]:
    """The entries of key sets for EdDSA: one that signs, one that only verifies.

    Raises:
      InvalidOptionError: if the library for it is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise InvalidOptionError(
            "EdDSA needs the package cryptography: install octopi-node[crypto]"
        ) from None
    private = Ed25519PrivateKey.generate()
    public = {"kty": "OKP", "crv": "Ed25519", "kid": name, "alg": "EdDSA"}
    public["x"] = _encoded(private.public_key().public_bytes_raw())
    return {**public, "d": _encoded(private.private_bytes_raw())}, public


def _key(entry: Mapping[str, str]) -> _Key:
    name = entry.get("kid", "")
    if not name or not isinstance(name, str):
        raise InvalidOptionError("a key has no kid")
    shown = name[:_SHOWN_CHARACTERS]
    match entry.get("kty"), entry.get("alg"):
        case "oct", "HS256":
            if len(_decoded(entry["k"])) < SECRET_BYTES_MIN:
                raise InvalidOptionError(f"key {shown} has less than {SECRET_BYTES_MIN} bytes")
            can_sign = True
        case "OKP", "EdDSA":
            can_sign = "d" in entry
        case _:
            raise InvalidOptionError(f"key {shown} is neither for HS256 nor for EdDSA")
    try:
        key = jwt.PyJWK(dict(entry))
    except MissingCryptographyError:
        raise InvalidOptionError(
            f"key {shown} needs the package cryptography: install octopi-node[crypto]"
        ) from None
    except jwt.PyJWTError:
        raise InvalidOptionError(f"key {shown} is damaged") from None
    return _Key(name, str(entry["alg"]), key, can_sign)


def _identity(claims: Mapping[str, Any], now_ms: int) -> Principal:
    subject, wanted = claims.get("sub"), claims.get(CLAIM)
    if not isinstance(subject, str) or not _names_somebody(subject):
        raise _invalid("it names no subject")
    is_well_formed = isinstance(wanted, dict) and all(
        isinstance(patterns, list) and all(isinstance(one, str) for one in patterns)
        for patterns in wanted.values()
    )
    if not is_well_formed:
        raise _invalid(f"it has no claim {CLAIM}")
    assert isinstance(wanted, dict)
    try:
        granted = grants(wanted)
        quota = quota_of(claims.get(QUOTA_CLAIM))
    except InvalidOptionError as error:
        raise _invalid(str(error)) from None
    begins, ends = (_time_ms(claims, name) for name in ("nbf", "exp"))
    if begins is not None and now_ms < begins:
        raise _invalid("its time has not come")
    if ends is not None and now_ms >= ends:
        raise RefusedError("the token has expired", Status.EXPIRED)
    return Principal(subject, granted, ends, _clusters(claims.get("aud")), quota)


def _names_somebody(subject: str) -> bool:
    try:
        return 0 < len(subject.encode()) <= SUBJECT_BYTES_MAX
    except UnicodeEncodeError:  # JSON can write half of a character
        return False


def _clusters(audience: object) -> tuple[str, ...]:
    """RFC 7519 section 4.1.3: one text, or a list of them."""
    if audience is None:
        return ()
    names = [audience] if isinstance(audience, str) else audience
    if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
        raise _invalid("aud names no cluster")
    return tuple(names)


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**40:
        raise _invalid(f"{name} is no time")
    return int(value * 1000)


def _invalid(why: str) -> RefusedError:
    return RefusedError(f"the token is not valid here: {why}", Status.UNAUTHENTICATED)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
