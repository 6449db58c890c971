"""The identity of a broker, kept in its data directory, and the incarnation that this process is.

Each start of the process is an incarnation.  From this file the register learns whether this
incarnation follows the one that it let in last, and the broker learns whether a register is the one
that it joined last, or a later one (`docs/decisions/0015-lives-have-a-number-and-a-nonce.md`).
"""

from __future__ import annotations

from typing import Any

import attrs

from octopi.environment import Environment
from octopi.errors import ProtocolError, StorageError, SupersededError
from octopi.identifiers import BrokerId, Incarnation
from octopi.limits import LIVES_IN_DOUBT_MAX
from octopi.storage import checkpoint
from octopi.stored import register_fields
from octopi.tracing import steps
from octopi.wire.messages import Joined, RegisterGeneration


@attrs.frozen
class BrokerIdentity:
    """The identity of this broker, as stored in its data directory."""

    cluster: str
    broker: BrokerId | None
    incarnation: Incarnation
    """The number of this start of the process."""
    nonce: str
    """The nonce of this incarnation.  It differs between two copies of a data directory, which
    count to the same number."""
    page_cache: str
    """The page cache in which the logs were written when a register last learned whether they are
    intact."""
    ancestors: list[str] = attrs.field(factory=list)
    """See `octopi.wire.membership.Join`."""
    register: RegisterGeneration | None = None
    """The newest generation of the register that this broker joined."""
    credential: str = ""
    """The seal that the register gave with the id: see `octopi.wire.membership.Join`."""

    def next_incarnation(self, broker: BrokerId | None, nonce: str) -> BrokerIdentity:
        """The next incarnation of the same data directory."""
        # The register may have let in the last incarnation without that incarnation learning of
        # it.  Then the register knows its nonce, so this incarnation must be able to name it as an
        # ancestor.
        first, *others = [*self.ancestors, self.nonce]
        ancestors = [first, *others[-(LIVES_IN_DOUBT_MAX - 1) :]]
        return attrs.evolve(
            self,
            broker=broker,
            incarnation=Incarnation(self.incarnation + 1),
            nonce=nonce,
            ancestors=ancestors,
        )

    def joined(self, joined: Joined, page_cache: str) -> BrokerIdentity:
        """The identity after the register has let this incarnation in and knows whether its logs
        are intact.

        Raises:
          SupersededError: if the register is of an older generation than the one that was joined
              last, or of the same generation with another nonce.
          ProtocolError: if the answer names another broker or another cluster than this broker's.
              No register does that.  Stored, it would keep this broker from starting again.
        """
        if self.broker not in {None, joined.broker} or self.cluster not in {"", joined.cluster}:
            raise ProtocolError(
                f"the register let in broker {joined.broker} of cluster {joined.cluster}; this is "
                f"broker {self.broker} of cluster {self.cluster or '(none yet)'}"
            )
        mine = self.register
        if mine and joined.register != mine and joined.register.generation <= mine.generation:
            raise SupersededError(
                f"the register is of generation {joined.register.generation}; this broker has "
                f"joined another one since, of generation {mine.generation}"
            )
        return attrs.evolve(
            self,
            cluster=joined.cluster,
            broker=joined.broker,
            page_cache=page_cache,
            ancestors=[],
            register=joined.register,
            credential=joined.credential,
        )

    @property
    def facts(self) -> tuple[str, BrokerId | None, Incarnation]:
        """The fields for traces; see `octopi.tracing.join.IdentityStep`."""
        return self.cluster, self.broker, self.incarnation


def identity_fields(identity: BrokerIdentity) -> dict[str, Any]:
    """The fields of *identity* that are stored; see `octopi.stored`."""
    return {
        "cluster": identity.cluster,
        "broker": identity.broker,
        "incarnation": identity.incarnation,
        "nonce": identity.nonce,
        "page_cache": identity.page_cache,
        "ancestors": list(identity.ancestors),
        "register": None if identity.register is None else register_fields(identity.register),
        "credential": identity.credential,
    }


def stored_identity(environment: Environment, path: str) -> BrokerIdentity | None:
    """The identity in the file at *path*; None if there is no file.

    Raises:
      StorageError: if the file can't be read, or is damaged.
    """
    stored = checkpoint.load(environment.disk, path)
    return None if stored is None else checkpoint.structured(path, stored, BrokerIdentity)


async def begin_incarnation(
    environment: Environment, data_directory: str, broker: BrokerId | None
) -> BrokerIdentity:
    """Read the identity from the data directory and begin its next incarnation, durably.  *broker*:
    the id that this broker shall have; None: the id in the directory, if there is one.

    Raises:
      StorageError: if the directory belongs to another broker, or can't be read or written.
    """
    last = stored_identity(environment, f"{data_directory}/identity")
    if last is not None and last.broker is not None:
        if broker not in {None, last.broker}:
            raise StorageError(
                f"{data_directory} belongs to broker {last.broker}, not to {broker}; "
                "leave the id out, or choose another data directory"
            )
        broker = last.broker
    nonce = environment.randomness.token_bytes(8).hex()
    if last is None:
        identity = BrokerIdentity(
            "", broker, Incarnation(1), nonce, environment.disk.page_cache_id()
        )
    else:
        identity = last.next_incarnation(broker, nonce)
    await store_identity(environment, data_directory, identity)
    return identity


async def store_identity(
    environment: Environment, data_directory: str, identity: BrokerIdentity
) -> None:
    """Store the identity durably.

    Raises:
      StorageError: if the disk fails.
    """
    if (trace := environment.trace) is not None:
        trace(steps.J1Identifying(*identity.facts))
    await checkpoint.store(
        environment.disk, f"{data_directory}/identity", identity_fields(identity)
    )
    if trace is not None:
        trace(steps.J1Identified(*identity.facts))
