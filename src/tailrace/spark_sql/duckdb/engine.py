"""Runs DuckDB's queries over Arrow tables, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.spark_sql.duckdb.operators import DIVIDE
from tailrace.spark_sql.duckdb.type_rules import DataType

if TYPE_CHECKING:
    import duckdb

# Never spill: fall back to Spark. Disabling external access goes last: it locks the settings.
_SETTINGS = (
    "SET memory_limit = '2GB'",
    "SET temp_directory = ''",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET enable_external_access = false",
)
_DIVIDE = f"""
CREATE MACRO {DIVIDE}(n, d, near) AS
CASE WHEN d = 0 THEN error('division by zero')
WHEN (abs(d) - 2 * (abs(n) % abs(d)))::DOUBLE / abs(d)::DOUBLE BETWEEN 1e-300 AND near
THEN error('rounded twice')
ELSE sign(n) * sign(d) * ((2 * abs(n) + abs(d)) // (2 * abs(d))) END
"""
_BATCH_ROWS = 100_000
_SHARED_PLANS = "common_subplan"
# Turns `n + 1 > 0` into `n > -1`: then nothing overflows, and Spark would not be asked.
_REWRITER = "expression_rewriter"
_OPTIMIZERS = "SELECT name FROM duckdb_optimizers()"
# Up to so many rows, a query takes longer with several threads than with one.
_FEW = 100_000
_lock = Lock()
# To two databases without tables: one with a single thread, one with as many as there are cores.
_connections: dict[bool, duckdb.DuckDBPyConnection] = {}
# The types of a relation's columns, in their order.
ColumnTypes = dict[str, DataType]


def execute(
    sql: str, types: ColumnTypes, tables: Mapping[str, pa.Table], *, limit: int
) -> pa.Table | None:
    """A query's rows with Spark's values and types; None if Spark has to be asked.

    That is: if there are more rows than the limit, or too many for the memory, or it fails.
    """
    import duckdb

    connection = _cursor(few=sum(table.num_rows for table in tables.values()) <= _FEW)
    try:
        for name, table in tables.items():
            connection.register(name, table)
        reader = connection.execute(sql).to_arrow_reader(_BATCH_ROWS)
        batches, count = [], 0
        for batch in reader:
            batches.append(batch)
            count += batch.num_rows
            if count > limit:
                return None
        found = pa.Table.from_batches(batches, reader.schema)
        return found.cast(pa.schema(list(types.items())))
    except (duckdb.Error, OSError, pa.ArrowException):
        # An overflow, a division by zero: Spark has its own error or value for that. What fails
        # after the first rows comes as Arrow's error.
        return None
    finally:
        connection.close()


def _cursor(*, few: bool) -> duckdb.DuckDBPyConnection:
    """A connection of its own to a database of this process, for few rows or many."""
    import duckdb

    with _lock:
        if few not in _connections:
            connection = duckdb.connect(":memory:", config={"threads": 1} if few else {})
            _without(connection, _SHARED_PLANS, _REWRITER)
            for statement in (*_SETTINGS, _DIVIDE):
                connection.execute(statement)
            _connections[few] = connection
        return _connections[few].cursor()


def without_shared_plans(connection: duckdb.DuckDBPyConnection) -> None:
    """Keep DuckDB from sharing the plans of equal parts: version 1.5 mixes up their columns."""
    _without(connection, _SHARED_PLANS)


def _without(connection: duckdb.DuckDBPyConnection, *optimizers: str) -> None:
    """Turn optimizers off, if this version has them: naming an unknown one is an error."""
    known = {name for (name,) in connection.execute(_OPTIMIZERS).fetchall()}
    named = ",".join(name for name in optimizers if name in known)
    connection.execute(f"SET disabled_optimizers = '{named}'")
