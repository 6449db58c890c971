"""A broker with topics in memory, by a static list of relays: see docs/relay.md, which says what is
built."""
