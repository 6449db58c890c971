"""How much came into topics, when, and under which keys; and how far this reader is behind.

Counts are by the messages' own time stamps, in windows; a page with a chart of them needs
nothing but a browser.
"""

from __future__ import annotations

import html
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from octopi.spark.jobs.progress import lags

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_TABLE: Final = "octopi_rates"
_COLOURS: Final = ("#2a6f97", "#c1666b", "#4f772d", "#b08900", "#6d597a", "#3a506b", "#bc4b51")
_WIDTH, _HEIGHT, _MARGIN = 960, 320, 50


@attrs.frozen
class RatesOptions:
    """What is counted."""

    source: Mapping[str, str]
    """Options of the source: ``server``, ``subscribe``, ..."""
    window: str = "1 minute"
    """As Spark has it."""
    by_key: bool = False
    """For each key, too, as text."""


@attrs.frozen
class Rate:
    """One window of one topic (and key)."""

    begin: str
    """ISO 8601."""
    topic: str
    key: str | None
    count: int
    size_bytes: int
    """Of the values."""


def rates(spark: SparkSession, options: RatesOptions) -> list[Rate]:
    """Count what there is now.

    Raises:
      AnalysisException, PythonException: what Spark makes of the source's errors.
    """
    frame = spark.read.format("octopi").options(**options.source).load()
    return _collected(_counted(frame, options))


def start_rates(spark: SparkSession, options: RatesOptions, checkpoint: Path) -> StreamingQuery:
    """Count on as messages come; `current_rates` says how many there are so far."""
    source = {"startingOffsets": "earliest", **options.source}
    frame = spark.readStream.format("octopi").options(**source).load()
    return (
        _counted(frame, options)
        .writeStream.format("memory")
        .queryName(_TABLE)
        .outputMode("complete")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def current_rates(spark: SparkSession) -> list[Rate]:
    """What a stream of `start_rates` has counted."""
    return _collected(spark.table(_TABLE))


def bytes_behind(query: StreamingQuery) -> dict[str, int]:
    """How far a stream is behind each log's end, by ``topic/partition``."""
    progress = query.lastProgress
    return {} if progress is None else lags(progress)


def _counted(frame: DataFrame, options: RatesOptions) -> DataFrame:
    groups = [f"window(timestamp, '{options.window}') as span", "topic"]
    groups.append("cast(key as string) as key" if options.by_key else "cast(null as string) as key")
    return (
        frame.selectExpr(*groups, "length(value) as size")
        .groupBy("span", "topic", "key")
        .agg({"*": "count", "size": "sum"})
        .selectExpr(
            "date_format(span.start, \"yyyy-MM-dd'T'HH:mm:ss\") as begin",
            "topic",
            "key",
            "`count(1)` as count",
            "`sum(size)` as size_bytes",
        )
    )


def _collected(frame: DataFrame) -> list[Rate]:
    rows = [Rate(**row.asDict()) for row in frame.collect()]
    return sorted(rows, key=lambda one: (one.begin, one.topic, one.key or ""))


# --- the page ----------------------------------------------------------------------------


def chart_page(found: list[Rate], behind: Mapping[str, int]) -> str:
    """A page of HTML with messages and bytes by window and topic, and lag by log."""
    title = "Octopi: rates"
    counts: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    sizes: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in found:
        name = one.topic if one.key is None else f"{one.topic} {one.key}"
        counts[name][one.begin] += one.count
        sizes[name][one.begin] += one.size_bytes
    lag = "".join(
        f"<tr><td>{html.escape(log)}</td><td>{size:,}</td></tr>" for log, size in behind.items()
    )
    return (
        "<!doctype html><meta charset='utf-8'>"
        # Topics and keys are strangers': should one ever pass for markup, no script of it runs.
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; "
        "style-src 'unsafe-inline'\">"
        f"<title>{title}</title>"
        "<style>body{font:14px sans-serif;margin:2em}td{padding:0 1em 0 0}</style>"
        f"<h1>{title}</h1><h2>Messages</h2>{_chart(counts)}<h2>Bytes of values</h2>{_chart(sizes)}"
        f"<h2>Bytes behind</h2><table>{lag or '<tr><td>read once, to the end</td></tr>'}</table>"
        f"<script type='application/json'>{_data(found)}</script>"
    )


def _data(found: list[Rate]) -> str:
    return json.dumps([attrs.asdict(one) for one in found]).replace("<", "\\u003c")


def _chart(series: Mapping[str, Mapping[str, int]]) -> str:
    """Lines over time, as SVG."""
    windows = sorted({begin for points in series.values() for begin in points})
    if not windows:
        return "<p>There is nothing to show.</p>"
    most = max(value for points in series.values() for value in points.values()) or 1
    step = (_WIDTH - 2 * _MARGIN) / max(1, len(windows) - 1)
    height = _HEIGHT - 2 * _MARGIN
    lines: list[str] = []
    # The largest first: with many keys the rest would hide them.
    ordered = sorted(series, key=lambda name: -sum(series[name].values()))[: len(_COLOURS)]
    for number, name in enumerate(ordered):
        shares = [series[name].get(begin, 0) / most for begin in windows]
        points = " ".join(
            f"{_MARGIN + at * step:.1f},{_HEIGHT - _MARGIN - share * height:.1f}"
            for at, share in enumerate(shares)
        )
        colour = _COLOURS[number]
        lines.append(
            f"<polyline fill='none' stroke='{colour}' stroke-width='2' points='{points}'/>"
            f"<text x='{_WIDTH + 8}' y='{_MARGIN + 18 * number}' fill='{colour}'>"
            f"{html.escape(name)}</text>"
        )
    axis = _HEIGHT - _MARGIN
    return (
        f"<svg viewBox='0 0 {_WIDTH + 240} {_HEIGHT}' width='{_WIDTH + 240}'>"
        f"<line x1='{_MARGIN}' y1='{axis}' x2='{_WIDTH - _MARGIN}' y2='{axis}' stroke='#888'/>"
        f"<text x='{_MARGIN}' y='{_MARGIN - 8}'>{most:,}</text>"
        f"<text x='{_MARGIN}' y='{axis + 20}'>{windows[0]}</text>"
        f"<text x='{_WIDTH - _MARGIN}' y='{axis + 20}' text-anchor='end'>{windows[-1]}</text>"
        f"{''.join(lines)}</svg>"
    )
