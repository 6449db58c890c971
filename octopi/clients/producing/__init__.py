"""The producer: from a submitted message to its receipt.

`producer` takes messages and chooses their log.  `producer_session` decides, without I/O, what is
sent and which outcome it has.  `log_sender` performs that for one log.
"""
