"""Applies a change of a view's rows to its stored table.

The driver applies small changes from memory, Spark those that only it can hold. Nothing is visible
before the transaction commits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.spark_sql import types
from tailrace.store.names import split_name
from tailrace.store.schema import FILE, POS, TableInfo
from tailrace.store.spark_actions import spark_faults
from tailrace.store.transaction import Transaction
from tailrace.views.incremental import stored_delta
from tailrace.views.incremental.layout import Layout, Way

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class StoredTable:
    """A view's stored table in the transaction of a refresh."""

    def __init__(self, txn: Transaction, name: str) -> None:
        self._txn, self._name = txn, name

    @property
    def info(self) -> TableInfo:
        return self._txn.info(self._name)

    # --- from memory ------------------------------------------------------------------------

    def add(self, layout: Layout, rows: pa.Table) -> None:
        """Add rows, which have the programs' names of columns."""
        if not rows.num_rows:
            return
        names = [column.name for column in layout.columns]
        # Spark may count in a wider type than the stored one.
        kinds = pa.schema([(name, self.info.column(name).type) for name in names])
        self._txn.table(self._name).append(rows.rename_columns(names).cast(kinds))

    def change(
        self, layout: Layout, delta: pa.Table, again: Callable[[pa.Table], pa.Table]
    ) -> None:
        """Delete and add rows; `again` recomputes the groups that need it."""
        doubtful = delta.filter(delta.column(stored_delta.AGAIN))
        certain = delta.filter(pc.invert(delta.column(stored_delta.AGAIN)))
        count = certain.column(stored_delta.COUNT).to_numpy().astype(np.int64)
        if (count == 1).all():
            rows = certain
        else:
            rows = certain.take(pa.array(np.repeat(np.arange(certain.num_rows), count)))
        rows = rows.select(list(layout.names))
        if doubtful.num_rows:
            rows = pa.concat_tables([rows, again(doubtful).cast(rows.schema)])
        gone = delta.filter(pc.is_valid(delta.column(stored_delta.FILE)))
        if gone.num_rows:
            self._remove(gone)
        self.add(layout, rows)

    def _remove(self, gone: pa.Table) -> None:
        files = gone.column(stored_delta.FILE).to_numpy()
        positions = gone.column(stored_delta.POS).to_numpy()
        by_file = {int(key): np.unique(positions[files == key]) for key in np.unique(files)}
        self._txn.remove(self._name, by_file)

    # --- from Spark -------------------------------------------------------------------------

    def add_frame(self, rows: DataFrame, names: list[str]) -> None:
        """Add rows, which have any names, but the stored columns' order."""
        self._txn.table(self._name).append(self._fit(rows.toDF(*names)))

    def change_frame(
        self, layout: Layout, delta: DataFrame, again: Callable[[DataFrame], DataFrame]
    ) -> None:
        """`change` for a DataFrame."""
        from pyspark.sql import functions as F

        from tailrace.store.find_rows import collect_positions

        kept = delta.persist()
        try:
            scan = self._txn.scan(*split_name(self._name))
            gone = kept.where(F.col(stored_delta.FILE).isNotNull()).select(
                F.col(stored_delta.FILE).alias(FILE), F.col(stored_delta.POS).alias(POS)
            )
            positions = collect_positions(gone, scan.files)
            rows = kept.where(~F.col(stored_delta.AGAIN) & (F.col(stored_delta.COUNT) > 0))
            if layout.way is Way.BAG:
                rows = rows.withColumn(
                    "tailrace_n",
                    F.explode(F.expr(f"array_repeat(1, cast({stored_delta.COUNT} as int))")),
                )
            rows = rows.select(*layout.names)
            if layout.way is Way.MERGE:
                doubtful = kept.where(F.col(stored_delta.AGAIN))
                with spark_faults():
                    any_again = not doubtful.isEmpty()
                if any_again:
                    rows = rows.unionAll(again(doubtful))
            rows = self._fit(rows.toDF(*(column.name for column in layout.columns)))
            if positions:
                self._txn.remove(self._name, positions)
            self._txn.table(self._name).append(rows)
        finally:
            kept.unpersist()

    def overwrite(self, rows: DataFrame, names: list[str]) -> None:
        """Replace all rows, where nobody can tell which differ."""
        runtime = self._txn.runtime
        scan = self._txn.scan(*split_name(self._name))
        by_file = {
            live.file.key: np.setdiff1d(
                np.arange(live.file.rows, dtype=np.int64), live.dead(runtime, scan.at)
            )
            for live in scan.files
        }
        if any(len(positions) for positions in by_file.values()):
            self._txn.remove(self._name, by_file)
        self.add_frame(rows, names)

    def _fit(self, rows: DataFrame) -> DataFrame:
        """Rows in the stored table's own types."""
        from pyspark.sql import functions as F

        return rows.select(
            *(
                F.col(types.quote(c.name)).cast(types.spark_type(c.type)).alias(c.name)
                for c in self.info.columns
            )
        )
