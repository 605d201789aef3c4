"""Rewriting files moves rows and changes none: not their values, not their ids, bit for bit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tailrace
from tailrace.errors import CorruptError
from tailrace.settings import Settings
from tailrace.store import rewrite, row_ids
from tailrace.store.files import DataFile, Op, RowRange
from tailrace.store.open_file import schema_of
from tailrace.store.reader import read_rows
from tailrace.store.rewrite import rewrite_files
from tailrace.store.scan import LiveFile
from tailrace.store.schema import FILE, HIDDEN, POS, ROW_ID, ROW_ID_COLUMN
from tests.oracle import values
from tests.oracle.history import History
from tests.support import duck
from tests.support.lakes import LakeArgs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tailrace.store.schema import Column, TableInfo
    from tests.support.s3 import S3Bucket

# Small row groups: of each file, some are read while others wait.
WRITTEN = Settings(row_group_rows=4, keyed_group_rows=4)
WAYS = {
    "all at once": replace(WRITTEN, local_rows=1_000),
    "a few rows at a time": replace(WRITTEN, local_rows=1),
    "several files": replace(WRITTEN, file_bytes=2_000),
    "with Spark": replace(WRITTEN, memory_rows=0),
    "with Spark, without bitmaps": replace(WRITTEN, memory_rows=0, bitmap_rows=-1),
    "with Spark, several files": replace(WRITTEN, memory_rows=0, file_bytes=2_000),
}
EVERY_TYPE = {f"c{n} ä.`": kind for n, kind in enumerate(values.GENERATORS)}

Bag = Counter[tuple[int, Any]]


class Tables:
    """A lake's tables and their files, as a rewrite takes them."""

    def __init__(self, lake: tailrace.Lake) -> None:
        self.lake, self.runtime = lake, lake.runtime
        self.at = lake.snapshot

    def table(self, name: str) -> TableInfo:
        found = self.runtime.mirror.find_table("main", name, self.at)
        assert found is not None
        return found

    def files(self, name: str) -> tuple[DataFile, ...]:
        return tuple(self.runtime.mirror.data_files(self.table(name), self.at))

    def rewritten(
        self,
        name: str,
        sources: Sequence[LiveFile],
        settings: Settings,
        cluster_by: Sequence[Column] = (),
    ) -> tuple[DataFile, ...]:
        with self.runtime.database.read() as connection:
            firsts = row_ids.first_ids(connection, [live.file for live in sources])
        return rewrite_files(
            replace(self.runtime, settings=settings),
            self.table(name),
            sources,
            self.at,
            "txn",
            firsts,
            cluster_by=cluster_by,
        )

    def rows(self, name: str, files: Sequence[LiveFile | DataFile]) -> pa.Table:
        """The rows of files of a rewrite, one file after the other, with their ids."""
        columns = (*self.table(name).columns, ROW_ID_COLUMN)
        parts = [schema_of(columns).empty_table()]
        for one in files:
            live = one if isinstance(one, LiveFile) else LiveFile(file=one)
            parts.append(
                read_rows(self.runtime.storage, live.visible(self.runtime, self.at), columns)
            )
        return pa.concat_tables(parts)

    def bag(self, name: str, files: Sequence[LiveFile | DataFile]) -> Bag:
        return bag(self.rows(name, files))

    def uri(self, file: DataFile) -> str:
        return self.runtime.storage.uri(file.path)


def bag(rows: pa.Table) -> Bag:
    """Rows by their ids, which are the last column."""
    places = range(rows.num_columns - 1)
    columns = [[values.comparable(v) for v in rows.column(n).to_pylist()] for n in places]
    return Counter(zip(rows.column(ROW_ID).to_pylist(), zip(*columns, strict=True), strict=True))


def theirs(args: LakeArgs, name: str, *, s3: S3Bucket | None = None) -> Bag:
    """The rows of a table with their ids, as DuckDB has them."""
    with duck.attach(args, s3=s3) as reader:
        quoted = '"' + name.replace('"', '""') + '"'
        query = f"SELECT *, rowid AS {ROW_ID} FROM lake.main.{quoted}"
        return bag(reader.execute(query).to_arrow_table())


def live(files: Sequence[DataFile]) -> list[LiveFile]:
    return [LiveFile(file=file) for file in files]


def random_rows(random: Random, count: int, first: int = 0) -> pa.Table:
    columns = {"id": list(range(first, first + count))}
    schema = [("id", pa.int64())]
    for name, kind in EVERY_TYPE.items():
        columns[name] = [values.value(random, kind) for _ in range(count)]
        schema.append((name, tailrace.spark_sql.types.parse_type(kind)))
    return pa.table(
        [pa.array(columns[name], kind) for name, kind in schema], names=[n for n, _ in schema]
    )


