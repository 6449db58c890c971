"""Messages by which a register hands its cluster over to the brokers alone
(`docs/decisions/0116-a-register-hands-its-cluster-over-by-one-entry.md`)."""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost, MayBeMissing
from octopi.identifiers import BrokerId, DirectoryId
from octopi.limits import (
    ASK_TIMEOUT_S,
    BOOK_COUNT,
    GROWTH_MEMBERS_MAX,
    NONCE_BYTES_MAX,
    REGISTERS_MAX,
    REPLICATED_ENTRY_BYTES_MAX,
    REPLICATED_PAGE_ENTRIES,
)
from octopi.model import CountedOrNone, Id, Verb
from octopi.wire.common import NodeAddress, OptionalId, Text
from octopi.wire.declarations import (
    CLIENT_TO_DECIDER,
    DECIDER_TO_MEMBER,
    DECIDER_TO_PEER,
    MEMBER_TO_DECIDER,
    PEER_TO_LEADER,
    TO_CLIENT,
    answer,
    notice,
    on_the_cluster,
    request,
)


@request(
    "hand_over_to_ring",
    CLIENT_TO_DECIDER,
    needs=on_the_cluster(Verb.ADMIN),
    asked_s=ASK_TIMEOUT_S,
    since=2,
)
@attrs.frozen
class HandOverToRing:
    """Have the brokers decide without a register from now on.  If they do already, nothing changes.
    Answer: `ClusterHandedOver`, when it is decided for good."""

    request: int
    dry_run: bool
    """Only say whether it is possible."""


@answer("cluster_handed_over", TO_CLIENT, since=2)
@attrs.frozen
class ClusterHandedOver:
    """Answer to `HandOverToRing`."""

    request: int
    brokers: Annotated[list[NodeAddress], AtMost(GROWTH_MEMBERS_MAX)]
    """The addresses of all brokers; at least one."""


@request(
    "hand_over_to_registers",
    CLIENT_TO_DECIDER,
    needs=on_the_cluster(Verb.ADMIN),
    asked_s=ASK_TIMEOUT_S,
    since=2,
)
@attrs.frozen
class HandOverToRegisters:
    """Have registers decide from now on, in a cluster that has none.  If that is ordered already,
    or done, nothing changes.  Answer: `RegistersProgress`, at once."""

    request: int
    registers: Annotated[list[NodeAddress], AtMost(REGISTERS_MAX)]
    """The addresses of the register, or of all of them, which have empty journals."""
    dry_run: bool
    """Only say whether it is possible."""


@answer("registers_progress", TO_CLIENT, since=2)
@attrs.frozen
class RegistersProgress:
    """Answer to `HandOverToRegisters`: how far it is."""

    request: int
    stage: Text
    """See `octopi.ring.ending`; empty: it is not ordered."""
    brokers: Annotated[list[BrokerId], AtMost(BOOK_COUNT)]
    """All brokers that hand over, as far as the node knows them that answers."""
    waits_for: Annotated[list[BrokerId], AtMost(BOOK_COUNT)]
    """Those of them that are awaited."""


@notice("ring_ready", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE), since=2)
@attrs.frozen
class RingReady:
    """A broker that has joined was started with addresses by which it joins a ring, and has the
    journal of its acceptor."""

    directory: Annotated[DirectoryId, AtMost(NONCE_BYTES_MAX)]
    """The number of that journal."""


@request("announce_hand_over", DECIDER_TO_MEMBER, since=2)
@attrs.frozen
class AnnounceHandOver:
    """Register to broker: it is about to hand over.  The broker stores this before it answers.

    Answer: `Done`.
    """

    request: int
    attempt: Id
    """Random; each try has its own."""
    record: Annotated[bytes, AtMost(REPLICATED_ENTRY_BYTES_MAX)]
    """The first record of the cluster without a register, which names all brokers
    (`octopi.ring.cluster_record`)."""


@request(
    "ask_hand_over",
    MEMBER_TO_DECIDER,
    PEER_TO_LEADER,
    needs=on_the_cluster(Verb.REPLICATE),
    since=2,
)
@attrs.frozen
class AskHandOver:
    """From a broker that may change over, before it joins: has the register handed over?  Or to
    another broker that has taken over: what was it?

    Answer: `HandOverPage`.
    """

    request: int
    after: CountedOrNone
    """How many entries it has got already."""
    attempt: Annotated[OptionalId, MayBeMissing()] = ""
    """The last try to hand over that was announced to it; empty: none was."""


@answer("hand_over_page", DECIDER_TO_MEMBER, DECIDER_TO_PEER, since=2)
@attrs.frozen
class HandOverPage:
    """Answer to `AskHandOver`."""

    request: int
    is_handed_over: bool
    """If not, the broker joins the register."""
    entries: Annotated[
        list[Annotated[bytes, AtMost(REPLICATED_ENTRY_BYTES_MAX)]],
        AtMost(REPLICATED_PAGE_ENTRIES),
    ]
    """The next entries of the register's journal, without its secret."""
    more: bool
    """Whether others follow."""
    knows_attempt: Annotated[bool, MayBeMissing()] = False
    """Whether the register has announced the try that the question names: so its journal has all
    that was decided before that."""


@request("ask_hand_over_state", PEER_TO_LEADER, needs=on_the_cluster(Verb.REPLICATE), since=2)
@attrs.frozen
class AskHandOverState:
    """From a broker to another one: a register that knows nothing of this try has the address of
    the one that announced it.  Have you taken over?

    Answer: `HandOverState`.
    """

    request: int
    attempt: Id
    give_up: bool
    """Promise never to take over by this try, if you have not and no register that knows of it is
    yours."""


@answer("hand_over_state", DECIDER_TO_PEER, since=2)
@attrs.frozen
class HandOverState:
    """Answer to `AskHandOverState`."""

    request: int
    directory: Annotated[DirectoryId, AtMost(NONCE_BYTES_MAX)]
    """The number of the acceptor's journal of the broker that answers."""
    is_taken_over: bool
    is_given_up: bool
    """Whether it will never take over by that try, which it has stored; or it knows only others."""
    may_give_up: bool
    """Whether it would promise that: no register is its own now."""
