"""The steps of the protocols that nodes and clients report to an observer, each as a class.

The steps of each system are declared in a module of its name; `octopi.tracing.steps` has all of
them.
"""
