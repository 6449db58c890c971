"""What the examples need: found, or their tests are skipped with one clear line.

CI installs it all, so there its absence fails.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs/examples"


def need(*modules: str) -> None:
    """Go on if these modules are installed; otherwise the test is skipped."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        leave_out(f"{', '.join(missing)}: `make .venv/.examples`")


def leave_out(what: str) -> None:
    """Skip the test, because *what* it needs is missing; in CI that fails."""
    if os.environ.get("CI"):
        pytest.fail(f"CI has to install {what}")
    pytest.skip(f"the test needs {what}")
