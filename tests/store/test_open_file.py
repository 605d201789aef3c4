"""What is kept of data files in memory: never other rows than without it, and not too much."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import tailrace
from tailrace.errors import CorruptError
from tailrace.store import table_files
from tailrace.store.find_rows import Wanted, find_rows
from tailrace.store.open_file import KeptFiles
from tailrace.store.scan import Scan
from tests.oracle.values import GENERATORS, comparable
from tests.store.test_schema import make
from tests.support import counted
from tests.support.seeds import seed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.lakes import LakeArgs

GROUP, ROWS = 100, 1000
KINDS = [kind for kind in GENERATORS if not kind.startswith(("array", "struct", "map"))]


@pytest.fixture
def lake(sqlite_lake_args: LakeArgs) -> Iterator[tailrace.Lake]:
    settings = tailrace.Settings(row_group_rows=GROUP)
    with sqlite_lake_args.connect(settings=settings) as opened:
        yield opened


@pytest.fixture
def table(lake: tailrace.Lake) -> tailrace.Table:
    """Row n has the key n, and is in the row group n // 100 of one file."""
    numbers = np.arange(ROWS)
    table = lake.create_table("t", {"id": "bigint", "v": "int"}, primary_key="id")
    table.append(pa.table({"id": numbers, "v": pa.array(numbers % 7, pa.int32())}))
    return table


def search(
    lake: tailrace.Lake, column: str, values: list[Any], *, room: int | None = None
) -> tuple[list[dict[str, Any]], int]:
    """The rows with a value, and how many rows were decoded; `room`: with so much for this read."""
    runtime = lake.runtime
    if room is not None:
        runtime = replace(runtime, kept_files=KeptFiles.of(room))
    scan = lake.table("t")._scan(None)
    wanted = Wanted(scan.table.column(column), pa.array(values, scan.table.column(column).type))
    before = runtime.kept_files.decoded
    found = find_rows(runtime, pruned(lake, scan, wanted), wanted, limit=10**6)
    assert found.rows is not None
    return found.rows.to_pylist(), runtime.kept_files.decoded - before


def pruned(lake: tailrace.Lake, scan: Scan, wanted: Wanted) -> Scan:
    with lake.runtime.database.read() as connection:
        stats = table_files.file_stats(connection, scan.table, (wanted.column.id,), scan.at)
    return scan.pruned(wanted, stats)


def test_what_was_decoded_is_not_decoded_again(lake: tailrace.Lake, table: tailrace.Table) -> None:
    rows, decoded = search(lake, "id", [150, 990])
    assert [row["id"] for row in rows] == [150, 990]
    assert decoded == 2 * GROUP
    assert search(lake, "id", [151, 999]) == ([{"id": 151, "v": 4}, {"id": 999, "v": 5}], 0)
    assert search(lake, "id", [250, 999])[1] == GROUP
    # Another column of the same rows is decoded when it is asked for.
    assert search(lake, "v", [6])[1] == (ROWS - 3 * GROUP)


def test_an_object_is_opened_only_if_something_has_to_be_decoded(
    lake: tailrace.Lake, table: tailrace.Table
) -> None:
    search(lake, "id", [150])
    lake.runtime.storage.delete(list(lake.runtime.storage.list()))
    assert search(lake, "id", [151]) == ([{"id": 151, "v": 4}], 0)
    # Its statistics are known: no row group can hold this one.
    assert search(lake, "id", [-1]) == ([], 0)
    with pytest.raises(CorruptError, match="is missing"):
        search(lake, "id", [250])


def test_deleted_rows_are_not_shown_of_what_is_kept(
    lake: tailrace.Lake, table: tailrace.Table
) -> None:
    assert len(search(lake, "id", [150, 151])[0]) == 2
    table.delete([{"id": 150}])
    assert search(lake, "id", [150, 151]) == ([{"id": 151, "v": 4}], 0)


