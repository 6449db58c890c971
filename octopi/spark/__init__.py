"""Topics in Apache Spark: a source and a sink for PySpark, and jobs that use them.

Only this package imports pyspark.
"""
