"""Histories of a test's own operations, and checkers for them: see docs/testing.md.

`octopi.simulation.history` judges what Octopi promises; this package judges what a user's program
promises.
"""
