"""Rows into data files: by the driver for local rows, in one Spark job for a DataFrame.

Owned here: the physical layout. A file holds the columns under their physical names with their
field ids, then `_file` and `_pos`; zstd, a page index, row groups small enough to skip. In a file
of a compaction, the ids that its rows have had before stand between the two. What the catalog needs
to know of a file is taken from its footer while that is at hand.

Always true: what is written here is not visible. Names are new, and the catalog doesn't know
them before the commit.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.errors import InvalidError
from tailrace.objects import Storage
from tailrace.settings import Settings, group_rows
from tailrace.spark_sql import types
from tailrace.store import rows as row_checks
from tailrace.store import stats
from tailrace.store.files import DataFile, Op
from tailrace.store.runtime import Runtime
from tailrace.store.schema import FILE, HIDDEN, POS, ROW_ID, ROW_ID_COLUMN, Column, TableInfo
from tailrace.store.spark_actions import run_over_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_SAMPLE_ROWS = 4096
_REPETITIVE = 0.2  # at most so many distinct values for each row


@dataclass(frozen=True, kw_only=True)
class FileWriter:
    """Writes rows of one table for one transaction. Can be sent to Spark's workers."""

    storage: Storage
    settings: Settings
    table: TableInfo
    txn_id: str
    op: Op

    def write(self, batches: Iterable[pa.Table]) -> Iterator[DataFile]:
        """Write rows, which must be sorted by the key if there is one, as one or more files.

        For a compaction, rows have their ids in one more column at the end.
        """
        moves = self.op is Op.COMPACTION
        last_key: pa.Table | None = None
        keys = self.table.key_columns
        pending = _regroup(batches, group_rows(self.settings, looked_up=self.table.is_looked_up))
        group = next(pending, None)
        while group is not None:
            path = f"{self.table.path}{new_object_name(self.txn_id)}"
            file_key = secrets.randbits(63)
            footers: list[pq.FileMetaData] = []
            count = 0
            nans: dict[str, bool] = {}
            # Two statements: the Parquet file must be complete before its object is.
            with self.storage.open_write(path) as sink:  # noqa: SIM117
                with self._open(sink.native, footers, group) as parquet:
                    while group is not None:
                        fitted = row_checks.fit(group, self.table.full_name, self._given)
                        if not moves:  # else they have been checked before
                            row_checks.check_vectors(fitted, self.table)
                        if keys:
                            last_key = row_checks.check_sorted_unique(
                                fitted.select([c.physical for c in keys]),
                                last_key,
                                self.table.full_name,
                                keys,
                            )
                        nans = _find_nans(fitted, nans)
                        parquet.write_table(_with_places(fitted, file_key, count))
                        count += fitted.num_rows
                        group = next(pending, None)
                        if sink.native.tell() >= self.settings.file_bytes:
                            break
            self.storage.sync(self.table.path)
            (footer_size,) = struct.unpack("<I", sink.tail[:4])
            yield DataFile(
                key=file_key,
                path=path,
                rows=count,
                size=sink.size,
                footer=footer_size,
                op=self.op,
                stats=stats.of_file(footers[0], self.table.columns, nans),
            )

    @property
    def _given(self) -> tuple[Column, ...]:
        """The columns of the rows to write."""
        columns = self.table.columns
        return (*columns, ROW_ID_COLUMN) if self.op is Op.COMPACTION else columns

    def _open(
        self, sink: pa.NativeFile, footers: list[pq.FileMetaData], first: pa.Table
    ) -> pq.ParquetWriter:
        columns = self.table.columns
        sample = first.select(range(len(columns)))
        # Positions count up: as deltas they take next to nothing. So do ids in their own order;
        # in the order of a key they take less than as they are.
        deltas = [POS, ROW_ID] if self.op is Op.COMPACTION else [POS]
        return pq.ParquetWriter(
            sink,
            pa.schema([column.field for column in (*self._given, *HIDDEN)]),
            compression="zstd",
            use_dictionary=[FILE, *_repetitive(sample, columns)],
            column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED"),
            store_decimal_as_integer=True,
            write_page_index=True,
            max_rows_per_page=self.settings.page_rows,
            metadata_collector=footers,
        )


def new_object_name(txn_id: str, suffix: str = "", *, ending: str = "parquet") -> str:
    """A name never used before, which tells the transaction that an object belongs to."""
    return f"{txn_id}-{secrets.token_hex(8)}{suffix}.{ending}"


