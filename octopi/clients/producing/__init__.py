"""The producer: from a submitted message to its receipt.

`producer` takes messages and chooses their log; `producer_session` decides what is sent and what
became of it, without I/O; `log_sender` performs that for one log.
"""
