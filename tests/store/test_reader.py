"""What is read of data files, and how much work that is: objects, row groups, columns, rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tailrace.errors import CorruptError
from tailrace.objects import Storage
from tailrace.settings import Settings
from tailrace.store import reader
from tailrace.store.files import DataFile, Op, RowRange, split
from tailrace.store.find_rows import Wanted
from tailrace.store.reader import _some, read, read_rows
from tailrace.store.stats import Comparison, Comparisons
from tailrace.store.write import FileWriter
from tests.store.test_schema import make

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tailrace.store.schema import Column, TableInfo

GROUP = 100
ROWS = 1000  # ten row groups


@dataclass(kw_only=True)
class Work:
    """What has been done since the last look."""

    opened: list[str] = field(default_factory=list)
    calls: list[tuple[int, int]] = field(default_factory=list)  # row groups from, to before
    decoded: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)  # groups, columns

    @property
    def groups(self) -> list[int]:
        return sorted({group for group, _ in self.decoded})

    def of(self, name: str) -> list[int]:
        """The row groups of which a column was decoded."""
        return [group for group, columns in self.decoded if name in columns]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    done = Work()
    open_read, read_groups = Storage.open_read, pq.ParquetFile.read_row_groups

    def opening(storage: Storage, path: str) -> AbstractContextManager[pa.NativeFile]:
        done.opened.append(path)
        return open_read(storage, path)

    def decoding(file: pq.ParquetFile, groups: range, columns: list[str], **given: Any) -> pa.Table:
        done.calls.append((groups.start, groups.stop))
        done.decoded += [(group, tuple(columns)) for group in groups]
        return read_groups(file, groups, columns=columns, **given)

    monkeypatch.setattr(Storage, "open_read", opening)
    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", decoding)
    return done


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(f"{tmp_path}/")


TABLE: TableInfo = make({"id": "bigint", "n": "int", "s": "string"})
ID, N, S = TABLE.columns


@pytest.fixture
def file(storage: Storage) -> DataFile:
    """Row p has id 10·p, n = p mod 7 and NULL in the last group, and s = "sp"."""
    rows = pa.table(
        {
            ID.physical: pa.array(np.arange(ROWS) * 10),
            N.physical: pa.array([None if p >= ROWS - GROUP else p % 7 for p in range(ROWS)], "i4"),
            S.physical: [f"s{p}" for p in range(ROWS)],
        }
    )
    writer = FileWriter(
        storage=storage,
        settings=Settings(row_group_rows=GROUP),
        table=TABLE,
        txn_id="t",
        op=Op.APPEND,
    )
    (written,) = writer.write([rows])
    return written


def wanted(column: Column, *values: Any) -> Wanted:
    return Wanted(column, pa.array(values, column.type))


def positions(storage: Storage, rows: RowRange, **options: Any) -> list[int]:
    found = list(read(storage, rows, (S,), **options))
    for batch in found:
        assert batch.rows.column("s").to_pylist() == [f"s{p}" for p in batch.positions]
    return [int(p) for batch in found for p in batch.positions]


def some(*values: int) -> Any:
    return np.array(values, np.int64)


def test_a_file_is_opened_once_and_each_group_decoded_once(
    storage: Storage, file: DataFile, work: Work
) -> None:
    rows = read_rows(storage, RowRange.of(file), TABLE.columns)
    assert rows.column("id").to_pylist() == list(range(0, 10 * ROWS, 10))
    assert rows.schema == TABLE.arrow_schema
    assert len(work.opened) == 1
    assert [group for group, _ in work.decoded] == list(range(10))


def test_only_groups_with_a_row_of_the_range_are_decoded(
    storage: Storage, file: DataFile, work: Work
) -> None:
    assert positions(storage, RowRange.at(file, some(5, 120, 121, 999))) == [5, 120, 121, 999]
    assert work.groups == [0, 1, 9]
    work.decoded.clear()
    dead = np.arange(50, 950, dtype=np.int64)
    assert positions(storage, RowRange.of(file, without=dead)) == [*range(50), *range(950, ROWS)]
    assert work.groups == [0, 9]
    work.decoded.clear()
    assert positions(storage, RowRange.of(file).between(250, 310)) == list(range(250, 310))
    assert work.groups == [2, 3]


def test_of_nothing_not_even_the_object_is_opened(
    storage: Storage, file: DataFile, work: Work
) -> None:
    assert read_rows(storage, RowRange.at(file, some()), TABLE.columns).num_rows == 0
    assert work.opened == []


def test_groups_that_cannot_hold_a_wanted_row_are_not_decoded(
    storage: Storage, file: DataFile, work: Work
) -> None:
    every = RowRange.of(file)
    assert positions(storage, every, where=wanted(ID, 1230, 4560, 4565)) == [123, 456]
    # Group 4 holds values on either side of 4565; group 1 one that is wanted.
    assert work.of(ID.physical) == [1, 4]
    assert work.of(S.physical) == [1, 4]


def test_other_columns_are_decoded_only_where_something_is_found(
    storage: Storage, file: DataFile, work: Work
) -> None:
    every = RowRange.of(file)
    assert positions(storage, every, where=wanted(ID, 1235, 4560)) == [456]
    assert work.of(ID.physical) == [1, 4]
    assert work.of(S.physical) == [4]
    work.decoded.clear()
    # A column that is looked at is not decoded again to be shown.
    rows = [b.rows for b in read(storage, every, (S, ID), where=wanted(ID, 4560))]
    assert [row for part in rows for row in part.to_pylist()] == [{"s": "s456", "id": 4560}]
    assert work.of(ID.physical) == [4]


def test_positions_alone_need_no_further_column(
    storage: Storage, file: DataFile, work: Work
) -> None:
    found = list(read(storage, RowRange.of(file), (), where=wanted(N, 3)))
    assert [int(p) for b in found for p in b.positions] == list(range(3, ROWS - GROUP, 7))
    assert {columns for _, columns in work.decoded} == {(N.physical,)}


def test_null_is_looked_for_where_there_is_one(
    storage: Storage, file: DataFile, work: Work
) -> None:
    assert positions(storage, RowRange.of(file), where=wanted(N, None)) == list(range(900, ROWS))
    assert work.groups == [9]
    work.decoded.clear()
    # And values are not, where there are only NULLs.
    positions(storage, RowRange.of(file), where=wanted(N, 6))
    assert work.groups == list(range(9))


def test_deleted_rows_are_never_found(storage: Storage, file: DataFile) -> None:
    visible = RowRange.of(file, without=some(456, 457))
    assert positions(storage, visible, where=wanted(ID, 4560, 4570, 4580)) == [458]


def test_comparisons_skip_groups_and_let_the_rest_through(
    storage: Storage, file: DataFile, work: Work
) -> None:
    needed = Comparisons.of([Comparison(column=ID, operator="<", least=1500, most=1500)])
    assert positions(storage, RowRange.of(file), where=needed) == list(range(200))
    assert work.groups == [0, 1]


def test_a_column_that_was_added_later_is_null(storage: Storage, file: DataFile) -> None:
    later = replace(N, id=77, name="new", physical="new")
    rows = read_rows(storage, RowRange.at(file, some(3, 4)), (later, ID))
    assert rows.to_pylist() == [{"new": None, "id": 30}, {"new": None, "id": 40}]
    assert list(read(storage, RowRange.of(file), (ID,), where=wanted(later, 1))) == []
    nulls = list(read(storage, RowRange.of(file), (ID,), where=wanted(later, None)))
    assert sum(batch.rows.num_rows for batch in nulls) == ROWS


def test_a_narrower_column_is_widened(storage: Storage, file: DataFile) -> None:
    wide = replace(N, type=pa.int64())
    rows = read_rows(storage, RowRange.at(file, some(8)), (wide,))
    assert rows.schema.field("n").type == pa.int64()
    found = list(read(storage, RowRange.of(file), (wide,), where=wanted(wide, 5)))
    assert pc.unique(pa.concat_tables([b.rows for b in found]).column("n")).to_pylist() == [5]


def test_tasks_that_divide_a_file_decode_each_group_once(
    storage: Storage, file: DataFile, work: Work
) -> None:
    edges = [(0, 333), (333, 350), (350, 800), (800, ROWS)]
    found = [positions(storage, RowRange.of(file), begin_in=edge) for edge in edges]
    assert [p for part in found for p in part] == list(range(ROWS))
    assert [group for group, _ in work.decoded] == list(range(10))


def test_shares_of_whole_groups_decode_each_group_once(
    storage: Storage, file: DataFile, work: Work
) -> None:
    shares = split([RowRange.of(file)], 3, GROUP, whole_groups=True)
    assert len(shares) == 3
    found = [p for share in shares for rows in share for p in positions(storage, rows)]
    assert found == list(range(ROWS))
    assert [group for group, _ in work.decoded] == list(range(10))


def test_small_row_groups_that_follow_each_other_are_decoded_at_once(
    storage: Storage, file: DataFile, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_BATCH_ROWS", 3 * GROUP)
    every = RowRange.of(file)
    some_found = list(read(storage, every, (ID, S), where=wanted(N, 3)))
    # Ten row groups less the one without a value, three at a time; there is a 3 in each.
    assert work.calls == [(0, 3), (0, 3), (3, 6), (3, 6), (6, 9), (6, 9)]
    assert [len(batch.positions) for batch in some_found] == [43, 43, 43]
    assert [int(p) for b in some_found for p in b.positions] == list(range(3, ROWS - GROUP, 7))
    work.calls.clear()
    # Other columns are decoded only of those in which something was found: there is no 1205.
    found = list(read(storage, every, (S, ID), where=wanted(ID, 50, 90, 1205, 2050)))
    assert [b.rows.column("id").to_pylist() for b in found] == [[50, 90], [2050]]
    assert work.calls == [(0, 3), (0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("other", "reason"),
    [({"rows": ROWS + 1}, "the catalog says 1001"), ({"key": 1}, "the rows of another file")],
)
def test_an_object_that_is_not_the_catalogs_is_refused(
    storage: Storage, file: DataFile, other: dict[str, int], reason: str
) -> None:
    wrong = replace(file, **other)  # type: ignore[arg-type]
    with pytest.raises(CorruptError, match=reason):
        read_rows(storage, RowRange.at(wrong, some(1)), TABLE.columns)


def test_rows_of_nested_columns_are_copied_and_others_are_slices() -> None:
    flat = pa.table({"a": pa.array([1, None, 3, 4])})
    nested = pa.table({"a": pa.array([[1], None, [3], [4]])})
    for rows, offset in [(flat, 1), (nested, 0)]:
        run = _some(rows, some(1, 2))
        assert run == rows.slice(1, 2)
        assert {chunk.offset for chunk in run.column("a").chunks} == {offset}
