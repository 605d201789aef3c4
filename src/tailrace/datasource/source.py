"""What Spark calls: the source's name, its schema, and who reads and writes.

Each call is in a Python process of Spark's own, which gets the source as an earlier call left it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from tailrace.datasource.place import Place, place_of
from tailrace.datasource.reading import SkippingReader, TableReader, find, schema_of
from tailrace.datasource.writing import TableWriter, begin
from tailrace.errors import InvalidError


class LakeSource(DataSource):
    """The format "tailrace"."""

    defaults: ClassVar[dict[str, Any]] = {}  # storage options
    pushes_filters: ClassVar[bool] = False

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        # The snapshot of the schema: rows that are read later are of the same one.
        self._at: int | None = None

    @classmethod
    def name(cls) -> str:
        return "tailrace"

    @property
    def _place(self) -> Place:
        return place_of(self.options, self.defaults)

    def schema(self) -> str:
        place = self._place
        with place.open() as lake:
            found = find(lake, place.table, place.version)
        self._at = found.scan.at
        return schema_of(found)

    def reader(self, schema: StructType) -> DataSourceReader:
        place = self._place
        with place.open() as lake:
            at = self._at if place.version is None else place.version
            found = find(lake, place.table, at)
            storage = lake.runtime.storage
        if self.pushes_filters:
            return SkippingReader(storage, found, schema, place=place)
        return TableReader(storage, found, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001  (Spark's)
        place = self._place
        if overwrite:
            raise InvalidError(
                f'{place.table}: mode("overwrite") is not available: use mode("append"), with '
                '.option("operation", "upsert") to replace rows by their key; delete others before'
            )
        with place.open() as lake:
            return TableWriter(place, begin(lake, place, schema))
