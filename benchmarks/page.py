"""The results as one HTML page with everything in it: no script, and nothing from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Final

from benchmarks.comparisons import (
    OURS,
    Comparison,
    Verdict,
    busy_rounds,
    by_round,
    compared,
    comparisons,
    main_figures,
    verdicts,
)
from benchmarks.goals import Figure
from benchmarks.pairing import Quartiles, quartiles
from benchmarks.plots import Dot, axis_line, axis_of_amounts, axis_of_factors, strip
from benchmarks.results import Participant, Run
from benchmarks.table import amount, factor, middle
from benchmarks.workloads import Workload

_STYLE: Final = Path(__file__).with_name("report.css")
_FIGURES: Final[dict[Figure, str]] = {
    "rate": "Messages a second (more is better)",
    "p50": "Time of a message, median (less is better)",
    "p99": "Time of a message, 99th percentile (less is better)",
    "cpu": "Processor time of a message (less is better)",
}
_WORDS: Final[dict[Figure, str]] = {
    "rate": "in messages a second",
    "p50": "in the median time",
    "p99": "in the 99th percentile of times",
    "cpu": "in processor time",
}
_COSTS: Final = ("client_cpu_us", "server_cpu_us", "client_faults", "server_faults")


def write_page(run: Run, path: Path) -> None:
    """Write the page of *run* to *path*, which has the former page or this one, whatever
    happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(page(run), encoding="utf-8")
    os.replace(beside, path)


def page(run: Run) -> str:
    """The page, as HTML."""
    shown = [one for one in run.workloads if run.participants_of(one.name)]
    body = [
        "<header><h1>Octopi beside its peers</h1>",
        _introduction(run),
        _busy_warning(run),
        "</header><main>",
        _goals(run, shown),
        _contents(shown),
        *(_section(run, workload, number) for number, workload in enumerate(shown)),
        _left_out(run),
        _how(run),
        "</main>",
    ]
    style = _STYLE.read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Octopi beside its peers, {escape(run.began_at[:10])}</title>"
        f"<style>\n{style}</style></head><body>\n{''.join(body)}\n</body></html>\n"
    )


def _introduction(run: Run) -> str:
    machine = run.machine
    state = {"complete": "", "interrupted": ", interrupted"}.get(run.ended, ", not finished")
    facts = {
        "measured": f"{run.began_at} (UTC){state}, {run.settings.get('rounds')} rounds, "
        f"seed {run.settings.get('seed')}",
        "machine": f"{machine.get('cpus')} processors ({machine.get('processor')}), "
        f"{machine.get('memory_gib')} GiB, {machine.get('system')}",
        "commit": str(machine.get("commit")),
        "Python": f"{machine.get('python')}; "
        + ", ".join(f"{name} {version}" for name, version in machine.get("clients", {}).items()),
    }
    rows = "".join(
        f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items()
    )
    return (
        f"<dl>{rows}</dl><p>In each round each system runs the workload once. A bar reaches from "
        "the lower to the upper quartile of the rounds, a line is the median, and each dot is a "
        "round; a hollow dot is a round in which the machine was busy with something else. Factors "
        "compare two systems within each round: above 1, Octopi is faster or takes less time. "
        "A thick line is a goal, green if it is met and red if it is missed.</p>"
    )


def _busy_warning(run: Run) -> str:
    busy = sum(bool(one.busy) for one in run.measurements)
    if not busy and not run.busy_at_rest:
        return "<p>The machine was quiet before the first round and in all rounds.</p>"
    before = (
        f"Before the first round, {escape('; '.join(run.busy_at_rest))}. "
        if run.busy_at_rest
        else ""
    )
    return (
        f'<p class="warning"><strong>Busy machine.</strong> {before}It was busy in {busy} of '
        f"{len(run.measurements)} measurements. There, rates and times mostly show how often a "
        "system had to wait for a processor; processor time for a message is steadier.</p>"
    )


def _goals(run: Run, workloads: Iterable[Workload]) -> str:
    rows = []
    for number, workload in enumerate(workloads):
        rows += [
            f'<tr><td><a href="#w{number}">{escape(workload.name)}</a></td>'
            f"<td>{escape(one.goal.text)}</td><td>{_verdict(one)}</td></tr>"
            for one in verdicts(run, workload)
        ]
    if not rows:
        return ""
    return (
        "<section><h2>Goals</h2>"
        + _scroll(
            "goals",
            '<table class="goals"><thead><tr><th scope="col">workload</th><th scope="col">goal</th>'
            f'<th scope="col">measured</th></tr></thead><tbody>{"".join(rows)}</tbody></table>',
        )
        + "</section>"
    )


