"""`octopi-node verify`: check the data directory of a stopped node for damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs
import click

from octopi.cli.failures import ExitCode
from octopi.cli.invocation import common_options, json_option
from octopi.cli.output import is_watched, print_json, progress, say
from octopi.cli.rendering import counted, size

if TYPE_CHECKING:
    from octopi.storage.verification import Finding


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False), metavar="DIR")
@json_option
@common_options
def verify(directory: str, as_json: bool) -> int:
    """Check the checksum of every stored record, and the files that belong to the logs.

    DIR is the data directory of a broker or a register, or the folder of a single log.  The node
    has to be stopped.  Nothing is changed.

    \b
    For instance:
      octopi-node verify ./broker-1

    Every finding names file, byte and offset, and is of one of these kinds.

    `damage`: bytes that were noted as flushed are gone, or differ from what was written; the exit
    code is 5.  `torn tail`: an unclean stop left an unfinished write, whose records were not yet
    flushed; the next start cuts it off.  `index`: an index does not fit its log; the node rebuilds
    it.  `set aside`: the node took these bytes out of a log and keeps them; `octopi-node salvage`
    prints them.  `retired`: a replica that the broker no longer has, but keeps for a while;
    `octopi-node retired` lists and removes them.  DIR may be the folder of a retired replica, even
    while the broker runs.
    """
    from octopi.cli.data_directory import held, look_into
    from octopi.cli.retired_replicas import find_retired
    from octopi.identifiers import Offset
    from octopi.operating_system import SystemDisk
    from octopi.storage.verification import Finding, Kind, VerificationProgress, verify_log

    disk = SystemDisk()
    findings: list[Finding] = []
    with held(disk, directory):
        found = look_into(disk, directory)
        for path, why in found.damaged_files:
            findings.append(Finding(Kind.DAMAGE, path, 0, Offset(0), why))
        total_bytes = sum(log.segment_bytes for log in found.logs)
        done_bytes = 0
        with _progress(total_bytes) as show:
            for path in found.kept:
                what = (
                    "bytes that were taken out of a log are kept; `octopi-node salvage` prints them"
                )
                findings.append(Finding(Kind.SET_ASIDE, path, 0, Offset(0), what))
            for gone in find_retired(disk, directory):
                what = (
                    f"a replica of partition {gone.partition}, retired in epoch {gone.epoch}, "
                    f"{size(gone.size_bytes)}; `octopi-node retired` lists and removes it"
                )
                findings.append(Finding(Kind.RETIRED, gone.path, 0, Offset(0), what))
            for log in found.logs:
                for seen in verify_log(disk, log.directory, log.recovery_point):
                    if isinstance(seen, VerificationProgress):
                        show(done_bytes + seen.checked_bytes)
                    else:
                        findings.append(seen)
                done_bytes += log.segment_bytes
    damages = sum(finding.kind is Kind.DAMAGE for finding in findings)
    if as_json:
        print_json(
            {
                "logs": len(found.logs),
                "bytes": total_bytes,
                "damages": damages,
                "findings": [attrs.asdict(finding) for finding in findings],
            }
        )
    else:
        for one in findings:
            place = f"{one.path}: byte {one.position_bytes}, offset {one.offset}"
            say(f"{one.kind}: {place}: {one.what}")
        verdict = counted(damages, "damaged place") if damages else "no damage"
        say(f"checked {counted(len(found.logs), 'log')}, {size(total_bytes)}: {verdict}")
    return ExitCode.DATA_FAULT if damages else ExitCode.OK


@contextmanager
def _progress(total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show the number of checked bytes on standard error, if that is a terminal."""
    if not is_watched():
        yield lambda done_bytes: None
        return
    from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn

    with progress(BarColumn(), DownloadColumn(), TransferSpeedColumn()) as display:
        task = display.add_task("checking", total=total_bytes)

        def show(done_bytes: int) -> None:
            display.update(task, completed=done_bytes)

        yield show
