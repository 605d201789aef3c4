"""The dimension of a vector column: found out, checked, and kept by the table from then on.

Always true: while a column has a vector index, the table refuses vectors of another dimension.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import InvalidError
from tailrace.fixes import Action, Fix
from tailrace.indexes.definition import Definition
from tailrace.propagation import joblog
from tailrace.spark_sql.types import quote
from tailrace.store import rows as row_checks
from tailrace.store import scan as local_scan
from tailrace.store.schema import Column, TableInfo
from tailrace.store.spark_faults import spark_faults
from tailrace.store.spark_scan import to_df

if TYPE_CHECKING:
    from tailrace.store.runtime import Runtime
    from tailrace.store.scan import Scan
    from tailrace.store.transaction import Transaction


def complete(txn: Transaction, table: TableInfo, definition: Definition) -> Definition:
    """A new index with its dimension, which all rows of the table have."""
    (column,) = definition.columns_of(table)
    scan = txn.scan(table.schema, table.name)
    scan = replace(scan, table=scan.table.narrowed([column.name]))
    dimension = definition.options.dimension or _first_dimension(txn.runtime, scan, column.name)
    if not dimension:
        raise InvalidError(
            f"{table.full_name}.{column.name} holds no vector yet",
            fix=Fix(Action.GIVE_DIMENSION),
        )
    if column.dimension is None:
        examples = _wrong_rows(txn.runtime, scan, column.name, dimension)
        if examples.num_rows:
            raise InvalidError(
                f"{table.full_name}.{column.name}: a vector index of dimension {dimension} "
                f"needs {dimension} finite numbers in every row, or NULL; not so in "
                f"{_shown(examples, table, column)}"
            )
    return replace(definition, options=replace(definition.options, dimension=dimension))


def _first_dimension(runtime: Runtime, scan: Scan, column: str) -> int:
    """The dimension of any vector; 0 if there is none."""
    if local_scan.is_small(scan, runtime):
        rows = local_scan.to_arrow(runtime, scan).column(column)
        lengths = pc.drop_null(pc.list_value_length(rows))
        return int(lengths[0].as_py()) if len(lengths) else 0
    from pyspark.sql import functions as F

    vector = quote(column)
    with spark_faults():
        frame = to_df(runtime, scan).where(F.col(vector).isNotNull())
        first = frame.select(F.size(vector)).first()
    return 0 if first is None else int(first[0])


def _wrong_rows(runtime: Runtime, scan: Scan, column: str, dimension: int) -> pa.Table:
    """Up to three rows whose vector does not fit."""
    if local_scan.is_small(scan, runtime):
        rows = local_scan.to_arrow(runtime, scan)
        return rows.take(pa.array(row_checks.wrong_vectors(rows.column(column), dimension)[:3]))
    from pyspark.sql import functions as F

    vector = quote(column)
    is_wrong = (
        f"{vector} is not null and (size({vector}) <> {dimension} or exists({vector}, "
        f"x -> x is null or isnan(x) or abs(x) > double('{row_checks.LARGEST_ELEMENT:g}')))"
    )
    with spark_faults():
        return to_df(runtime, scan).where(F.expr(is_wrong)).limit(3).toArrow()


def _shown(rows: pa.Table, table: TableInfo, column: Column) -> str:
    """Rows by their keys; without a key, by what is wrong with them."""
    keys = [key.name for key in table.key_columns]
    if keys:
        return ", ".join(str(row) for row in row_checks.plain_rows(rows.select(keys)))
    return ", ".join(f"[{len(v)} elements]" for v in rows.column(column.name).to_pylist())


def constrain(txn: Transaction, table: TableInfo, definition: Definition) -> None:
    """Have the table refuse vectors of another dimension."""
    (column,) = definition.columns_of(table)
    if column.dimension != definition.options.dimension:
        _set_dimension(txn, table, column.name, definition.options.dimension)


def release(txn: Transaction, table: TableInfo, definition: Definition) -> None:
    """Let the table take any vector again, unless another index needs the dimension."""
    left = [column.name for column in table.columns if column.id in definition.columns]
    if left and not _is_needed(txn, table, definition):
        _set_dimension(txn, table, left[0], None)


def _set_dimension(txn: Transaction, table: TableInfo, column: str, value: int | None) -> None:
    txn.alter(table.schema, table.name, lambda info: info.with_dimension(column, value))


def _is_needed(txn: Transaction, table: TableInfo, definition: Definition) -> bool:
    with txn.runtime.database.read() as connection:
        jobs = joblog.following(connection, [table.id])
    return any(
        job.kind == definition.using
        and not txn.acts_for(job.id)
        and Definition.from_spec(job.spec.consumer).columns == definition.columns
        for job in jobs
    )
