"""Opens data files: what their footers say, how row groups are decoded, and what is kept of that.

The one place where a footer is read and rows are decoded. A process keeps the layouts of files and
columns that it has decoded in memory, for the next read. Only small reads are kept: a large one
would push out what is looked up again and again, and is rarely repeated.

Always true: a data file that is open is the one that the catalog means. Its footer says how many
rows it has and which file it is, and both are compared before a row is read. A data file never
changes, so that what is kept of it is right for as long as it is kept; which of its rows are
deleted is not known here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.errors import CorruptError
from tailrace.lru import LruCache
from tailrace.objects import Storage
from tailrace.store import stats
from tailrace.store.files import DataFile, RowRange
from tailrace.store.schema import FILE, HIDDEN, Column
from tailrace.store.stats import Filter, Known

# Rows from which on it pays to decode them by several threads.
WORTH_THREADS = 10_000
# Decoded, a footer takes about so many times its size in the file.
_DECODED = 4


class Layout:
    """See the module."""

    def __init__(self, footer: pq.FileMetaData) -> None:
        self.footer = footer
        counts = (footer.row_group(i).num_rows for i in range(footer.num_row_groups))
        # The position at which each row group starts, and the number of rows at the end.
        self.starts: list[int] = list(accumulate(counts, initial=0))
        self.present = frozenset(footer.schema.to_arrow_schema().names)
        self._leaves = stats.leaves(footer)
        # By a column's name and type, what is known of it in each row group.
        self._known: dict[tuple[str, pa.DataType], list[Known]] = {}

    @property
    def groups(self) -> int:
        """How many row groups there are."""
        return len(self.starts) - 1

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return int(self.footer.serialized_size) * _DECODED

    def span(self, group: int) -> tuple[int, int]:
        """The first position of a row group, and the one after its last."""
        return self.starts[group], self.starts[group + 1]

    def rows(self, groups: range) -> int:
        """How many rows are in row groups that follow each other."""
        return self.starts[groups.stop] - self.starts[groups.start]

    def shares(self, groups: Sequence[int], most: int) -> Iterator[list[int]]:
        """Row groups in shares of at most so many rows, or of one row group."""
        share: list[int] = []
        held = 0
        for group in groups:
            first, last = self.span(group)
            if share and held + last - first > most:
                yield share
                share, held = [], 0
            share.append(group)
            held += last - first
        if share:
            yield share

    def runs(self, groups: Sequence[int], most: int) -> Iterator[range]:
        """Row groups in runs of those that follow each other, of at most so many rows or one."""
        for share in self.shares(groups, most):
            start = 0
            for at in range(1, len(share) + 1):
                if at == len(share) or share[at] != share[at - 1] + 1:
                    yield range(share[start], share[at - 1] + 1)
                    start = at

    def known(self, group: int, column: Column) -> Known:
        """What a row group's statistics say of a column."""
        known = self._known.get((column.physical, column.type))
        if known is None:
            known = [self._known_of(one, column) for one in range(self.groups)]
            self._known[column.physical, column.type] = known
        return known[group]

    def _known_of(self, group: int, column: Column) -> Known:
        place = self._leaves.get(column.physical)
        if place is None:
            # Written before the column was added, unless it is nested.
            return Known(bounds=None, nulls=None, only_nulls=column.physical not in self.present)
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


# A text takes about so many bytes, and a read is small if it takes at most this part of the room.
_TEXT_BYTES, _SMALL = 16, 4


def _value_bytes(kind: pa.DataType) -> int:
    """How many bytes a value takes in memory, about."""
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:  # of no fixed width
        return _TEXT_BYTES


@dataclass(frozen=True, kw_only=True)
class KeptRows:
    """The rows of a table at a snapshot that have one of some values in a column."""

    at: int
    values: pa.Array
    rows: pa.Table | None  # None: they are too many to be kept

    @property
    def size(self) -> int:
        return int(self.values.nbytes + (0 if self.rows is None else self.rows.nbytes))


class _Store:
    def __init__(self, room: int) -> None:
        self.room = room
        self.layouts: LruCache[Layout] = LruCache(room // 4, lambda layout: layout.size)
        # By file, row group, and the column's name and type.
        self.columns: LruCache[pa.ChunkedArray] = LruCache(room, lambda values: values.nbytes)
        self.rows: LruCache[KeptRows] = LruCache(room // 4, lambda rows: rows.size)
        self.lock = Lock()
        self.decoded = 0


@dataclass(frozen=True)
class KeptFiles:
    """What is kept, as one read uses it."""

    _store: _Store
    keeps: bool = False  # whether it keeps what it decodes, and uses what is kept

    @staticmethod
    def of(room: int) -> KeptFiles:
        """Nothing yet, and later up to so many bytes of columns."""
        return KeptFiles(_Store(room))

    def for_read(self, rows: int, columns: Iterable[Column]) -> KeptFiles:
        """For a read of so many rows: what it decodes is kept if that is little."""
        room, width = self._store.room, sum(_value_bytes(column.type) for column in columns)
        return replace(self, keeps=rows * width * _SMALL <= room > 0)

    @property
    def decoded(self) -> int:
        """Rows decoded so far. Those of a row group count once for each read that decodes some."""
        return self._store.decoded

    def count(self, rows: int) -> None:
        """Rows are about to be decoded."""
        with self._store.lock:
            self._store.decoded += rows

    def layout(self, file: int) -> Layout | None:
        """The layout of a file, by its key."""
        return self._store.layouts.get(file)

    def keep_layout(self, file: int, layout: Layout) -> None:
        if self._store.room:
            self._store.layouts.put(file, layout)

    def columns(
        self, file: int, group: int, columns: Sequence[Column]
    ) -> dict[str, pa.ChunkedArray]:
        """Those of some columns of a row group that are at hand, by their physical names."""
        store = self._store.columns
        held = {c.physical: store.get((file, group, c.physical, c.type)) for c in columns}
        return {name: values for name, values in held.items() if values is not None}

    @property
    def rows(self) -> LruCache[KeptRows] | None:
        """What others keep of the rows that they have found; None if nothing is to be kept."""
        return self._store.rows if self._store.room else None

    def fits(self, rows: pa.Table) -> bool:
        """Whether some rows are few enough for `rows`."""
        return int(rows.nbytes) * _SMALL * 2 <= self._store.room

    def keep(self, file: int, group: int, columns: Mapping[str, pa.ChunkedArray]) -> None:
        """Keep columns of a row group."""
        for name, values in columns.items():
            if self.keeps and values.nbytes * _SMALL <= self._store.room:
                self._store.columns.put((file, group, name, values.type), values)

    def clear(self) -> None:
        """Forget everything."""
        self._store.layouts.clear()
        self._store.columns.clear()
        self._store.rows.clear()


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
            if rows.count(*self.layout.span(group))
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
            self._kept.count(sum(last - first for first, last in map(self.layout.span, new)))
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
