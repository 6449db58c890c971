"""Plans from seeds: every option drawn by itself, or scenarios of faults that belong together."""
