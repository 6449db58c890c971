"""One journal that several registers keep.  No I/O.

In each *term* at most one register is active: a majority has voted for it.  It appends entries and
sends them to the others, its standbys.  An entry is committed once a majority has it on its devices
and an entry of the active one's own term has been committed at or behind it.

The algorithm is Raft (D. Ongaro, J. Ousterhout, "In Search of an Understandable Consensus
Algorithm", 2014; with the pre-vote, the check of the quorum and the changes of one voter at a time
of D. Ongaro's dissertation, 2014).  docs/agreement.md has the rules, and what differs: how the
journal begins, and that a register without its disk is another one.
"""
