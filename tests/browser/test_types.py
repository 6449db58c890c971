"""TypeScript takes the type declarations of the client, in pages as people set them up."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.browser.tools import STATIC

ROOT = Path(__file__).parents[2]
COMPILER = ROOT / ".tools/typescript/node_modules/.bin/tsc"


@pytest.mark.parametrize(
    "libraries",
    ["es2022,dom", "es2022,dom,dom.iterable,dom.asynciterable", "esnext,dom,dom.iterable"],
)
def test_a_strict_page_compiles_with_the_types_of_the_client(
    libraries: str, tmp_path: Path
) -> None:
    if not COMPILER.exists():
        if os.environ.get("CI"):
            pytest.fail("CI has to install TypeScript: `make .tools/typescript`")
        pytest.skip("there is no TypeScript: `make .tools/typescript` installs it")
    # The declarations are sources here, so that nothing in them goes unchecked.
    shutil.copy(STATIC / "octopi.d.ts", tmp_path)
    shutil.copy(Path(__file__).with_name("types_of_a_page.ts"), tmp_path)
    options = ["--strict", "--exactOptionalPropertyTypes", "--noImplicitOverride", "--noEmit"]
    options += ["--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler"]
    done = subprocess.run(
        [COMPILER, *options, "--lib", libraries, "octopi.d.ts", "types_of_a_page.ts"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
