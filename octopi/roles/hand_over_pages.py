"""What was handed over, in the pages in which it is told."""

from __future__ import annotations

from collections.abc import Sequence

from octopi.limits import REPLICATED_PAGE_BYTES, REPLICATED_PAGE_ENTRIES
from octopi.wire import messages as m


def hand_over_page(message: m.AskHandOver, entries: Sequence[bytes]) -> m.HandOverPage:
    """The next page of *entries*, the whole of what was handed over."""
    page: list[bytes] = []
    size = 0
    for entry in entries[message.after : message.after + REPLICATED_PAGE_ENTRIES]:
        size += len(entry)
        if page and size > REPLICATED_PAGE_BYTES:
            break
        page.append(entry)
    more = message.after + len(page) < len(entries)
    return m.HandOverPage(message.request, True, page, more)
