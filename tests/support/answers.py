"""What Spark itself answers to a view's query, and whether a view says the same."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tailrace.store import types

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyspark.sql import SparkSession

    import tailrace


def by_spark(lake: tailrace.Lake, spark: SparkSession, query: str) -> pa.Table:
    """The answer to a text, letter by letter, over the lake's tables as they are now."""
    names = [name.removeprefix("main.") for name in lake.tables()]
    for name in names:
        lake.table(name).to_df().createOrReplaceTempView(name)
    try:
        return spark.sql(query).toArrow()
    finally:
        for name in names:
            spark.catalog.dropTempView(name)


def assert_same(ours: pa.Table, theirs: pa.Table, note: str = "") -> None:
    """Names, types and rows, as bags."""
    assert ours.column_names == theirs.column_names, note
    kinds = [types.canonical(kind) for kind in theirs.schema.types]
    assert ours.schema.types == kinds, f"{note}: {ours.schema.types}, in Spark {kinds}"
    got, want = shown(ours.to_pylist()), shown(theirs.to_pylist())
    assert got == want, f"{note}\nours:   {got}\nSpark's: {want}"


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
