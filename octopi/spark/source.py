"""``format("octopi")``: the data source that Spark finds in this package.

Where this package is installed, Spark imports this module in a worker of every program.  So other
modules are imported only when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from octopi.errors import InvalidOptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

_COLUMNS: Final = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "next_offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "request_id": "binary",
}


class OctopiDataSource(DataSource):
    """Topics as tables and streams, in both directions."""

    @classmethod
    def name(cls) -> str:
        return "octopi"

    def schema(self) -> str:
        from octopi.spark.options import read_options

        options = read_options(self.options, streaming=None)
        names = [name for name in _COLUMNS if name != "headers" or options.include_headers]
        return ", ".join(f"{name} {_COLUMNS[name]}" for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        from octopi.spark.options import read_options
        from octopi.spark.reading import OctopiReader, PushdownReader

        options = read_options(self.options, streaming=False)
        make = PushdownReader if options.pushdown else OctopiReader
        return make(options, _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from octopi.spark.options import write_options
        from octopi.spark.sink import OctopiWriter

        if overwrite:
            raise InvalidOptionError('a log can\'t be overwritten: write with .mode("append")')
        return OctopiWriter(write_options(self.options), _types(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from octopi.spark.options import write_options
        from octopi.spark.sink import OctopiStreamWriter

        if overwrite:
            raise InvalidOptionError('a log can\'t be overwritten: use .outputMode("append")')
        return OctopiStreamWriter(write_options(self.options), _types(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from octopi.spark.options import read_options
        from octopi.spark.stream_reading import OctopiStreamReader

        return OctopiStreamReader(read_options(self.options, streaming=True), _columns(schema))


def register(spark: SparkSession) -> None:
    """Register the format with *spark*.  This isn't needed where the module `pyspark_octopi` is
    installed, because Spark finds that by itself."""
    spark.dataSource.register(OctopiDataSource)


def _columns(schema: StructType) -> list[str]:
    """The names of the requested columns.

    Raises:
      InvalidOptionError: if the source doesn't have one of them, or it has another type.
    """
    for field in schema.fields:
        ours = _COLUMNS.get(field.name)
        if ours is None:
            raise InvalidOptionError(f"there is no column {field.name}; there are {[*_COLUMNS]}")
        theirs = field.dataType.simpleString()
        if theirs != ours:
            raise InvalidOptionError(f"column {field.name} is {theirs}; it must be {ours}")
    return list(schema.fieldNames())


def _types(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
