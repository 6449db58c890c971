"""Messages with which a node asks another one on behalf of a client.

A client may connect to any node.  What only the register can answer, a broker passes on to it in an
`Ask`, once; the answer comes back in an `Answer`, and goes to the client as it is.
"""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost, MayBeMissing
from octopi.limits import (
    ASK_BYTES_MAX,
    AUTHORIZED_VERBS_MAX,
    BATCH_BYTES_MAX,
    FORWARD_BYTES_MAX,
    HOMES_MAX,
    PATTERNS_PER_VERB_MAX,
)
from octopi.model import PartitionNumber, Verb
from octopi.wire.common import Text
from octopi.wire.declarations import (
    DECIDER_TO_PEER,
    PEER_TO_DECIDER,
    PEER_TO_LEADER,
    answer,
    on_the_cluster,
    request,
)


@attrs.frozen
class GrantedPatterns:
    """The patterns for which a client's token grants one verb."""

    verb: Text
    patterns: Annotated[list[Text], AtMost(PATTERNS_PER_VERB_MAX)]


@request("ask", PEER_TO_DECIDER, PEER_TO_LEADER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Ask:
    """Answer a client's request.  The sender has checked that the client's token grants the
    request; the receiver uses the grants only to leave out of its answer what the client may not
    know of.  Answer: `Answer`; or `Failure`, if the receiver doesn't look at the request."""

    request: int
    message: Annotated[bytes, AtMost(ASK_BYTES_MAX)]
    """The client's request, encoded, with the client's request number.  An `Ask` is none."""
    subject: Annotated[Text, MayBeMissing()] = ""
    """Who asks: the subject of the client's token; empty: it has no token."""
    grants: Annotated[
        Annotated[list[GrantedPatterns], AtMost(AUTHORIZED_VERBS_MAX)] | None, MayBeMissing()
    ] = None
    """What the client's token grants; None: everything, since the node requires no tokens."""
    topics_max: Annotated[int | None, MayBeMissing()] = None
    """The number of topics that the client's token allows its subject; None: any."""
    homes: Annotated[Annotated[list[PartitionNumber], AtMost(HOMES_MAX)], MayBeMissing()] = (
        attrs.field(factory=list)
    )
    """In a cluster without a register: the partitions that keep the records of the topics that the
    request is about.  A receiver that doesn't lead them all refuses to look at it."""


@request("forward_produce", PEER_TO_LEADER, needs=on_the_cluster(Verb.REPLICATE), since=2)
@attrs.frozen
class ForwardProduce:
    """Handle a client's request as the leader of its partition.  The sender doesn't lead it; it has
    checked that the client's token grants the request.  The receiver passes it on to nobody: if it
    doesn't lead either, the answer says so.  Answer: `Answer`; or `Failure`, if the receiver
    doesn't look at the request."""

    request: int
    message: Annotated[bytes, AtMost(FORWARD_BYTES_MAX)]
    """The client's `Produce`, encoded, with the client's request number."""


@answer("answer", DECIDER_TO_PEER)
@attrs.frozen
class Answer:
    """Answer to `Ask` and `ForwardProduce`."""

    request: int
    message: Annotated[bytes, AtMost(BATCH_BYTES_MAX)]
    """What the client is to get, encoded: the answer to its request, or a `Failure`, with the
    client's request number."""
