"""What statistics say of rows that somebody wants: which files and row groups cannot hold one.

Always true: a file or row group is left out only if none of its rows can be wanted. What is not
known of it is taken to be anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.store import stats
from tailrace.store.files import ColumnStats, DataFile
from tailrace.store.schema import Column
from tailrace.store.stats import Bounds

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
            bounds=stats.of_text(column.type, found),
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
