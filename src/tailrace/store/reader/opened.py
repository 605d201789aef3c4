"""Opens objects as Parquet: the one place where a footer is read.

Always true: a data file that is open is the one that the catalog means. Its footer says how many
rows it has and which file it is, and both are compared before a row is read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.errors import CorruptError
from tailrace.objects import Storage
from tailrace.store.files import DataFile
from tailrace.store.parallel import WORTH_THREADS
from tailrace.store.reader.filters import Filter
from tailrace.store.reader.kept import KeptFiles
from tailrace.store.reader.layout import Layout
from tailrace.store.reader.row_range import RowRange
from tailrace.store.schema import FILE, HIDDEN, Column


class OpenFile:
    """A data file that is open for reading."""

    def __init__(
        self,
        file: DataFile,
        layout: Layout,
        open_object: Callable[[], pq.ParquetFile],
        kept: KeptFiles | None,
    ) -> None:
        self.layout = layout
        self._file, self._open, self._kept = file, open_object, kept
        self._counted: set[int] = set()  # row groups of which something was decoded

    def span(self, group: int) -> tuple[int, int]:
        """The first position of a row group, and the one after its last."""
        return self.layout.span(group)

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
        starts = self.layout.starts
        first = bisect_right(starts, rows.start) - 1
        last = bisect_left(starts, rows.stop)
        return [
            group
            for group in range(max(0, first), min(last, self.layout.groups))
            if rows.count(*self.span(group))
            and (begin_in is None or begin_in[0] <= starts[group] < begin_in[1])
            and (where is None or where.may_hold(partial(self.layout.known, group)))
        ]

    def read_groups(
        self, groups: range, columns: Sequence[Column], *, use_threads: bool = True
    ) -> pa.Table:
        """Row groups that follow each other as today's columns.

        Missing columns are NULL, narrower ones are widened.
        """
        count = self.layout.rows(groups)
        threads = use_threads and count >= WORTH_THREADS
        present = [column for column in columns if column.physical in self.layout.present]
        if self._kept is not None and self._kept.keeps:
            held = self._kept_or_decoded(self._kept, groups, present, use_threads=threads)
        else:
            held = self._decoded(groups, present, use_threads=threads)
        arrays = [
            held[c.physical] if c.physical in held else pa.nulls(count, c.type) for c in columns
        ]
        return pa.table(arrays, schema=schema_of(columns))

    def _kept_or_decoded(
        self, kept: KeptFiles, groups: range, columns: Sequence[Column], *, use_threads: bool
    ) -> dict[str, pa.ChunkedArray]:
        chunks: dict[str, list[pa.Array]] = {column.physical: [] for column in columns}
        for group in groups:
            of_group = kept.columns(self._file.key, group, columns)
            missing = [column for column in columns if column.physical not in of_group]
            decoded = self._decoded(range(group, group + 1), missing, use_threads=use_threads)
            kept.keep(self._file.key, group, decoded)
            for name, values in {**of_group, **decoded}.items():
                chunks[name] += values.chunks
        return {c.physical: pa.chunked_array(chunks[c.physical], c.type) for c in columns}

    def _decoded(
        self, groups: range, columns: Sequence[Column], *, use_threads: bool
    ) -> dict[str, pa.ChunkedArray]:
        """The one place where rows are decoded."""
        if not columns:
            return {}
        if self._kept is not None:
            new = [group for group in groups if group not in self._counted]
            self._counted.update(new)
            self._kept.count(sum(last - first for first, last in map(self.span, new)))
        names = list(dict.fromkeys(column.physical for column in columns))
        rows = self._object.read_row_groups(groups, columns=names, use_threads=use_threads)
        held = {column.physical: rows.column(column.physical) for column in columns}
        return {
            c.physical: held[c.physical]
            if held[c.physical].type == c.type
            else held[c.physical].cast(c.type)
            for c in columns
        }

    @cached_property
    def _object(self) -> pq.ParquetFile:
        return self._open()


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
    kept: KeptFiles | None = None,
    layout: Layout | None = None,
    pre_buffer: bool = False,
) -> Iterator[OpenFile]:
    """A data file, which is checked when its footer is read.

    Where its `layout` is at hand, the object is not opened before something has to be decoded.
    """
    layout = layout or (None if kept is None else kept.layout(file.key))
    with ExitStack() as stack:

        def open_object() -> pq.ParquetFile:
            footer = None if layout is None else layout.footer
            return stack.enter_context(
                open_parquet(storage, file.path, footer=footer, pre_buffer=pre_buffer)
            )

        if layout is not None:
            yield OpenFile(file, layout, open_object, kept)
            return
        parquet = open_object()
        _check(storage, file, parquet.metadata)
        read = Layout(parquet.metadata)
        if kept is not None:
            kept.keep_layout(file.key, read)
        yield OpenFile(file, read, lambda: parquet, kept)


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
