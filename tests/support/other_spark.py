"""The checks that every kind of Spark has to pass, as a program of its own.

    python -m tests.support.other_spark KIND DIRECTORY WAY...

A process has one kind of Spark, and the test run's has a local one. The session is the one that
Tailrace starts by itself from what the environment says, as under spark-submit.
"""

from __future__ import annotations

import faulthandler
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tailrace
from tailrace.datasource import register
from tailrace.propagation.spark_tags import TaggingSpark
from tailrace.store.files import RowRange
from tailrace.store.reader import read_rows
from tailrace.store.rewrite import rewrite_files
from tailrace.store.row_ids import first_ids
from tailrace.store.scan import LiveFile
from tailrace.store.schema import ROW_ID, ROW_ID_COLUMN
from tailrace.store.spark_session import SparkProvider
from tailrace.views.refresh.on_spark import small_session
from tests.support.process import wait_until
from tests.support.rows import bag, column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from tailrace.store.files import DataFile

CLUSTER, CONNECT = "cluster", "connect"
ROWS = 600
INDEXED = 25_000
LIMIT = 250.0  # seconds, a multiple of what it takes
ORDERS = {"id": "bigint", "customer": "string", "amount": "double"}
TOTALS = "SELECT customer, sum(amount) AS total, max(amount) AS most FROM orders GROUP BY customer"
# How a refresh is computed: by small plans on Spark, by large ones. What is computed in the process
# is the same everywhere, and a cluster's executors see no difference between the two.
SMALL, LARGE = "small", "large"
SETTINGS = {
    SMALL: tailrace.Settings(memory_rows=0),
    LARGE: tailrace.Settings(memory_rows=0, local_rows=0),
}


def main(kind: str, directory: Path, ways: list[str]) -> None:
    with tailrace.connect(directory / "lake") as lake:
        spark = lake.spark
        try:
            check_all(kind, directory, ways, lake)
        finally:
            # Else the executors report the loss of each other at length.
            spark.stop()


def check_all(kind: str, directory: Path, ways: list[str], lake: tailrace.Lake) -> None:
    began, spark = time.monotonic(), lake.spark

    def check(what: str, work: Callable[..., object], *arguments: Any) -> None:
        work(*arguments)
        sys.stdout.write(f"{time.monotonic() - began:6.1f} s  {what}\n")

    check(f"a session of kind {kind}", check_kind, kind, spark)
    check("append, upsert, delete, changes, time travel", check_writes, lake)
    check("a rewrite of files", check_rewrite, lake)
    check("faults", check_faults, lake)
    check("the data source", check_source, kind, directory / "lake", lake)
    check("indexes", check_indexes, lake)
    for name in ways:
        with tailrace.connect(directory / name, spark=spark, settings=SETTINGS[name]) as other:
            check(f"views and a replica, {name}", check_derived, other)
            if kind == CONNECT and name == SMALL:
                check("a session that the server has forgotten", check_forgotten, other)
    check("an interrupt", check_interrupt, directory, spark)


