"""The named steps of the protocols, as `Environment.trace` reports them.

Producing has eight steps; a replica without followers takes the five of the leader.  An
observer of the trace sees each step at the moment it has happened, and may stop the node
there: what follows from the step has not left the node yet.
"""

from __future__ import annotations

from typing import Final

P1_RECEIVED: Final = "P1 leader received the batch"
P2_APPENDED: Final = "P2 leader appended it and forwards it"
P3_REPLICATED: Final = "P3 follower appended it"
P4_ACKNOWLEDGING: Final = "P4 follower acknowledges its log end"
P5_IN_SYNC: Final = "P5 leader has the acknowledgements of all that are in sync"
P6_COMMITTED: Final = "P6 highwater mark advanced"
P7_ACKNOWLEDGED: Final = "P7 producer acknowledged"
P8_FOLLOWED: Final = "P8 follower advanced its highwater mark"

PRODUCING: Final = (
    P1_RECEIVED,
    P2_APPENDED,
    P3_REPLICATED,
    P4_ACKNOWLEDGING,
    P5_IN_SYNC,
    P6_COMMITTED,
    P7_ACKNOWLEDGED,
    P8_FOLLOWED,
)
"""All of them, in their order."""
