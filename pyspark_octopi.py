"""Found by PySpark, which imports every module of such a name: ``format("octopi")`` works then.

Kept this small because it is imported in a worker of every Spark program.
"""

from octopi.spark.source import OctopiDataSource as DefaultSource

__all__ = ["DefaultSource"]
