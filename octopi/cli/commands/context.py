"""`octopi-node context`: named clusters, so that commands need no addresses and files."""

from __future__ import annotations

import os

import attrs
import click

from octopi.cli.contexts import (
    Context,
    Contexts,
    changing,
    check_context,
    context_file,
    read_contexts,
    write_contexts,
)
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import common_options, json_option
from octopi.cli.output import print_json, say
from octopi.cli.rendering import print_table


@click.group()
def context() -> None:
    """Name clusters, and say which one commands connect to.

    A context has the addresses of a cluster's nodes, the file with a token for them, and the
    authority to trust.  Contexts are in octopi/contexts.toml of $XDG_CONFIG_HOME, or of ~/.config;
    other users can't read that file.
    """


@context.command()
@click.argument("name")
@click.option("--server", required=True, metavar="URL[,URL]", help="Addresses of nodes.")
@click.option("--token-file", default="", metavar="FILE", help="File with the token to show.")
@click.option("--tls-ca", default="", metavar="FILE", help="Authority to trust for wss://.")
@click.option("--replace", is_flag=True, help="Replace a context with that name.")
@common_options
def add(name: str, server: str, token_file: str, tls_ca: str, replace: bool) -> None:
    """Add the context NAME.

    \b
    For instance:
      octopi-node context add prod --server wss://a.example:7000,wss://b.example:7000 \\
        --token-file ~/prod.token --tls-ca ~/prod-ca.pem
      octopi-node context use prod

    The token itself is not stored: the file is read when a command connects.
    """
    from octopi.transport.addresses import server_address

    for address in server.split(","):
        server_address(address.strip())
    new = Context(server, _absolute(token_file), _absolute(tls_ca))
    check_context(name, new)
    file = context_file(os.environ)
    with changing(file):
        found = read_contexts(file)
        if name in found.contexts and not replace:
            raise CommandError(
                f"there is a context {name}: give another name, or --replace", ExitCode.USAGE
            )
        write_contexts(file, Contexts({**found.contexts, name: new}, found.current))
    if found.current != name:
        say(f"added {name}; commands use it after `octopi-node context use {name}`", err=True)
    else:
        say(f"replaced {name}, which is in use", err=True)


def _absolute(path: str) -> str:
    """A path that means the same in every directory."""
    return os.path.abspath(path) if path else ""


@context.command()
@click.argument("name", required=False)
@click.option("--none", "no_context", is_flag=True, help="Use no context.")
@common_options
def use(name: str | None, no_context: bool) -> None:
    """Have commands connect to the cluster NAME from now on.

    \b
    For instance:
      octopi-node context use prod && octopi-node status
      octopi-node --context staging status
      octopi-node context use --none

    --context and OCTOPI_CONTEXT choose another one for a command.  --server, OCTOPI_SERVER and the
    server of ./octopi.toml count more than the context in use; its token is then not sent, either.
    """
    if (name is None) != no_context:
        raise CommandError("give the name of a context, or --none", ExitCode.USAGE)
    file = context_file(os.environ)
    with changing(file):
        found = read_contexts(file)
        if name is not None:
            found.get(name)
        write_contexts(file, Contexts(found.contexts, name or ""))
    say(f"commands use {name}" if name else "commands use no context", err=True)


@context.command("list")
@json_option
@common_options
def list_contexts(as_json: bool) -> None:
    """Print the contexts; the one in use has a star.

    \b
    For instance:
      octopi-node context list
    """
    found = read_contexts(context_file(os.environ))
    in_order = sorted(found.contexts.items())
    if as_json:
        print_json(
            [
                {"name": name, "in_use": name == found.current, **attrs.asdict(one)}
                for name, one in in_order
            ]
        )
        return
    print_table(
        ["USED", "NAME", "SERVER", "TOKEN FILE", "CA"],
        [
            ["*" if name == found.current else "", name, one.server, one.token_file, one.tls_ca]
            for name, one in in_order
        ],
    )


@context.command()
@click.argument("name")
@common_options
def remove(name: str) -> None:
    """Remove the context NAME; the files that it names stay.

    \b
    For instance:
      octopi-node context remove staging
    """
    file = context_file(os.environ)
    with changing(file):
        found = read_contexts(file)
        found.get(name)
        rest = {key: one for key, one in found.contexts.items() if key != name}
        write_contexts(file, Contexts(rest, "" if found.current == name else found.current))
    say(
        f"removed {name}" + ("; commands use no context now" if found.current == name else ""),
        err=True,
    )
