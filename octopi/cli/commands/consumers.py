"""`octopi-node consumers`: the programs that read now, and how far they are behind."""

from __future__ import annotations

import click

from octopi.cli.config import ClientSettings
from octopi.cli.invocation import Invocation, client_options, json_option, pass_invocation
from octopi.cli.output import print_json
from octopi.cli.rendering import print_table, size
from octopi.cli.topic_completion import complete_topics


@click.command()
@click.argument("topic", required=False, shell_complete=complete_topics)
@json_option
@client_options
@pass_invocation
def consumers(
    invocation: Invocation,
    /,
    topic: str | None,
    as_json: bool,
    server: str | None,
    timeout_s: float | None,
) -> None:
    """Print the programs that read TOPIC, or any topic, now; the farthest behind first.

    \b
    For instance:
      octopi-node consumers orders
      octopi-node consumers --json | jq '.[] | select(.lag_bytes > 1000000) | .name'

    There is a line for each log that a program reads.  NAME is what the program calls its
    connections.  TO SEND is what is committed and was not sent to the program.  LAG is what is
    committed and the program has not dealt with: also what lies in its buffers, and the message
    that it works on.  LAG is `unknown` for a program whose client does not report it.
    """
    settings = invocation.configuration().section(
        ClientSettings, server=server, timeout_s=timeout_s
    )

    from octopi.admin.cluster_pages import consumer_entry
    from octopi.cli.client_request import ask

    found = ask(settings, lambda client: client.admin.describe_readings(topic))
    if as_json:
        print_json([consumer_entry(one.broker, one.reading) for one in found])
        return
    print_table(
        ["NAME", "PROGRAM", "ADDRESS", "BROKER", "TOPIC", "PARTITION", "TO SEND", "LAG"],
        [
            [
                one.name,
                one.agent,
                one.peer,
                broker,
                one.topic,
                one.partition,
                size(one.sent_lag_bytes),
                "unknown" if one.lag_bytes is None else size(one.lag_bytes),
            ]
            for broker, one in ((at.broker, at.reading) for at in found)
        ],
    )
