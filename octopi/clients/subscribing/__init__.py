"""Members of durable subscriptions.

Machines without I/O decide: `group_session` which logs a member may read, `mark_session` what is
told to the leader of one of them, and how long its messages may be handed out, and `queue_session`
what a member of a queue takes from a log's leader, and what it answers.
"""