def _verdict(verdict: Verdict) -> str:
    name = {True: "met", False: "missed", None: "note"}[verdict.is_met]
    return f'<span class="{name}">{escape(verdict.words)}</span>'


def _contents(workloads: Iterable[Workload]) -> str:
    links = "".join(
        f'<li><a href="#w{number}">{escape(one.name)}</a></li>'
        for number, one in enumerate(workloads)
    )
    return (
        f'<section><h2>Workloads</h2><nav aria-label="workloads"><ul>{links}</ul></nav></section>'
    )


def _section(run: Run, workload: Workload, number: int) -> str:
    plots = [_amounts(run, workload, figure) for figure in main_figures(workload)]
    found = comparisons(run, workload)
    plots += [_factors(figure, [one for one in found if one.figure == figure]) for figure in _WORDS]
    return (
        f'<section id="w{number}"><h2>{escape(workload.name)}</h2>'
        f'<p class="note">{escape(_described(workload))}</p>'
        f'<div class="plots">{"".join(plots)}</div>'
        f"{_table(run, workload)}{''.join(_notes(run, workload))}</section>"
    )


def _described(workload: Workload) -> str:
    parts = [f"{workload.message_count:,} messages of {workload.message_bytes:,} B a round"]
    if workload.replicas > 1:
        parts.append(f"{workload.replicas} replicas")
    if workload.producers > 1:
        parts.append(f"{workload.producers} producers")
    if workload.rate:
        parts.append(f"{workload.rate:,} a second")
    if workload.flush_before_ack:
        parts.append("acknowledged when they are flushed")
    return ", ".join(parts)


def _amounts(run: Run, workload: Workload, figure: Figure) -> str:
    """The plot of one figure of all systems."""
    series = {
        one: found
        for one in run.participants_of(workload.name)
        if (found := by_round(run, workload.name, one.system, figure))
    }
    if not series:
        return ""
    axis = axis_of_amounts([value for found in series.values() for value in found.values()])
    rows = []
    for participant, found in series.items():
        spread = quartiles(found.values())
        busy = busy_rounds(run, workload.name, participant.system)
        dots = [
            Dot(value, f"round {number + 1}: {amount(value, figure)}", number in busy)
            for number, value in found.items()
        ]
        rows.append(_row(participant.title, _plain(spread.median, figure)))
        rows.append(strip(axis, dots, kind=_kind(participant)))
    unit = "/s" if figure == "rate" else " us"
    scale = ", logarithmic" if axis.is_logarithmic else ""
    return (
        f"<figure><figcaption>{_FIGURES[figure]}{scale}</figcaption>{''.join(rows)}"
        f"{axis_line(axis, unit)}</figure>"
    )


def _factors(figure: Figure, found: list[Comparison]) -> str:
    """The plot of how far Octopi is ahead of the others in one figure."""
    if not found:
        return ""
    goals = [one.verdict.goal.ahead for one in found if one.verdict is not None]
    axis = axis_of_factors([*goals, *(value for one in found for value in one.factors.values())])
    rows = []
    for one in found:
        dots = [
            Dot(value, f"round {number + 1}: {value:.2f}x", number in one.busy)
            for number, value in one.factors.items()
        ]
        lines = [(1.0, "one")]
        value = escape(factor(quartiles(one.factors.values())))
        if one.verdict is not None:
            goal = one.verdict.goal
            name = "met" if one.verdict.is_met else "missed"
            lines.append((goal.ahead, f"goal-{name}"))
            value += f', goal {goal.ahead:.3g}x: <span class="{name}">{name}</span>'
        rows.append(_row(one.label, value, is_html=True))
        rows.append(strip(axis, dots, kind="ours", lines=lines))
    return (
        f"<figure><figcaption>Octopi ahead {_WORDS[figure]}, factor (more is better), logarithmic"
        f"</figcaption>{''.join(rows)}{axis_line(axis, 'x')}</figure>"
    )


def _row(label: str, value: str, *, is_html: bool = False) -> str:
    shown = value if is_html else escape(value)
    return f'<div class="row"><span>{escape(label)}</span><span class="value">{shown}</span></div>'


