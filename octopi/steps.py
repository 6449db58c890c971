"""The named steps of the protocols, as `Environment.trace` reports them.

Producing has eight steps; with one replica the four of the leader are taken.  An observer
of the trace sees each step at the moment it has happened, and may stop the node there.
"""

from __future__ import annotations

from typing import Final

P1_RECEIVED: Final = "P1 leader received the batch"
P2_APPENDED: Final = "P2 leader appended it"
P6_COMMITTED: Final = "P6 highwater mark advanced"
P7_ACKNOWLEDGED: Final = "P7 producer acknowledged"
