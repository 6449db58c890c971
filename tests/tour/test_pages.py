"""Every block of the pages that newcomers read is typed as it is printed, or says why not."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.tour.blocks import ROOT, RUN, blocks_of

PAGES = {
    "README.md": "",
    "docs/clients.md": "octopi-node dev",
    "docs/subscriptions.md": "octopi-node dev",
    "docs/browser.md": "octopi-node dev",
    "docs/http.md": "octopi-node dev",
    "docs/lite.md": "octopi-node dev",
    "docs/coming-from-kafka.md": "octopi-node dev",
    "docs/coming-from-nats.md": "octopi-node dev",
    "docs/coming-from-redis-streams.md": "octopi-node dev",
}
"""What runs in another terminal while a page is typed; README starts everything itself."""
ALL = [*PAGES, "docs/operations.md"]
"""The last one has a file of its own, so that other tests run beside its two minutes."""


@pytest.mark.parametrize("page", ALL)
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    blocks = blocks_of(page)
    assert any(block.language in RUN and not block.reason for block in blocks)
    undecided = [one.place for one in blocks if not one.reason and one.language not in RUN]
    assert undecided == [], "in front of them: <!-- not run: REASON -->"


@pytest.mark.parametrize("page", ALL)
def test_a_comment_of_the_tour_belongs_to_a_block(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    written = len(re.findall(r"^<!-- (?:not run|prints|keeps running|Ctrl-C)", text, re.MULTILINE))
    blocks = blocks_of(page)
    understood = sum(
        len(one.prints) + bool(one.reason) + one.keeps_running + one.after_ctrl_c for one in blocks
    )
    assert written == understood


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", PAGES)
def test_the_page_can_be_typed_from_top_to_bottom(
    page: str, type_page: Callable[[str, str], None]
) -> None:
    type_page(page, PAGES[page])
