"""What the browser tests share: one Node for the client's modules, one Chromium for pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.browser.pages import browser
from tests.browser.tools import NodePeer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE: Final = Path(__file__).parents[2] / ".tools/axe/node_modules/axe-core/axe.min.js"


@pytest.fixture(scope="module")
def node() -> Iterator[NodePeer]:
    """Node with the client's modules."""
    peer = NodePeer()
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def chromium_browser() -> Iterator[Browser]:
    """Chromium."""
    with browser() as launched:
        yield launched


@pytest.fixture
def page(chromium_browser: Browser) -> Iterator[Page]:
    """A page; what it throws, and what its policy refuses, fails the test."""
    context = chromium_browser.new_context(
        viewport={"width": 1280, "height": 900},
        ignore_https_errors=True,  # no authority of a test is known to Chromium
    )
    made = context.new_page()
    problems: list[str] = []
    made.on("pageerror", lambda error: problems.append(str(error)))
    made.on(
        "console",
        lambda message: (
            problems.append(message.text) if "Content Security Policy" in message.text else None
        ),
    )
    yield made
    context.close()
    assert problems == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe; without it, the test is skipped."""
    if not AXE.exists():
        if os.environ.get("CI"):
            pytest.fail("CI has to install axe: `make .tools/axe`")
        pytest.skip("there is no axe: `make .tools/axe` installs it")
    return AXE.read_text()
