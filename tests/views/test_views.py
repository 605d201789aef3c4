"""Views in a lake: created, refreshed, read, altered under, replaced, dropped."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tailrace.views.refresh.refresh import Refresh
from tests.support import counted, duck
from tests.support.answers import Oracle, assert_same, shown
from tests.support.clock import MovableClock
from tests.views.engine import TABLES, World
from tests.views.random_queries import Queries
from tests.views.test_rules import SEED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

SALES = {"id": "bigint", "customer": "string", "amount": "decimal(10,2)", "at": "date"}
BY_CUSTOMER = "SELECT customer, sum(amount) AS total, count(*) AS n FROM sales GROUP BY customer"


@pytest.fixture
def lake(sqlite_lake_args: LakeArgs, spark: SparkSession) -> Iterator[tailrace.Lake]:
    with sqlite_lake_args.connect(spark=spark) as opened:
        opened.create_table("sales", SALES, primary_key="id")
        add(opened, range(6))
        yield opened


def add(lake: tailrace.Lake, ids: Any, amount: str = "1.50", **more: Any) -> None:
    plain = {"amount": Decimal(amount), "at": None, **more}
    lake.table("sales").upsert([{"id": i, "customer": "abc"[i % 3], **plain} for i in ids])


def rows(view: tailrace.View) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in view.to_arrow().to_pylist()}


def test_a_view_is_built_and_then_follows_its_table(lake: tailrace.Lake) -> None:
    view = lake.create_view("by_customer", BY_CUSTOMER, policy="incremental")
    assert view.watermark is None
    with pytest.raises(tailrace.InvalidError, match="has not been built"):
        view.to_df()
    assert view.refresh().strategy == "build"
    assert ("a", Decimal("3.00"), 2) in rows(view)
    add(lake, [0, 7], "2.00")
    done = view.refresh()
    assert done.strategy == "merge"
    assert ("a", Decimal("3.50"), 2) in rows(view)
    assert ("b", Decimal("5.00"), 3) in rows(view)
    assert view.verify().ok
    lake.table("sales").delete("customer = 'c'")
    view.refresh()
    assert {row[0] for row in rows(view)} == {"a", "b"}


def test_nothing_to_do_is_no_snapshot_and_no_job(lake: tailrace.Lake, spark: SparkSession) -> None:
    view = lake.create_view("by_customer", BY_CUSTOMER)
    view.refresh()
    before = lake.snapshot
    spark.sparkContext.setJobGroup("idle", "a refresh with nothing to do")
    assert view.refresh().strategy == "nothing"
    assert spark.sparkContext.statusTracker().getJobIdsForGroup("idle") == []
    assert lake.snapshot == before


def test_other_engines_see_the_view_without_its_hidden_columns(
    lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    query = f"{BY_CUSTOMER} HAVING count(*) > 2 ORDER BY total DESC, customer LIMIT 1"
    view = lake.create_view("top", query)
    view.refresh()
    add(lake, [7, 10], "9.00")
    view.refresh()
    assert view.to_df().columns == ["customer", "total", "n"]
    assert rows(view) == {("b", Decimal("21.00"), 4)}
    with duck.attach(sqlite_lake_args) as connection:
        found = connection.execute("SELECT * FROM lake.main.top").fetchall()
    assert found == [("b", Decimal("21.00"), 4)]
    assert lake.tables() == ["main.sales"]


def test_verify_tells_what_differs(lake: tailrace.Lake) -> None:
    view = lake.create_view("by_customer", BY_CUSTOMER)
    view.refresh()
    stored = view._options["table"]
    with lake.transaction() as txn:  # what nobody can do from outside
        txn.act_for(view._job().id)
        txn.table(stored).delete("customer = 'a'")
    with lake.transaction() as txn:
        from tailrace.propagation import tables as t

        info = txn.info(stored)
        txn.on_commit(
            lambda commit: commit.connection.execute(
                t.version.insert().values(
                    table_id=info.id, commit_snapshot=lake.snapshot, label=view._job().watermark
                )
            )
        )
    report = view.verify()
    assert not report.ok
    assert (report.missing, report.extra) == (1, 0)
    assert report.examples[0]["customer"] == "a"
    assert "DIFFERS" in str(report)


def test_explain_says_how_and_why_not_better(lake: tailrace.Lake) -> None:
    said = lake.explain("SELECT customer, sum(cast(amount AS double)) AS s FROM sales GROUP BY 1")
    found = {one["strategy"]: one for one in said.to_dict()["strategies"]}
    assert found["keys"]["possible"]
    assert "floating-point" in found["merge"]["reason"]
    said = lake.explain("SELECT id, rand() AS r FROM sales")
    assert said.strategy == "full"
    assert "rand()" in str(said)


def test_a_policy_of_incremental_refuses_what_cannot_be(lake: tailrace.Lake) -> None:
    with pytest.raises(tailrace.InvalidError, match=r"rand\(\)"):
        lake.create_view("v", "SELECT id, rand() AS r FROM sales", policy="incremental")
    with pytest.raises(tailrace.InvalidError, match="one of auto"):
        lake.create_view("v", BY_CUSTOMER, policy="often")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT nope FROM sales", "nope"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("SELECT customer, id FROM sales GROUP BY customer", "GROUP BY"),
        ("SELECT id, id FROM sales", "two columns"),
        ("SELEC id FROM sales", "view is one query|cannot read"),
        ("DELETE FROM sales", "one query"),
        ("SELECT 1 AS one", "at least one table"),
        ("SELECT id FROM sales; SELECT 1", "one query"),
        ("SELECT no_such_function(id) AS x FROM sales", "(?i)no_such_function"),
        ("SELECT id FROM sales VERSION AS OF 3", "VERSION AS OF"),
    ],
)
def test_a_bad_query_is_refused_at_once(lake: tailrace.Lake, query: str, said: str) -> None:
    with pytest.raises(tailrace.TailraceError, match=said):
        lake.create_view("v", query)
    assert lake.views() == []


def test_an_added_column_changes_nothing_and_a_lost_one_is_told(lake: tailrace.Lake) -> None:
    view = lake.create_view("everything", "SELECT * FROM sales")
    view.refresh()
    lake.table("sales").add_column("note", "string")
    add(lake, [20], note="x")
    view.refresh()
    assert view.to_df().columns == list(SALES)
    assert view.verify().ok
    lake.table("sales").drop_column("at")
    add_without = [{"id": 30, "customer": "a", "amount": Decimal(1), "note": None}]
    lake.table("sales").append(add_without)
    with pytest.raises(tailrace.JobFailedError, match="'at'"):
        view.refresh()
    assert view.status().state == "error"
    by_customer = lake.create_view("by_customer", BY_CUSTOMER)  # uses none of it
    by_customer.refresh()
    assert by_customer.verify().ok


def test_a_table_cannot_be_dropped_under_a_view(lake: tailrace.Lake) -> None:
    lake.create_view("by_customer", BY_CUSTOMER).refresh()
    lake.create_view("large", "SELECT customer FROM by_customer WHERE total > 1").refresh()
    with pytest.raises(tailrace.InvalidError, match="views read it"):
        lake.drop_table("sales")
    with pytest.raises(tailrace.InvalidError, match="read from it"):
        lake.drop_view("by_customer")
    assert lake.views() == ["main.by_customer", "main.large"]
    lake.drop_table("sales", cascade=True)
    assert lake.views() == []
    assert lake.tables() == []


def test_a_replaced_view_is_read_until_the_new_one_is_there(
    lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    view = lake.create_view("v", BY_CUSTOMER)
    view.refresh()
    before = rows(view)
    with pytest.raises(tailrace.InvalidError, match="exists already"):
        lake.create_view("v", "SELECT id FROM sales")
    lake.create_view("v", "SELECT id FROM sales", replace=True)
    assert rows(lake.view("v")) == before
    lake.run_until_fresh(timeout=120)
    assert rows(lake.view("v")) == {(i,) for i in range(6)}
    add(lake, [50])
    lake.view("v").refresh()
    assert lake.view("v").verify().ok
    with duck.attach(sqlite_lake_args) as connection:
        assert len(connection.execute("SELECT id FROM lake.main.v").fetchall()) == 7
    assert lake.views() == ["main.v"]
    assert len(lake.jobs.list()) == 1


def test_a_dropped_view_is_gone_and_its_name_is_free(lake: tailrace.Lake) -> None:
    lake.create_view("v", BY_CUSTOMER).refresh()
    with pytest.raises(tailrace.InvalidError):
        lake.create_table("v", {"id": "bigint"})
    lake.drop_view("v")
    with pytest.raises(tailrace.NotFoundError):
        lake.view("v")
    lake.create_table("v", {"id": "bigint"})
    with pytest.raises(tailrace.InvalidError, match="is a table"):
        lake.create_view("v", BY_CUSTOMER)


def test_functions_of_the_moment_are_fixed_for_a_refresh(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    clock = MovableClock()
    with sqlite_lake_args.connect(spark=spark, clock=clock) as lake:
        lake.create_table("sales", SALES, primary_key="id")
        add(lake, range(3))
        view = lake.create_view("v", "SELECT id, current_date() AS today FROM sales")
        view.refresh()
        first = {row[1] for row in rows(view)}
        add(lake, [7])
        assert view.refresh().strategy != "full"
        assert {row[1] for row in rows(view)} == first
        clock.advance(timedelta(days=1))
        assert view.refresh().strategy == "full"
        assert {row[1] for row in rows(view)} != first


def test_a_minimum_that_goes_is_looked_for_again(lake: tailrace.Lake) -> None:
    query = "SELECT customer, min(amount) AS lo, max(id) AS last FROM sales GROUP BY customer"
    view = lake.create_view("v", query, policy="incremental")
    view.refresh()
    add(lake, [9], "0.25")
    view.refresh()
    assert ("a", Decimal("0.25"), 9) in rows(view)
    lake.table("sales").delete([{"id": 9}])
    assert view.refresh().strategy == "merge"
    assert ("a", Decimal("1.50"), 3) in rows(view)
    assert view.verify().ok


@pytest.mark.early
def test_a_change_too_large_for_memory_is_left_to_spark(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    settings = tailrace.Settings(local_rows=3, local_keys=3)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        lake.create_table("sales", SALES, primary_key="id")
        lake.create_table("names", {"customer": "string", "name": "string"})
        add(lake, range(30))
        lake.table("names").append([{"customer": c, "name": c * 2} for c in "abc"])
        queries = {
            "merged": f"{BY_CUSTOMER} HAVING min(amount) < 3",
            "keyed": "SELECT customer, count(DISTINCT amount) AS d FROM sales GROUP BY customer",
            "plain": "SELECT s.id, n.name FROM sales s JOIN names n USING (customer)",
            "outer_": "SELECT name, id FROM names n LEFT JOIN sales s ON n.customer = s.customer",
        }
        views = {n: lake.create_view(n, q, policy="incremental") for n, q in queries.items()}
        for view in views.values():
            view.refresh()
        add(lake, range(10, 40), "2.50")
        lake.table("sales").delete("id < 5")
        lake.table("names").append([{"customer": "d", "name": "dd"}])
        for view in views.values():
            assert view.refresh().strategy != "full"
            assert view.verify().ok, str(view.verify())


def test_rows_that_a_small_change_leads_to_may_be_too_many_for_memory(
    sqlite_lake_args: LakeArgs, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[bool] = []
    run = Refresh._run

    def spy(self: Refresh, *, small: bool, alone: bool = False) -> Any:
        tries.append(small)
        return run(self, small=small, alone=alone)

    monkeypatch.setattr(Refresh, "_run", spy)
    settings = tailrace.Settings(local_rows=3, memory_rows=25)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        lake.create_table("sales", SALES, primary_key="id")
        add(lake, range(30))
        query = "SELECT customer, count(DISTINCT amount) AS d FROM sales GROUP BY customer"
        view = lake.create_view("v", query, policy="incremental")
        view.refresh()
        add(lake, range(6), "2.50")  # few rows, but of every group
        tries.clear()
        assert view.refresh().strategy == "keys"
        assert tries == [True, False]
        assert view.verify().ok


@pytest.mark.early
def test_operators_that_only_spark_has(lake: tailrace.Lake) -> None:
    lake.create_table(
        "docs", {"id": "bigint", "tags": "array<string>", "at": "struct<x: int, y: int>"}
    )
    docs = lake.table("docs")
    docs.append([{"id": i, "tags": list("ab"[: i % 3]), "at": {"x": i, "y": 1}} for i in range(6)])
    queries = {
        "tags": "SELECT id, tag FROM docs LATERAL VIEW explode(tags) x AS tag",
        "places": "SELECT id, pos, tag FROM docs LATERAL VIEW OUTER posexplode(tags) x AS pos, tag",
        "counted": "SELECT tag, count(*) AS n FROM (SELECT explode(tags) AS tag FROM docs) "
        "GROUP BY tag",
        "repeated": "SELECT customer, count(DISTINCT n) AS ns FROM "
        "(SELECT customer, count(*) AS bought FROM sales GROUP BY customer) "
        "LATERAL VIEW explode(array(bought, bought + 1)) x AS n GROUP BY customer",
        "fields": "SELECT d.at.x AS x, sum(at.y) AS n FROM docs AS d GROUP BY d.at.x",
        "rolled": "SELECT at.x AS x, id, count(*) AS n FROM docs GROUP BY ROLLUP (at.x, id)",
        "letters": "SELECT v.c, count(d.id) AS n FROM VALUES ('a'), ('c') AS v(c) "
        "LEFT JOIN docs d ON array_contains(d.tags, v.c) GROUP BY v.c",
        "sets": "SELECT customer, collect_set(amount) AS amounts FROM sales GROUP BY customer",
        "spread": "SELECT customer, stddev(amount) AS s FROM sales GROUP BY customer",
        "best": "SELECT id, amount FROM sales "
        "QUALIFY row_number() OVER (PARTITION BY customer ORDER BY amount DESC) = 1",
    }
    views = {n: lake.create_view(n, q, policy="incremental") for n, q in queries.items()}
    lake.run_until_fresh(timeout=180)
    add(lake, [3, 8], "4.00")
    docs.append([{"id": 9, "tags": ["c", None], "at": None}])
    docs.delete("id = 4")
    lake.run_until_fresh(timeout=180)
    for view in views.values():
        assert view.verify().ok, str(view.verify())


def test_what_no_rule_covers_is_computed_in_full(lake: tailrace.Lake) -> None:
    queries = {
        "any": "SELECT customer, first(id) AS i FROM sales GROUP BY customer",
        "named": "SELECT id, rank() OVER w AS r FROM sales WINDOW w AS (ORDER BY id)",
        "float_groups": "SELECT s, count(*) AS n FROM "
        "(SELECT customer, sum(cast(amount AS double)) AS s FROM sales GROUP BY 1) GROUP BY s",
    }
    for name, query in queries.items():
        view = lake.create_view(name, query)
        view.refresh()
        add(lake, [11])
        lake.table("sales").delete([{"id": 11}])
        add(lake, [12, 13])
        assert view.refresh().strategy == "full"
        assert view.explain().to_dict()["reason"]
        assert name == "any" or view.verify().ok


# --- a sample of random views on Spark ----------------------------------------------------------

SIZES = [(10, 4), pytest.param(25, 6, marks=[pytest.mark.stress, pytest.mark.timeout(900)])]


@pytest.mark.early
@pytest.mark.parametrize(("count", "rounds"), SIZES)
@pytest.mark.parametrize("memory_rows", [0, 1_000_000])  # on Spark, in memory
def test_random_views_follow_random_changes(
    sqlite_lake_args: LakeArgs, spark: SparkSession, memory_rows: int, count: int, rounds: int
) -> None:
    random = Random(f"{SEED}/{memory_rows}")
    settings = tailrace.Settings(memory_rows=memory_rows)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        for name, (columns, key) in TABLES.items():
            lake.create_table(name, columns, primary_key=key or None)
        now = World.random(random, 8, signs=True)
        _write(lake, World({name: [] for name in TABLES}), now)
        views: dict[str, tailrace.View] = {}
        while len(views) < count:
            sql = Queries(random).query(random.choice([0, 1])).sql
            try:
                name = f"v{len(views)}"
                views[name] = lake.create_view(name, sql, policy="incremental")
            except tailrace.InvalidError:
                continue
        lake.run_until_fresh(timeout=300)
        for _ in range(rounds):
            before, now = now, now.changed(random)
            _write(lake, before, now)
            lake.run_until_fresh(timeout=300)
        counted.count("views in a lake, refreshed and compared with Spark", len(views) * rounds)
        oracle = Oracle(lake, spark)
        oracle.learn()
        with duck.attach(sqlite_lake_args) as connection:
            connection.execute("USE lake")
            for name, view in views.items():
                note = f"TAILRACE_SEED={SEED} {view.query}"
                want = oracle.answer(view.query)
                assert_same(view.to_arrow(), want, note)
                # Another engine sees the same rows.
                got = connection.execute(f"SELECT * FROM main.{name}").to_arrow_table()
                assert shown(got.to_pylist()) == shown(want.to_pylist()), note


def _write(lake: tailrace.Lake, before: World, now: World) -> None:
    """Bring the lake's tables from one world to the next."""
    with lake.transaction() as txn:
        for name, (columns, key) in TABLES.items():
            gone = list(before.rows[name])
            came = []
            for row in now.rows[name]:
                if row in gone:
                    gone.remove(row)
                else:
                    came.append(row)
            table = txn.table(name)
            if key and gone:
                table.delete([{"id": row[0]} for row in gone])
            elif gone:  # without a key: all of it anew
                table.delete("true")
                came = now.rows[name]
            if came:
                table.append(
                    [
                        {
                            c: Decimal(v) if columns[c].startswith("decimal") and v else v
                            for c, v in zip(columns, row, strict=True)
                        }
                        for row in came
                    ]
                )


