"""The consumer: from a start position to messages in order.

`start_position` resolves where reading begins; `consumer_session` decides what is asked for and
what is taken, without I/O; `log_subscriber` performs that for one log; `consumer` hands messages
out.
"""