def check_kind(kind: str, spark: SparkSession) -> None:
    def where(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_arrays([pa.array([str(Path.cwd())])], names=["place"])

    places = spark.range(8).repartition(8).mapInArrow(where, "place string").distinct().toArrow()
    if kind == CLUSTER:
        # Each executor is a process with a directory of its own.
        parts = [Path(place).parts for place in column(places, "place")]
        assert all(any(part.startswith("app-") for part in one) for one in parts), places
        return
    from pyspark import SparkContext

    assert type(spark).__module__.startswith("pyspark.sql.connect")
    # Everything goes through the server: this process has no JVM.
    assert SparkContext._gateway is None


def orders(lake: tailrace.Lake) -> tailrace.Table:
    """A table of rows that Spark made."""
    table = lake.create_table("orders", ORDERS, primary_key="id")
    table.append(
        lake.spark.range(ROWS).selectExpr(
            "id", "concat('c', id % 7) AS customer", "id * 1.5D AS amount"
        )
    )
    return table


def check_writes(lake: tailrace.Lake) -> None:
    table = orders(lake)
    first = lake.snapshot
    table.upsert(lake.spark.range(590, 610).selectExpr("id", "'x' AS customer", "1.0D AS amount"))
    table.delete("amount > 800 OR id = 3")
    table.delete(lake.spark.range(4, 6))
    # 534, …, 589 have an amount above 800.
    left = [i for i in range(610) if not (534 <= i < 590 or i in (3, 4, 5))]
    assert column(table.to_df().toArrow(), "id") == left
    assert table.to_df(at=first).count() == ROWS
    changes = table.changes(since=first).groupBy("_change").count().toArrow()
    assert bag(changes) == [("delete", 10 + 56 + 3), ("insert", 20)]


def check_rewrite(lake: tailrace.Lake) -> None:
    at, runtime = lake.snapshot, replace(lake.runtime, settings=SETTINGS[SMALL])
    info = runtime.mirror.find_table("main", "orders", at)
    assert info is not None
    files = runtime.mirror.data_files(info, at)
    with runtime.database.read() as connection:
        firsts = first_ids(connection, files)

    def rewritten(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
        return rewrite_files(runtime, info, list(map(live, files)), at, "txn", firsts)

    def live(file: DataFile) -> LiveFile:
        return LiveFile(file=file)

    (first,) = rewritten(files[:1])
    (second,) = rewritten([first, *files[1:]])
    rows = read_rows(runtime.storage, RowRange.of(second), [*info.columns, ROW_ID_COLUMN])
    assert rows.drop_columns([ROW_ID]).equals(lake.table("orders").to_arrow().sort_by("id"))
    # Each row had its id where it was written: 600 rows first, from 0 to 599, and 20 behind.
    ids = column(rows, ROW_ID)
    assert len(set(ids)) == len(ids)
    assert set(ids) < set(range(ROWS + 20))


def check_indexes(lake: tailrace.Lake) -> None:
    spark = lake.spark
    table = lake.create_table(
        "doc", {"id": "bigint", "text": "string", "v": "array<float>"}, primary_key="id"
    )
    rows = "id", "concat('row', id, ' of many') AS text", "array(float(id), float(1)) AS v"
    table.append(spark.range(INDEXED).selectExpr(*rows))
    words = lake.create_index("doc", "words", using="fulltext", columns="text")
    near = lake.create_index("doc", "near", using="vector", columns="v", options={"metric": "l2"})
    lake.run_until_fresh()  # too many rows for the driver: in Spark's tasks
    assert words.search("many", 10, where="id % 1000 = 7").num_rows == 10
    assert column(near.search([70.2, 1], 2), "id") == [70, 71]
    queries = spark.createDataFrame([("row5",), ("row77",)], "query string")
    found = words.search_many(queries, "query", 3).toArrow()
    assert bag(found.select(["query", "rank", "id"])) == [("row5", 1, 5), ("row77", 1, 77)]


def check_faults(lake: tailrace.Lake) -> None:
    table, spark = lake.table("orders"), lake.spark
    before = lake.snapshot
    with pytest.raises(tailrace.InvalidError, match="exist already"):
        table.append(spark.range(1).selectExpr("id", "'a' AS customer", "0D AS amount"))
    with pytest.raises(tailrace.InvalidError, match="must not be NULL"):
        table.append(spark.sql("SELECT cast(NULL AS bigint) id, 'a' customer, 0D amount"))
    with pytest.raises(tailrace.InvalidError, match="no_such"):
        table.delete("no_such = 1")
    other = lake.create_table("damaged", {"id": "bigint"})
    other.append([{"id": 1}, {"id": 2}])
    root = Path(lake._runtime.storage.data_path)
    (file,) = root.glob("main*/damaged*/*.parquet")
    for damage in (lambda: file.write_bytes(b"PAR1"), file.unlink):
        damage()
        with pytest.raises(tailrace.CorruptError, match=file.name):
            other.delete("id = 1")
    assert lake.snapshot == before + 2


def check_source(kind: str, place: Path, lake: tailrace.Lake) -> None:
    register(lake.spark)
    table = lake.create_table("written", {"id": "bigint"}, primary_key="id")
    marker = place / "tried"

    def stumble(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if kind == CLUSTER and not marker.exists():  # where Spark tries a task again
            marker.touch()
            raise OSError("stumbled")

    rows = lake.spark.range(0, 90, numPartitions=3).mapInArrow(stumble, "id bigint")
    options = {"lake": str(place), "table": "written"}
    rows.write.format("tailrace").options(**options).mode("append").save()
    assert marker.exists() == (kind == CLUSTER)
    table.delete([{"id": 4}])
    found = lake.spark.read.format("tailrace").options(**options).load()
    assert column(found.toArrow(), "id") == [i for i in range(90) if i != 4]


def check_derived(lake: tailrace.Lake) -> None:
    orders(lake)
    lake.create_view("totals", TOTALS, policy="incremental")
    copy = {"kind": "replica", "table": "copy", "where": "amount < 600"}
    lake.jobs.register("orders", "copy", {"consumer": copy})
    lake.run_until_fresh(timeout=LIMIT)
    with lake.transaction() as txn:
        txn.table("orders").upsert([{"id": 1, "customer": "c1", "amount": 5.0}])
        txn.table("orders").delete([{"id": 8}, {"id": ROWS - 1}])  # one is the greatest of a group
    lake.run_until_fresh(timeout=LIMIT)
    check_fresh(lake)


def check_fresh(lake: tailrace.Lake) -> None:
    totals = lake.view("totals")
    assert totals.history(limit=1)[0].strategy in ("keys", "merge")
    report = totals.verify()
    assert report.ok, report
    assert totals.to_df().count() == report.rows == 7
    want = lake.table("orders").to_df().where("amount < 600").toArrow()
    assert bag(lake.table("copy").to_arrow()) == bag(want)


def check_interrupt(directory: Path, spark: SparkSession) -> None:
    """A thread's jobs end when another interrupts them, in each session that a run may use."""
    for tiny in (None, True, False):
        tagging, begun = TaggingSpark(SparkProvider(spark)), directory / f"begun_{tiny}"
        with ThreadPoolExecutor(1) as pool:
            work = pool.submit(_work_for_good, tagging, tiny, begun)
            wait_until(lambda: work.done() or begun.exists(), what="a task", timeout=60)  # noqa: B023
            tagging.interrupt("tailrace-check")
            assert "cancel" in str(work.exception(timeout=60)).lower()


def _work_for_good(tagging: TaggingSpark, tiny: bool | None, begun: Path) -> None:
    def endless(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            begun.touch()
            while True:
                yield batch

    with tagging.tagged("tailrace-check"):
        own = tagging()
        session = own if tiny is None else small_session(own, tiny=tiny)
        session.range(1).mapInArrow(endless, "id bigint").where("id < 0").collect()


def check_forgotten(lake: tailrace.Lake) -> None:
    for tiny in (True, False):
        small_session(lake.spark, tiny=tiny).client.release_session()
    lake.table("orders").upsert([{"id": 1, "customer": "c2", "amount": 9.0}])
    lake.run_until_fresh(timeout=LIMIT)
    check_fresh(lake)


if __name__ == "__main__":
    # Where it hangs is then in its output.
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
