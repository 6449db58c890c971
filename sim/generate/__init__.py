"""Draws plans from seeds: each option independently, or faults that belong together (scenarios)."""
