"""What the tests of the tour share: a page in Chromium, and a newcomer who types a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.pages import browser
from tests.tour.blocks import blocks_of
from tests.tour.newcomer import Newcomer

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def open_page() -> Iterator[Callable[[], Page]]:
    """Opens a page in Chromium; what it throws fails the test."""
    problems: list[str] = []
    with ExitStack() as stack:

        def opened() -> Page:
            page = stack.enter_context(browser()).new_context().new_page()
            page.on("pageerror", lambda error: problems.append(str(error)))
            return page

        yield opened
    assert problems == []


@pytest.fixture
def type_page(tmp_path: Path, open_page: Callable[[], Page]) -> Callable[[str, str], None]:
    """Types a page, given as its path, from top to bottom; a command that is given as well runs in
    another terminal all the while."""

    def typed(page: str, before: str = "") -> None:
        with Newcomer(tmp_path, open_page) as newcomer:
            if before:
                newcomer.keep_running(before)
            for block in blocks_of(page):
                if not block.reason:
                    newcomer.do(block)

    return typed