def make_table(lake: tailrace.Lake, name: str, *, key: str | None) -> None:
    """A table with a column of every type, of several files, some with deleted rows."""
    random = Random(7)
    table = lake.create_table(name, {"id": "bigint", **EVERY_TYPE}, primary_key=key)
    for first in (40, 0, 20, 60):
        rows = random_rows(random, 15, first)
        table.append(rows.take(pa.array(random.sample(range(15), 15))))
    if key:
        table.upsert(random_rows(random, 10, 33))
        table.delete([{"id": number} for number in (3, 41, 66)])
        return
    with lake.transaction() as txn:
        files = txn.scan("main", name).files
        txn.remove(name, {files[0].file.key: np.array([2, 3, 14])})


@pytest.fixture
def tables(sqlite_lake_args: LakeArgs, spark: SparkSession) -> Any:
    with sqlite_lake_args.connect(spark=spark, settings=WRITTEN) as lake:
        make_table(lake, "keyed", key="id")
        make_table(lake, "plain", key=None)
        yield Tables(lake)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["keyed", "plain"])
def test_rows_keep_values_and_ids_over_two_rewrites(
    tables: Tables, sqlite_lake_args: LakeArgs, name: str, way: str
) -> None:
    expected = theirs(sqlite_lake_args, name)
    files = tables.files(name)
    first = tables.rewritten(name, live(files), WAYS[way])
    assert tables.bag(name, first) == expected
    assert (len(first) > 1) == ("several" in way)
    # Once more, with other rows deleted meanwhile, and a file that is not rewritten before.
    some = tables.rewritten(name, live(files[1:]), WAYS[way])
    mixed = [LiveFile(file=file, removed=np.array([0, 2])) for file in some] + live(files[:1])
    gone = sum(tables.bag(name, live(some)).values()) - sum(tables.bag(name, mixed[:-1]).values())
    assert gone == 2 * len(some)
    second = tables.rewritten(name, mixed, WAYS[way])
    assert tables.bag(name, second) < expected
    assert sum(tables.bag(name, second).values()) == sum(expected.values()) - gone
    assert {file.op for file in (*first, *second)} == {Op.COMPACTION}
    # In order, from file to file.
    key = "id" if name == "keyed" else ROW_ID
    for written in (first, second):
        ordered = tables.rows(name, sorted(written, key=lambda f: bound_of(tables, name, f, key)))
        assert ordered.column(key).to_pylist() == sorted(ordered.column(key).to_pylist())


def bound_of(tables: Tables, name: str, file: DataFile, column: str) -> Any:
    return tables.rows(name, [file]).column(column)[0].as_py()


@pytest.mark.parametrize("seed", range(3))
def test_tables_whose_columns_changed_are_rewritten_as_they_are_now(
    sqlite_lake_args: LakeArgs, spark: SparkSession, seed: int
) -> None:
    with sqlite_lake_args.connect(spark=spark, settings=WRITTEN) as lake:
        history = History(lake, Random(seed), spark=False)
        names = [history.create(keyed=keyed) for keyed in (True, False)]
        for name in names:
            for _ in range(6):
                history.write(name)
                history.alter(name)
        tables = Tables(lake)
        for name in names:
            plain = name.removeprefix("main.").strip("`")
            expected = theirs(sqlite_lake_args, plain)
            for settings in (WAYS["a few rows at a time"], WAYS["with Spark"]):
                files = tables.rewritten(plain, live(tables.files(plain)), settings)
                assert tables.bag(plain, files) == expected
                for file in files:
                    physical = [column.physical for column in tables.table(plain).columns]
                    names_in_file = pq.read_schema(tables.uri(file)).names
                    assert names_in_file == [*physical, ROW_ID, FILE, POS]


@pytest.mark.parametrize("way", ["all at once", "with Spark"])
def test_a_file_has_its_own_places_and_the_ids_under_ducklakes_field_id(
    tables: Tables, way: str
) -> None:
    (file,) = tables.rewritten("keyed", live(tables.files("keyed")), WAYS[way])
    held = pq.read_table(tables.uri(file))
    assert set(held.column(FILE).to_pylist()) == {file.key}
    assert held.column(POS).to_pylist() == list(range(file.rows))
    assert {one.column_id for one in file.stats} <= {c.id for c in tables.table("keyed").columns}
    schema = duckdb.sql(f"SELECT name, field_id FROM parquet_schema('{tables.uri(file)}')")
    ids = dict(row for row in schema.fetchall() if row[0] in (ROW_ID, FILE, POS))
    assert ids == {ROW_ID: 2_147_483_540, FILE: HIDDEN[0].id, POS: HIDDEN[1].id}
    footer = pq.read_metadata(tables.uri(file))
    chunk = footer.row_group(0).column(footer.num_columns - 3)
    assert chunk.path_in_schema == ROW_ID
    assert "DELTA_BINARY_PACKED" in chunk.encodings


