"""The common part of the commands that run on Spark: options, a session, and errors in one line."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from octopi.cli.config import ClientSettings, help_text
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.invocation import access_options, common_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_F = TypeVar("_F", bound=Callable[..., Any])

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}
_OURS: Final = re.compile(r"octopi\.\w[\w.]*Error: (.+)")
"""Matches an exception of Octopi in the text of an exception of Spark."""
_SHOWN: Final = 600


def spark_options(function: _F) -> _F:
    """Add the options of every job."""
    master = click.option(
        "--master",
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="Where Spark runs: local[N], spark://host:7077, yarn, k8s://...",
    )
    setting = click.option(
        "--spark",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.driver.memory=4g.  Repeat for more.",
    )
    return master(setting(common_options(function)))


def cluster_options(function: _F) -> _F:
    """Add the options of every job that connects to a cluster."""
    server = click.option("--server", metavar="URL[,URL]", help=help_text(ClientSettings, "server"))
    return server(access_options(function))


def connection(settings: ClientSettings) -> dict[str, str]:
    """*settings* as options of ``format("octopi")``; paths of files are resolved on this
    machine."""
    files = {"tokenFile": settings.token_file, "tlsCa": settings.tls_ca}
    given = {name: str(Path(path).absolute()) for name, path in files.items() if path}
    return {"server": settings.server} | given


@contextlib.contextmanager
def spark_job(name: str, master: str, settings: tuple[str, ...]) -> Iterator[SparkSession]:
    """A session for the block; an error of Spark in the block is reported in one line.

    Raises:
      CommandError: if Spark isn't installed, or the job fails.
    """
    missing = [one for one in ("pyspark", "pyarrow", "numpy") if find_spec(one) is None]
    if missing:
        raise CommandError(
            f"{', '.join(missing)} not installed: pip install 'octopi-node[spark]'", ExitCode.USAGE
        )
    given: dict[str, str] = {}
    for one in settings:
        key, equals, value = one.partition("=")
        if not equals:
            raise CommandError(f"--spark {one} must be KEY=VALUE", ExitCode.USAGE)
        given[key] = value

    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from octopi.spark.session import spark_session

    session = spark_session(name, master=master, settings=_SETTINGS | given)
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    except (PySparkException, Py4JError) as error:
        raise CommandError(_plain(str(error))) from error
    finally:
        session.stop()


def _plain(text: str) -> str:
    """The sentence with the cause in a long error text of Spark."""
    found = _OURS.findall(text)
    chosen = found[-1] if found else " ".join(text.split())
    return str(chosen)[:_SHOWN]
