"""Each kind of statement, as it should be; wrong ones are in `test_wrong_statements`."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.sql.listings import SYSTEM_TABLES
from tests.support import duck
from tests.support.lakes import LakeArgs

ORDERS = """
CREATE SCHEMA sales;
CREATE TABLE sales.orders (
    id BIGINT PRIMARY KEY, customer STRING NOT NULL, amount DECIMAL(12,2), note STRING);
INSERT INTO sales.orders VALUES
    (1, 'ada', 12.5, 'in a {hurry}'), (2, 'bob', -1, NULL), (3, 'ada', 99.00, NULL);
"""
BY_CUSTOMER = "SELECT customer, sum(amount) AS total FROM sales.orders GROUP BY customer"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[tailrace.Lake]:
    with tailrace.connect(tmp_path / "lake") as lake:
        lake.sql(ORDERS)
        yield lake


def rows(lake: tailrace.Lake, query: str, **args: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(query, args).to_pylist()]


# --- without Spark -------------------------------------------------------------------------------


def test_tables_and_literals_need_no_spark(lake: tailrace.Lake) -> None:
    made = lake.sql(
        "CREATE TABLE IF NOT EXISTS odd (a INT, t TIMESTAMP, d DATE, x DOUBLE, l ARRAY<INT>, "
        "m MAP<STRING,INT>, `s p` STRUCT<x: INT, y: ARRAY<DOUBLE>>, PRIMARY KEY (a, d))"
    )
    assert made.snapshot == lake.snapshot
    lake.sql(
        "INSERT INTO odd (a, d, x, l, t) VALUES "
        "(-1, DATE '2026-01-31', 1, array(1, 2), TIMESTAMP '2026-01-31 12:00:00+00:00'),"
        "(:a, DATE '2026-02-01', 1e3, NULL, NULL)",
        {"a": 7},
    )
    assert lake.table("odd").primary_key == ["a", "d"]
    found = lake.table("odd").to_arrow().to_pylist()
    assert [(row["a"], row["x"], row["l"]) for row in found] == [
        (-1, 1.0, [1, 2]),
        (7, 1000.0, None),
    ]
    again = lake.sql("CREATE TABLE IF NOT EXISTS odd (b INT)")
    assert "exists already" in again.message
    lake.sql("ALTER TABLE odd ADD COLUMNS (b STRING, c MAP<STRING,INT>)")
    lake.sql("ALTER TABLE odd RENAME COLUMN b TO bb; ALTER TABLE odd ALTER COLUMN a TYPE BIGINT")
    lake.sql("ALTER TABLE odd DROP COLUMN c")
    assert lake.table("odd").columns["a"] == "bigint"
    assert "bb" in lake.table("odd").columns
    described = lake.sql("DESCRIBE odd").to_pylist()
    assert described[0] == {"column": "a", "type": "bigint", "nullable": False, "key": 1}
    lake.sql("DROP TABLE odd; DROP TABLE IF EXISTS odd; CREATE SCHEMA IF NOT EXISTS sales")
    lake.sql("CREATE SCHEMA other; DROP SCHEMA other; DROP SCHEMA IF EXISTS other")
    assert lake.sql("SHOW SCHEMAS").to_pylist() == [{"schema": "main"}, {"schema": "sales"}]
    assert rows(lake, "SHOW TABLES") == [("sales.orders", 3, 1, rows(lake, "SHOW TABLES")[0][3], 3)]
    assert lake.runtime.spark.session is None


def test_views_and_jobs_need_no_spark_to_be_managed(lake: tailrace.Lake) -> None:
    options = "WITH (trigger = 'periodic', interval = '10s', policy = 'incremental', priority = 2)"
    lake.sql(f"CREATE MATERIALIZED VIEW sales.by_customer {options} AS {BY_CUSTOMER}")
    status = lake.view("sales.by_customer").status()
    assert status.spec["trigger"]["job_type"] == "periodic"
    assert status.spec["trigger"]["schedule"] == {"interval": "10s"}
    assert status.spec["priority"] == 2
    lake.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS sales.by_customer AS {BY_CUSTOMER}")
    for _ in range(2):
        lake.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS `by.customer` AS {BY_CUSTOMER}")
    with pytest.raises(tailrace.InvalidError, match=r"VIEW main\.`by\.customer` builds"):
        lake.sql("DESCRIBE `by.customer`")
    lake.sql("DROP MATERIALIZED VIEW IF EXISTS `by.customer`")
    explained = lake.sql("EXPLAIN MATERIALIZED VIEW sales.by_customer")
    assert explained.text.startswith("sales.by_customer: ")
    before = lake.sql("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT id FROM sales.orders LIMIT 3")
    assert "(not created)" in before.text
    assert lake.views() == ["sales.by_customer"]
    for verb, state in (("PAUSE", "paused"), ("RESUME", "new"), ("CANCEL", "canceled")):
        assert lake.sql(f"{verb} JOB sales.by_customer").message.endswith(f"is {state}")
    lake.jobs.register("sales.orders", "copy", {"consumer": {"kind": "replica", "table": "c"}})
    assert "paused" in lake.sql("PAUSE JOB copy ON sales.orders").message
    assert [row["name"] for row in lake.sql("SHOW JOBS").to_pylist()] == ["view", "copy"]
    assert lake.sql("SHOW INDEXES").to_pylist() == []
    assert lake.sql("SHOW VIEWS").to_pylist()[0]["state"] == "canceled"
    assert len(lake.sql("SHOW SNAPSHOTS LIMIT 2").to_pylist()) == 2
    lake.sql("DROP MATERIALIZED VIEW sales.by_customer")
    lake.sql("DROP MATERIALIZED VIEW IF EXISTS sales.by_customer")
    assert lake.views() == []
    assert lake.runtime.spark.session is None


# --- with Spark ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
def test_queries_are_sparks_with_the_lakes_names(lake: tailrace.Lake) -> None:
    assert rows(
        lake, "SELECT sales.orders.id, orders.note FROM sales.orders WHERE note LIKE '%{%'"
    ) == [(1, "in a {hurry}")]
    # A name from WITH goes before the lake's, except in its own definition.
    lake.sql("CREATE TABLE orders AS SELECT id + 100 AS id FROM sales.orders")
    assert rows(lake, "WITH orders AS (SELECT max(id) AS m FROM orders) SELECT m FROM orders") == [
        (103,)
    ]
    assert rows(
        lake, "SELECT count(*) FROM orders o JOIN sales.orders ON o.id = orders.id + 100"
    ) == [(3,)]
    assert rows(lake, "SELECT count(*) FROM sales.orders TABLESAMPLE (100 PERCENT)") == [(3,)]
    assert rows(lake, "FROM sales.orders SELECT id WHERE id = :id", id=2) == [(2,)]
    assert rows(lake, "SELECT id FROM range(2)") == [(0,), (1,)]
    # What the lake has not, Spark may have.
    lake.spark.range(3).createOrReplaceTempView("of_spark")
    assert rows(lake, "SELECT count(*) FROM of_spark") == [(3,)]
    lake.spark.catalog.dropTempView("of_spark")
    assert "Scan" in lake.sql("EXPLAIN SELECT * FROM sales.orders").text


@pytest.mark.usefixtures("spark")
def test_odd_spellings_mean_what_they_say(lake: tailrace.Lake) -> None:
    assert rows(lake, "SELECT /*+ BROADCAST(o) */ count(*) FROM sales.orders o") == [(3,)]
    assert rows(lake, "SELECT of.id FROM sales.orders AS of WHERE of.id = 1") == [(1,)]
    sampled = "SELECT count(*) FROM sales.orders TABLESAMPLE (100 PERCENT) REPEATABLE (5)"
    assert rows(lake, sampled) == [(3,)]
    lake.sql("CREATE TABLE `a{b}` AS SELECT 1 AS x, named_struct('y', 2) AS s")
    assert rows(lake, "TABLE `a{b}`") == [(1, {"y": 2})]
    lake.sql("CREATE TABLE nested AS SELECT named_struct('y', 2) AS s")
    assert rows(lake, "SELECT main.nested.s.y FROM main.nested") == [(2,)]
    twice = lake.sql("SELECT a.id, b.id FROM sales.orders a JOIN sales.orders b ON a.id = b.id - 1")
    assert twice.columns == ["id", "id_2"]
    assert {"id": 1, "id_2": 2} in twice.to_pylist()
    # Words of the language that are names here.
    lake.sql("CREATE TABLE spans (id INT, start INT, `end` INT, w STRUCT<end: INT, x: INT>)")
    lake.sql("INSERT INTO spans (id, start, `end`) VALUES (1, 2, 3)")
    lake.sql(
        "UPDATE spans AS s SET start = :start, `end` = s.end + :end WHERE s.end = 3 AND id = 1",
        {"start": 10, "end": 20},
    )
    assert rows(lake, "SELECT start, `end` FROM spans") == [(10, 23)]
    lake.sql("DELETE FROM sales.orders WHERE sales.orders.id = 1 OR note = r'where'")
    assert rows(lake, "SELECT count(*) FROM sales.orders") == [(2,)]


@pytest.mark.usefixtures("spark")
def test_literals_are_stored_as_spark_would(lake: tailrace.Lake) -> None:
    lake.sql("CREATE TABLE a (n DECIMAL(10,2), w DECIMAL(38,10), t TIMESTAMP)")
    lake.sql("CREATE TABLE b (n DECIMAL(10,2), w DECIMAL(38,10), t TIMESTAMP)")
    wide, time = "12345678901234567890.1234567890", "TIMESTAMP '2026-01-01 00:00:00'"
    values = f"(0.125, {wide}, {time}), (-0.145, 1, NULL)"
    lake.sql(f"INSERT INTO a VALUES {values}; INSERT INTO b SELECT * FROM VALUES {values}")
    assert rows(lake, "SELECT * FROM a EXCEPT ALL SELECT * FROM b") == []
    assert rows(lake, "SELECT max(n), min(n) FROM a") == [(Decimal("0.13"), Decimal("-0.15"))]
    lake.sql("INSERT INTO a VALUES (1, 1, NULL) LIMIT 0")
    assert rows(lake, "SELECT count(*) FROM a") == [(2,)]


@pytest.mark.usefixtures("spark")
def test_a_query_reads_the_past(lake: tailrace.Lake) -> None:
    then = lake.snapshot
    time = lake.snapshots()[-1].time
    lake.sql("DELETE FROM sales.orders WHERE true")
    assert rows(lake, "SELECT count(*) FROM sales.orders") == [(0,)]
    assert rows(lake, f"SELECT count(*) FROM sales.orders VERSION AS OF {then} AS o") == [(3,)]
    query = f"SELECT count(*) FROM sales.orders FOR TIMESTAMP AS OF '{time.isoformat()}'"
    assert rows(lake, query) == [(3,)]
    old = f"sales.orders VERSION AS OF {then}"
    assert rows(lake, f"SELECT count(*) FROM {old} a LEFT JOIN sales.orders b USING (id)") == [(3,)]


@pytest.mark.usefixtures("spark")
def test_rows_are_changed_in_one_commit(lake: tailrace.Lake) -> None:
    done = lake.sql(
        "INSERT INTO sales.orders (id, customer) SELECT id + 10, upper(customer) FROM sales.orders"
    )
    assert (done.message, done.snapshot) == ("3 rows inserted into sales.orders", lake.snapshot)
    done = lake.sql(
        "UPDATE sales.orders AS o SET o.amount = o.amount * 1.111, note = 'CASE' WHERE id = 1"
    )
    assert (done.to_pylist()[0]["rows"], done.snapshot) == (1, lake.snapshot)
    assert rows(lake, "SELECT amount, note FROM sales.orders WHERE id = 1") == [
        (Decimal("13.89"), "CASE")
    ]
    lake.sql("UPDATE sales.orders SET id = id + 100 WHERE id IN (SELECT max(id) FROM sales.orders)")
    lake.sql("DELETE FROM sales.orders o WHERE o.id BETWEEN 10 AND 12")
    assert rows(lake, "SELECT id FROM sales.orders ORDER BY id") == [(1,), (2,), (3,), (113,)]
    with pytest.raises(tailrace.InvalidError, match="keys exist already"):
        lake.sql("UPDATE sales.orders SET id = 1 WHERE id = 2")
    changes = lake.table("sales.orders").changes(since=lake.snapshot - 1).toArrow()
    assert sorted(changes.column("id").to_pylist()) == [11, 12]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("local_rows", [500_000, 1])
def test_merge_does_what_each_clause_says(tmp_path: Path, local_rows: int) -> None:
    settings = tailrace.Settings(local_rows=local_rows)
    with tailrace.connect(tmp_path / "lake", settings=settings) as lake:
        lake.sql(ORDERS)
        done = lake.sql(
            """
            MERGE INTO sales.orders AS t
            USING (SELECT * FROM VALUES (1, 'ada', 5.0), (3, 'gone', 0), (9, 'new', 7.0),
                                        (8, 'no', 1) AS v(id, c, a)) AS s
            ON t.id = s.id
            WHEN MATCHED AND s.c = 'gone' THEN DELETE
            WHEN MATCHED THEN UPDATE SET amount = s.a, note = CASE WHEN t.id = 1 THEN 'one' END
            WHEN NOT MATCHED AND s.c <> 'no'
                THEN INSERT (id, customer, amount) VALUES (s.id, s.c, s.a)
            WHEN NOT MATCHED BY SOURCE THEN UPDATE SET note = 'kept'
            """
        )
        assert done.message == "sales.orders: 3 rows went, 3 rows came"
        assert rows(lake, "SELECT id, customer, amount, note FROM sales.orders ORDER BY id") == [
            (1, "ada", Decimal("5.00"), "one"),
            (2, "bob", Decimal("-1.00"), "kept"),
            (9, "new", Decimal("7.00"), None),
        ]
        lake.sql(
            "MERGE INTO sales.orders t USING (SELECT 9 AS id, 'x' AS customer, 1.0 AS amount, "
            "'y' AS note UNION ALL SELECT 10, 'z', 2, NULL) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        assert rows(lake, "SELECT customer FROM sales.orders WHERE id > 8 ORDER BY id") == [
            ("x",),
            ("z",),
        ]
        with pytest.raises(tailrace.InvalidError, match="match the same row"):
            lake.sql(
                "MERGE INTO sales.orders t USING (SELECT 1 AS id UNION ALL SELECT 1) s "
                "ON t.id = s.id WHEN MATCHED THEN DELETE"
            )


@pytest.mark.usefixtures("spark")
def test_views_are_built_refreshed_and_verified(lake: tailrace.Lake) -> None:
    lake.sql(
        f"CREATE MATERIALIZED VIEW sales.by_customer WITH (policy = 'incremental') AS {BY_CUSTOMER}"
    )
    assert (
        lake.sql("REFRESH MATERIALIZED VIEW sales.by_customer").to_pylist()[0]["strategy"]
        == "build"
    )
    lake.sql("INSERT INTO sales.orders VALUES (4, 'eve', 1, NULL)")
    assert (
        lake.sql("REFRESH MATERIALIZED VIEW sales.by_customer").to_pylist()[0]["strategy"]
        == "merge"
    )
    # Asked for, a full refresh is one, though nothing has changed and the policy says otherwise.
    full = lake.sql("REFRESH MATERIALIZED VIEW sales.by_customer FULL").to_pylist()[0]
    assert (full["strategy"], full["rows_written"]) == ("full", 0)
    lake.sql("DELETE FROM sales.orders WHERE id = 4")
    assert (
        lake.sql("REFRESH MATERIALIZED VIEW sales.by_customer").to_pylist()[0]["strategy"]
        == "merge"
    )
    assert lake.sql("VERIFY MATERIALIZED VIEW sales.by_customer").to_pylist()[0]["ok"]
    assert rows(lake, "SELECT total FROM sales.by_customer WHERE customer = 'ada'") == [
        (Decimal("111.50"),)
    ]
    described = lake.sql("DESCRIBE sales.by_customer").to_pylist()
    assert [row["column"] for row in described] == ["customer", "total"]
    # What was read of a job before it ran again must not be written over what it knows now.
    view = lake.view("sales.by_customer")
    before = view._job()
    lake.sql("INSERT INTO sales.orders VALUES (4, 'eve', 1, NULL)")
    view.refresh()
    assert not view._make_stale(before, last=before.last)
    lake.sql("DELETE FROM sales.orders WHERE id = 4")
    # Asked for before the build, it is forgotten with that.
    lake.sql("CREATE MATERIALIZED VIEW ids AS SELECT id FROM sales.orders")
    assert lake.sql("REFRESH MATERIALIZED VIEW ids FULL").to_pylist()[0]["strategy"] == "build"
    lake.sql("INSERT INTO sales.orders VALUES (4, 'eve', 1, NULL)")
    assert lake.sql("REFRESH MATERIALIZED VIEW ids").to_pylist()[0]["strategy"] == "append"
    lake.sql("DELETE FROM sales.orders WHERE id = 4; PAUSE JOB ids")
    with pytest.raises(tailrace.InvalidError, match=r"RESUME JOB main\.ids first"):
        lake.sql("REFRESH MATERIALIZED VIEW ids FULL")
    assert lake.view("ids").watermark is not None
    lake.sql("DROP MATERIALIZED VIEW ids")
    lake.sql("CREATE OR REPLACE MATERIALIZED VIEW sales.by_customer AS SELECT id FROM sales.orders")
    lake.sql("REFRESH MATERIALIZED VIEW sales.by_customer")
    assert rows(lake, "SELECT count(id) FROM sales.by_customer") == [(3,)]
    lake.sql("DROP TABLE sales.orders CASCADE")
    assert lake.views() == []


@pytest.mark.usefixtures("spark")
def test_system_tables_say_how_fresh_everything_is(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        lake.sql(ORDERS)
        lake.sql(f"CREATE MATERIALIZED VIEW sales.by_customer AS {BY_CUSTOMER}")
        query = "SELECT watermark, lag_snapshots > 0, lag_rows FROM tailrace.freshness"
        assert rows(lake, query) == [(None, True, 3)]
        lake.run_until_fresh()
        assert rows(lake, query) == [(lake.snapshot, False, 0)]
        lake.sql("INSERT INTO sales.orders VALUES (4, 'eve', 1, NULL)")
        lake.table("sales.orders").delete([{"id": 1}])
        behind = lake.sql("SELECT * FROM tailrace.freshness").to_pylist()[0]
        assert (behind["lag_snapshots"], behind["lag_rows"]) == (2, 2)
        assert 0 < behind["lag_seconds"] < 300
        assert rows(lake, "SELECT state, tries, error FROM tailrace.jobs") == [("idle", 0, None)]
        assert rows(lake, "SELECT strategy FROM tailrace.iterations") == [("build",)]
        assert rows(lake, "SELECT iterations FROM tailrace.usage") == [(1,)]
        newest = rows(lake, "SELECT max(snapshot_id) FROM tailrace.snapshots")
        assert newest == [(lake.snapshot,)]
        # Another tenant sees nothing of it.
        with lake_args.connect(tenant="other") as other:
            assert rows(other, "SELECT count(*) FROM tailrace.jobs") == [(0,)]
        with duck.attach(lake_args) as connection:
            for name, columns in SYSTEM_TABLES.items():
                own = lake.sql(f"SELECT count(*) AS n FROM tailrace.{name}").to_pylist()[0]["n"]
                found = connection.execute(
                    f"SELECT count(*), count({next(iter(columns))}) "
                    f"FROM __ducklake_metadata_lake.tailrace_sys_{name}"
                ).fetchall()
                assert found == [(own, own)]
            (lag,) = connection.execute(
                "SELECT object, CAST(lag_rows AS INT) "
                "FROM __ducklake_metadata_lake.tailrace_sys_freshness"
            ).fetchall()
        assert lag == ("sales.by_customer", 2)
