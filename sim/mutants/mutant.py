"""A planted bug: a small change of one module's source, made while it is imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

import attrs

ORACLE: Final = "oracle"
HISTORY: Final = "history"
LIVENESS: Final = "liveness"


@attrs.frozen
class Mutant:
    """A change of the source of *module*, at a place that is there exactly once."""

    name: str
    module: str
    patch: str
    """Whole lines with a first character as in a unified diff: ``-`` removes the line, ``+`` adds
    it, a space keeps it.  Empty lines are kept, except the first one."""
    bug: str
    """What the mutant does wrong, in words."""
    killer: str
    """The rule that it is expected to break, or the kind of rule."""
    scenarios: tuple[str, ...] = ()
    """The scenarios of `sim.generate.scenarios` that bring about what the bug needs; a hunt begins
    with them.  Empty: any load shows it."""
    unseen: str = ""
    """Why no client can notice it, in one sentence; empty: a client can."""

    @property
    def old(self) -> str:
        """The source lines to which the patch is applied."""
        return self._side("-")

    @property
    def new(self) -> str:
        """The source lines after the patch."""
        return self._side("+")

    def _side(self, sign: str) -> str:
        lines = self.patch.removeprefix("\n").splitlines()
        return "".join(f"{line[1:]}\n" for line in lines if line[:1] in {"", " ", sign})

    def apply(self, source: str) -> str:
        """The changed source.

        Raises:
          StaleMutantError: if `old` isn't in *source* exactly once, because the code has changed.
        """
        # Only whole lines match: the text may also be the end of another line.
        old = f"\n{self.old}"
        count = source.count(old)
        if count != 1:
            raise StaleMutantError(
                f"mutant {self.name}: its text is {count} times in {self.module}, not once; "
                "adapt it to the code"
            )
        return source.replace(old, f"\n{self.new}")

    def source(self) -> str:
        """The unchanged source of its module, which is not imported.

        Raises:
          StaleMutantError: if there is no such module.
        """
        top, *rest = self.module.split(".")
        package = importlib.util.find_spec(top)
        if package is None or not package.submodule_search_locations:
            raise StaleMutantError(f"mutant {self.name}: there is no package {top}")
        path = Path(package.submodule_search_locations[0]).joinpath(*rest).with_suffix(".py")
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise StaleMutantError(
                f"mutant {self.name}: there is no module {self.module}"
            ) from None


class StaleMutantError(Exception):
    """The mutant doesn't fit the code any more."""


def plant(mutant: Mutant) -> None:
    """Have this process import *mutant*'s module changed.

    Raises:
      StaleMutantError: if it doesn't fit the code.
      RuntimeError: if the module was imported already.
    """
    if mutant.module in sys.modules:
        raise RuntimeError(f"{mutant.module} was imported before it could be changed")
    mutant.apply(mutant.source())
    sys.meta_path.insert(0, _Finder(mutant))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        # The changed code is neither read from a cache nor written into one.
        source = self._mutant.apply(self._mutant.source())
        return compile(source, self.get_filename(fullname), "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is None or found.origin is None:
            return None
        return importlib.util.spec_from_loader(fullname, _Loader(self._mutant, found.origin))
