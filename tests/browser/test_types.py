"""TypeScript takes the type declarations of the client, in pages as people set them up."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.browser.tools import STATIC

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".tools/typescript/node_modules"
COMPILERS = ["typescript", "typescript-7"]


def compiler(name: str) -> Path:
    """The program of that version of TypeScript, or the test is skipped."""
    program = INSTALLED / name / "bin/tsc"
    if not program.exists():
        if os.environ.get("CI"):
            pytest.fail("CI has to install TypeScript: `make .tools/typescript`")
        pytest.skip(f"there is no {name}: `make .tools/typescript` installs it")
    return program


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize(
    "libraries",
    ["es2022,dom", "es2022,dom,dom.iterable,dom.asynciterable", "esnext,dom,dom.iterable"],
)
def test_a_strict_page_compiles_with_the_types_of_the_client(
    name: str, libraries: str, tmp_path: Path
) -> None:
    # The declarations are sources here, so that nothing in them goes unchecked.
    shutil.copy(STATIC / "octopi.d.ts", tmp_path)
    shutil.copy(Path(__file__).with_name("types_of_a_page.ts"), tmp_path)
    options = ["--strict", "--exactOptionalPropertyTypes", "--noImplicitOverride", "--noEmit"]
    options += ["--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler"]
    done = subprocess.run(
        [compiler(name), *options, "--lib", libraries, "octopi.d.ts", "types_of_a_page.ts"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
