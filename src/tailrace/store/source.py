"""A Spark data source in Python, for storage that Spark itself has no connector for.

It reads Parquet objects through `Storage`, one task a file, as Arrow batches. The native reader
is faster and is used wherever Spark can open the objects itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tailrace.objects import Storage
from tailrace.store.open_file import open_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS = 65_536


def load_objects(
    spark: SparkSession, storage: Storage, paths: Sequence[str], schema: str
) -> DataFrame:
    """The rows of Parquet objects, missing columns as NULL, narrower types widened."""

    # The storage, which may hold secrets, travels inside the class and not in the options,
    # because Spark prints options in plans.
    class _Objects(ObjectSource):
        place = storage

        @classmethod
        def name(cls) -> str:
            return "tailrace_objects"

    spark.dataSource.register(_Objects)
    reader = spark.read.format("tailrace_objects").schema(schema)
    return reader.option("paths", json.dumps(list(paths))).load()


class ObjectSource(DataSource):
    """Reads objects of one `Storage`."""

    place: Storage

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.place, json.loads(self.options["paths"]), arrow_schema(schema))


def arrow_schema(schema: StructType) -> pa.Schema:
    """The types in which Spark takes batches."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before 4.3, there was no other zone
        return to_arrow_schema(schema)


class _Object(InputPartition):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class _Reader(DataSourceReader):
    def __init__(self, storage: Storage, paths: list[str], schema: pa.Schema) -> None:
        self._storage, self._paths, self._schema = storage, paths, schema

    def partitions(self) -> Sequence[InputPartition]:
        return [_Object(path) for path in self._paths]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        with open_parquet(self._storage, partition.path, pre_buffer=True) as parquet:
            present = set(parquet.schema_arrow.names)
            names = [name for name in self._schema.names if name in present]
            for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=names):
                arrays = [
                    batch.column(names.index(field.name)).cast(field.type)
                    if field.name in present
                    else pa.nulls(batch.num_rows, field.type)
                    for field in self._schema
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
