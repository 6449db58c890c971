"""mypy and pyright, both as strict as they can be, find nothing in the documented programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.examples.documented import OF_SPARK, ROOT, all_programs
from tests.examples.tools import leave_out, need

PYRIGHT = ROOT / ".tools/pyright/node_modules/.bin/pyright"
ERROR = re.compile(r"(\w+)\.py:(\d+)(?::\d+)?(?::| -) error: ")
MISTAKES = """\
import octopi
import octopi.aio
import octopi.blocking


async def with_trio(producer: octopi.Producer) -> None:
    await producer.send("orders", "a text")


async def with_asyncio(producer: octopi.aio.Producer) -> None:
    await producer.send("orders", "a text")


def blocking(producer: octopi.blocking.Producer) -> None:
    producer.send("orders", "a text")
"""
FOUND = [("mistakes", number) for number in (7, 11, 15)]
"""The lines with a mistake, which have to be found: otherwise the types were not seen."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all programs: those with Spark in one of their own, if it is installed."""
    need("fastapi", "uvicorn")
    has_spark = find_spec("pyspark") is not None
    if not has_spark and os.environ.get("CI"):
        leave_out("pyspark: `make .venv/.spark`")
    (tmp_path / "spark").mkdir()
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    for name, program in all_programs().items():
        is_of_spark = OF_SPARK in program
        if has_spark or not is_of_spark:
            (tmp_path / ("spark" if is_of_spark else "") / f"{name}.py").write_text(program)
    return tmp_path


def errors(command: list[str | Path], folder: Path) -> tuple[list[tuple[str, int]], str]:
    """The modules and lines in which a type checker finds errors, and all that it prints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = [(name, int(line)) for name, line in ERROR.findall(done.stdout)]
    return found, done.stdout + done.stderr


def test_each_client_has_documented_programs() -> None:
    programs = all_programs().values()
    for client in ("import octopi\n", "import octopi.aio\n", "import octopi.blocking\n"):
        assert sum(client in program for program in programs) >= 3, client


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_mypy_finds_only_the_mistakes_made_on_purpose(folder: Path) -> None:
    # Without the configuration of the repository: as a program elsewhere is checked.
    files = sorted(folder.rglob("*.py"))
    found, printed = errors(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", *files], folder
    )
    assert found == FOUND, printed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pyright_finds_only_the_mistakes_made_on_purpose(folder: Path) -> None:
    if not PYRIGHT.exists():
        leave_out("pyright: `make .tools/pyright`")
    # pyspark's `createDataFrame` takes frames of pandas, whose types nothing here needs.
    of_spark = {"root": "spark", "reportUnknownMemberType": "none"}
    settings = {"typeCheckingMode": "strict", "executionEnvironments": [of_spark, {"root": "."}]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    found, printed = errors([PYRIGHT, "--pythonpath", sys.executable], folder)
    assert found == FOUND, printed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pyright_knows_the_type_of_every_name_of_the_package(tmp_path: Path) -> None:
    if not PYRIGHT.exists():
        leave_out("pyright: `make .tools/pyright`")
    done = subprocess.run(
        [PYRIGHT, "--verifytypes", "octopi", "--ignoreexternal", "--outputjson"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    assert "octopi.aio.client.AsyncioClient.consumer" in {one["name"] for one in symbols}
    unknown = {
        one["name"]: [said["message"] for said in one["diagnostics"]]
        for one in symbols
        # What pyright calls ambiguous is known, and inferred.  Columns are arrays of numpy and
        # pyarrow, and pyarrow has no types.
        if not (one["isTypeKnown"] or one["isTypeAmbiguous"])
        and not one["name"].startswith("octopi.spark.")
    }
    assert unknown == {}
