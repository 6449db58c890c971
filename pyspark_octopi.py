"""Registers ``format("octopi")``: PySpark imports every module whose name begins with ``pyspark_``.

The module is small because Spark imports it in a worker of every program.
"""

from octopi.spark.source import OctopiDataSource as DefaultSource

__all__ = ["DefaultSource"]
