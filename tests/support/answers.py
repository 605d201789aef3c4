"""What Spark itself answers to a view's query, and whether a view says the same."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.spark_sql import types

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    import tailrace


class Oracle:
    """Spark's own answers to queries, letter by letter, over a lake's tables as they were told."""

    def __init__(self, lake: tailrace.Lake, spark: SparkSession) -> None:
        self._lake, self._session = lake, spark.newSession()
        for name, value in _SETTINGS.items():
            self._session.conf.set(name, value)

    def learn(self) -> None:
        """Take the tables as they are now."""
        for name in self._lake.tables():
            rows = self._lake.table(name).to_arrow()
            frame = self._session.createDataFrame(rows)
            frame.createOrReplaceTempView(name.removeprefix("main."))

    def answer(self, query: str) -> pa.Table:
        return self._session.sql(query).toArrow()


# To compile a query takes longer than to interpret it once, over a few rows.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def assert_same(ours: pa.Table, theirs: pa.Table, note: str = "") -> None:
    """Names, types and rows, as bags."""
    assert ours.column_names == theirs.column_names, note
    kinds = [types.canonical(kind) for kind in theirs.schema.types]
    assert ours.schema.types == kinds, f"{note}: {ours.schema.types}, in Spark {kinds}"
    got, want = shown(_in_range(ours).to_pylist()), shown(_in_range(theirs).to_pylist())
    assert got == want, f"{note}\nours:   {got}\nSpark's: {want}"


def _in_range(rows: pa.Table) -> pa.Table:
    """Rows with dates as numbers of days: Spark has some that Python has not."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_date32(field.type):
            rows = rows.set_column(place, field.name, rows.column(place).cast(pa.int32()))
    return rows


def shown(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Rows as texts that tell everything apart, zeros of different signs included."""
    return sorted(repr(tuple(_shown(value) for value in row.values())) for row in rows)


def _shown(value: Any) -> Any:
    if isinstance(value, float):
        # Sums may be added up in any order.
        return "nan" if math.isnan(value) else float(f"{value:.12g}")
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, list):  # what was collected, or the entries of a map
        return sorted((_shown(one) for one in value), key=repr)
    if isinstance(value, tuple):
        return tuple(_shown(one) for one in value)
    if isinstance(value, dict):
        return {key: _shown(one) for key, one in value.items()}
    return value
