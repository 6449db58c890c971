"""The join secret: registers and brokers prove to each other that they belong to one cluster.

Any program may reach a node, so an address proves nothing.  The
nodes of a cluster share a secret of 32 random bytes, and show that they have it without sending
it, when a connection between them is opened (mutual authentication in three passes with a keyed
check function, as in ISO/IEC 9798-4; the function is HMAC-SHA256, RFC 2104).

Both sides choose a nonce, new for each connection.  A proof covers both nonces, so it is good for
no other connection; the endpoint, so it is good at no other one; and which side made it, so it
can't be sent back to the side that made it.  The accepting side proves first: a broker neither
proves anything nor shows its token to a register that has not.

A node may have several secrets while a secret is replaced.  Two nodes accept each other if they
have a secret in common.  This module does no I/O.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

import attrs

from octopi.errors import InvalidOptionError
from octopi.limits import JOIN_NONCE_BYTES, JOIN_SECRET_BYTES, JOIN_SECRETS_MAX

SECRET_FILE: Final = "join-secret"
"""Name of the file with the join secret in the register's data directory."""

_LABEL: Final = b"octopi join proof 1"

_HEAD: Final = (
    "# Join secret of an Octopi cluster: whoever has it can be a broker or the register of it.\n"
)


class Side(Enum):
    """The side of a connection that made a proof."""

    CONNECTING = b"connecting"
    ACCEPTING = b"accepting"


@attrs.frozen
class JoinSecrets:
    """The secrets of a node: one, or several while the secret is replaced."""

    keys: tuple[bytes, ...] = attrs.field(repr=False)
    missing: str = ""
    """The reason, if `keys` is empty."""

    @staticmethod
    def parse(text: str, origin: str) -> JoinSecrets:
        """The secrets in *text*: one per line, as 64 hexadecimal digits.  Empty lines and lines
        that begin with # are ignored.  *origin*: the file's name, for error messages.

        Raises:
          InvalidOptionError: if *text* has no secret, too many, or anything else in it.
        """
        keys: dict[bytes, None] = {}
        for number, line in enumerate(text.splitlines(), 1):
            word = line.strip()
            if not word or word.startswith("#"):
                continue
            try:
                key = bytes.fromhex(word)
            except ValueError:
                key = b""
            if len(key) != JOIN_SECRET_BYTES or len(word) != 2 * JOIN_SECRET_BYTES:
                # The line is not quoted: it may be most of a secret.
                raise InvalidOptionError(
                    f"{origin}: line {number} is not a join secret of "
                    f"{2 * JOIN_SECRET_BYTES} hexadecimal digits: copy the file again"
                )
            keys[key] = None
        if not keys:
            raise InvalidOptionError(
                f"{origin}: there is no join secret in the file: copy it again"
            )
        if len(keys) > JOIN_SECRETS_MAX:
            raise InvalidOptionError(
                f"{origin}: {len(keys)} join secrets, at most {JOIN_SECRETS_MAX} are allowed: "
                "remove the oldest ones, which stand first"
            )
        return JoinSecrets(tuple(keys))


NO_SECRETS: Final = JoinSecrets((), "none was given")

SecretSource = Callable[[], JoinSecrets]
"""Returns the secrets.  It is called for each connection, so secrets can be replaced at run
time."""


def secret_text(secret: bytes, before: str = "") -> str:
    """The text *before* of a secret file, with *secret* appended."""
    if before and not before.endswith("\n"):
        before += "\n"
    return f"{before or _HEAD}{secret.hex()}\n"


@attrs.frozen
class ProofContext:
    """What both sides of a connection know when it is opened, and authenticate with the secret."""

    path: str
    """Of the endpoint."""
    connecting_nonce: bytes
    accepting_nonce: bytes

    @property
    def is_sound(self) -> bool:
        """Whether both nonces have the required length."""
        lengths = {len(self.connecting_nonce), len(self.accepting_nonce)}
        return lengths == {JOIN_NONCE_BYTES}

    def proof(self, key: bytes, side: Side) -> bytes:
        """The proof (HMAC-SHA256) of *side* that it has *key*."""
        # Nonces have a fixed length and a path has no line end, so the text is unambiguous.
        said = (_LABEL, side.value, self.path.encode(), self.connecting_nonce, self.accepting_nonce)
        return hmac.digest(key, b"\n".join(said), "sha256")

    def proofs(self, secrets: JoinSecrets, side: Side) -> list[bytes]:
        """One proof of *side* for each of *secrets*."""
        return [self.proof(key, side) for key in secrets.keys]

    def proven(self, secrets: JoinSecrets, side: Side, proofs: Sequence[bytes]) -> bytes | None:
        """The key of *secrets* that one of *proofs* of *side* proves; None if there is none.

        Takes the same time for all proofs.
        """
        found: bytes | None = None
        if not self.is_sound:
            return None
        for key in secrets.keys:
            wanted = self.proof(key, side)
            for proof in proofs:
                if hmac.compare_digest(wanted, proof):
                    found = key
        return found