def test_a_widened_column_has_its_type_of_today(lake: tailrace.Lake, table: tailrace.Table) -> None:
    search(lake, "id", [150])
    table.widen_column("v", "bigint")
    rows, decoded = search(lake, "id", [150])
    assert rows == [{"id": 150, "v": 3}]
    assert decoded == GROUP  # `v`, as a bigint
    scan = lake.table("t")._scan(None)
    wanted = Wanted(scan.table.column("id"), pa.array([150]))
    found = find_rows(lake.runtime, scan, wanted, limit=10)
    assert found.rows is not None
    assert found.rows.schema.field("v").type == pa.int64()


def test_large_reads_are_not_kept(lake: tailrace.Lake, table: tailrace.Table) -> None:
    small = KeptFiles.of(100_000)
    # Two columns of a thousand rows would take more than a quarter of the room.
    texts = make({"a": "string", "b": "string"}).columns
    assert [small.for_read(rows, texts).keeps for rows in (100, 700, 1000)] == [True, True, False]
    numbers = make({"a": "bigint", "b": "int"}).columns
    assert [small.for_read(rows, numbers).keeps for rows in (2000, 2100)] == [True, False]
    assert search(lake, "v", [6], room=40_000)[1] == ROWS
    assert not KeptFiles.of(0).for_read(0, ()).keeps


def test_no_more_is_kept_than_there_is_room_for() -> None:
    (column,) = make({"c": "bigint"}).columns
    kept = KeptFiles.of(10_000).for_read(1, [column])

    def groups() -> list[int]:
        return [group for group in range(101) if kept.columns(1, group, [column])]

    for group in range(100):
        kept.keep(1, group, {column.physical: pa.chunked_array([np.arange(100)])})
    assert groups() == list(range(88, 100))
    # One that would take most of the room pushes nothing out.
    kept.keep(1, 100, {column.physical: pa.chunked_array([np.arange(1000)])})
    assert groups() == list(range(88, 100))


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_finds_what_a_read_of_all_rows_shows(
    sqlite_lake_args: LakeArgs, kind: str
) -> None:
    random = Random(f"{seed()} {kind}")
    settings = tailrace.Settings(row_group_rows=5)
    with sqlite_lake_args.connect(settings=settings) as lake:
        table = lake.create_table("t", {"n": "int", "v": kind})
        values: list[Any] = []
        for _ in range(4):
            part = [None if random.random() < 0.2 else value(random, kind) for _ in range(25)]
            if random.random() < 0.5:  # row groups with bounds of their own
                part.sort(key=lambda one: (one is None, _order(one)))
            numbers = range(len(values), len(values) + len(part))
            table.append([{"n": n, "v": v} for n, v in zip(numbers, part, strict=True)])
            values += part
        table.delete("n % 11 = 3")
        rows = table.to_arrow().to_pylist()
        assert len(rows) == sum(n % 11 != 3 for n in range(len(values)))
        for _ in range(20):
            some = [*random.sample(values, random.randint(0, 4)), value(random, kind)]
            sought = {_key(one) for one in some}
            expected = Counter(row["n"] for row in rows if _key(row["v"]) in sought)
            for room in (None, 0):  # what is kept grows from one search to the next
                found, _ = search(lake, "v", some, room=room)
                assert Counter(row["n"] for row in found) == expected, (some, room)
            counted.count("searches by a value")


def value(random: Random, kind: str) -> Any:
    """One of few; texts also differ only after more letters than statistics hold."""
    if kind == "string" and random.random() < 0.5:
        return "z" * 300 + random.choice("abc")
    return GENERATORS[kind](random)


def _order(one: Any) -> Any:
    if one is None:
        return 0
    return math.inf if isinstance(one, float) and math.isnan(one) else one


def _key(one: Any) -> Any:
    """A value such that equal ones are the same for Spark: zeros of either sign, and NaN."""
    return comparable(one + 0.0 if isinstance(one, float) else one)
