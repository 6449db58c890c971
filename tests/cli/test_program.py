"""The program as a whole: help, the flag form, usage errors, what importing costs."""

import subprocess
import sys

import click
import pytest

from octopi.cli.failures import EXIT_CODES
from octopi.cli.invocation import Invocation
from octopi.cli.main import cli
from octopi_node import find_search
from tests.cli.conftest import Program

COMMANDS = [
    "serve",
    "dev",
    "demo",
    "produce",
    "consume",
    "export",
    "import",
    "backup",
    "restore",
    "topics",
    "brokers",
    "partitions",
    "status",
    "verify",
    "pipeline",
    "sim",
    "token",
    "tls",
    "config",
    "completion",
]


def test_help_names_every_command_and_every_exit_code(program: Program) -> None:
    result = program("--help")
    assert result.exit_code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in result.stdout
    for code, meaning in EXIT_CODES.items():
        assert f"{int(code):>3}  {meaning}" in result.stdout


def test_help_groups_commands_by_their_purpose(program: Program) -> None:
    page = program("--help").stdout
    headings = ("\nTry it:\n", "\nMessages:\n", "\nRun a cluster:\n", "\nThis program:\n")
    places = [page.index(heading) for heading in headings]
    assert places == sorted(places)
    assert page.index("\n  produce ") > page.index("\nMessages:\n") > page.index("\n  demo ")
    assert "\nCommands:\n" not in page


def test_what_only_developers_of_octopi_need_stands_apart(program: Program) -> None:
    page = program("--help").stdout
    assert page.index("\n  sim ") > page.index("\nFor developers of Octopi:\n")
    assert "mutants" not in page
    first, _, second = program("sim", "--help").stdout.partition("\nFor developers of Octopi:\n")
    assert "\n  run " in first
    assert "\n  mutants " in second


def all_commands(group: click.Group, *names: str) -> list[tuple[str, ...]]:
    context = click.Context(group, obj=Invocation(find_search=find_search))
    found: list[tuple[str, ...]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            found += all_commands(command, *names, name)
        else:
            found.append((*names, name))
    return found


@pytest.mark.parametrize("names", all_commands(cli), ids=" ".join)
def test_the_help_of_a_command_teaches_with_an_example(
    program: Program, names: tuple[str, ...]
) -> None:
    result = program(*names, "--help")
    assert result.exit_code == 0
    text = result.stdout.split("Options:")[0].split("\n", 1)[1]
    assert f" octopi-node {' '.join(names)}" in text.replace(
        "octopi-node --role", "octopi-node serve"
    )
    assert "--debug" in result.stdout or names == ("completion",)


def test_the_version_is_the_distributions_and_says_what_handles_records(program: Program) -> None:
    from importlib.metadata import version

    from octopi.kernels import description

    said = program("--version").stdout
    assert said == f"octopi-node {version('octopi-node')} ({description()})\n"


def test_without_arguments_the_help_is_shown_as_a_usage_error(program: Program) -> None:
    result = program()
    assert result.exit_code == 2
    assert "Usage: octopi-node" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--role", "nonsense"],
        ["--role=nonsense"],
        ["--config", "octopi.toml", "--role", "nonsense"],
        ["--config=octopi.toml", "--role", "nonsense"],
        ["--debug", "--role", "nonsense"],
        ["--listen", "demo", "--role", "nonsense"],
    ],
    ids=" ".join,
)
def test_flags_without_a_command_run_serve(program: Program, arguments: list[str]) -> None:
    result = program(*arguments)
    assert result.exit_code == 2
    assert "octopi-node serve: Invalid value for '--role'" in result.stderr


def test_common_options_may_stand_before_the_command(program: Program) -> None:
    result = program("--config", "nowhere.toml", "config", "show")
    assert result.exit_code == 2
    assert "nowhere.toml" in result.stderr


def test_a_usage_error_is_one_line_that_names_the_help(program: Program) -> None:
    result = program("consume", "orders", "--offst", "x")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "Did you mean '--offset'?" in result.stderr
    assert "octopi-node consume --help" in result.stderr


def test_an_unknown_command_is_answered_with_the_nearest(program: Program) -> None:
    result = program("prodcue")
    assert result.exit_code == 2
    assert "There is no command prodcue; did you mean produce?" in result.stderr


@pytest.mark.parametrize("command", [[], ["topics", "list"], ["produce"], ["serve"]])
def test_help_imports_no_slow_module(command: list[str]) -> None:
    dear = ["trio", "trio_websocket", "rich", "cbor2", "cattrs", "tomllib", "hmac", "difflib"]
    code = (
        "import sys; from octopi.cli.main import cli\n"
        f"try: cli.main([*{command}, '--help'])\n"
        "except SystemExit: pass\n"
        f"print([name for name in {dear} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert "Usage: " in done.stdout


def test_a_command_that_asks_imports_neither_producers_nor_consumers() -> None:
    dear = [
        "octopi.clients.consuming.consumer",
        "octopi.clients.producing",
        "octopi.clients.subscribing.opening",
        "octopi.tracing",
        "octopi.roles",
        "rich",
        "jwt",
        "cryptography",
        "asyncio",
        "prometheus_client",
        *["cattrs", "tomllib"],  # there is no file of settings
    ]
    code = (
        "import sys\n"
        "import octopi.cli.commands.topics, octopi.cli.client_request, octopi.cli.topic_list\n"
        "import octopi.clients.client, octopi.admin.cluster_snapshot\n"
        f"print([name for name in {dear} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_short_command_collects_no_garbage_and_frees_no_module_at_its_end() -> None:
    code = (
        "import atexit, gc, sys, octopi_node\n"
        "def collections(): return sum(one['collections'] for one in gc.get_stats())\n"
        "before = collections()\n"
        "def at_the_end(): print(collections() - before, gc.get_freeze_count() > 10_000)\n"
        "atexit.register(at_the_end)\n"
        "sys.argv = ['octopi-node', '--version']\n"
        "octopi_node.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 True"


@pytest.mark.parametrize(("role", "other"), [("broker", "register"), ("register", "broker")])
def test_a_node_imports_nothing_that_only_others_need(role: str, other: str) -> None:
    dear = ["asyncio", "rich", "pygments", "jwt", "cryptography", "numpy", "octopi.testing"]
    dear += ["prometheus_client", f"octopi.roles.{other}"]
    code = (
        f"import sys, octopi.cli.node_log, octopi.cli.{role}_nodes\n"
        f"print([name for name in {dear} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(program: Program, shell: str) -> None:
    result = program("completion", shell)
    assert result.exit_code == 0
    assert "_OCTOPI_NODE_COMPLETE" in result.stdout


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("octopi-node pro", "produce"),
        ("octopi-node serve --role reg", "register"),
        ("octopi-node --role reg", "register"),
        ("octopi-node topics cr", "create"),
    ],
)
def test_completion_finds_commands_and_values(line: str, wanted: str) -> None:
    words = line.split()
    done = subprocess.run(
        [sys.executable, "-m", "octopi_node"],
        env={
            "_OCTOPI_NODE_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"plain,{wanted}" in done.stdout.splitlines()


def test_reading_only_the_beginning_of_the_output_is_no_error() -> None:
    command = [sys.executable, "-m", "octopi_node", "config", "show"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
