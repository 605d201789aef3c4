"""A table as users hold it: a name in a lake, looked up again at each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.arguments import Name, checked
from tailrace.errors import InvalidError, NotFoundError
from tailrace.spark_sql.types import parse_type, spark_type
from tailrace.store import changes as feed
from tailrace.store import scan as local_scan
from tailrace.store import spark_scan
from tailrace.store.compaction import TableHealth, health_of
from tailrace.store.runtime import TenantRuntime
from tailrace.store.scan import Scan
from tailrace.store.schema import TableInfo
from tailrace.store.spark_actions import spark_faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.store.transaction import Transaction


@checked
class Table:
    """One table of a lake.

    Got from `lake.table(name)`, each write is a transaction of its own and returns the snapshot
    that it created. Got from `txn.table(name)`, it reads and writes in that transaction, and
    writes return None.
    """

    def __init__(
        self,
        runtime: TenantRuntime,
        schema: str,
        name: str,
        *,
        begin: Callable[[], Transaction] | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        self._runtime, self._schema, self._name = runtime, schema, name
        self._begin, self._transaction = begin, transaction

    @property
    def name(self) -> str:
        """Schema and name."""
        return f"{self._schema}.{self._name}"

    def __repr__(self) -> str:
        return f"<tailrace.Table {self.name}>"

    # --- describe ---------------------------------------------------------------------------

    @property
    def info(self) -> TableInfo:
        """Columns and key, now."""
        return self._scan(None).table

    @property
    def columns(self) -> dict[str, str]:
        """Names and Spark types of the columns."""
        return {column.name: spark_type(column.type) for column in self.info.columns}

    @property
    def primary_key(self) -> list[str]:
        """The names of the key's columns; empty without a key."""
        return [column.name for column in self.info.key_columns]

    def health(self) -> TableHealth:
        """How its files are, and which of them are worth a compaction: see `lake.maintain`."""
        scan = self._scan(None)
        files = [live.file for live in scan.files]
        return health_of(files, self._runtime.settings, looked_up=scan.table.is_looked_up)

    # --- read -------------------------------------------------------------------------------

    def to_df(self, at: int | None = None) -> DataFrame:
        """The rows as a Spark DataFrame: now, or at a snapshot."""
        return spark_scan.to_df(self._runtime, self._scan(at))

    def to_arrow(self, at: int | None = None) -> pa.Table:
        """The rows as an Arrow table. A small table is read without Spark."""
        scan = self._scan(at)
        if local_scan.is_small(scan, self._runtime):
            return local_scan.to_arrow(self._runtime, scan)
        with spark_faults():
            rows = spark_scan.to_df(self._runtime, scan).toArrow()
        return rows.cast(scan.table.arrow_schema)

    def changes(self, since: int, until: int | None = None, *, net: bool = True) -> DataFrame:
        """What was inserted and deleted after `since`, up to and including `until`.

        Columns: `_change` ("insert" or "delete"), `_snapshot`, then the table's; a deleted row
        comes as it was. `net=False` shows every step, also of rows that came and went.
        """
        return feed.to_df(self._runtime, self._feed(since, until, net=net))

    def _feed(self, since: int, until: int | None, *, net: bool) -> feed.Feed:
        if self._transaction is not None:
            raise InvalidError("the change feed is of committed snapshots: ask lake.table(…)")
        until = self._runtime.mirror.moment(until)
        return feed.plan(self._runtime, self._find(until), since, until, net=net)

    def _scan(self, at: int | None) -> Scan:
        if self._transaction is not None:
            if at is not None:
                raise InvalidError("a transaction reads at its own snapshot: ask lake.table(…)")
            return self._transaction.scan(self._schema, self._name)
        at = self._runtime.mirror.moment(at)
        return scan_at(self._runtime, self._find(at), at)

    def _find(self, at: int) -> TableInfo:
        runtime = self._runtime
        table = runtime.mirror.find_table(self._schema, self._name, at, runtime.tenant)
        if table is None:
            raise NotFoundError(f"there is no table {self.name} at snapshot {at}")
        return table

    # --- write ------------------------------------------------------------------------------

    def append(self, rows: Any) -> int | None:
        """Add rows. On a table with a primary key, keys that exist are refused."""
        return self._write(lambda txn: txn.append(self._schema, self._name, rows))

    def upsert(self, rows: Any) -> int | None:
        """Add rows, and replace those with the same primary key."""
        return self._write(lambda txn: txn.upsert(self._schema, self._name, rows))

    def delete(self, what: Any) -> int | None:
        """Delete the rows for which a Spark SQL predicate is true, or rows by their keys.

        Keys come in any form that `append` takes; columns beside the key are ignored, and so
        are keys that don't exist.
        """
        return self._write(lambda txn: txn.delete(self._schema, self._name, what))

    def add_column(self, name: Name, kind: str) -> int | None:
        """Add a column; it is NULL in the rows that exist."""
        return self._alter(lambda table: table.with_column(name, parse_type(kind)))

    def drop_column(self, name: Name) -> int | None:
        """Drop a column. Older snapshots still have it."""
        return self._alter(lambda table: table.without_column(name))

    def rename_column(self, old: Name, new: Name) -> int | None:
        """Give a column another name; no file is touched."""
        return self._alter(lambda table: table.with_renamed(old, new))

    def widen_column(self, name: Name, kind: str) -> int | None:
        """Change a column's type to one that holds all of its values; no file is touched."""
        return self._alter(lambda table: table.with_widened(name, parse_type(kind)))

    def _alter(self, change: Callable[[TableInfo], TableInfo]) -> int | None:
        return self._write(lambda txn: txn.alter(self._schema, self._name, change))

    def _write(self, work: Callable[[Transaction], None]) -> int | None:
        if self._transaction is not None:
            work(self._transaction)
            return None
        assert self._begin is not None
        with self._begin() as txn:
            work(txn)
        return txn.snapshot


def scan_at(runtime: TenantRuntime, table: TableInfo, at: int) -> Scan:
    """A table's rows at a snapshot."""
    return Scan.of(table, at, runtime.mirror.data_files(table, at))
