"""Who may do what: tokens, what they grant, and what each message needs."""
