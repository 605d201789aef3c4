"""Lakes for Spark's own reader and writer: `spark.read.format("tailrace")`.

    tailrace.register(spark)
    spark.read.format("tailrace").option("lake", "/data/shop.lake").option("table", "orders").load()

Always true: Spark's Python processes open the catalog and the objects themselves, nothing goes
through the process that called. `place` has the options, `reading` and `writing` the two ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tailrace.arguments import checked, show
from tailrace.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    from tailrace.datasource.source import LakeSource

    given = dict(storage_options or {})
    pushes = str(spark.conf.get(_PUSHDOWN, "false")).lower() == "true"

    # What is the same for all reads travels inside the class.
    class _Source(LakeSource):
        defaults = given
        pushes_filters = pushes

    spark.dataSource.register(_Source)
