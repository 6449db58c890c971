"""Searches for faults in Octopi: campaigns of simulated runs, and what they found."""
