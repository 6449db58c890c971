"""Topics in Apache Spark: a source and a sink for PySpark, and the jobs built on them.

Only this package knows pyspark.
"""
