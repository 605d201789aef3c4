"""Opens objects as Parquet: the one place where a footer is read.

Always true: a data file that is open is the one that the catalog means. Its footer says how many
rows it has and which file it is, and both are compared before a row is read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.errors import CorruptError
from tailrace.objects import Storage
from tailrace.store import stats
from tailrace.store.files import DataFile
from tailrace.store.parallel import WORTH_THREADS
from tailrace.store.reader.filters import Filter, Known
from tailrace.store.reader.row_range import RowRange
from tailrace.store.schema import FILE, HIDDEN, Column


class OpenFile:
    """A data file that is open for reading."""

    def __init__(self, parquet: pq.ParquetFile) -> None:
        self.footer: pq.FileMetaData = parquet.metadata
        self._parquet = parquet
        self._present = set(parquet.schema_arrow.names)
        counts = (self.footer.row_group(i).num_rows for i in range(self.footer.num_row_groups))
        # The position at which each row group starts, and the number of rows at the end.
        self.starts = list(accumulate(counts, initial=0))

    def span(self, group: int) -> tuple[int, int]:
        """The first position of a row group, and the one after its last."""
        return self.starts[group], self.starts[group + 1]

    def groups(
        self,
        rows: RowRange,
        where: Filter | None = None,
        *,
        begin_in: tuple[int, int] | None = None,
    ) -> list[int]:
        """The row groups with a row of a range that may be one that a filter wants.

        `begin_in`: only those whose first position is from one to before another.
        """
        first = bisect_right(self.starts, rows.start) - 1
        last = bisect_left(self.starts, rows.stop)
        return [
            group
            for group in range(max(0, first), min(last, self.footer.num_row_groups))
            if rows.count(*self.span(group))
            and (begin_in is None or begin_in[0] <= self.starts[group] < begin_in[1])
            and (where is None or where.may_hold(partial(self.known, group)))
        ]

    def known(self, group: int, column: Column) -> Known:
        """What a row group's statistics say of a column."""
        place = self._leaves.get(column.physical)
        if place is None:
            # Written before the column was added, unless it is nested.
            return Known(bounds=None, nulls=None, only_nulls=column.physical not in self._present)
        chunk = self.footer.row_group(group).column(place)
        found = chunk.statistics
        if found is None:
            return Known(bounds=None, nulls=None)
        nulls = found.null_count
        return Known(
            bounds=stats.of_chunk(column.type, found),
            nulls=nulls,
            only_nulls=nulls is not None and nulls == chunk.num_values,
        )

    @cached_property
    def _leaves(self) -> dict[str, int]:
        return stats.leaves(self.footer)

    def read_group(
        self, group: int, columns: Sequence[Column], *, use_threads: bool = True
    ) -> pa.Table:
        """A row group as today's columns: missing ones are NULL, narrower ones are widened."""
        names = [column.physical for column in columns if column.physical in self._present]
        first, last = self.span(group)
        rows = None
        if names:
            names = list(dict.fromkeys(names))
            threads = use_threads and last - first >= WORTH_THREADS
            rows = self._parquet.read_row_group(group, columns=names, use_threads=threads)
        arrays = []
        for column in columns:
            if rows is None or column.physical not in self._present:
                arrays.append(pa.nulls(last - first, column.type))
                continue
            held = rows.column(column.physical)
            arrays.append(held if held.type == column.type else held.cast(column.type))
        return pa.table(arrays, schema=schema_of(columns))


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Columns as rows are read under: by their names of today."""
    return pa.schema([(column.name, column.type, column.nullable) for column in columns])


@contextmanager
def open_parquet(
    storage: Storage,
    path: str,
    *,
    footer: pq.FileMetaData | None = None,
    pre_buffer: bool = False,
) -> Iterator[pq.ParquetFile]:
    """An object of Parquet. With a `footer` that was read before, it is not read again.

    `pre_buffer` reads the chunks of a row group in few large requests, and holds them meanwhile.
    """
    with storage.open_read(path) as source:
        yield pq.ParquetFile(source, metadata=footer, pre_buffer=pre_buffer)


@contextmanager
def open_file(
    storage: Storage,
    file: DataFile,
    *,
    footer: pq.FileMetaData | None = None,
    pre_buffer: bool = False,
) -> Iterator[OpenFile]:
    """A data file, which is checked when its footer is read."""
    with open_parquet(storage, file.path, footer=footer, pre_buffer=pre_buffer) as parquet:
        if footer is None:
            _check(storage, file, parquet.metadata)
        yield OpenFile(parquet)


def _check(storage: Storage, file: DataFile, footer: pq.FileMetaData) -> None:
    """Refuse an object that is not the one that the catalog means."""
    if footer.num_rows != file.rows:
        raise CorruptError(
            f"the object {storage.uri(file.path)} holds {footer.num_rows} rows; "
            f"the catalog says {file.rows}"
        )
    # The hidden columns stand last, and `_file` is the same in all rows.
    place = footer.num_columns - len(HIDDEN)
    chunk = footer.row_group(0).column(place)
    if chunk.path_in_schema != FILE or chunk.statistics.min != file.key:
        raise CorruptError(f"the object {storage.uri(file.path)} holds the rows of another file")
