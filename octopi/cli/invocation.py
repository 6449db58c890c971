"""The common part of every command: --config, --debug, and errors reported as one line and a code.

`OctopiGroup` handles all exceptions.  It also accepts the flag form of running a node:
``octopi-node --role broker`` is ``octopi-node serve --role broker``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn, TypeVar

import attrs
import click

from octopi.cli.config import ClientSettings, Configuration, NodeSettings, help_text
from octopi.cli.failures import PROGRAM, CommandError, ExitCode, did_you_mean, explain
from octopi.cli.output import print_exception, say, say_lines
from octopi.cli.search import FaultSearch, FindSearch

_F = TypeVar("_F", bound=Callable[..., Any])

_SHOWN: Final = ("token_file", "tls_ca", "join_secret", "name")
"""Settings with which a command identifies itself to nodes, and decides which nodes to trust."""

_FLAG_FORM: Final = "serve"


def _no_search() -> FaultSearch | None:
    return None


@attrs.define
class Invocation:
    """One run of the program, shared by a command and its groups."""

    debug: bool = False
    config_file: Path | None = None
    token_file: str | None = None
    tls_ca: str | None = None
    join_secret: str | None = None
    name: str | None = None
    context: str | None = None
    find_search: FindSearch = _no_search
    """Set by the program."""

    def configuration(self) -> Configuration:
        """The settings without this command's flags.

        Raises:
          SettingsError: if the file or a variable is wrong.
        """
        configuration = Configuration(self.config_file, os.environ, self.context)
        for key in _SHOWN:
            value = getattr(self, key)
            if value is not None:
                configuration.override("client", key, value, f"--{key.replace('_', '-')}")
        return configuration

    def search(self) -> FaultSearch:
        """The search for faults.

        Raises:
          CommandError: if this program has none, or Python finds another package under its name.
        """
        search = self.find_search()
        if search is None:
            raise CommandError(
                "the search for faults comes with the source, and this is an installation "
                "without it: run `python -m sim` in a checkout of octopi-node",
                ExitCode.USAGE,
            )
        return search


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


def _remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value:
        invocation = context.ensure_object(Invocation)
        setattr(invocation, str(parameter.name), value)


def common_options(function: _F) -> _F:
    """Add the options of every command; they may be given before or after the command's name."""
    config = click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False),
        expose_value=False,
        callback=_remember,
        metavar="FILE",
        help="Settings in TOML.  [./octopi.toml, if it is there]",
    )
    debug = click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Print the traceback of an error.",
    )
    return config(debug(function))


def client_options(function: _F) -> _F:
    """Add the options of every command that connects to a cluster."""
    server = click.option("--server", metavar="URL[,URL]", help=help_text(ClientSettings, "server"))
    timeout = click.option(
        "--timeout",
        "timeout_s",
        type=float,
        metavar="SECONDS",
        help=help_text(ClientSettings, "timeout_s"),
    )
    secret = _shown_option("join_secret")
    return context_option(access_options(server(timeout(secret(common_options(function))))))


def context_option(function: _F) -> _F:
    """Add ``--context``."""
    return click.option(
        "--context",
        metavar="NAME",
        expose_value=False,
        callback=_remember,
        help="Connect to this cluster of `octopi-node context list`.  [OCTOPI_CONTEXT]",
    )(function)


def access_options(function: _F) -> _F:
    """Add the options with which a command authenticates itself to nodes."""
    for key in ("tls_ca", "token_file"):
        function = _shown_option(key)(function)
    return function


def _shown_option(key: str, metavar: str = "FILE") -> Callable[[_F], _F]:
    return click.option(
        f"--{key.replace('_', '-')}",
        key,
        metavar=metavar,
        expose_value=False,
        callback=_remember,
        help=help_text(ClientSettings, key),
    )


_NODE_FLAGS: Final = {
    "tls_cert": "FILE",
    "tls_key": "FILE",
    "tls_ca": "FILE",
    "join_secret": "FILE",
    "auth_keys": "FILE",
    "token_file": "FILE",
    "token_connections": None,
    "token_bytes_per_s": None,
    "token_topics": None,
    "token_stored_bytes": None,
    "token_readings": None,
    "memory_budget": "BYTES",
    "metrics_listen": "HOST:PORT",
    "trace": "FILE|DIR",
}


def node_options(function: _F) -> _F:
    """Add the options of a node's security, metrics and trace."""
    kinds = {
        "token_connections": int,
        "token_bytes_per_s": float,
        "token_topics": int,
        "token_stored_bytes": int,
        "token_readings": int,
        "memory_budget": int,
    }
    for key, metavar in reversed(_NODE_FLAGS.items()):
        function = click.option(
            f"--{key.replace('_', '-')}",
            key,
            type=kinds.get(key),
            metavar=metavar,
            help=help_text(NodeSettings, key),
        )(function)
    function = click.option(
        "--history/--no-history",
        default=None,
        help="Write the cluster's history to the topics _octopi.events and _octopi.rates.  "
        "[OCTOPI_HISTORY; default --history]",
    )(function)
    meaning = "Listen to the network without asking for tokens.  [OCTOPI_INSECURE]"
    function = allow_origin_option(function)
    return click.option("--insecure", is_flag=True, default=None, help=meaning)(function)


