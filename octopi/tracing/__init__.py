"""What a node tells its observers: a class for each step of the protocols.

`octopi.tracing.steps` has all of them; each system declares its own in a module of its name.
"""
