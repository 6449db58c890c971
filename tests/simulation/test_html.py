"""A failure's page: complete, offline, bounded, and no place for foreign markup."""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import re
import shutil
import subprocess
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import assume, given, settings, strategies as st

from octopi.simulation.faults.actions import Cut, Kill, LosePower
from octopi.simulation.faults.injector import FAULT, HEALED, SKIPPED
from octopi.simulation.history.checker import check
from octopi.simulation.history.events import History
from octopi.simulation.invariants.descriptions import PROMISES
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.invariants.relay_view import RelayObserver
from octopi.simulation.invariants.relays import RelayRules
from octopi.simulation.invariants.system import SystemInvariants
from octopi.simulation.invariants.systems import SYSTEMS
from octopi.simulation.kernel.world import Event, Violation
from octopi.simulation.report.formatting import action_words
from octopi.simulation.report.html import page, write_page
from octopi.simulation.report.recording import Broken, Cause, Causes, Note, Recording, Sent
from octopi.simulation.report.timeline import timeline
from octopi.tracing import steps
from tests.simulation.recordings import Story, aborted_read, lost_write, real_run
from tests.simulation.stories import COUNT, LOG, Story as ClientStory, stored

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)


class Markup(HTMLParser):
    """The elements of a page, with the names of their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attributes)))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}",))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        self.elements.append(("comment",))


def text_of(html: str) -> str:
    return " ".join(" ".join(Markup(html).text).split())


def data_of(html: str) -> dict[str, Any]:
    found = re.search(r'id="data">([A-Za-z0-9+/=]*)</script>', html)
    assert found is not None
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(found[1])))
    return data


# --- what it says -----------------------------------------------------------------------


def test_a_failing_page_names_the_rule_what_was_seen_and_the_events_in_conflict() -> None:
    text = text_of(page(lost_write()))
    for said in (
        "A promise is broken",
        "incomplete-leader",
        "whoever leads has all committed records",
        "broker-2 leads, and of orders/0 it lacks what is committed from 0 to 100",
        "P6b leader advanced the highwater mark",
        "E11 broker begins to lead",
        "highwater=100",
        "line two",
    ):
        assert said in text


def test_the_page_says_how_to_run_it_again() -> None:
    text = text_of(page(lost_write()))
    assert "octopi-node sim replay 'oc1-abc%DEF'" in text
    assert "0123456789abcdef" in text


def test_the_page_shows_the_plan_and_the_injected_faults() -> None:
    story = Story()
    story.event("boot", "broker-1")
    story.event(FAULT, "broker-1", action=Kill(0.5))
    story.event(SKIPPED, "broker-1", action=LosePower(None), why="it is down")
    story.event(HEALED)
    recording = story.recording(options=("brokers = 3",), faults=("Kill at 2 s",))
    text = text_of(page(recording))
    assert "brokers 3" in text
    assert "Kill at 2 s" in text
    assert "0.001000 s broker-1: kill, restart 0.5 s" in text
    assert "broker-1: skipped: lose power, no restart (it is down)" in text


def test_the_page_of_a_test_tells_in_one_place_what_mattered_and_that_it_passes_without() -> None:
    line = 'cluster.kill("broker-1", step="C1a")  # producer sends a batch'
    causes = Causes("1 of 9 faults matters:", (line,), (Cause(line, "passes"),))
    html = page(attrs.evolve(lost_write(), causes=causes))
    (verdict,) = re.findall(r'<section class="card verdict".*?</section>', html, re.DOTALL)
    text = text_of(verdict)
    for said in (
        "whoever leads has all committed records",
        "1 of 9 faults matters:",
        " ".join(line.split()),
        "The same run without this fault passes.",
        "E11 broker begins to lead",
        "octopi-node sim replay",
    ):
        assert said in text
    assert line in Markup(verdict).text, "what is pasted has its two spaces"
    two = Causes("2 of 9:", (line, line), (Cause(line, "passes"), Cause(line, "is stuck")))
    text = text_of(page(attrs.evolve(lost_write(), causes=two)))
    assert "without fault 2 is stuck." in text


def test_actions_are_described_in_words() -> None:
    assert action_words(Cut(peer="leader", seconds=1.5, resets=True)).startswith(
        "cut, peer leader, 1.5 s, way both"
    )
    assert action_words("something else") == "'something else'"


def test_a_passing_page_has_no_verdict() -> None:
    html = page(real_run())
    assert "All is well" in text_of(html)
    assert 'id="verdict"' not in html
    assert data_of(html)["conflict"] == []


def test_a_broken_promise_without_events_says_where_to_look() -> None:
    recording = attrs.evolve(lost_write(), broken=Broken("liveness", "it goes on", "it waits"))
    assert "look at what came last" in text_of(page(recording))


def test_a_part_of_the_timeline_is_there_without_javascript() -> None:
    html = page(lost_write())
    part = re.search(r'<pre id="part">(.*?)</pre>', html, re.DOTALL)
    assert part is not None
    assert "E13b follower cut its log" in part[1]


def test_a_violation_of_an_observer_is_shown_with_its_rule_and_events() -> None:
    event = Event(7, 0.1, "broker-1", 1, "boot", {})
    violation = Violation("two-leaders", "a and b lead", (event, event))
    broken = Broken.of_violation(violation)
    assert (broken.rule, broken.seen, broken.events) == ("two-leaders", "a and b lead", (7,))
    assert broken.promise == PROMISES["two-leaders"]


def test_an_anomaly_is_shown_with_all_notes_on_the_same_messages() -> None:
    story = ClientStory()
    story.rewind()
    story.finish([stored(number) for number in range(1, COUNT)])
    history = History(story.events)
    (fault, *_) = check(history)
    broken = Broken.of_history(fault, history)
    assert (broken.rule, broken.promise) == (fault.rule.name, fault.rule.value)
    assert str(LOG) in broken.seen
    assert sum(note.is_in_conflict for note in broken.notes) == len(fault.events)
    assert len(broken.notes) > len(fault.events)


def test_every_rule_of_the_oracle_has_a_description() -> None:
    source = "".join(inspect.getsource(one) for one in Oracle.__mro__ if one is not object)
    rules = re.findall(r"_break\(\s*\"([a-z-]+)\"", source)
    assert len(set(rules)) > 10
    assert set(rules) <= set(PROMISES)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.__name__)
def test_every_rule_of_a_system_has_a_description(system: type[SystemInvariants]) -> None:
    helpers = [
        one
        for one in vars(inspect.getmodule(system)).values()
        if inspect.isfunction(one) and one.__module__.startswith("octopi.simulation.invariants.")
    ]
    view = [RelayObserver] if system is RelayRules else []
    source = "".join(map(inspect.getsource, [system, *view, *helpers]))
    rules = re.findall(r"(?:break_rule\(\s*|_broken\(\s*|yield )\"([a-z-]+)\"", source)
    assert rules
    assert set(rules) == set(system.promises)


# --- what it is made of -----------------------------------------------------------------


def test_every_letter_of_a_step_has_a_badge_and_a_meaning() -> None:
    letters = {name[0] for name in vars(steps) if re.match(r"[A-Z]\d", name)}
    assert len(letters) > 10
    folder = Path(inspect.getfile(write_page)).parent / "page"
    style, layout = (folder / "page.css").read_text(), (folder / "layout.js").read_text()
    for letter in sorted(letters):
        assert re.search(rf"\.kind-{letter}[ ,]", style), letter
        assert f'  ["{letter}", ' in layout, letter


def test_the_page_loads_nothing_from_elsewhere() -> None:
    html = page(lost_write())
    assert not re.search(r'(src|srcset|action|xlink:href)\s*=\s*"', html)
    assert not re.search(r"@import|url\((?!#)|fetch\(|XMLHttpRequest|import\(|localStorage", html)
    links = re.findall(r'href="([^"]*)"', html)
    assert links
    assert all(link.startswith("#") for link in links)
    assert set(re.findall(r"https?://[^\s\"'`<)]*", html)) == {"http://www.w3.org/2000/svg"}


def test_only_the_pages_own_code_and_style_may_run() -> None:
    html = page(lost_write())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    for directive, element in (("script-src", "script"), ("style-src", "style")):
        found = re.search(rf"<{element}>(.*?)</{element}>", html, re.DOTALL)
        assert found is not None
        digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy[1]


def test_the_data_holds_the_whole_timeline() -> None:
    recording = real_run()
    data = data_of(page(recording))
    assert data["lines"] == list(timeline(recording))
    assert len(data["moments"]) == len(recording.happenings)
    sent = sum(isinstance(one, Sent) for one in recording.happenings)
    assert sum(len(row) == 6 for row in data["moments"]) == sent


def test_arrivals_point_to_what_was_sent() -> None:
    data = data_of(page(lost_write()))
    arrivals = [row for row in data["moments"] if len(row) == 3]
    assert [data["kinds"][data["moments"][row[2]][2]] for row in arrivals] == ["replicate"]


def test_a_page_of_two_thousand_events_has_at_most_500_kilobytes() -> None:
    recording = real_run()
    events = 0
    for count, one in enumerate(recording.happenings):  # noqa: B007
        events += isinstance(one, Event)
        if events == 2000:
            break
    assert events == 2000
    html = page(attrs.evolve(recording, happenings=recording.happenings[: count + 1]))
    assert len(html.encode()) <= 500_000


def test_the_same_recording_makes_the_same_page() -> None:
    assert page(lost_write()) == page(lost_write())


def test_a_page_can_be_written(tmp_path: Path) -> None:
    write_page(lost_write(), tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page(lost_write())


def test_a_run_in_which_nothing_happened_has_a_page() -> None:
    assert data_of(page(Story().recording()))["moments"] == []


# --- foreign markup ---------------------------------------------------------------------

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "'onmouseover='alert(1)",
    "<!--",
    "]]>",
    "</pre></noscript></title></style>",
    "&lt;script&gt;",
    "$style ${script} $$",
    "\u2028\u2029\x00\x1b[31m\r\n\t",
    "\ud800 lone",
    "\u202eright to left",
    "javascript:alert(1)",
)


def full_of(text: str, *, is_of_test: bool = False) -> Recording:
    """A recording with *text* wherever text may come from somewhere else.  *is_of_test*: whether
    somebody looked for the faults that matter."""
    story = Story()
    event = story.event(text, text, topic=text, topic_id=text, partition=0, value=text)
    story.event(FAULT, text, action=text, why=text)
    story.event("P2b leader appended the batch", text, end=1, topic=text, partition=0)
    story.arrive(story.send(text, text, text, content=Note(0, text, False)))
    broken = Broken(text, text, text, (event.number,), (Note(0, text, True),), text)
    return Recording(
        text,
        tuple(story.happenings),
        ((text, text),),
        broken,
        text,
        (text,),
        (text,),
        text,
        causes=Causes(text, (text,), (Cause(text, text),)) if is_of_test else None,
    )


@pytest.mark.parametrize("is_of_test", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str, is_of_test: bool) -> None:
    html = page(full_of(text, is_of_test=is_of_test))
    html.encode()
    assert without_breaks(html) == without_breaks(page(full_of("a", is_of_test=is_of_test)))
    if text.isprintable():
        assert "".join(Markup(html).text).count(text) > 10


@settings(max_examples=60)
@given(st.text(min_size=1) | st.lists(st.sampled_from(HOSTILE), min_size=1).map("".join))
def test_any_text_stays_text(text: str) -> None:
    # Hypothesis draws texts of the program, too, and a step's is told with that step's facts.
    assume(text not in {step.text for step in steps.ALL})
    assert without_breaks(page(full_of(text))) == without_breaks(page(full_of("a")))


def without_breaks(html: str) -> list[tuple[str, ...]]:
    """The elements; a text of many lines may have breaks between them."""
    return [one for one in Markup(html).elements if one != ("br",)]


# --- in a browser -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed to open the page in")
@pytest.mark.parametrize("make", [lost_write, aborted_read, real_run])
def test_a_browser_draws_the_diagram_and_the_timeline(make: Any, tmp_path: Path) -> None:  # noqa: ANN401
    recording: Recording = make()
    write_page(recording, tmp_path / "page.html")
    dom = subprocess.run(
        [
            str(CHROMIUM),
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000"),
            (tmp_path / "page.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    shown = re.search(r"(\d+)( of the run's \d+)? events and \d+ messages are shown", text_of(dom))
    assert shown is not None
    assert int(shown[1]) >= min(200, sum(isinstance(one, Event) for one in recording.happenings))
    assert 'class="badge' in dom
    assert dom.count("<mark>") == len(data_of(dom)["conflict"])
    last = list(timeline(recording))[-1]
    assert " ".join(last.split()) in text_of(dom.partition('id="timeline"')[2])
