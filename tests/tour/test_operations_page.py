"""The page of operators works when it is typed, as it is printed, on one machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("jq") is None, reason="the page uses jq")
def test_the_page_can_be_typed_from_top_to_bottom(type_page: Callable[[str, str], None]) -> None:
    type_page("docs/operations.md", "")
