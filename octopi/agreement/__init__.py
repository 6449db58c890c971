"""Agreement of several nodes on a value that changes step by step.  No I/O.

An *instance* is one such value, such as what is decided about a partition.  Its acceptors
(`octopi.agreement.acceptor`) keep it.  A proposer (`octopi.agreement.proposer`) changes it by
compare and set: it reads the newest value from a majority, and proposes what a change makes of it.
A value that a majority has accepted in one ballot is chosen; every later value follows from it.

The algorithm is CASPaxos (D. Rystsov, "CASPaxos: Replicated State Machines without logs",
arXiv 1802.07000), with a change of acceptors by way of a value that needs a majority of the old and
of the new ones.  docs/agreement.md has the rules.
"""
