"""Hypothesis profiles: the same examples every time in CI, fresh ones on a desk."""

import os

from hypothesis import settings

# Shared machines are slow at times, and a deadline per example would measure only that.
settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
