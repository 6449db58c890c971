"""The page of a failed run in a real browser: its account fits one screen, and neither a long run
nor a narrow window makes it unusable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from octopi.simulation.report.html import write_page
from octopi.simulation.report.recording import Cause, Causes, Note, Recording
from tests.browser.test_console_looks import serious_faults
from tests.simulation.recordings import lost_write, real_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

LINE = 'cluster.kill("account", step="C1a", restart_s=1.0)  # producer sends a batch'
CAUSES = Causes(
    "3 of 13 faults matter; this, in the place of `with cluster.random_faults(...):`",
    (LINE,) * 3,
    (Cause(LINE, "passes"),) * 3,
)
LOOKS = [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]


def failed_test() -> Recording:
    """What a test leaves that failed with three faults, after a run of some thousand events."""
    long, told = real_run(), lost_write().broken
    assert told is not None
    note = Note(long.happenings[-1].at, "the test fails: assert 190 == 200", True, "the test")
    broken = attrs.evolve(told, events=(700,), notes=(note,))
    return attrs.evolve(long, broken=broken, causes=CAUSES, command="pytest test_account.py")


@pytest.fixture(params=LOOKS, ids=lambda look: f"{look[0]} {look[1]}")
def shown(request: pytest.FixtureRequest, page: Page, tmp_path: Path) -> tuple[Page, int]:
    """The page of `failed_test`, and the width of its window (px)."""
    width, scheme = request.param
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    write_page(failed_test(), tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("#diagram .badge")
    return page, width


def test_the_account_fits_a_screen_and_the_page_a_few_of_them(shown: tuple[Page, int]) -> None:
    page, width = shown
    verdict = page.locator(".verdict").bounding_box()
    assert verdict is not None
    assert verdict["y"] + verdict["height"] <= (900 if width == 1280 else 1800)
    height, across = page.evaluate(
        "[document.documentElement.scrollHeight, document.documentElement.scrollWidth]"
    )
    assert height < 6000, "a run of any length"
    assert across <= width


def test_axe_finds_nothing_serious(shown: tuple[Page, int], axe: str) -> None:
    page, _ = shown
    page.click("summary:has-text('All that was planned')")
    page.evaluate(axe)
    assert serious_faults(page) == []


def test_the_lanes_show_what_is_chosen_and_only_the_rows_in_view(
    page: Page, tmp_path: Path
) -> None:
    write_page(failed_test(), tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("#diagram .badge")
    assert page.locator("#diagram .badge.in-conflict").count() == 1, "the first look is at it"
    page.select_option("#range", "all")
    assert page.evaluate("document.querySelector('.canvas').offsetHeight") > 10_000
    assert page.locator("#diagram .badge").count() < 300
    (topic,) = page.evaluate(
        "[...document.querySelectorAll('#log option')].map(o => o.text)"
        ".filter(text => text !== 'all' && !text.includes('/') && !text.includes('partition'))"
        ".slice(0, 1)"
    )
    before = page.text_content("#count")
    page.select_option("#log", label=topic)
    assert page.text_content("#count") != before
    assert page.locator("#diagram .badge").count() > 0
    lanes = page.locator(".lane-head").count()
    page.click("#hosts label:has-text('broker-1')")
    assert page.locator(".lane-head").count() == lanes - 1
    wide = page.evaluate("document.querySelector('.canvas').offsetHeight")
    page.click("#zoom-out")
    assert page.evaluate("document.querySelector('.canvas').offsetHeight") < wide


def test_the_timeline_is_at_the_conflict_and_goes_to_what_is_selected(
    page: Page, tmp_path: Path
) -> None:
    write_page(failed_test(), tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("#diagram .badge")
    in_view = """() => {
        const box = document.getElementById('timeline').getBoundingClientRect();
        return [...document.querySelectorAll('#timeline mark')].filter((mark) => {
            const { top } = mark.getBoundingClientRect();
            return top >= box.top && top < box.bottom;
        }).length;
    }"""
    page.locator("#timeline").scroll_into_view_if_needed()
    page.wait_for_function(f"() => ({in_view})() === 1")


def test_on_paper_there_is_the_account_and_the_part_before_it(page: Page, tmp_path: Path) -> None:
    write_page(failed_test(), tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("#diagram .badge")
    page.emulate_media(media="print")
    assert page.is_visible(".verdict")
    assert page.is_visible("#part")
    assert not page.is_visible("#timeline")
    paper = page.pdf()
    assert 1 <= paper.count(b"/Type /Page\n") <= 20
