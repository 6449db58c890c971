"""The package that `npm pack` makes of the client: what is in it, and that programs can use it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

import octopi
from tests.browser.test_types import COMPILERS, compiler
from tests.browser.tools import STATIC, node_command

ROOT = Path(__file__).parents[2]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A project that has the package installed, as npm unpacks it."""
    npm = shutil.which("npm")
    if npm is None:
        if os.environ.get("CI"):
            pytest.fail("CI has to install npm")
        pytest.skip("there is no npm")
    command = [npm, "pack", str(STATIC), "--json", "--pack-destination", str(tmp_path)]
    environment = {**os.environ, "npm_config_cache": str(tmp_path / "cache")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    [archive] = tmp_path.glob("*.tgz")
    assert archive.name == f"octopi-client-{octopi.__version__}.tgz"
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # new in 3.11.4
        packed.extractall(tmp_path / "packed")
    project = tmp_path / "project"
    (project / "node_modules").mkdir(parents=True)
    shutil.move(tmp_path / "packed/package", project / "node_modules/octopi-client")
    (project / "package.json").write_text('{ "type": "module" }')
    return project


def test_the_package_has_the_client_and_nothing_else_of_the_console(package: Path) -> None:
    root = package / "node_modules/octopi-client"
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    modules = {
        str(path.relative_to(STATIC))
        for pattern in ("client/*.js", "octopi*.min.js")
        for path in STATIC.glob(pattern)
    }
    named = {"octopi.js", "octopi.d.ts", "package.json", "README.md", "LICENSE"}
    assert found == named | modules
    assert (root / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    said = json.loads((root / "package.json").read_text())
    assert said["version"] == octopi.__version__
    assert "private" not in said


@pytest.mark.parametrize("name", ["octopi-client", "octopi-client/octopi.min.js"])
def test_a_program_imports_the_package_by_its_name(package: Path, name: str) -> None:
    program = package / "program.mjs"
    program.write_text(
        f'import * as all from "{name}";\n'
        # The bundle's second file imports from the first one by names of one letter.
        'console.log(Object.keys(all).sort().filter((one) => one.length > 1).join(" "));\n'
    )
    done = subprocess.run(
        [*node_command(), str(program)], capture_output=True, text=True, check=False, cwd=package
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Message", "Octopi", "OctopiError", "Producer", "Reading"]


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("resolution", [("esnext", "bundler"), ("nodenext", "nodenext")])
def test_typescript_finds_the_types_of_the_package(
    package: Path, name: str, resolution: tuple[str, str]
) -> None:
    page = Path(__file__).with_name("types_of_a_page.ts").read_text()
    (package / "page.ts").write_text(page.replace('"./octopi.js"', '"octopi-client"'))
    module, how = resolution
    options = ["--strict", "--noEmit", "--target", "es2022", "--lib", "es2022,dom"]
    options += ["--module", module, "--moduleResolution", how, "page.ts"]
    done = subprocess.run(
        [compiler(name), *options], capture_output=True, text=True, check=False, cwd=package
    )
    assert done.returncode == 0, done.stdout
