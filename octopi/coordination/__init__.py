"""What the register knows and decides: brokers, partitions, topics.  No I/O."""
