"""Lakes for Spark's own reader and writer: `spark.read.format("tailrace")`.

    tailrace.register(spark)
    spark.read.format("tailrace").option("lake", "/data/shop.lake").option("table", "orders").load()

Always true: Spark's Python processes open the catalog and the objects themselves, nothing goes
through the process that called. `place` has the options, `reading` and `writing` the two ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter

from tailrace.arguments import checked, show
from tailrace.datasource.place import Place, place_of
from tailrace.datasource.reading import SkippingReader, TableReader, find, schema_of
from tailrace.datasource.writing import begin
from tailrace.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@checked
def register(spark: SparkSession, *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Let a session read and write lakes by `format("tailrace")`.

    `storage_options` are obstore's, for all lakes that the session opens; unlike the options of a
    reader, they are not in Spark's plans. Files are skipped by a query's conditions if Spark's
    setting `spark.sql.python.filterPushdown.enabled` is true by now.
    """
    if not hasattr(spark, "dataSource"):
        raise InvalidError(f"register(spark) takes a SparkSession, not {show(spark)}")
    given = dict(storage_options or {})
    pushes = str(spark.conf.get(_PUSHDOWN, "false")).lower() == "true"

    # What is the same for all reads travels inside the class.
    class _Source(LakeSource):
        defaults = given
        pushes_filters = pushes

    spark.dataSource.register(_Source)


class LakeSource(DataSource):
    """What Spark calls: the source's name, its schema, and who reads and writes.

    Each call is in a Python process of Spark's own, which gets it as an earlier call left it.
    """

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
            return begin(lake, place, schema)
