"""Compiles `octopi/_kernels.c` when Octopi is installed or a wheel is made.

Where there is no C compiler, or no headers of Python, Octopi is installed without, and Python does
the same work (`octopi/kernels.py`).  So nothing that happens here may end an installation.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("octopi", "_kernels.c")
MODULE = Path("octopi", "_kernels.abi3.so")
"""For Python 3.11 and all later versions, beside its source; git ignores it."""
TAG = "cp311-abi3"
COMPILER_TIMEOUT_S = 300.0


class KernelsHook(BuildHookInterface):  # type: ignore[type-arg,misc,unused-ignore]
    """hatchling calls it for each wheel and for each editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        why_not = compiled(root / SOURCE, root / MODULE)
        if why_not:
            # No older one may be taken for it.
            (root / MODULE).unlink(missing_ok=True)
            sys.stderr.write(f"octopi: no kernels are compiled, Python does all: {why_not}\n")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"{TAG}-{platform_tag()}"
        if version != "editable":
            build_data["force_include"][str(root / MODULE)] = str(MODULE)


def compiled(source: Path, module: Path, extra_options: tuple[str, ...] = ()) -> str:
    """Compile *source* to *module*.  Returns why that wasn't possible; empty if it was."""
    linker = link_command()
    if linker is None:
        return "there is no C compiler"
    headers = sysconfig.get_path("include")
    if not Path(headers, "Python.h").exists():
        return f"the headers of Python are missing: there is no {headers}/Python.h"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    made = module.with_name(f"{module.name}.{os.getpid()}")
    options = ["-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", *extra_options, f"-I{headers}"]
    command = [*linker, *options, f'-DOCTOPI_SOURCE="{digest}"', str(source), "-o", str(made)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILER_TIMEOUT_S, check=False
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            return f"{linker[0]} failed: {lines[0]}"
        # A process that runs keeps the file that it has loaded.
        made.replace(module)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{linker[0]} failed: {error}"
    finally:
        made.unlink(missing_ok=True)
    return ""


def link_command() -> list[str] | None:
    """How this Python's extension modules are linked, which compiles, too; None if that compiler is
    not there, nor `cc` in its place."""
    command = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    for compiler in (command[0], "cc"):
        if shutil.which(compiler):
            return [compiler, *command[1:]]
    return None


def platform_tag() -> str:
    """Of this system, as in the names of wheels."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