@pytest.mark.parametrize("way", ["all at once", "with Spark"])
def test_rows_are_clustered_by_columns_with_nulls_and_nans(
    tables: Tables, sqlite_lake_args: LakeArgs, way: str
) -> None:
    columns = tables.table("plain").columns
    chosen = [column for column in columns if pa.types.is_float64(column.type)]
    chosen += [column for column in columns if pa.types.is_string(column.type)]
    files = tables.rewritten("plain", live(tables.files("plain")), WAYS[way], chosen)
    assert tables.bag("plain", files) == theirs(sqlite_lake_args, "plain")
    rows = tables.rows("plain", files)
    floats = rows.column(chosen[0].name).to_pylist()

    def rank(value: float | None) -> tuple[int, float]:
        if value is None:
            return 0, 0.0
        return (2, 0.0) if value != value else (1, value)  # noqa: PLR0124

    assert list(map(rank, floats)) == sorted(map(rank, floats))


def test_what_is_held_at_once_is_bounded_and_files_far_apart_are_not_read_together(
    sqlite_lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, count, files = 10, 1_000, 4
    settings = Settings(keyed_group_rows=group, local_rows=100)
    held: list[int] = []
    plain = rewrite._sorted

    def sorting(keys: Sequence[pa.ChunkedArray]) -> Any:
        held.append(len(keys[0]))
        return plain(keys)

    monkeypatch.setattr(rewrite, "_sorted", sorting)
    with sqlite_lake_args.connect(settings=settings) as lake:
        for name, keys in (
            ("apart", np.split(np.arange(files * count), files)),
            ("mixed", np.split(np.random.default_rng(1).permutation(files * count), files)),
            ("alike", np.split(np.random.default_rng(2).permutation(files * count), files)),
        ):
            table = lake.create_table(
                name, {"tenant": "string", "id": "bigint"}, primary_key=["tenant", "id"]
            )
            for some in keys:
                names = ["a"] * count if name == "alike" else [f"{key:05}" for key in some]
                table.append(pa.table({"tenant": names, "id": some}))
            tables = Tables(lake)
            held.clear()
            (file,) = tables.rewritten(name, live(tables.files(name)), settings)
            rows = tables.rows(name, [file])
            assert rows.column("id").to_pylist() == list(range(files * count))
            assert max(held) <= 2 * settings.local_rows
            # Each row is sorted once or twice.
            assert sum(held) <= 2 * files * count


def test_no_file_comes_of_deleted_rows_alone(tables: Tables) -> None:
    file = tables.files("plain")[-1]
    gone = LiveFile(file=file, removed=np.arange(file.rows))
    assert tables.rewritten("plain", [gone], WRITTEN) == ()


def test_the_rows_as_of_an_earlier_snapshot(tables: Tables) -> None:
    lake = tables.lake
    before = tables.files("keyed")
    expected = tables.bag("keyed", tables.rewritten("keyed", live(before), WRITTEN))
    lake.table("keyed").delete([{"id": 21}, {"id": 44}])
    later = Tables(lake)
    files = later.files("keyed")
    later.at = tables.at
    for way in WAYS.values():
        assert later.bag("keyed", later.rewritten("keyed", live(files), way)) == expected


def test_a_row_that_is_lost_is_an_error(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "visible_rows", lambda _runtime, one, _at: one.file.rows + 1)
    with pytest.raises(CorruptError, match="were written"):
        tables.rewritten("plain", live(tables.files("plain")), WRITTEN)


def test_files_on_s3_are_rewritten(tmp_path: Path, s3_bucket: S3Bucket, spark: Any) -> None:
    options = {
        "endpoint": s3_bucket.endpoint,
        "access_key_id": s3_bucket.access_key,
        "secret_access_key": s3_bucket.secret_key,
        "region": s3_bucket.region,
        "allow_http": True,
    }
    args = LakeArgs(catalog="sqlite", url=str(tmp_path / "lake"), data=s3_bucket.url("lake"))
    with args.connect(spark=spark, storage_options=options, settings=WRITTEN) as lake:
        make_table(lake, "t", key="id")
        tables = Tables(lake)
        expected = theirs(args, "t", s3=s3_bucket)
        for way in ("a few rows at a time", "with Spark"):
            files = tables.rewritten("t", live(tables.files("t")), WAYS[way])
            assert tables.bag("t", files) == expected
            again = tables.rewritten("t", live(files), WAYS[way])
            assert tables.bag("t", again) == expected


def test_the_rows_of_a_file_are_found_by_their_ids(tables: Tables) -> None:
    (file,) = tables.rewritten("keyed", live(tables.files("keyed")), WRITTEN)
    ids = tables.rows("keyed", [file]).column(ROW_ID).to_numpy()
    (placed,) = row_ids.find_ids(tables.runtime, [file], ids[[3, 9]])
    assert placed.positions.tolist() == [3, 9]
    assert row_ids.ids_at(tables.runtime, file, np.array([3, 9]), {}).tolist() == list(ids[[3, 9]])
    assert RowRange.of(file).rows == len(ids)
