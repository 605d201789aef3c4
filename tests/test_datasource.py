"""`spark.read.format("tailrace")` and `df.write.format("tailrace")`."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

import tailrace
from tailrace.datasource import LakeSource, reading, register
from tailrace.datasource.place import place_of
from tailrace.datasource.reading import Task, tasks_of
from tailrace.datasource.writing import TableWriter, begin
from tailrace.store import tables as t
from tailrace.store.files import DataFile, Op
from tests.oracle.values import bag as any_bag
from tests.support.lakes import LakeArgs
from tests.support.objects import data_files
from tests.support.rows import bag, column

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from tests.support.s3 import S3Bucket

ROW = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


@pytest.fixture
def lake(sqlite_lake: tailrace.Lake) -> tailrace.Lake:
    return sqlite_lake


@pytest.fixture
def read(registered: SparkSession, sqlite_lake_args: LakeArgs) -> Callable[..., DataFrame]:
    """Read a table of the lake."""

    def load(table: str, **options: Any) -> DataFrame:
        reader = registered.read.format("tailrace").option("lake", sqlite_lake_args.url)
        return reader.options(table=table, **options).load()

    return load


@pytest.fixture
def write(registered: SparkSession, sqlite_lake_args: LakeArgs) -> Callable[..., None]:
    """Write to a table of the lake."""

    def save(frame: DataFrame, table: str, mode: str = "append", **options: Any) -> None:
        writer = frame.write.format("tailrace").option("lake", sqlite_lake_args.url)
        writer.options(table=table, **options).mode(mode).save()

    return save


def rows_of(spark: SparkSession, ids: range, partitions: int = 2) -> DataFrame:
    made = spark.range(ids.start, ids.stop, numPartitions=partitions)
    return made.selectExpr("id", "concat('v', id) AS v")


# --- reading ----------------------------------------------------------------------------------


def test_rows_are_those_of_to_df_at_every_snapshot(
    lake: tailrace.Lake, read: Callable[..., DataFrame], registered: SparkSession
) -> None:
    kinds = {
        "id": "bigint",
        "small": "int",
        "price": "decimal(12,2)",
        "at": "timestamp",
        "here": "timestamp_ntz",
        "day": "date",
        "raw": "binary",
        "tags": "array<string>",
        "pair": "struct<a: int, `b c`: string>",
        "counts": "map<string, bigint>",
    }
    moment = datetime(2024, 7, 1, 1, 2, 3, 4, tzinfo=UTC)
    rows = [
        {
            "id": i,
            "small": i if i % 2 else None,
            "price": Decimal(i) / 4,
            "at": moment,
            "here": moment.replace(tzinfo=None),
            "day": date(1500, 1, 1),
            "raw": b"\xff",
            "tags": ["x", None],
            "pair": {"a": i, "b c": "y"},
            "counts": [("k", i)],
        }
        for i in range(6)
    ]
    table = lake.create_table("t", kinds, primary_key="id")
    first = table.append(rows[:4])
    table.append(rows[4:])
    table.delete([{"id": 1}, {"id": 5}])
    before = read("t")
    table.add_column("a.b", "string")
    table.widen_column("small", "bigint")
    table.rename_column("small", "wide")
    now = read("t")
    table.upsert(table.to_df().where("id = 2").selectExpr("* EXCEPT(`a.b`)", "'new' AS `a.b`"))
    # Each is of the snapshot at which it was made, also if it is read later.
    assert before.columns[1] == "small"
    assert sorted(row.id for row in before.collect()) == [0, 2, 3, 4]
    assert now.where("`a.b` IS NOT NULL").count() == 0
    for at in (first, lake.snapshot):
        found, expected = read("t", version=at), table.to_df(at)
        assert found.schema == expected.schema
        assert any_bag(found.toArrow().to_pylist()) == any_bag(expected.toArrow().to_pylist())
    reader = registered.read.format("tailrace").schema("`a.b` string, wide bigint")
    some = reader.options(lake=str(Path(lake.runtime.storage.data_path).parent), table="t").load()
    assert bag(some.toArrow()) == [(None, None), (None, None), (None, 3), ("new", None)]


def test_files_are_grouped_and_split_into_tasks(
    lake: tailrace.Lake, read: Callable[..., DataFrame]
) -> None:
    def file(size: int, rows: int = 1000) -> DataFile:
        return DataFile(key=1, path="p", rows=rows, size=size, footer=1, op=Op.APPEND)

    many = tasks_of([file(1000)] * 1000)
    assert len(many) < 40
    assert sum(len(task.pieces) for task in many if isinstance(task, Task)) == 1000
    large = tasks_of([file(256 * 1024 * 1024)])
    pieces = [piece for task in large if isinstance(task, Task) for piece in task.pieces]
    assert len(large) == 8
    assert [piece.start for piece in pieces[1:]] == [piece.stop for piece in pieces[:-1]]
    assert tasks_of([]) == []
    table = lake.create_table("t", {"id": "bigint"})
    assert read("t").count() == 0
    with lake.transaction() as txn:
        for i in range(5):
            txn.table("t").append([{"id": i}])
    frame = read("t")
    assert frame.selectExpr("spark_partition_id() AS p").distinct().count() == 1
    assert column(frame.toArrow(), "id") == column(table.to_arrow(), "id")


def test_row_groups_are_read_by_one_of_several_tasks(
    sqlite_lake_args: LakeArgs, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    monkeypatch.setattr(reading, "_TASK_BYTES", 5_000)
    monkeypatch.setattr(reading, "_OPEN_BYTES", 0)
    settings = tailrace.Settings(row_group_rows=1000)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        table = lake.create_table("t", {"id": "bigint"}, primary_key="id")
        table.append(pa.table({"id": list(range(0, 70_000, 7))}))
        table.delete([{"id": 7 * i} for i in range(2500)])  # more than the first two groups
        schema = StructType([StructField("id", LongType())])
        found = reading.find(lake, "t", None)
        reader = reading.TableReader(lake.runtime.storage, found, schema)
        sent: reading.TableReader = pickle.loads(pickle.dumps(reader))
        tasks = reader.partitions()
        assert len(tasks) > 1
        ids = [i for task in tasks for batch in sent.read(task) for i in batch["id"].to_pylist()]
    assert ids == list(range(7 * 2500, 70_000, 7))


def test_a_view_shows_its_rows_and_no_column_of_ours(
    lake: tailrace.Lake, read: Callable[..., DataFrame]
) -> None:
    table = lake.create_table("t", {"id": "bigint", "k": "string", "v": "bigint"})
    table.append([{"id": i, "k": f"k{i % 3}", "v": i} for i in range(9)])
    views = [
        lake.create_view("sums", "SELECT k, sum(v) AS s FROM t GROUP BY k"),
        lake.create_view("large", "SELECT k, max(v) AS m FROM t GROUP BY k HAVING count(*) > 3"),
    ]
    lake.create_view("first", "SELECT id, v FROM t ORDER BY v LIMIT 2")
    lake.run_until_fresh()
    table.append([{"id": 9, "k": "k0", "v": 9}])
    lake.run_until_fresh()
    for view in views:
        found = read(view.name)
        assert found.columns == view.to_df().columns
        assert bag(found.toArrow()) == bag(view.to_df().toArrow()), view.name
    with pytest.raises(Exception, match=r"lake\.view\('first'\)\.to_df\(\)"):
        read("first")


def test_files_that_cannot_match_are_not_read(
    lake: tailrace.Lake, sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    table = lake.create_table("t", {"id": "bigint", "name": "string", "day": "date"})
    for n in range(3):
        table.append([{"id": n, "name": f"n{n}", "day": date(2024, 1, n + 1)}])
    first, _, last = data_files(lake, "t")
    first.unlink()
    last.unlink()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        register(spark)
        reader = spark.read.format("tailrace").option("lake", sqlite_lake_args.url)
        check_skipping(reader.option("table", "t").load())
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
        register(spark)


def check_skipping(frame: DataFrame) -> None:
    only = ["id = 1", "id IN (1)", "id > 0 AND name < 'n2'", "day = DATE'2024-01-02' AND id < 2"]
    for condition in only:
        assert [row.id for row in frame.where(condition).collect()] == [1], condition
    assert frame.where("id = 7").collect() == []
    with pytest.raises(Exception, match="is missing"):
        frame.where("id >= 1").collect()


# --- writing ----------------------------------------------------------------------------------


def test_a_write_is_one_snapshot_and_keeps_the_key(
    lake: tailrace.Lake, write: Callable[..., None], registered: SparkSession
) -> None:
    table = lake.create_table("t", {"id": "bigint", "v": "string"}, primary_key="id")
    write(rows_of(registered, range(100), 3).select("v", "id"), "t")
    assert [s.changes for s in lake.snapshots()][-1].count("inserted_into_table") == 1
    before = lake.snapshot
    write(registered.sql("SELECT 7 AS id, 'new' AS v UNION ALL SELECT 100, 'new'"), "t",
          operation="upsert")  # fmt: skip
    assert lake.snapshot == before + 1
    assert column(table.to_arrow(), "id") == list(range(101))
    assert bag(table.changes(before).toArrow().drop_columns("_snapshot")) == [
        ("delete", 7, "v7"),
        ("insert", 7, "new"),
        ("insert", 100, "new"),
    ]
    write(registered.range(0).selectExpr("id", "'' AS v"), "t")
    assert lake.snapshot == before + 1  # nothing to write is no snapshot
    assert transactions(lake) == 0
    assert lake.sweep().deleted == 0


def transactions(lake: tailrace.Lake) -> int:
    """How many are under way."""
    with lake.runtime.database.read() as connection:
        return int(
            connection.execute(sa.select(sa.func.count()).select_from(t.transaction)).scalar_one()
        )


Batches = list[dict[str, list[Any]]]  # of each task


@pytest.mark.parametrize(
    ("tasks", "options", "reason"),
    [
        ([{"id": [1], "v": ["a"]}], {}, r"these keys exist already: \{'id': 1\}"),
        (
            [{"id": [5], "v": ["a"]}, {"id": [4, 5], "v": ["b", "c"]}],
            {"operation": "upsert"},
            r"the same key stands twice in the rows given: \{'id': 5\}",
        ),
        ([{"id": [5, 6, 5], "v": ["a", "b", "c"]}], {}, "the same key stands twice"),
        ([{"id": [None], "v": ["a"]}], {}, r"main\.t\.id must not be NULL"),
        ([{"id": [5]}], {}, "missing column 'v'"),
        ([{"id": ["5"], "v": ["a"]}], {}, "convert it first"),
        ([{"id": [5], "v": ["a"]}], {"operation": "replace"}, "append or upsert"),
        ([{"id": [5], "v": ["a"]}], {"table": "none"}, "there is no table main.none"),
        ([{"id": [5], "v": ["a"]}], {"table": "bare", "operation": "upsert"}, "no primary key"),
        ([{"id": [5], "v": ["a"]}], {"colour": "red"}, "has no option 'colour'"),
        ([{"id": [5], "v": ["a"]}], {"table": "copy"}, "is derived by a job"),
    ],
)
def test_a_write_that_is_refused_leaves_nothing(
    lake: tailrace.Lake,
    sqlite_lake_args: LakeArgs,
    tasks: Batches,
    options: dict[str, str],
    reason: str,
) -> None:
    table = lake.create_table("t", {"id": "bigint", "v": "string"}, primary_key="id")
    table.append([{"id": 1, "v": "a"}])
    lake.create_table("bare", {"id": "bigint", "v": "string"})
    lake.jobs.register("t", "copy", {"consumer": {"kind": "replica", "table": "copy"}})
    before, files = lake.snapshot, len(objects(lake))
    batches = [pa.record_batch(task) for task in tasks]
    with pytest.raises(tailrace.TailraceError, match=reason):
        save(lake, sqlite_lake_args, batches, options)
    assert lake.snapshot == before
    assert transactions(lake) == 0
    lake.sweep()  # a file that is not complete is reported by nobody
    assert len(objects(lake)) == files


def save(
    lake: tailrace.Lake, args: LakeArgs, tasks: list[pa.RecordBatch], options: dict[str, str]
) -> None:
    """What Spark does for a write."""
    writer = writer_to(lake, args, tasks[0].schema, **options)
    writer.commit([writer.write(iter([batch])) for batch in tasks])


def test_a_write_that_is_refused_says_why_in_sparks_error(
    lake: tailrace.Lake, write: Callable[..., None], registered: SparkSession
) -> None:
    lake.create_table("t", {"id": "bigint", "v": "string"}, primary_key="id").append(
        [{"id": 1, "v": "a"}]
    )
    with pytest.raises(Exception, match=r"these keys exist already: \{'id': 1\}"):
        write(rows_of(registered, range(1, 3)), "t")
    with pytest.raises(Exception, match=r"mode\(.overwrite.\) is not available"):
        write(rows_of(registered, range(1)), "t", mode="overwrite")
    assert transactions(lake) == 0


def objects(lake: tailrace.Lake) -> list[str]:
    return list(lake.runtime.storage.list())


def test_a_task_that_fails_leaves_nothing_visible(
    lake: tailrace.Lake, write: Callable[..., None], registered: SparkSession
) -> None:
    table = lake.create_table("t", {"id": "bigint", "v": "string"})
    bad = rows_of(registered, range(10), 2).selectExpr(
        "id", "if(id < 9, v, raise_error('no')) AS v"
    )
    with pytest.raises(Exception, match="no"):
        write(bad, "t")
    assert table.to_arrow().num_rows == 0
    assert transactions(lake) == 0
    lake.sweep()
    assert objects(lake) == []


def test_rows_of_a_task_that_ran_twice_are_there_once(
    lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    table = lake.create_table("t", {"id": "bigint", "v": "string"})
    writer = writer_to(lake, sqlite_lake_args)
    batch = pa.record_batch({"id": [1, 2], "v": ["a", "b"]})
    reports = [writer.write(iter([batch])) for _ in range(2)]
    writer.commit([reports[1]])
    assert bag(table.to_arrow()) == [(1, "a"), (2, "b")]
    # A transaction ends once: what Spark says afterwards is without effect.
    writer.abort([reports[1], None])
    assert bag(table.to_arrow()) == [(1, "a"), (2, "b")]
    assert lake.sweep().deleted == 1


def writer_to(
    lake: tailrace.Lake, args: LakeArgs, schema: pa.Schema = ROW, **options: str
) -> TableWriter:
    """A writer as the tasks get it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    place = place_of({"lake": args.url, "table": "t", **options}, {})
    begun = begin(lake, place, from_arrow_schema(schema))
    made: TableWriter = pickle.loads(pickle.dumps(begun))
    return made


