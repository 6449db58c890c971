"""The notebook among the examples, with a kernel of its own, against real nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import octopi.blocking
from harness.processes import node_processes
from tests.examples.tools import EXAMPLES, need

NOTEBOOK = EXAMPLES / "first_steps.ipynb"
SERVER = "ws://127.0.0.1:7000"
RUN_S = 100


def outputs(notebook: Path) -> list[str]:
    """What each cell with code has printed."""
    cells = json.loads(notebook.read_text())["cells"]
    return [
        "".join(part for output in cell["outputs"] for part in output["text"])
        for cell in cells
        if cell["cell_type"] == "code"
    ]


@pytest.mark.process
@pytest.mark.slow
def test_the_notebook_prints_what_is_stored_in_it(tmp_path: Path) -> None:
    need("ipykernel", "nbclient")
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        source = NOTEBOOK.read_text()
        assert SERVER in source
        (tmp_path / "copy.ipynb").write_text(source.replace(SERVER, register.url))
        folders = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
        subprocess.run(
            [Path(sys.executable).with_name("jupyter-execute"), "--output=executed", "copy.ipynb"],
            cwd=tmp_path,
            env={**os.environ, **{name: str(tmp_path / name) for name in folders}},
            check=True,
            timeout=RUN_S,
        )
        with octopi.blocking.connect(register.url) as client:
            assert client.admin.describe_readings() == []
    printed = outputs(tmp_path / "executed.ipynb")
    assert printed == outputs(NOTEBOOK)
    assert sum(map(bool, printed)) == 3
