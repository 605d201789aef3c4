"""Statistics of columns: written as text, compared as values of the column's type.

They say which files and row groups cannot hold a row that somebody wants (`Filter`). What is not
known of a file is taken to be anything.

Always true: a bound is exact or absent. Readers, ours and others', skip files by these, so that
a wrong bound is a silently wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.spark_sql.types import is_atomic
from tailrace.store.files import ColumnStats, DataFile
from tailrace.store.schema import Column

# A longer text says little about a file and makes the catalog large.
_LONGEST = 256
Bounds = tuple[Any, Any] | None  # the least and the greatest value; None: unknown
_FIRST_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = tuple((day - _FIRST_DAY).days for day in (date.min, date.max))


def of_file(
    footer: pq.FileMetaData, columns: tuple[Column, ...], nans: dict[str, bool]
) -> tuple[ColumnStats, ...]:
    """Statistics of the atomic columns, taken from a file's footer.

    `nans` says for the float columns whether a NaN was seen: Parquet's bounds leave NaN out.
    """
    places = leaves(footer)
    result = []
    for column in columns:
        # A nested column's leaves have paths of their own; no reader prunes by them.
        if not is_atomic(column.type) or column.physical not in places:
            continue
        chunks = [
            footer.row_group(group).column(places[column.physical])
            for group in range(footer.num_row_groups)
        ]
        result.append(_merge(column, chunks, has_nan=nans.get(column.physical)))
    return tuple(result)


def leaves(footer: pq.FileMetaData) -> dict[str, int]:
    """The places of the columns that are not nested, by their names.

    A path alone would not do: `b.c` may be the field `c` of `b`, or a column of that name.
    """
    columns = [footer.schema.column(i) for i in range(footer.num_columns)]
    return {leaf.name: i for i, leaf in enumerate(columns) if leaf.path == leaf.name}


def _merge(column: Column, chunks: list[Any], *, has_nan: bool | None) -> ColumnStats:
    rows = sum(chunk.num_values for chunk in chunks)
    nulls = sum(chunk.statistics.null_count for chunk in chunks)
    low, high = None, None
    # NaN lies outside of Parquet's bounds, so that a column with one has no bounds here.
    if nulls < rows and not has_nan:
        filled = [c.statistics for c in chunks if c.statistics.null_count < c.num_values]
        bounds = [of_chunk(column.type, statistics) for statistics in filled]
        if all(bound is not None for bound in bounds):
            low = to_text(column.type, min(bound[0] for bound in bounds if bound))
            high = to_text(column.type, max(bound[1] for bound in bounds if bound))
    return ColumnStats(
        column_id=column.id,
        size=sum(chunk.total_compressed_size for chunk in chunks),
        values=rows - nulls,
        nulls=nulls,
        min=low,
        max=high,
        has_nan=has_nan,
    )


# A bound is a Python value that compares like the column's values. Dates and timestamps are the
# numbers of days and microseconds since 1970, because years beyond 9999 have no datetime.


def of_chunk(kind: pa.DataType, statistics: Any) -> Bounds:
    """The bounds of a row group's column, or None if they are unknown."""
    if statistics is None or not statistics.has_min_max:
        return None
    if pa.types.is_temporal(kind):
        return statistics.min_raw, statistics.max_raw
    return statistics.min, statistics.max


