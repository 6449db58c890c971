"""Makes a page of plots from the results of a run: ``python -m benchmarks.report FILE``.

The page is one file and needs no network.  A run writes it, too, when it
ends; while a run goes on, this shows what it has so far.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import results
from benchmarks.page import write_page
from benchmarks.table import table


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", type=Path, metavar="FILE", help="what a run wrote as JSON")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path(__file__).with_name("report.html"),
        metavar="FILE",
        help="where to write the page (benchmarks/report.html)",
    )
    parser.add_argument("--table", action="store_true", help="also print the table of the run")
    arguments = parser.parse_args()
    try:
        run = results.load(arguments.results)
        write_page(run, arguments.output)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.table:
        print(table(run))
    print(f"the page: {arguments.output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
