"""Runs one plan: its clients, its operator, and the verdict."""
