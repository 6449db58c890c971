"""A recording as one HTML page, which opens from a disk, without a network, years later.

The page contains its style, its code and its data (`octopi/simulation/report/page`).  Its content
security policy forbids everything else: no other code runs, and nothing is fetched.  The page shows
the broken rule and a part of the timeline without JavaScript, too; everything else is drawn from
compressed data (`octopi.simulation.report.page_data`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from bisect import bisect_right
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

from octopi.printable import printable
from octopi.simulation.faults.injector import FAULT, HEALED, SKIPPED
from octopi.simulation.kernel.world import Event
from octopi.simulation.report.formatting import action_words, one_line
from octopi.simulation.report.page_data import page_data
from octopi.simulation.report.recording import Came, Causes, Note, Recording
from octopi.simulation.report.space_time_diagram import Diagram, diagram
from octopi.simulation.report.timeline import Moment, fields, name, timeline

__all__ = ["Recording", "page", "timeline", "write_page"]

_SCRIPTS: Final = ("run.js", "layout.js", "diagram.js", "charts.js", "page.js")
_PART_LINES: Final = 200
"""The number of lines of the timeline that the page shows without JavaScript."""
_CONFLICT_FACTS: Final = 12
_SPACES: Final = re.compile(r"\s+")


def write_page(recording: Recording, path: Path) -> None:
    """Write `page` to *path*."""
    path.write_text(page(recording), encoding="utf-8")


def page(recording: Recording) -> str:
    """The whole page; the same recording gives the same page."""
    drawn = diagram(recording)
    at = (moment for moment, one in enumerate(drawn.moments) if not isinstance(one, Came))
    lines = dict(zip(at, timeline(recording), strict=True))
    style = _asset("page.css")
    script = "\n".join(map(_asset, _SCRIPTS))
    values = {
        "title": _text(one_line(recording.title)),
        "brand": "Octopi simulator" if recording.is_simulated else "Octopi",
        "outcome": _outcome(recording),
        "verdict": _verdict(recording, drawn, lines),
        "run": _run(recording, drawn) if recording.is_simulated else "",
        "data": _packed(page_data(drawn, lines.values())),
        "part": escape(_part(drawn, lines), quote=False),
        "part_words": "before the conflict" if drawn.conflict else "before the end",
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
    }
    return Template(_asset("page.html")).substitute(values)


@cache
def _asset(file: str) -> str:
    return (files("octopi.simulation.report") / "page" / file).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The source expression that allows *text* inline (CSP level 2, section 4.2.5)."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# --- text ------------------------------------------------------------------------------


def _text(text: str) -> str:
    """*text* as HTML, also for use in an attribute; line ends stay."""
    return escape("\n".join(map(printable, text.splitlines())))


def _outcome(recording: Recording) -> str:
    if recording.causes is not None:
        return '<span class="outcome failed">The test fails</span> '
    if recording.broken is not None:
        return '<span class="outcome failed">A promise is broken</span> '
    if recording.is_simulated:
        return '<span class="outcome passed">All is well</span> '
    return ""  # nobody has judged it


def _run(recording: Recording, drawn: Diagram) -> str:
    if recording.causes is not None:  # the verdict has all but this
        return (
            '<details class="card"><summary>All that was planned, all that struck</summary>'
            f"{_plan(recording, drawn)}</details>"
        )
    return (
        '<section class="card" aria-labelledby="again"><h2 id="again">Run it again</h2>'
        f"{_replay(recording)}</section>"
        '<section class="card" aria-labelledby="plan"><h2 id="plan">What was planned, what struck'
        f"</h2>{_plan(recording, drawn)}</section>"
    )


def _verdict(recording: Recording, drawn: Diagram, lines: dict[int, str]) -> str:
    broken = recording.broken
    if broken is None:
        return ""
    promise = f"<dt>Promised</dt><dd>{_text(broken.promise)}</dd>" if broken.promise else ""
    seen = _text(broken.seen).replace("\n", "<br>")
    conflict = _conflict(drawn, lines)
    causes = ""
    if recording.causes is not None:
        causes = (
            f"<dt>Faults</dt><dd>{_causes(recording.causes)}</dd>"
            f"<dt>Conflict</dt><dd>{conflict}</dd>"
            f"<dt>Again</dt><dd>{_replay(recording)}</dd>"
        )
        conflict = ""
    details = (
        f"<details><summary>More</summary><pre>{_text(broken.details)}</pre></details>"
        if broken.details
        else ""
    )
    return (
        '<section class="card verdict" aria-labelledby="verdict">'
        f'<h2 id="verdict">Broken: <code>{_text(broken.rule)}</code></h2>'
        f"<dl>{promise}<dt>Seen</dt><dd>{seen}</dd>{causes}</dl>"
        f"{conflict}{details}</section>"
    )


def _causes(causes: Causes) -> str:
    """The faults that matter, as lines to paste, and what the run does without each of them."""
    said = f'<p class="hint">{_text(causes.said)}</p>'
    if not causes.lines:
        return said
    code = _text("\n".join(causes.lines))
    tried = [(number, one) for number, one in enumerate(causes.faults, 1) if one.without]
    without = "".join(
        f"<li>The same run without {_which(number, len(causes.faults))} {_text(one.without)}.</li>"
        for number, one in tried
    )
    return (
        f'{said}<div class="command"><code class="lines" id="causes" tabindex="0">{code}</code>'
        '<button type="button" data-copy="causes">Copy</button></div>'
        + (f'<ul class="without">{without}</ul>' if without else "")
    )


def _which(number: int, count: int) -> str:
    return "this fault" if count == 1 else f"fault {number}"


def _conflict(drawn: Diagram, lines: dict[int, str]) -> str:
    if not drawn.conflict:
        return "<p>No single event is to blame: look at what came last.</p>"
    cards = "".join(
        _conflict_card(count, moment, drawn, lines)
        for count, moment in enumerate(drawn.conflict, 1)
    )
    what = "These events contradict each other" if len(drawn.conflict) > 1 else "What broke it"
    if any(_is_fault(drawn.moments[one]) for one in drawn.conflict):
        what = "What struck, and what came of it"
    return f'<p>{what}:</p><ol class="conflict">{cards}</ol>'


def _conflict_card(count: int, moment: int, drawn: Diagram, lines: dict[int, str]) -> str:
    _, time, host, what, *facts = fields(lines[moment])
    one = drawn.moments[moment]
    action = one.facts.get("action") if isinstance(one, Event) and _is_fault(one) else None
    if action is not None:
        what, facts = action_words(action), []
    shown = "".join(f"<li>{_text(fact)}</li>" for fact in facts[:_CONFLICT_FACTS])
    who = _text(one.who if isinstance(one, Note) else host)
    return (
        f'<li><a href="#diagram-section" data-moment="{moment}"><b class="number">{count}</b>'
        f"<span><b>{_text(what)}</b><br>{who} at {_text(time)}</span></a>"
        f'<ul class="facts">{shown}</ul></li>'
    )


def _replay(recording: Recording) -> str:
    digest = (
        f'<p class="hint">The same run has the digest <code>{_text(recording.digest)}</code>.</p>'
        if recording.digest
        else ""
    )
    if not recording.command:
        return digest or '<p class="hint">No command was recorded.</p>'
    return (
        f'<div class="command"><code id="replay">{_text(recording.command)}</code>'
        f'<button type="button" data-copy="replay">Copy</button></div>{digest}'
    )


def _plan(recording: Recording, drawn: Diagram) -> str:
    planned = "".join(f"<li>{_text(_SPACES.sub(' ', one))}</li>" for one in recording.faults)
    struck = "".join(_struck(moment, one) for moment, one in enumerate(drawn.moments))
    options = "".join(_option(one) for one in recording.options)
    return (
        '<div class="columns"><div><h3>Faults planned</h3>'
        + (f"<ol>{planned}</ol>" if planned else '<p class="hint">none</p>')
        + "</div><div><h3>What struck, and when</h3>"
        + (
            f'<ol class="struck" tabindex="0">{struck}</ol>'
            if struck
            else '<p class="hint">nothing</p>'
        )
        + "</div></div>"
        + (
            f'<details><summary>Options</summary><dl class="options">{options}</dl></details>'
            if options
            else ""
        )
    )


def _struck(moment: int, happened: Moment) -> str:
    if not isinstance(happened, Event) or not _is_fault(happened):
        return ""
    action = happened.facts.get("action")
    why = happened.facts.get("why")
    words = {FAULT: "", SKIPPED: "skipped: ", HEALED: "healed"}[happened.what]
    words += "" if action is None else action_words(action)
    host = f"{_text(name(happened.host))}: " if happened.host else ""
    because = f" ({_text(one_line(str(why)))})" if why else ""
    return (
        f'<li><a href="#diagram-section" data-moment="{moment}">{happened.at:.6f} s</a> '
        f"{host}{_text(words)}{because}</li>"
    )


def _is_fault(happened: Moment) -> bool:
    return isinstance(happened, Event) and happened.what in {FAULT, SKIPPED, HEALED}


def _option(line: str) -> str:
    option, _, value = line.partition(" = ")
    return f"<div><dt>{_text(one_line(option))}</dt><dd>{_text(one_line(value))}</dd></div>"


# --- data --------------------------------------------------------------------------------


def _part(drawn: Diagram, lines: dict[int, str]) -> str:
    """The lines of the timeline before the moment that is looked at first, and a few after it."""
    known = list(lines)
    end = bisect_right(known, drawn.focus) + _PART_LINES // 10
    return "\n".join(lines[moment] for moment in known[max(0, end - _PART_LINES) : end])


def _packed(value: object) -> str:
    """*value* as JSON, deflated (RFC 1950), in base64.  It has a tenth of the size, and no
    character with a meaning in HTML."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()
