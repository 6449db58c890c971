"""The page of plots has all that was measured, and needs nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import attrs
import pytest

from benchmarks import report, results
from benchmarks.page import page
from benchmarks.plots import axis_of_amounts, axis_of_factors, short
from benchmarks.results import Run
from benchmarks.table import table
from tests.benchmarks.runs import BUSY, measured, one_by_one, produce, run_of, timed


def example() -> Run:
    first, second = produce("rate >= 7x best", "rate >= 1.5x redis"), one_by_one("p50 <= 0.4x nats")
    busy = measured(first, "redis", [100, 120, 90])
    busy[2] = attrs.evolve(busy[2], load=BUSY, busy=("other programs take 40%",))
    return run_of(
        measured(first, "octopi", [200, 210, 190]),
        busy,
        timed(second, "octopi", [50, 60]),
        timed(second, "nats", [100, 150]),
        workloads=[first, second, produce(name="not begun")],
    )


class Outline(HTMLParser):
    """Checks that elements are closed in order, and collects attributes."""

    EMPTY = ("meta", "line", "circle", "rect")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag


def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    assert found.open == []
    return found


def test_the_page_has_each_workload_system_and_goal() -> None:
    run = example()
    text = page(run)
    for expected in (
        *("produce 100 B", "one by one", "octopi &amp; its client", "nats &amp; its client"),
        *("a &lt;fast&gt; one", "java is not installed"),
        *("rate &gt;= 7x best", "missed: 2.00x", "met: 2.00x", "missed: 0.44x"),
    ):
        assert expected in text
    assert "not begun" not in text
    found = outline(text)
    assert sum(tag == "circle" for tag, name, _ in found.attributes if name == "cx") == 24
    assert text.count("<table>") == 2


def test_the_page_loads_nothing_from_elsewhere() -> None:
    text = page(example())
    assert "://" not in text
    assert not re.search(r"<script|<link|@import|url\(|\bsrc=", text)
    targets = [value for tag, name, value in outline(text).attributes if name == "href"]
    ids = {f"#{value}" for _, name, value in outline(text).attributes if name == "id"}
    assert targets
    assert set(targets) <= ids


def test_rounds_of_a_busy_machine_are_marked_in_page_and_table() -> None:
    text = page(example())
    # In the plot of rates, and in that of factors beside that system and beside the best one.
    assert text.count("class=busy") == 3
    assert "It was busy in 1 of 10 measurements" in text
    assert "<td>3, 1 busy</td>" in text
    assert "At work in busy rounds: cc1" in text
    printed = table(example())
    assert re.search(r"redis & its client .* 1 of 3$", printed, re.MULTILINE)
    assert "busy in 1 of 10 measurements" in printed


def test_a_quiet_run_has_no_marks() -> None:
    workload = produce()
    run = run_of(measured(workload, "octopi", [200]), workloads=[workload])
    assert "The machine was quiet before the first round and in all rounds" in page(run)
    assert "class=busy" not in page(run)
    assert "busy in" not in table(run)


def test_all_that_is_drawn_lies_within_its_strip() -> None:
    found = outline(page(example()))
    places = [
        float(value.removesuffix("%"))
        for _, name, value in found.attributes
        if name in {"x", "cx", "x1", "x2"}
    ]
    assert len(places) > 50
    assert min(places) >= 0
    assert max(places) <= 100


def test_a_goal_is_a_line_at_the_factor_that_it_asks_for() -> None:
    found = outline(page(example()))
    lines = [value for tag, name, value in found.attributes if (tag, name) == ("line", "class")]
    assert lines.count("goal-met") == 1
    assert lines.count("goal-missed") == 2


@pytest.mark.parametrize("values", [[0.0], [5.0], [1.0, 2.0], [1.0, 1e6], [3e-3, 4e-3]])
def test_an_axis_has_a_few_round_ticks_and_all_values(values: list[float]) -> None:
    for axis in (axis_of_amounts(values), axis_of_factors([one or 1.0 for one in values])):
        ticks = axis.ticks()
        assert 1 <= len(ticks) <= 8
        assert len({short(one) for one in ticks}) == len(ticks)
        assert all(0 <= axis.at(one) <= 100 for one in ticks)
    assert all(0 <= axis_of_amounts(values).at(one) <= 100 for one in values)


def test_numbers_on_an_axis_are_short() -> None:
    assert [short(one) for one in (0, 0.25, 15, 1500, 2_500_000)] == [
        "0",
        "0.25",
        "15",
        "1.5k",
        "2.5M",
    ]


def test_the_command_makes_the_page_of_a_file_of_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "run.json", tmp_path / "report.html"
    results.save(example(), source)
    monkeypatch.setattr("sys.argv", ["report", str(source), "-o", str(target), "--table"])
    assert report.main() == 0
    assert target.read_text() == page(example())
    assert "produce 100 B" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["report", str(tmp_path / "absent.json")])
    assert report.main() == 2
    assert "absent.json" in capsys.readouterr().err
