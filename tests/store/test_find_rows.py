"""Finding rows: which files and row groups are opened, and what is found in them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tailrace
from tailrace.store.find_rows import Keys, Wanted
from tailrace.store.schema import Column
from tests.support import objects
from tests.support.lakes import LakeArgs


def rows(start: int, count: int) -> pa.Table:
    numbers = np.arange(start, start + count)
    return pa.table({"id": numbers, "v": numbers * 2})


def test_an_upsert_of_recent_keys_reads_only_their_row_groups(
    sqlite_lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tailrace.Settings(row_group_rows=1000)
    searched: list[int] = []
    found_in = Keys.found_in

    def counting(keys: Keys, held: pa.Table) -> object:
        searched.append(held.num_rows)
        return found_in(keys, held)

    with sqlite_lake_args.connect(settings=settings) as lake:
        table = lake.create_table("t", {"id": "bigint", "v": "bigint"}, primary_key="id")
        table.append(rows(0, 10_000))
        table.append(rows(50_000, 10_000))
        monkeypatch.setattr(Keys, "found_in", counting)
        table.upsert(rows(9_990, 20))
        # Of twenty row groups in two files, the one that holds 9,990 to 9,999.
        assert searched == [1000]
        assert table.to_arrow().num_rows == 20_010


@pytest.mark.parametrize(("kind", "local_keys"), [("bigint", 1000), ("string", 2000)])
def test_keys_from_anywhere_need_no_spark_if_few_row_groups_can_hold_them(
    sqlite_lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch, kind: str, local_keys: int
) -> None:
    def no_spark() -> None:
        raise AssertionError("Spark was started")

    def ids(numbers: list[int]) -> list[object]:  # as text, the ranges of the two files overlap
        return [n if kind == "bigint" else f"key {n % 8000:05} {n}" for n in numbers]

    with sqlite_lake_args.connect(settings=tailrace.Settings(keyed_group_rows=100)) as lake:
        table = lake.create_table("t", {"id": kind, "v": "bigint"}, primary_key="id")
        for part in (list(range(8000)), list(range(8000, 16_000))):
            table.append(pa.table({"id": ids(part), "v": part}))
    monkeypatch.setattr("tailrace.store.spark_session._start_spark", no_spark)
    wanted = [5, 4321, 7999, 8000, 15_999]
    with sqlite_lake_args.connect(settings=tailrace.Settings(local_keys=local_keys)) as lake:
        table = lake.table("t")
        table.upsert(pa.table({"id": ids(wanted), "v": [-1] * len(wanted)}))
        values = table.to_arrow().column("v").to_pylist()
        assert sorted(values) == [-1] * len(wanted) + sorted(set(range(16_000)) - set(wanted))


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.string()])
@pytest.mark.parametrize("few", [True, False])
def test_wanted_values_are_found_in_rows_of_any_order(kind: pa.DataType, few: bool) -> None:
    draw = np.random.default_rng(3)
    column = Column(id=1, name="id", physical="id", type=kind)
    for _ in range(50):
        numbers = draw.integers(-500, 500, draw.integers(1, 2000)) * int(draw.choice([1, 10**6]))
        if draw.random() < 0.7:
            numbers.sort()
        asked = draw.choice(numbers, 2 if few else len(numbers) // 2 + 1)
        asked = np.concatenate([asked, draw.integers(-(10**9), 10**9, 3)])
        held = pa.array(numbers).cast(kind)
        found = Wanted(column, pa.array(asked).cast(kind)).found_in(pa.table({"id": held}))
        assert found.tolist() == np.isin(numbers, asked).tolist()


def test_keys_of_two_columns_are_found_where_both_are_equal(sqlite_lake_args: LakeArgs) -> None:
    draw = np.random.default_rng(4)
    with sqlite_lake_args.connect(settings=tailrace.Settings(keyed_group_rows=50)) as lake:
        table = lake.create_table(
            "t", {"a": "int", "b": "bigint", "v": "int"}, primary_key=["a", "b"]
        )
        pairs = draw.permutation([(a, b) for a in range(20) for b in range(60)])
        for part in np.split(pairs, 3):
            table.append(
                pa.table({"a": part[:, 0].astype(np.int32), "b": part[:, 1], "v": [0] * 400})
            )
        chosen = {(int(a), int(b)) for a, b in draw.choice(pairs, 40)}
        table.upsert([{"a": a, "b": b, "v": 1} for a, b in chosen])
        rows = table.to_arrow().to_pylist()
        assert len(rows) == 1200
        assert {(row["a"], row["b"]) for row in rows if row["v"]} == chosen


@pytest.mark.parametrize(
    ("kinds", "key"),
    [
        ({"a": "string", "b": "date"}, ["a", "b"]),
        ({"a": "decimal(10,2)", "b": "binary"}, ["b", "a"]),
        ({"a": "timestamp", "b": "boolean"}, ["a", "b"]),
    ],
)
def test_keys_of_several_columns_and_any_type_are_found(
    sqlite_lake_args: LakeArgs, kinds: dict[str, str], key: list[str]
) -> None:
    from random import Random

    from tests.oracle.values import key_value

    random = Random(7)
    with sqlite_lake_args.connect() as lake:
        table = lake.create_table("t", {**kinds, "v": "int"}, primary_key=key)
        model: dict[tuple[object, ...], int] = {}
        for version in range(6):
            made = {
                tuple(key_value(random, kinds[name]) for name in key): version for _ in range(10)
            }
            table.upsert([{**dict(zip(key, k, strict=True)), "v": v} for k, v in made.items()])
            model |= made
        found = {tuple(row[name] for name in key): row["v"] for row in table.to_arrow().to_pylist()}
        assert found == model


def test_keys_are_found_in_files_with_a_narrower_type(sqlite_lake_args: LakeArgs) -> None:
    with sqlite_lake_args.connect() as lake:
        table = lake.create_table("t", {"id": "int", "v": "int"}, primary_key="id")
        table.append([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        table.widen_column("id", "bigint")
        table.upsert([{"id": 2, "v": 20}, {"id": 2**40, "v": 3}])
        found = table.to_arrow().sort_by("id").to_pydict()
        assert found == {"id": [1, 2, 2**40], "v": [1, 20, 3]}


def test_keys_given_as_a_frame_of_any_size_are_deleted(
    sqlite_lake_args: LakeArgs, spark: object
) -> None:
    for settings in (tailrace.Settings(), tailrace.Settings(local_rows=-1)):
        with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
            name = f"t{settings.local_rows}".replace("-", "_")
            table = lake.create_table(name, {"id": "bigint", "v": "bigint"}, primary_key="id")
            table.append(rows(0, 100))
            table.delete(lake.spark.range(10, 30).selectExpr("id", "'ignored' AS note"))
            assert sorted(table.to_arrow()["id"].to_pylist()) == [*range(10), *range(30, 100)]


@pytest.mark.parametrize(("key", "groups"), [("id", [100, 100, 50]), (None, [250])])
def test_tables_with_a_key_have_smaller_row_groups(
    sqlite_lake_args: LakeArgs, key: str | None, groups: list[int]
) -> None:
    settings = tailrace.Settings(row_group_rows=1000, keyed_group_rows=100)
    with sqlite_lake_args.connect(settings=settings) as lake:
        table = lake.create_table("t", {"id": "bigint", "v": "bigint"}, primary_key=key)
        table.append(rows(0, 250))
        (path,) = objects.data_files(lake, "t")
        footer = pq.read_metadata(path)
        assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == groups
