"""A broker of a cluster without a register: see docs/ring.md, which says what is built."""
