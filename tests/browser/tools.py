"""The programs that browser tests need: found, or the tests are skipped with one clear line.

CI installs them all, so there their absence fails.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

STATIC = Path(__file__).parents[2] / "octopi/console/static"
CLIENTS = ["octopi.js", "octopi.min.js"]
"""The files that pages import; both are the same client."""


def _missing(what: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"CI has to install {what}")
    pytest.skip(f"browser tests need {what}")


def node_command() -> list[str]:
    """The command that runs a script in Node with a WebSocket of its own: from Node 22 on, and
    with an option in Node 20; playwright brings one."""
    installed = shutil.which("node")
    if installed is not None:
        for options in ([], ["--experimental-websocket"]):
            probe = [
                installed,
                *options,
                "-e",
                "process.exit(typeof WebSocket === 'function' ? 0 : 1)",
            ]
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                return [installed, "--no-warnings", *options]
    own = playwright_node()
    if own is not None:
        return [own]
    _missing("Node 20 or newer (Debian: apt-get install nodejs), or playwright, which brings it")
    raise AssertionError


@cache
def playwright_node() -> str | None:
    """The path of the Node that playwright brings, and which drives browsers; None: there is no
    playwright."""
    spec = importlib.util.find_spec("playwright")
    if spec is None or spec.origin is None:
        return None
    path = str(Path(spec.origin).parent / "driver/node")
    probe = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    if probe.returncode:
        why = probe.stderr.strip().rpartition("\n")[2]
        _missing(f"what the Node of playwright needs: {why} (Debian: apt-get install libatomic1)")
    return path


def chromium() -> str:
    """The path of Chromium."""
    path = shutil.which("chromium")
    if path is None:
        _missing("Chromium (Debian: apt-get install chromium)")
        raise AssertionError
    if playwright_node() is None:
        _missing("playwright (requirements/browser.txt; `make test` installs it)")
    return path


class JavaScriptError(Exception):
    """What the script threw; its text begins with the error's code or class."""


class NodePeer:
    """Runs the client's modules in Node, one question after the other."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("node_peer.mjs")
        self._process = subprocess.Popen(
            [*node_command(), str(script), STATIC.as_uri()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, deed: str, argument: object = None) -> Any:  # noqa: ANN401
        """What *deed* of the script returns for *argument*.

        Raises:
          JavaScriptError: what it threw.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([deed, argument]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise JavaScriptError(f"{answer['error']}: {answer['text']}")
        return answer["result"]

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
