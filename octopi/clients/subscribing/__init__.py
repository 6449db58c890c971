"""Members of durable subscriptions.

Two machines without I/O decide: `group_session` which logs a member may read, and `mark_session`
what is told to the leader of one of them, and how long its messages may be handed out.
"""