def _regroup(batches: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in pieces of a row group each; no piece is empty."""
    held: list[pa.Table] = []
    count = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, rows - count)
            held.append(piece)
            count += piece.num_rows
            start += piece.num_rows
            if count == rows:
                yield pa.concat_tables(held)
                held, count = [], 0
    if held:
        yield pa.concat_tables(held)


def _with_places(rows: pa.Table, file_key: int, start: int) -> pa.Table:
    count = rows.num_rows
    places = np.arange(start, start + count, dtype=np.int64)
    hidden = [pa.repeat(pa.scalar(file_key, pa.int64()), count), pa.array(places)]
    for column, array in zip(HIDDEN, hidden, strict=True):
        rows = rows.append_column(column.field, array)
    return rows


def _find_nans(rows: pa.Table, found: dict[str, bool]) -> dict[str, bool]:
    for field in rows.schema:
        if pa.types.is_floating(field.type):
            seen = pc.any(pc.is_nan(rows.column(field.name))).as_py()
            found[field.name] = bool(seen) or found.get(field.name, False)
    return found


def _repetitive(sample: pa.Table, columns: Sequence[Column]) -> Iterator[str]:
    """The leaf columns worth a dictionary, judged by the first rows.

    Arrow gives up a dictionary only when it has become large: on a column of distinct values,
    writing took twice and reading one and a half times as long with one as without.
    """
    for column, array in zip(columns, sample.columns, strict=True):
        if types.is_atomic(column.type):
            few = array.slice(0, _SAMPLE_ROWS)
            # Bare NULLs have a type of which Arrow counts nothing.
            nulls = pa.types.is_null(few.type)
            if nulls or pc.count_distinct(few).as_py() <= max(1, len(few) * _REPETITIVE):
                yield column.physical
        elif not _holds_floats(column.type):
            yield from _leaves(column.physical, column.type)


def _holds_floats(kind: pa.DataType) -> bool:
    # An array of floats is most likely a vector: no value stands there twice.
    return bool(pa.types.is_floating(kind)) or any(
        _holds_floats(child.type) for child in types.children_of(kind)
    )


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """The paths of a field's leaf columns as Parquet spells them."""
    middle = ".list" if pa.types.is_list(kind) else ".key_value" if pa.types.is_map(kind) else ""
    children = types.children_of(kind)
    for child in children:
        yield from _leaves(f"{path}{middle}.{child.name}", child.type)
    if not children:
        yield path


@dataclass(frozen=True, kw_only=True)
class Written:
    """The files that rows went into and, where the driver had them at hand, their keys."""

    files: tuple[DataFile, ...]
    keys: pa.Table | None = None  # physical names, sorted

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def write_rows(runtime: Runtime, table: TableInfo, rows: object, *, txn_id: str, op: Op) -> Written:
    """Write rows of any supported form; what doesn't fit the table is an InvalidError."""
    writer = FileWriter(
        storage=runtime.storage, settings=runtime.settings, table=table, txn_id=txn_id, op=op
    )
    if row_checks.is_spark(rows):
        return Written(files=_write_frame(writer, rows))
    return _write_local(writer, rows)


def _write_local(writer: FileWriter, rows: object) -> Written:
    table = writer.table
    fitted = fit_local(rows, table, table.columns)
    names = [column.physical for column in table.key_columns]
    if names:
        fitted = row_checks.sort(fitted, names)
    files = tuple(writer.write([fitted]))
    return Written(files=files, keys=fitted.select(names) if names else None)


def fit_local(rows: object, table: TableInfo, columns: Sequence[Column]) -> pa.Table:
    """Local rows with exactly these columns, their types and physical names."""
    local = row_checks.to_arrow(rows, table, columns)
    given = dict(zip((c.name for c in columns), local.schema.types, strict=True))
    row_checks.check_types(given, table, columns)
    return row_checks.fit(local, table.full_name, columns)


def _write_frame(writer: FileWriter, frame: Any) -> tuple[DataFile, ...]:
    columns = writer.table.columns
    # By numbers instead of names: mapInArrow takes a dot in a name for a field's.
    names = {column.id: f"c{number}" for number, column in enumerate(columns)}
    selected = select_columns(frame, writer.table, columns).toDF(*names.values())
    keys = [names[number] for number in writer.table.key]
    if keys:
        # By range and not by hash: keys that arrive together live together, and few files
        # are opened to find them again.
        selected = selected.repartitionByRange(*keys).sortWithinPartitions(*keys)

    return tuple(run_over_rows(selected, writer.write))


def select_columns(frame: DataFrame, table: TableInfo, columns: Sequence[Column]) -> DataFrame:
    """A DataFrame's columns in the order of `columns`, under their physical names."""
    from pyspark.sql import functions as F

    names = row_checks.match_names(frame.columns, table, columns)
    described = {f["name"]: f["type"] for f in frame.schema.jsonValue()["fields"]}
    given = {c.name: _type_of(described[names[c.name]], table, c) for c in columns}
    row_checks.check_types(given, table, columns)
    return frame.select(*(F.col(types.quote(names[c.name])).alias(c.physical) for c in columns))


def _type_of(described: Any, table: TableInfo, column: Column) -> pa.DataType:
    if described == "void":
        return pa.null()  # bare NULLs fit anywhere
    try:
        return types.from_spark(described)
    except InvalidError as error:
        raise InvalidError(f"{table.full_name}.{column.name}: {error}") from error
