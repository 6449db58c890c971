"""A newcomer, who types the blocks of a page from top to bottom, as they are printed.

Only the ports are others, so that pages can be typed side by side: all that begin with 70 in a
page become ports that are free now.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from octopi.cli.node_processes import node_environment
from tests.tour.blocks import ROOT, Block
from tests.tour.shell import BLOCK_TIMEOUT_S, Shell, Terminal

if TYPE_CHECKING:
    from playwright.sync_api import Page

_LOG = logging.getLogger(__name__)
_PORT = re.compile(r"\b70(?=\d(?:\d\b|\$))")
_HUNDREDS: Final = range(100, 320)
"""Below the ports that systems give to outgoing connections."""
_FROM_THE_CHECKOUT = ("Makefile", "pyproject.toml", "requirements", ".venv")
"""What a reader who types in a checkout has there."""


class Newcomer:
    """Types blocks in *directory*."""

    def __init__(self, directory: Path, open_page: Callable[[], Page]) -> None:
        """*open_page* opens an empty page in a browser, for scripts of pages."""
        self._directory = directory
        self._open_page = open_page
        self._hundred = _free_hundred()
        self._closed = ExitStack()
        self._environment = self._set_up()
        self._shell = Shell(directory, self._environment)
        self._closed.callback(self._shell.close)
        self._terminals: list[Terminal] = []
        self._page: Page | None = None
        self._console: list[str] = []

    def __enter__(self) -> Newcomer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._closed.close()

    def _set_up(self) -> dict[str, str]:
        """Make the directory like a checkout, and give the environment of all that is typed."""
        for name in _FROM_THE_CHECKOUT:
            if (ROOT / name).exists():
                (self._directory / name).symlink_to(ROOT / name)
        programs = self._directory / "bin"
        programs.mkdir()
        for name, arguments in (("octopi-node", " -m octopi_node"), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable}{arguments} "$@"\n')
            program.chmod(0o755)
        # An answer with an error is a failure.
        (self._directory / ".curlrc").write_text("silent\nshow-error\nfail-with-body\n")
        here = f"127.0.0.1:{self._ports('7000')}"
        return {
            **node_environment(),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CURL_HOME": str(self._directory),
            "MAKEFLAGS": "n",  # `make venv` is there already
            "OCTOPI_LISTEN": here,
            "OCTOPI_SERVER": f"ws://{here}",
            "TMPDIR": str(self._directory),
        }

    def _ports(self, text: str) -> str:
        return _PORT.sub(str(self._hundred), text)

    def do(self, block: Block) -> None:
        """Type *block*, and compare what it prints with what the page promises.

        Raises:
          AssertionError: it failed, or printed something else.
        """
        _LOG.info("%s: %s", block.place, block.text.partition("\n")[0])
        if block.after_ctrl_c:
            for terminal in self._terminals:
                terminal.interrupt()
            self._terminals.clear()
        text = self._ports(block.text)
        match block.language:
            case "sh" if block.keeps_running:
                output = self.keep_running(text)
            case "sh":
                output = self._shell.type(text, block.place)
            case "python":
                output = self._run_program(text, block.place)
            case "js":
                output = self._run_in_page(text)
            case other:
                raise AssertionError(f"{block.place}: {other!r} can't be run: say why not")
        block.check_output(output.replace(f":{self._hundred}", ":70"))

    def keep_running(self, text: str) -> str:
        """Type *text* in a terminal of its own, and return what it printed until a node was
        ready."""
        terminal = Terminal(self._directory, self._environment, text, f":{self._ports('7000')}\n")
        self._closed.callback(terminal.close)
        self._terminals.append(terminal)
        return terminal.output

    def _run_program(self, text: str, place: str) -> str:
        program = self._directory / "program.py"
        program.write_text(text)
        done = subprocess.run(
            ["python", program.name],
            executable=str(self._directory / "bin/python"),
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{place}:\n{done.stdout}\n{done.stderr}"
        assert done.stdout, f"{place}: a program that shows nothing"
        return done.stdout

    def _run_in_page(self, text: str) -> str:
        """Run a script in the console page of the cluster, as in the browser's own console."""
        if self._page is None:
            self._page = self._open_page()
            self._page.on("console", lambda message: self._console.append(message.text))
            self._page.goto(f"http://127.0.0.1:{self._ports('7000')}/console/")
        self._console.clear()
        self._page.evaluate(f"async () => {{ {text} }}")
        return "\n".join(self._console)


def _free_hundred() -> int:
    """A number such that the first twenty of its hundred ports are free."""
    start = os.getpid() % len(_HUNDREDS)
    turned: list[int] = [*_HUNDREDS[start:], *_HUNDREDS[:start]]
    for hundred in turned:
        with ExitStack() as listeners:
            try:
                for port in range(20):
                    listeners.enter_context(
                        socket.create_server(("127.0.0.1", hundred * 100 + port))
                    )
            except OSError:
                continue
        return hundred
    raise AssertionError("no twenty ports in a row are free")
