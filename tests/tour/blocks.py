"""The code blocks of a page, and what comments in front of them say to the tour.

A comment is a line of its own directly in front of the block.  Readers of the page don't see it:

``<!-- not run: REASON -->``    the tour doesn't type this block, and why
``<!-- prints: LINE -->``       a line that the block prints, as often as there are such comments;
                                ``*`` stands for any text
``<!-- keeps running -->``      the block is typed in a terminal of its own, where it goes on
``<!-- Ctrl-C -->``             ends what keeps running before the block is typed
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
RUN = {"sh", "python", "js"}
"""The languages of blocks that the tour can run."""
_COMMENT = re.compile(r"<!-- (not run|prints|keeps running|Ctrl-C)(?:: (.+))? -->")
_FENCE = re.compile(r"( *)```(\w*)$")
_LIST = re.compile(r" *(-|\d+\.) ")


@attrs.frozen
class Block:
    """A code block of a page."""

    page: str
    line: int
    """The number of its first line, from 1."""
    language: str
    text: str
    prints: tuple[str, ...] = ()
    """The lines that it promises to print."""
    reason: str = ""
    """Why the tour doesn't run it; empty: it does."""
    keeps_running: bool = False
    after_ctrl_c: bool = False

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.page}:{self.line}"

    def check_output(self, output: str) -> None:
        """Compare what the block printed with what the page promises.

        Raises:
          AssertionError: a promised line is missing, or was printed more often than promised.
        """
        lines = [line.rstrip() for line in output.splitlines()]
        for promised, count in Counter(self.prints).items():
            pattern = re.compile(".*".join(map(re.escape, promised.split("*"))))
            found = sum(pattern.fullmatch(line) is not None for line in lines)
            assert found == count, (
                f"{self.place}: the page promises {promised!r} {count} times, "
                f"it was printed {found} times:\n{output}"
            )


def blocks_of(page: str, text: str | None = None) -> list[Block]:
    """The blocks of *page*, a path from the root; *text* is its text, None: that of the file.

    Raises:
      AssertionError: a block is indented instead of fenced, or a comment names a block's
        property that there isn't.
    """
    lines = ((ROOT / page).read_text(encoding="utf-8") if text is None else text).splitlines()
    found: list[Block] = []
    number = 0
    in_list = False
    while number < len(lines):
        line = lines[number]
        fence = _FENCE.match(line)
        if fence is None:
            if line and not line.startswith(" "):
                in_list = _LIST.match(line) is not None
            is_code = line.startswith("    ") and number and not lines[number - 1]
            assert in_list or not is_code, f"{page}:{number + 1}: an indented block: fence it"
            number += 1
            continue
        end = lines.index(f"{fence[1]}```", number + 1)
        body = "".join(f"{one[len(fence[1]) :]}\n" for one in lines[number + 1 : end])
        found.append(_block(page, number, fence[2], body, lines))
        number = end + 1
    return found


def _block(page: str, number: int, language: str, body: str, lines: list[str]) -> Block:
    """The block whose fence is ``lines[number]``, with the comments in front of it."""
    comments: list[tuple[str, str]] = []
    at = number
    while at and (line := lines[at - 1].strip()).startswith("<!--"):
        comment = _COMMENT.fullmatch(line)
        assert comment is not None, f"{page}:{at}: the tour doesn't understand {line}"
        comments.insert(0, (comment[1], comment[2] or ""))
        at -= 1
    by_kind = dict(comments)
    assert by_kind.get("not run", "-"), f"{page}:{at}: a block that isn't run without a reason"
    return Block(
        page,
        number + 1,
        language,
        body,
        prints=tuple(value for kind, value in comments if kind == "prints"),
        reason=by_kind.get("not run", ""),
        keeps_running="keeps running" in by_kind,
        after_ctrl_c="Ctrl-C" in by_kind,
    )
