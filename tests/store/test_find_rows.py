"""Finding keys: which files and row groups are opened, and what is found in them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tailrace
from tailrace.store.find_rows import Keys
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
