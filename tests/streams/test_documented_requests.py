"""The commands of docs/http.md, and those of README, work one after another, with curl."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.processes import node_processes

ROOT = Path(__file__).parents[2]
SHOWN = {
    "docs/http.md": {1: b"hello", 4: b'[{"job": 1},{"job": 2}]'},
    "README.md": {1: b"hello"},
}
"""What the commands of a page print, by their places."""


def commands_of(page: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("curl ")]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("page", SHOWN)
def test_each_command_of_the_page_works(page: str, tmp_path: Path) -> None:
    commands = commands_of(page)
    assert len(commands) >= max(SHOWN[page]) + 1
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        here = register.url.removeprefix("ws://")
        for place, command in enumerate(commands):
            words = shlex.split(command.replace("127.0.0.1:7000", here))
            done = subprocess.run(
                [*words, "--silent", "--show-error", "--fail-with-body"],
                capture_output=True,
                check=False,
                timeout=30,
            )
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            assert done.stdout == SHOWN[page].get(place, b""), command
