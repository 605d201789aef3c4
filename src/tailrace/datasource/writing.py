"""Rows of a DataFrame into a table, by Spark's tasks, as one transaction.

1. `begin`, before the first task: a transaction is entered in the catalog, and checks that the
   columns fit. It outlives the process that entered it.
2. Each task writes its rows as data files and reports their names. Of a task that Spark runs twice
   only one report counts, so that no row is there twice.
3. `commit` goes on with the transaction: it compares keys as every write does, and makes the files
   that were reported visible as one snapshot. `abort` gives the transaction up.

Spark doesn't sort the rows for us. So the tasks sort what they can hold, and whether a key stands
twice is found at the commit, with the keys alone in memory: which is why there is a limit to them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tailrace.datasource.place import Place
from tailrace.errors import InvalidError
from tailrace.lake import Lake
from tailrace.settings import Settings
from tailrace.spark_sql import types
from tailrace.store import rows as row_checks
from tailrace.store.files import DataFile, Op, RowRange
from tailrace.store.names import split_name
from tailrace.store.reader import read_rows
from tailrace.store.runtime import TenantRuntime
from tailrace.store.scan import each
from tailrace.store.schema import TableInfo
from tailrace.store.transaction import Begun, Heartbeat, Transaction
from tailrace.store.write import FileWriter, Written

# How long a write may take: nobody renews its transaction meanwhile.
_LASTING = timedelta(days=1)
# Bytes in memory that a task sorts by the key at once; each time is a file.
_SORTED_BYTES = 128 * 1024 * 1024
# Rows of one write to a table with a key.
_MOST_KEYS = Settings.local_keys
# The process that commits has no Spark to ask: it does all itself.
_ALONE = Settings(local_rows=_MOST_KEYS, local_keys=sys.maxsize)


@dataclass(kw_only=True)
class Report(WriterCommitMessage):
    """What a task wrote, or why it could not."""

    files: tuple[DataFile, ...] = ()
    error: str | None = None


def begin(lake: Lake, place: Place, schema: StructType) -> TableWriter:
    """Begin a write of rows with these columns."""
    runtime = lake.runtime
    with _transaction(runtime) as txn:
        table = txn.own_info(place.table)
        order = _order(table, schema)
        if place.operation is Op.UPSERT and not table.key:
            raise InvalidError(f"{table.full_name} has no primary key: upsert needs one; append")
        begun = txn.hand_over(_LASTING)
    files = FileWriter(
        storage=runtime.storage,
        settings=runtime.settings,
        table=table,
        txn_id=begun.id,
        op=place.operation,
    )
    return TableWriter(place, begun, files, order)


@contextmanager
def _transaction(runtime: TenantRuntime, begun: Begun | None = None) -> Iterator[Transaction]:
    heartbeat = Heartbeat(runtime.database, runtime.clock)
    with closing(heartbeat), Transaction(runtime, heartbeat, begun=begun) as txn:
        yield txn


def _order(table: TableInfo, schema: StructType) -> tuple[int, ...]:
    """For each of the table's columns, its place in the DataFrame."""
    names = row_checks.match_names(schema.names, table, table.columns)
    given = types.of_columns(schema)
    row_checks.check_types({n: given[own] for n, own in names.items()}, table, table.columns)
    places = {name: number for number, name in enumerate(schema.names)}
    return tuple(places[names[column.name]] for column in table.columns)


class TableWriter(DataSourceArrowWriter):
    """One write. It is sent to the tasks."""

    def __init__(self, place: Place, txn: Begun, files: FileWriter, order: tuple[int, ...]) -> None:
        self._place, self._txn, self._files, self._order = place, txn, files, order

    # --- in a task --------------------------------------------------------------------------

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        writer = self._files
        tables = (self._table(batch) for batch in iterator)
        try:
            if not writer.table.key:
                return Report(files=tuple(writer.write(tables)))
            pieces = _in_pieces(tables, _SORTED_BYTES)
            return Report(files=tuple(f for piece in pieces for f in _write_sorted(writer, piece)))
        except InvalidError as error:
            # As a report, not as a failure: Spark would try the task again, in vain.
            return Report(error=str(error))

    def _table(self, batch: pa.RecordBatch) -> pa.Table:
        """The rows with the table's columns in their order."""
        return pa.Table.from_batches([batch]).select(list(self._order))

    # --- at the end -------------------------------------------------------------------------

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        reports = _reports(messages)
        files = tuple(file for report in reports for file in report.files)
        writer = self._files
        with self._place.open(_ALONE) as lake, _transaction(lake.runtime, self._txn) as txn:
            txn.own_objects(file.path for file in files)
            for report in reports:
                if report.error is not None:
                    raise InvalidError(report.error)
            keys = _keys(lake.runtime, writer.table, files) if writer.table.key else None
            if files:
                written = Written(files=files, keys=keys)
                txn.add_written(*split_name(self._place.table), written, writer.op)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with self._place.open() as lake, _transaction(lake.runtime, self._txn) as txn:
            txn.own_objects(file.path for one in _reports(messages) for file in one.files)
            txn.rollback()


def _reports(messages: Iterable[WriterCommitMessage | None]) -> list[Report]:
    """What tasks reported; those that failed did not."""
    return [message for message in messages if isinstance(message, Report)]


def _in_pieces(tables: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    """The same rows in as few pieces as fit in memory."""
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        held.append(table)
        size += table.nbytes
        if size >= most:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


def _write_sorted(writer: FileWriter, rows: pa.Table) -> Iterator[DataFile]:
    table = writer.table
    fitted = row_checks.fit(rows, table.full_name, table.columns)
    return writer.write([row_checks.sort(fitted, [c.physical for c in table.key_columns])])


def _keys(runtime: TenantRuntime, table: TableInfo, files: Sequence[DataFile]) -> pa.Table:
    """All keys that were written, sorted; one that stands twice is an InvalidError."""
    count = sum(file.rows for file in files)
    if count > _MOST_KEYS:
        raise InvalidError(
            f"{table.full_name} has a primary key, and {count:,} rows are too many to compare "
            f"here (at most {_MOST_KEYS:,}): write them by lake.table({table.full_name!r})"
            ".append(df), which lets Spark compare, or in parts"
        )
    columns = table.key_columns
    names = [column.physical for column in columns]
    parts = each(lambda file: read_rows(runtime.storage, RowRange.of(file), columns), files)
    empty = pa.schema([(c.name, c.type) for c in columns]).empty_table()
    keys = pa.concat_tables([empty, *(part.cast(empty.schema) for part in parts)])
    ordered = row_checks.sort(keys.rename_columns(names), names)
    row_checks.check_sorted_unique(ordered, None, table.full_name, columns)
    return ordered
