"""The ring of brokers of a cluster without a register: who stands where, and who finds whom.  No
I/O.

Each broker has a point on the ring, and each partition a key there.  The broker that comes first
from a key on holds that key: it and those behind it are the replicas and acceptors of the
partition.  The ring is kept in order by Chord's rules as P. Zave corrected and proved them
("Reasoning about Identifier Spaces: How to Make Chord Correct", arXiv 1610.01140), with an address
book beside the list of successors.

Finding somebody may go wrong while brokers come and go.  That costs another try, never data: what
is decided about a partition is decided by its acceptors (`octopi.agreement`).  docs/ring.md has the
rules.  `octopi.roles.broker.ring` has the shell.
"""