def allow_origin_option(function: _F) -> _F:
    """Add ``--allow-origin``, which may come several times; commands get one text, or None."""
    meaning = help_text(NodeSettings, "allow_origin")
    return click.option(
        "--allow-origin",
        "allow_origin",
        multiple=True,
        callback=_joined,
        metavar="ORIGIN[,...]",
        help=f"{meaning}  May be given several times.",
    )(function)


def registers_option(function: _F) -> _F:
    """Add ``--registers``; commands get a number, of which a majority is enough."""
    return click.option(
        "--registers",
        type=click.Choice(["1", "3", "5"]),
        default="1",
        show_default=True,
        callback=lambda context, parameter, value: int(value),
        help="How many registers keep the journal together.",
    )(function)


def _joined(context: click.Context, parameter: click.Parameter, value: Sequence[str]) -> str | None:
    return ",".join(value) if value else None


def taken(cls: type, flags: dict[str, object]) -> dict[str, object]:
    """Remove the flags of the settings *cls* from *flags*, and return them."""
    return {key: flags.pop(key) for key in attrs.fields_dict(cls) if key in flags}


def retry_option(function: _F) -> _F:
    """Add the options of every command that produces or consumes."""
    return click.option(
        "--retry",
        "retry_s",
        type=float,
        metavar="SECONDS",
        help=help_text(ClientSettings, "retry_s"),
    )(function)


def name_option(function: _F) -> _F:
    """Add ``--name``, for commands that may run for long."""
    return _shown_option("name", "NAME")(function)


def json_option(function: _F) -> _F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def python_name(command: str) -> str:
    """The name that *command* has in Python, where it is a function in a module."""
    name = command.replace("-", "_")
    return f"{name}_" if iskeyword(name) else name


class LazyGroup(click.Group):
    """Commands that are imported when they are used."""

    places: ClassVar[Mapping[str, str]] = {}
    """The module of each command; the command has the same name there."""
    sections: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Headings of the help, each with its commands; empty: the help has one list."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.places:
            return None
        command = getattr(import_module(self.places[cmd_name]), python_name(cmd_name))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.sections:
            super().format_commands(ctx, formatter)
            return
        limit = formatter.width - 6 - max(len(name) for name in self.places)
        for heading, names in self.sections.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(heading):
                formatter.write_dl(
                    [(name, one.get_short_help_str(limit)) for name, one in commands if one]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            known = self.list_commands(ctx)
            ctx.fail(f"There is no command {name}{did_you_mean(name, known)}")
        return super().resolve_command(ctx, args)


class OctopiGroup(LazyGroup):
    """The program: finds the command, runs it, and reports how it ended."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if _is_flag_form(args):
            args = [_FLAG_FORM, *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            result: object = super().invoke(ctx)
            # Here and not at the interpreter's end, so that a closed pipe is noticed.
            sys.stdout.flush()
        except BrokenPipeError:
            _forget_stdout()
            return ExitCode.OK
        return result

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: object,
    ) -> NoReturn:
        """Run the program with *args* (None: those of the process), and exit with its code."""
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            result = super().main(arguments, PROGRAM, complete_var, False, **extra)
            code = result if isinstance(result, int) else ExitCode.OK
        except click.exceptions.Exit as done:
            code = done.exit_code
        except click.Abort:
            say(f"{PROGRAM}: interrupted", err=True)
            code = ExitCode.INTERRUPTED
        except click.exceptions.NoArgsIsHelpError as error:
            say_lines(error.format_message(), err=True)
            code = ExitCode.USAGE
        except click.ClickException as error:
            say(_usage_line(error), err=True)
            code = ExitCode.USAGE
        except SystemExit:
            raise
        except BaseException as error:
            if "--debug" in arguments:
                print_exception(error)
            explanation = explain(error)
            say(f"{PROGRAM}: {explanation.line}", err=True)
            code = explanation.code
        sys.exit(int(code))


def _is_flag_form(args: Sequence[str]) -> bool:
    """Whether *args* name no command but have an option of `serve`."""
    rest = iter(args)
    for argument in rest:
        if argument in {"--help", "-h", "--version"}:
            return False
        if argument in {"--config", "--context"}:
            next(rest, None)
        elif argument != "--debug" and not argument.startswith(("--config=", "--context=")):
            return argument.startswith("-")
    return bool(args) and "--config" in args[0]


def _usage_line(error: click.ClickException) -> str:
    message = error.format_message().replace("\n", " ")
    context = getattr(error, "ctx", None)
    if context is None:
        return f"{PROGRAM}: {message}"
    return f"{context.command_path}: {message} (see {context.command_path} --help)"


def _forget_stdout() -> None:
    """The program that read the output has ended: drop what is still buffered."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
