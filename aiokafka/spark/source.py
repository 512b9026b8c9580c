"""The data source `aiokafka` of Spark."""

from __future__ import annotations

from typing import Any

try:
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow  # noqa: F401
except ImportError as error:
    raise ImportError(f"aiokafka.spark needs PySpark 4.2 or newer: {error}") from error

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from aiokafka.spark._loop import with_short_errors
from aiokafka.spark._options import WriteOptions, parse_read, parse_write

__all__ = ["KafkaSource"]

_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}
_WRITABLE: dict[str, tuple[type[DataType], ...]] = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType, DoubleType),
}


class KafkaSource(DataSource):
    """The format `aiokafka` of Spark, for read, readStream, write and writeStream.

    It has the options of Spark's own Kafka source, and further options: see the manual.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "aiokafka"

    def schema(self) -> StructType:
        """Return the columns of Kafka's records."""
        # Ignore an invalid value of includeHeaders: `reader` and `streamReader` raise ValueError.
        options = {name.lower(): text for name, text in self.options.items()}
        with_headers = options.get("includeheaders", "").strip().lower() == "true"
        return StructType(
            [
                StructField(name, kind)
                for name, kind in _COLUMNS.items()
                if with_headers or name != "headers"
            ]
        )

    @with_short_errors
    def reader(self, schema: StructType) -> Any:
        """Return the reader for `spark.read`."""
        from aiokafka.spark.reader import KafkaBatchReader, KafkaPushdownReader

        options = parse_read(self.options, streaming=False)
        make = KafkaPushdownReader if options.pushdown else KafkaBatchReader
        return make(options, _columns_to_read(schema))

    @with_short_errors
    def streamReader(self, schema: StructType) -> Any:
        """Return the reader for `spark.readStream`."""
        from aiokafka.spark.reader import KafkaStreamReader

        options = parse_read(self.options, streaming=True)
        return KafkaStreamReader(options, _columns_to_read(schema))

    @with_short_errors
    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Return the writer for `df.write`. Raises ValueError for the mode `overwrite`."""
        from aiokafka.spark.writer import KafkaBatchWriter

        if overwrite:
            raise ValueError(
                'mode: a topic cannot be overwritten, only .mode("append") is possible'
            )
        return KafkaBatchWriter(self._write_options(schema, streaming=False))

    @with_short_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Return the writer for `df.writeStream`. In the output mode `complete`, the whole result
        of each batch is appended to the topic, because a topic cannot be overwritten."""
        from aiokafka.spark.writer import KafkaStreamWriter

        return KafkaStreamWriter(self._write_options(schema, streaming=True))

    def _write_options(self, schema: StructType, *, streaming: bool) -> WriteOptions:
        from aiokafka.spark._write import check_producer

        options = parse_write(self.options, streaming=streaming)
        _check_columns_to_write(schema, options)
        check_producer(options)
        return options


def _columns_to_read(schema: StructType) -> list[str]:
    """Return the names of the columns of `schema`: some or all of `_COLUMNS`, in any order.

    Raises ValueError for an unknown column, for a column whose type differs from the type in
    `_COLUMNS`, for a column that is not nullable, and for a schema without columns.
    """
    for field in schema.fields:
        kind = _COLUMNS.get(field.name)
        if kind is None:
            raise ValueError(
                f"schema: there is no column {field.name}; there are {', '.join(_COLUMNS)}"
            )
        if field.dataType != kind:
            raise ValueError(
                f"schema: the column {field.name} is {kind.simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )
        if not field.nullable:
            # The columns of our batches are nullable: Spark would reject them for such a schema.
            raise ValueError(f"schema: the column {field.name} must be nullable")
    if not schema.fields:
        raise ValueError("schema: at least one column is needed")
    return [field.name for field in schema.fields]


def _check_columns_to_write(schema: StructType, options: WriteOptions) -> None:
    kinds = {field.name: field.dataType for field in schema.fields}
    if "value" not in kinds:
        raise ValueError("the column value is missing")
    if "topic" not in kinds and options.topic is None:
        raise ValueError("the column topic is missing, and so is the option topic")
    for name, accepted in _WRITABLE.items():
        if name in kinds and not isinstance(kinds[name], accepted):
            names = " or ".join(kind.typeName() for kind in accepted)
            raise ValueError(f"the column {name} must be {names}, not {kinds[name].simpleString()}")
    if "headers" in kinds and kinds["headers"].simpleString() != _HEADERS.simpleString():
        raise ValueError(
            f"the column headers must be {_HEADERS.simpleString()}, "
            f"not {kinds['headers'].simpleString()}"
        )
