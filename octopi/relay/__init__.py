"""Relay topics: streams in the memory of several brokers, written by quorum.  No I/O.

A *relay set* holds a partition.  Its members agree on a *sequencer* for each epoch, which puts the
transactions of a stream in order; a transaction is committed when a quorum has written it, and each
digest proves all that lies before it.  Nothing is on a disk but the number of a broker's starts and
the greatest generation of a timeline for which it voted.

The algorithm is Viewstamped Replication (B. Liskov, J. Cowling, "Viewstamped Replication
Revisited", 2012) with quorums that are consistent in spite of crashes: a relay that has forgotten
what it promised does not count beside those who rely on it (E. Michael et al., "Recovering Shared
Objects Without Stable Storage", DISC 2017).  docs/relay.md has the rules;
`octopi.roles.broker.relay` is the shell.
"""
