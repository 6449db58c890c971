"""Counts the messages of topics by time and key, and shows how far the reader is behind.

Messages are counted in windows, by their own time stamps.  The page with a chart of the counts
needs only a browser.
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
    """What a rates job counts."""

    source: Mapping[str, str]
    """Options of the source: ``server``, ``subscribe``, ..."""
    window: str = "1 minute"
    """The length of a window, as Spark writes it."""
    by_key: bool = False
    """Whether to count each key, as text, separately."""


@attrs.frozen
class Rate:
    """The counts in one window, of one topic (and key)."""

    begin: str
    """The start of the window, in the form of ISO 8601."""
    topic: str
    key: str | None
    count: int
    size_bytes: int
    """The size of all values."""


def rates(spark: SparkSession, options: RatesOptions) -> list[Rate]:
    """Count all messages that there are now.

    Raises:
      AnalysisException, PythonException: if the source raises an error, which Spark wraps so.
    """
    frame = spark.read.format("octopi").options(**options.source).load()
    return _collected(_counted(frame, options))


def start_rates(spark: SparkSession, options: RatesOptions, checkpoint: Path) -> StreamingQuery:
    """Count continuously; `current_rates` returns the counts so far."""
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
    """The counts so far of a stream that `start_rates` has started."""
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
        # Topics and keys come from others: if one ever passed as markup, no script of it would run.
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
    # Only the largest ones are shown, since many keys would hide them.
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