def test_a_write_conflicts_with_what_was_committed_meanwhile(
    lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    table = lake.create_table("t", {"id": "bigint", "v": "string"}, primary_key="id")
    writer = writer_to(lake, sqlite_lake_args)
    report = writer.write(iter([pa.record_batch({"id": [2, 1], "v": ["a", "b"]})]))
    table.append([{"id": 2, "v": "first"}])
    assert lake.sweep().expired == 0
    with pytest.raises(tailrace.ConflictError, match="inserted the same keys first"):
        writer.commit([report])
    assert bag(table.to_arrow()) == [(2, "first")]


# --- other places -----------------------------------------------------------------------------


def test_a_lake_on_postgres_and_s3(
    postgres_url: str,
    s3_bucket: S3Bucket,
    registered: SparkSession,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spark = registered
    options = {
        "endpoint": s3_bucket.endpoint,
        "access_key_id": s3_bucket.access_key,
        "secret_access_key": s3_bucket.secret_key,
        "region": s3_bucket.region,
        "allow_http": True,
    }
    place = {"lake": postgres_url, "table": "t"}
    data, moment = s3_bucket.url("lake"), datetime(2024, 7, 1, tzinfo=UTC)
    with tailrace.connect(postgres_url, data=data, storage_options=options, spark=spark) as lake:
        table = lake.create_table("t", {"id": "bigint", "at": "timestamp"}, primary_key="id")
        table.append([{"id": 1, "at": moment}, {"id": 2, "at": moment}])
        table.delete([{"id": 1}])
        given = {f"storage.{name}": str(value).lower() for name, value in options.items()}
        frame = spark.read.format("tailrace").options(**place, **given).load()
        frame.explain(True)
        assert options["secret_access_key"] not in capsys.readouterr().out
        register(spark, storage_options=options)
        try:
            more = spark.sql("SELECT 3L AS id, TIMESTAMP'2024-07-01 00:00:00Z' AS at")
            more.write.format("tailrace").options(**place).mode("append").save()
            plain = spark.read.format("tailrace").options(**place).load()
        finally:
            register(spark)
        assert bag(frame.toArrow()) == [(2, moment)]
        assert bag(plain.toArrow()) == bag(table.to_df().toArrow()) == [(2, moment), (3, moment)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"table": "t"}, "needs the option lake"),
        ({"lake": "{lake}"}, "needs the option table"),
        ({"lake": "{lake}/nowhere", "table": "t"}, "there is no lake in .*nowhere"),
        ({"lake": "{lake}", "table": "none"}, "there is no table or view main.none at snapshot"),
        ({"lake": "{lake}", "table": "t", "version": "new"}, "is a snapshot's number, not 'new'"),
        ({"lake": "{lake}", "table": "t", "version": "99"}, "99"),
        ({"lake": "{lake}", "table": "t", "tenant": "other"}, "there is no table or view main.t"),
    ],
)
def test_wrong_options_say_what_is_right(
    lake: tailrace.Lake, sqlite_lake_args: LakeArgs, options: dict[str, str], reason: str
) -> None:
    lake.create_table("t", {"id": "bigint"})
    given = {name: value.format(lake=sqlite_lake_args.url) for name, value in options.items()}
    with pytest.raises(tailrace.TailraceError, match=reason):
        LakeSource(given).schema()


def test_a_wrong_name_is_in_sparks_error(
    lake: tailrace.Lake, read: Callable[..., DataFrame]
) -> None:
    with pytest.raises(Exception, match=r"there is no table or view main\.none at snapshot"):
        read("none")


def test_the_example_in_the_guide_runs(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    guide = Path(__file__).parents[1] / "docs" / "spark.md"
    (example,) = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    now, then = capsys.readouterr().out.split("\n\n")[:2]
    assert "eve" in now
    assert "bob" in then