def as_bounds(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Values in the form of bounds."""
    if pa.types.is_temporal(values.type):
        return values.cast(pa.int32() if pa.types.is_date(values.type) else pa.int64())
    return values


def of_values(values: pa.Array | pa.ChunkedArray) -> Bounds:
    """The bounds of values at hand, or None if there are none."""
    found = pc.min_max(as_bounds(values)).as_py()
    return None if found["min"] is None else (found["min"], found["max"])


def of_text(kind: pa.DataType, stats: ColumnStats | None) -> Bounds:
    """The bounds that the catalog has for a column of a file, or None if it has none."""
    if stats is None or stats.min is None or stats.max is None:
        return None
    return from_text(kind, stats.min), from_text(kind, stats.max)


def to_text(kind: pa.DataType, value: Any) -> str | None:
    """A bound as the catalog stores it; None where no exact text is possible."""
    if pa.types.is_boolean(kind):
        return "1" if value else "0"
    if pa.types.is_date(kind):
        if not _DAYS[0] <= value <= _DAYS[1]:
            return None
        return (_FIRST_DAY + timedelta(days=value)).isoformat()
    if pa.types.is_timestamp(kind):
        try:
            moment = _EPOCH + timedelta(microseconds=value)
        except OverflowError:
            return None
        # isoformat and not strftime, which writes the year 1 as "1".
        text = moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        return f"{text}+00" if kind.tz else text
    if pa.types.is_string(kind):
        return value if len(value) <= _LONGEST and "\0" not in value else None
    if pa.types.is_binary(kind):
        return None
    if pa.types.is_floating(kind):
        return repr(float(value))
    return str(value)


def from_text(kind: pa.DataType, text: str) -> Any:
    """A bound as a value."""
    if pa.types.is_boolean(kind):
        return text in ("1", "true")
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_date(kind):
        return (date.fromisoformat(text) - _FIRST_DAY).days
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(text)
        since = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (since - _EPOCH) // timedelta(microseconds=1)
    return text


Flags = npt.NDArray[np.bool_]
# What the catalog knows of files: by their ids, then by the columns'.
FileStats = Mapping[int, Mapping[int, ColumnStats]]


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a column's values in a file or a row group."""

    bounds: Bounds  # of its values but NULL and NaN; None: unknown
    nulls: int | None  # None: unknown
    only_nulls: bool = False  # no row has a value


class Filter(Protocol):
    """Says which rows are wanted."""

    @property
    def looks_at(self) -> tuple[Column, ...]:
        """The columns whose values decide; none if statistics are all that is looked at."""

    def may_hold(self, known: Callable[[Column], Known]) -> bool:
        """Whether a wanted row can be where this is known."""

    def found_in(self, rows: pa.Table) -> Flags:
        """Which of some rows are wanted, by the columns that are looked at."""


def known_of(file: DataFile, statistics: FileStats) -> Callable[[Column], Known]:
    """What the catalog says of a file's columns."""
    own = _stats_of(file, statistics)

    def known(column: Column) -> Known:
        found = own.get(column.id)
        if found is None:
            return Known(bounds=None, nulls=None)
        return Known(
            bounds=of_text(column.type, found),
            nulls=found.nulls,
            only_nulls=found.values == 0,
        )

    return known


def size_of(file: DataFile, columns: Iterable[Column], statistics: FileStats) -> int:
    """How many bytes of a file some columns are, as far as that is known."""
    own = _stats_of(file, statistics)
    return sum(own[column.id].size for column in columns if column.id in own)


def _stats_of(file: DataFile, statistics: FileStats) -> Mapping[int, ColumnStats]:
    """By column id; a file that is not committed says so itself."""
    if file.id < 0:
        return {one.column_id: one for one in file.stats}
    return statistics.get(file.id, {})


def overlap(one: Bounds, other: Bounds) -> bool:
    """Whether a value can be in both ranges."""
    return one is None or other is None or bool(one[0] <= other[1] and other[0] <= one[1])


# What bounds must satisfy if a value is to compare like this with one from `least` to `most`.
_POSSIBLE: dict[str, Callable[[Any, Any, Any, Any], bool]] = {
    "=": lambda low, high, least, most: bool(low <= most and least <= high),
    "<": lambda low, _high, _least, most: bool(low < most),
    "<=": lambda low, _high, _least, most: bool(low <= most),
    ">": lambda _low, high, least, _most: bool(high > least),
    ">=": lambda _low, high, least, _most: bool(high >= least),
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A comparison of a column with values, which every wanted row satisfies."""

    column: Column
    operator: str  # = < <= > >=
    least: Any  # of the values, as statistics have them
    most: Any

    def may_hold(self, known: Known) -> bool:
        """Whether it can be true of a row: a NULL compares with nothing."""
        if known.only_nulls:
            return False
        return known.bounds is None or _POSSIBLE[self.operator](
            *known.bounds, self.least, self.most
        )


@dataclass(frozen=True, kw_only=True)
class Comparisons:
    """Rows that satisfy all of some comparisons, and perhaps more: only statistics are asked."""

    every: tuple[Comparison, ...]
    looks_at: ClassVar[tuple[Column, ...]] = ()

    @staticmethod
    def of(every: Iterable[Comparison]) -> Comparisons:
        return Comparisons(every=tuple(every))

    @property
    def columns(self) -> set[int]:
        """The ids of the columns that are compared."""
        return {one.column.id for one in self.every}

    def may_hold(self, known: Callable[[Column], Known]) -> bool:
        return all(one.may_hold(known(one.column)) for one in self.every)

    def found_in(self, rows: pa.Table) -> Flags:
        return np.ones(rows.num_rows, bool)
