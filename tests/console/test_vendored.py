"""What others wrote for the console is exactly what they published, and carries its licence."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

VENDOR = Path(__file__).parents[2] / "octopi/console/static/vendor"
PACKAGES: list[dict[str, Any]] = json.loads((VENDOR / "vendor.json").read_text())


def test_every_file_is_listed_with_its_checksum() -> None:
    listed = {one["file"]: one["sha256"] for package in PACKAGES for one in package["files"]}
    files = [path for path in VENDOR.rglob("*") if path.is_file() and path.name != "vendor.json"]
    here = {path.relative_to(VENDOR).as_posix(): path for path in files}
    assert {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in here.items()
    } == listed


def test_every_package_comes_with_its_licence() -> None:
    for package in PACKAGES:
        assert package["license"] in {"BSD-3-Clause", "MIT"}
        assert any(one["file"].endswith("LICENSE.txt") for one in package["files"])


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package["name"])
def test_the_files_are_those_of_the_published_package(
    package: dict[str, Any], tmp_path: Path
) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("comparing with published packages needs npm")
    name = f"{package['name']}@{package['version']}"
    packing = subprocess.run(
        [npm, "pack", name, "--silent"],
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    if packing.returncode != 0:
        pytest.skip(f"no package registry to get {name} from")
    (archive,) = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as published:
        for one in package["files"]:
            member = published.extractfile(f"package/{one['in_package']}")
            assert member is not None
            assert member.read() == (VENDOR / one["file"]).read_bytes()