def _kind(participant: Participant) -> str:
    if participant.server == OURS:
        return "ours"
    return "theirs" if participant.server == participant.system else "tool"


def _table(run: Run, workload: Workload) -> str:
    heads = ["system"]
    for figure in main_figures(workload):
        heads += [f"{'median' if figure == 'rate' else figure} (quartiles)", "Octopi ahead"]
    heads += ["CPU us, clients", "CPU us, servers", "page faults, clients", "page faults, servers"]
    heads.append("rounds")
    rows = "".join(_table_row(run, workload, one) for one in run.participants_of(workload.name))
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    return (
        "<p>The same as a table; processor time and minor page faults are for one message:</p>"
    ) + _scroll(
        f"figures of {workload.name}",
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>",
    )


def _table_row(run: Run, workload: Workload, participant: Participant) -> str:
    system = participant.system
    measured = run.of(workload.name, system)
    cells: list[str] = []
    for figure in main_figures(workload):
        found = by_round(run, workload.name, system, figure)
        spread = quartiles(found.values()) if found else None
        cells += [
            f"{_plain(spread.median, figure)}{_range(spread)}" if spread else "",
            _ahead_of(run, workload, figure, system),
        ]
    cells += [_cost(middle(measured, cost)) if measured else "" for cost in _COSTS]
    busy = len(busy_rounds(run, workload.name, system))
    cells.append(f"{len(measured)}, {busy} busy" if busy else str(len(measured)))
    marked = "".join(f"<td>{escape(one)}</td>" for one in cells)
    return f'<tr><th scope="row">{escape(participant.title)}</th>{marked}</tr>'


def _plain(value: float, figure: Figure) -> str:
    """A figure with its unit, where a heading names the figure."""
    return amount(value, figure).removesuffix(f" {figure}")


def _cost(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ahead_of(run: Run, workload: Workload, figure: Figure, system: str) -> str:
    return "" if system == OURS else factor(compared(run, workload.name, figure, system))


def _range(spread: Quartiles) -> str:
    return f" ({spread.lower:,.0f}-{spread.upper:,.0f})" if spread.count > 1 else ""


def _notes(run: Run, workload: Workload) -> Iterator[str]:
    for one in run.participants_of(workload.name):
        if one.differs:
            yield f'<p class="note"><strong>{escape(one.title)}:</strong> {escape(one.differs)}</p>'
    for failed in run.measurements:
        if failed.workload == workload.name and failed.problem:
            yield (
                f'<p class="missed">{escape(failed.system)} failed in round {failed.round + 1}: '
                f"{escape(failed.problem)}</p>"
            )
    programs = {
        program.name
        for one in run.measurements
        if one.workload == workload.name and one.busy
        for program in one.load.busiest
    }
    if programs:
        yield (
            f'<p class="note">At work in busy rounds: {escape(", ".join(sorted(programs)))}.</p>'
        )
    entries = "".join(
        f"<dt>{escape(one.title)}</dt><dd>{escape(f'{one.version}: {one.settings}')}</dd>"
        for one in run.participants_of(workload.name)
    )
    yield f"<details><summary>Versions and settings</summary><dl>{entries}</dl></details>"


def _left_out(run: Run) -> str:
    if not run.left_out:
        return ""
    entries = "".join(
        f"<dt>{escape(one.system)}</dt><dd>{escape(one.reason)}"
        f"{escape(f' ({one.workload})' if one.workload else '')}</dd>"
        for one in run.left_out
    )
    return f"<section><h2>Not measured</h2><dl>{entries}</dl></section>"


def _how(run: Run) -> str:
    programs = "; ".join(f"{one.name}: {one.cores:.2f}" for one in run.at_rest.busiest)
    facts = {
        "others before the first round": f"{run.at_rest.others:.1%} of the processors by programs, "
        f"{run.at_rest.stolen:.1%} by other machines of the host"
        + (f" (processors taken: {programs})" if programs else ""),
        "clients": "each in a process of its own, which begins when all are connected",
        "own tools": "a peer\u2019s own benchmark tool works on the same server as its Python "
        "client, so the two rows show what Python costs",
    }
    rows = "".join(
        f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items()
    )
    return f"<section><h2>How it was measured</h2><dl>{rows}</dl></section>"


def _scroll(name: str, table: str) -> str:
    return (
        f'<div class="scroll" role="region" aria-label="{escape(name, quote=True)}" tabindex="0">'
        f"{table}</div>"
    )
