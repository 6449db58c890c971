"""The consumer: from a start position to messages in order.

`start_position` resolves where reading begins.  `consumer_session` decides, without I/O, what is
requested and which records are taken.  `log_subscriber` performs that for one log.  `consumer`
hands messages out.
"""
