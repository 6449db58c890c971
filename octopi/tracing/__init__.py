"""The steps of the protocols that nodes and clients report to an observer, each as a class.

The steps of each system are declared in a module of its name; `octopi.tracing.steps` has all of
them.  It is imported at its first use: a process that nobody observes never has the classes, which
take four megabytes.
"""

import importlib.util
import sys


def _import_at_first_use(name: str) -> None:
    """Make the module *name* of this package, whose attributes are what loads it."""
    spec = importlib.util.find_spec(f"{__name__}.{name}")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    setattr(sys.modules[__name__], name, module)  # `from octopi.tracing import steps` finds it here


_import_at_first_use("steps")
