"""Realistic bugs, planted one at a time, that the search has to find."""
