"""Messages by which a register hands its cluster over to the brokers alone
(`docs/decisions/0116-a-register-hands-its-cluster-over-by-one-entry.md`)."""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost
from octopi.identifiers import DirectoryId
from octopi.limits import (
    ASK_TIMEOUT_S,
    GROWTH_MEMBERS_MAX,
    NONCE_BYTES_MAX,
    REPLICATED_ENTRY_BYTES_MAX,
    REPLICATED_PAGE_ENTRIES,
)
from octopi.model import CountedOrNone, Verb
from octopi.wire.common import NodeAddress
from octopi.wire.declarations import (
    CLIENT_TO_DECIDER,
    DECIDER_TO_MEMBER,
    MEMBER_TO_DECIDER,
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


@notice("ring_ready", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE), since=2)
@attrs.frozen
class RingReady:
    """A broker that has joined was started with addresses by which it joins a ring, and has the
    journal of its acceptor."""

    directory: Annotated[DirectoryId, AtMost(NONCE_BYTES_MAX)]
    """The number of that journal."""


@request("ask_hand_over", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE), since=2)
@attrs.frozen
class AskHandOver:
    """From a broker that may change over, before it joins: has the register handed over?

    Answer: `HandOverPage`.
    """

    request: int
    after: CountedOrNone
    """How many entries it has got already."""


@answer("hand_over_page", DECIDER_TO_MEMBER, since=2)
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
