"""Who a broker is, as its data directory remembers, and which incarnation of it this process is.

Each start of the process is an incarnation.  What is kept here lets the register tell whether this
incarnation follows the one that it let in last, and the broker whether a register is the one that
it joined last, or a later one (`docs/decisions/0015-lives-have-a-number-and-a-nonce.md`).
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
    """Who this broker is, as its data directory remembers."""

    cluster: str
    broker: BrokerId | None
    incarnation: Incarnation
    """Counts the starts."""
    nonce: str
    """Of this incarnation: two copies of a data directory count to the same number."""
    page_cache: str
    """In which the logs were written since a register last heard whether they are intact."""
    ancestors: list[str] = attrs.field(factory=list)
    """See `octopi.wire.membership.Join`."""
    register: RegisterGeneration | None = None
    """The newest generation of the register that it joined."""
    credential: str = ""
    """What the register gave with the id: see `octopi.wire.membership.Join`."""

    def next_incarnation(self, broker: BrokerId | None, nonce: str) -> BrokerIdentity:
        """The next incarnation of the same data directory."""
        # The register may have let in an incarnation that never heard of that: then it knows that
        # nonce, and this incarnation must be able to say that it descends from it.
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
        """The register let this incarnation in, and knows now whether its logs are intact.

        Raises:
          SupersededError: if it is older than the one that was joined last, or another one.
          ProtocolError: if it names another broker, or another cluster, than this one belongs to.
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
        """For traces; see `octopi.tracing.join.IdentityStep`."""
        return self.cluster, self.broker, self.incarnation


def identity_fields(identity: BrokerIdentity) -> dict[str, Any]:
    """What is stored of *identity*; see `octopi.stored`."""
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
    """Who this broker is, by the file at *path*; None if there is none.

    Raises:
      StorageError: if it can't be read, or isn't what was written.
    """
    stored = checkpoint.load(environment.disk, path)
    return None if stored is None else checkpoint.structured(path, stored, BrokerIdentity)


async def begin_incarnation(
    environment: Environment, data_directory: str, broker: BrokerId | None
) -> BrokerIdentity:
    """Read who this broker is and begin its next incarnation, durably.  *broker* is the id that it
    is to have; None: what the directory says, if anything.

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
    """Remember who this broker is, durably.

    Raises:
      StorageError: if that can't be done.
    """
    if (trace := environment.trace) is not None:
        trace(steps.J1Identifying(*identity.facts))
    await checkpoint.store(
        environment.disk, f"{data_directory}/identity", identity_fields(identity)
    )
    if trace is not None:
        trace(steps.J1Identified(*identity.facts))