# A query each whose refresh needs nothing of Spark, and a change that every one of them sees.
IN_MEMORY = {
    "merge": BY_CUSTOMER,
    "whole": "SELECT customer, sum(id) AS ids, avg(id) AS middle FROM sales GROUP BY customer",
    "rows": "SELECT a.id, b.customer FROM sales a JOIN sales b ON a.id = b.id + 1",
    "keys": "SELECT customer, count(DISTINCT amount) AS n FROM sales GROUP BY customer",
    "extreme": "SELECT customer, max(amount) AS most FROM sales GROUP BY customer",
    "outer": "SELECT a.id, b.id AS other FROM sales a LEFT JOIN sales b ON b.id = a.id + 1",
    "exists": "SELECT id FROM sales a WHERE EXISTS (SELECT 1 FROM sales b WHERE b.id = a.id + 1)",
    "scalar": "SELECT id FROM sales WHERE amount > (SELECT avg(amount) FROM sales)",
}


@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_small_refresh_needs_no_spark(
    name: str, lake: tailrace.Lake, sqlite_lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = lake.create_view("v", IN_MEMORY[name], policy="incremental")
    built.refresh()
    monkeypatch.setattr("tailrace.store.spark_session._start_spark", _no_spark)
    with sqlite_lake_args.connect() as alone:
        add(alone, [0, 3, 9], "7.00")
        alone.table("sales").delete([{"id": 1}, {"id": 4}])
        alone.view("v").refresh()
    assert built.verify().ok


def _no_spark() -> None:
    raise AssertionError("Spark was asked for")


# Each was wrong once, or failed.
AWRY = [
    # The second look at a group has steps of its own.
    "SELECT t.b, max(u.w) AS m FROM t LEFT JOIN u ON t.a = u.a GROUP BY t.b",
    "SELECT t.b, min(u.w) AS m FROM t JOIN u ON t.a = u.a WHERE u.c > 0 GROUP BY t.b",
    # What stands for a column is one value.
    "SELECT q.s * 2 AS x, 10 - q.s AS y, -q.s AS z "
    "FROM (SELECT a, a + sum(w) AS s FROM u GROUP BY a) q",
    # Keys by a value that comes from rows with a condition only Spark knows.
    "SELECT r.n, t.id FROM r JOIN (SELECT max(a) AS m FROM u WHERE s RLIKE 'x|y') q ON true "
    "JOIN t ON t.a = q.m",
    # Keys of other types than the columns that they are looked for in.
    "SELECT t.id, u.id AS other FROM t JOIN u ON t.id = u.a",
    "SELECT t.id, u.id AS other FROM t JOIN u ON t.v = u.a",
    "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.x)",
    # One column, twice.
    "SELECT q.a AS a1, r.a AS a2, count(DISTINCT q.w) AS n "
    "FROM (SELECT a, sum(w) AS w FROM u GROUP BY a) q "
    "JOIN r ON q.a = r.a WHERE r.b = 'x' GROUP BY q.a, r.a",
    "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE t.a = u.a AND t.a = u.c)",
    "SELECT id, DATE '9999-12-31' + INTERVAL 1 DAY AS d FROM t",
    # A condition on one side narrows what the other side's change touches.
    "SELECT t.id FROM t WHERE t.a IN (SELECT r.a FROM r "
    "JOIN (SELECT a, sum(w) AS s FROM u GROUP BY a) q "
    "ON q.a = r.a WHERE r.b IN ('x', 'y') AND q.s > r.n)",
    "SELECT t.id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.w > t.v)",
    "SELECT t.id, q.s FROM t LEFT JOIN (SELECT a, sum(w) AS s FROM u GROUP BY a) q ON q.a = t.a",
    "SELECT b, row_number() OVER (PARTITION BY b ORDER BY x NULLS LAST) AS n FROM t",
    # An aggregate has a row also where nothing matches.
    "SELECT id FROM t WHERE v >= (SELECT coalesce(sum(w), 0) FROM u WHERE u.a = t.a AND u.w > 2)",
]  # fmt: skip


@pytest.mark.early
@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.stress)])
def test_views_that_went_awry(in_memory: tailrace.Lake, follow: Any, rounds: int) -> None:
    random = Random(f"{SEED}/awry")
    for name, (columns, key) in TABLES.items():
        in_memory.create_table(name, columns, primary_key=key or None)
    now = World.random(random, 30)
    _write(in_memory, World({name: [] for name in TABLES}), now)
    in_memory.table("t").append([{"id": 2**40, "a": 1, "b": "x", "v": 2, "x": 1.0}])

    def change() -> None:
        nonlocal now
        before, now = now, now.changed(random)
        _write(in_memory, before, now)

    queries = {f"v{n}": query for n, query in enumerate(AWRY)}
    follow(queries, [change] * rounds, "auto", share=1 if rounds > 1 else 3)
