"""`octopi-node salvage`: list, print and put back bytes that brokers took out of logs."""

from __future__ import annotations

import sys

import attrs
import click

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import common_options, json_option
from octopi.cli.output import print_json, say
from octopi.cli.rendering import counted, size


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False), metavar="DIR")
@click.option("--print", "prints", metavar="PATH", help="Print the values of this file's messages.")
@click.option("--put-back", "path", metavar="PATH", help="Put this file back behind its log's end.")
@click.option("--dry-run", is_flag=True, help="Print what --put-back would do, and change nothing.")
@json_option
@common_options
def salvage(
    directory: str, prints: str | None, path: str | None, dry_run: bool, as_json: bool
) -> int:
    """List the bytes that a broker took out of the logs in DIR; print them, or put them back.

    DIR is the data directory of a stopped broker.  A broker keeps whatever it takes out of a log in
    a file beside it: a torn tail, bytes behind damage, and records whose loss was accepted.  The
    file stays until retention removes the records of the log at that offset.  DIR may also be the
    folder of a retired replica, even while its broker runs; then all segments of its logs are
    listed.

    \b
    For instance:
      octopi-node salvage ./broker-1
      octopi-node salvage ./broker-1 --print PATH > lost && octopi-node produce orders -f lost
      octopi-node salvage ./broker-1 --put-back PATH --dry-run

    --print prints the value of each valid message on a line, also of those behind damaged ones.
    PATH is a file, or the folder of a log for all its segments.  With --json it prints key, time
    stamp and headers, too.  Check which messages the topic already has before you produce them
    again.

    --put-back works for a partition with one replica, while its log ends exactly where the file
    begins.  With several replicas the other ones decide what is committed: print the messages, and
    produce those that are missing.
    """
    from octopi.cli import message_format
    from octopi.cli.data_directory import held
    from octopi.cli.retired_replicas import find_retired
    from octopi.cli.salvaging import Kept, find_kept, messages_in, put_back, segments_of
    from octopi.operating_system import SystemDisk

    disk = SystemDisk()

    def named(wanted: str) -> list[Kept]:
        """The file at path *wanted*, or the segments in that folder."""
        inside = f"{wanted.rstrip('/')}/"
        chosen = [
            one
            for one in found
            if one.path == wanted or (one.path.startswith(inside) and one.path.endswith(".log"))
        ]
        if not chosen and prints is not None:
            chosen = segments_of(disk, directory, wanted)
        if not chosen:
            raise CommandError(
                f"{wanted} is not a salvaged file; `octopi-node salvage {directory}` lists them",
                ExitCode.USAGE,
            )
        return chosen

    with held(disk, directory):
        found = find_kept(disk, directory)
        if prints is not None:
            watched = sys.stdout.isatty()
            form = message_format.compile_format(r"%v\n", for_terminal=watched)
            if as_json:
                form = message_format.as_json
            output = sys.stdout.buffer
            for one in named(prints):
                for message in messages_in(disk, one):
                    output.write(form(message))
            output.flush()
            return ExitCode.OK
        if path is not None:
            kept = named(path)[0]
            if not kept.fits:
                raise CommandError(
                    f"{path} can't be put back: its log does not end at offset {kept.offset}, the "
                    "file is damaged, or other brokers have replicas of the partition; print "
                    f"its messages with --print {path}, and produce those that are missing"
                )
            what = f"{counted(kept.messages, 'message')} from offset {kept.offset} on"
            if not dry_run:
                put_back(disk, kept)
            say(f"{'would put' if dry_run else 'put'} back {what}")
            return ExitCode.OK
    if as_json:
        print_json([attrs.asdict(one) for one in found])
        return ExitCode.OK
    for one in found:
        damage = f", {counted(one.damaged_places, 'damaged place')}" * bool(one.damaged_places)
        say(
            f"{one.path}: {one.topic}/{one.partition} from offset {one.offset}, "
            f"{size(one.size_bytes)}: {counted(one.messages, 'message')}{damage}"
            f"{'; --put-back is possible' * one.fits}"
        )
    say(f"{counted(len(found), 'file')} kept")
    if retired := find_retired(disk, directory):
        say(f"{counted(len(retired), 'retired replica')}: `octopi-node retired list {directory}`")
    return ExitCode.OK
