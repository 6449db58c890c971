"""Makes Spark sessions for programs and commands without special needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from octopi.errors import OctopiError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN: Final = 17

SMALL_JOB: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
}
"""Settings for jobs that take seconds: half the start time, and less throughput."""


class JavaMissingError(OctopiError):
    """There is no Java that Spark could run on."""


def java_version() -> int:
    """The version of the Java that Spark would start.

    Raises:
      JavaMissingError: if there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    advice = f"install Java {JAVA_VERSION_MIN} (Debian: apt-get install openjdk-17-jre-headless)"
    if java is None:
        raise JavaMissingError(f"Spark needs Java, and there is none: {advice}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise JavaMissingError(f"{java} doesn't run ({error}): {advice}") from None
    match = re.search(r'version "(\d+)', said.stderr)
    version = int(match[1]) if match else 0
    if version < JAVA_VERSION_MIN:
        raise JavaMissingError(f"{java} has version {version}: {advice}")
    return version


def spark_session(
    name: str, *, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session named *name*, which knows ``format("octopi")``.

    Its workers run the same Python as this process.  On one machine it uses the loopback address,
    and doesn't look up host names.

    Raises:
      JavaMissingError: if there is no Java that is new enough.
    """
    java_version()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
