"""Two tenants on one Spark: no text of one reaches anything but its own tables, by any door."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import tailrace
from tailrace.cli.main import app
from tailrace.datasource.place import place_of
from tailrace.datasource.reading import find
from tailrace.lru import LruCache
from tailrace.spark_sql.functions import REFUSED
from tailrace.views.refresh.on_spark import small_session
from tests.support.jobs import replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ORDERS = {"id": "bigint", "v": "string"}
ERRORS = (tailrace.InvalidError, tailrace.NotFoundError)


class Site:
    """A lake with two tenants, and a file beside it."""

    def __init__(self, directory: Path, spark: SparkSession) -> None:
        self.lake, self.file = str(directory / "lake"), directory / "secret"
        self.file.write_text("secret\n")
        self.owner = tailrace.connect(self.lake, spark=spark)
        self.owner.create_schema("sales")
        self.owner.create_table("sales.orders", ORDERS, primary_key="id")
        self.owner.table("sales.orders").append([{"id": 1, "v": "secret"}])
        self.acme = tailrace.connect(self.lake, spark=spark, tenant="acme")
        self.acme.create_schema("acme")
        self.acme.create_table("acme.orders", ORDERS, primary_key="id")
        self.acme.table("acme.orders").append([{"id": 2, "v": "ours"}])
        self.acme.create_index("acme.orders", "words", using="fulltext", columns=["v"]).wait()

    def relations(self) -> list[str]:
        """What another tenant, or the server, has."""
        (objects,) = {file.parent for file in self.file.parent.rglob("sales-*/**/*.parquet")}
        file = f"text.`{self.file}`"
        return [
            file, f"`text`.`{self.file}`", f"parquet.`{objects}`", f"binaryFile.`{self.file}`",
            f"`org.apache.spark.sql.execution.datasources.text.TextFileFormat`.`{self.file}`",
            f"spark_catalog.{file}", "servers", "global_temp.servers", "default.servers",
            "spark_catalog.default.servers", "tailrace_verify_1_0", "sales.orders",
            "system.session.python_worker_logs", "IDENTIFIER(:name)", f"IDENTIFIER('{file}')",
            f"IDENTIFIER('te' || 'xt.`{self.file}`')",
        ]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"), spark)
    spark.range(3).createOrReplaceTempView("servers")
    spark.range(3).createOrReplaceGlobalTempView("servers")
    with made.owner, made.acme:
        yield made
    spark.catalog.dropTempView("servers")
    spark.catalog.dropGlobalTempView("servers")


# Where a query names a table.
QUERIES = [
    "SELECT * FROM {}",
    "SELECT o.v FROM acme.orders AS o JOIN {} ON true",
    "SELECT o.v FROM acme.orders AS o, {}",
    "WITH c AS (SELECT * FROM {}) SELECT * FROM c",
    "SELECT v FROM acme.orders WHERE v IN (SELECT * FROM {})",
    "SELECT v FROM acme.orders WHERE EXISTS (FROM {} SELECT *)",
    "SELECT (SELECT max(value) FROM {}) AS v FROM acme.orders",
    "SELECT o.v FROM acme.orders AS o, LATERAL (SELECT * FROM {})",
    "SELECT v FROM acme.orders UNION ALL SELECT value FROM {}",
    "SELECT * FROM {} PIVOT (count(*) FOR value IN ('secret'))",
    "SELECT o.v FROM acme.orders AS o LIMIT (b), {}",
    "SELECT * FROM (WITH servers AS (SELECT 1) SELECT * FROM servers), {}",
    "SELECT v FROM {0} -- \\\n/*\nUNION ALL SELECT value FROM {0} --*/",
    "FROM {} SELECT *",
]
DOORS: dict[str, Callable[[tailrace.Lake, str], Any]] = {
    "sql": lambda lake, q: lake.sql(q, {"name": "servers"}),
    "EXPLAIN": lambda lake, q: lake.sql(f"EXPLAIN {q}"),
    "INSERT": lambda lake, q: lake.sql(f"INSERT INTO acme.orders (v) {q}"),
    "CREATE TABLE": lambda lake, q: lake.sql(f"CREATE TABLE acme.new AS {q}"),
    "MERGE": lambda lake, q: lake.sql(
        f"MERGE INTO acme.orders AS t USING ({q}\n) AS s ON true WHEN MATCHED THEN DELETE"
    ),
    "DELETE": lambda lake, q: lake.sql(f"DELETE FROM acme.orders WHERE v IN ({q}\n)"),
    "UPDATE": lambda lake, q: lake.sql(f"UPDATE acme.orders SET v = ({q}\n)"),
    "CREATE VIEW": lambda lake, q: lake.sql(f"CREATE MATERIALIZED VIEW acme.new AS {q}"),
    "create_view": lambda lake, q: lake.create_view("acme.new", q),
    "explain": lambda lake, q: lake.explain(q),
    "table.delete": lambda lake, q: lake.table("acme.orders").delete(f"v IN ({q}\n)"),
    "search": lambda lake, q: _search(lake, f"v = ({q}\n)"),
    "replica": lambda lake, q: lake.jobs.register(
        "acme.orders", "new", _replica_where(f"v IN ({q}\n)")
    ),
}  # fmt: skip


def _search(lake: tailrace.Lake, condition: str) -> Any:
    return lake.index("acme.orders", "words").search("ours", where=condition)


def _replica_where(condition: str) -> dict[str, Any]:
    spec = replica("acme.new")
    spec["consumer"]["where"] = condition
    return spec


@pytest.mark.parametrize("door", DOORS)
def test_no_query_reads_what_is_not_the_tenants(site: Site, door: str) -> None:
    before = site.acme.snapshot
    let_through = []
    every = site.relations()
    some = {(relation, query) for relation in (every[0], every[-1]) for query in QUERIES}
    for relation, query in sorted({*some, *((relation, QUERIES[0]) for relation in every)}):
        text = query.format(relation)
        with contextlib.suppress(*ERRORS):
            DOORS[door](site.acme, text)
            let_through.append(text)
    assert let_through == []
    assert site.acme.snapshot == before


# What a tenant may try in the place of a value: each is true or a text.
CALLS = [
    *(f"{name}('java.lang.System', 'getenv', 'HOME') IS NULL" for name in REFUSED),
    "`reflect`('java.lang.System', 'getenv', 'HOME') IS NULL",
    "builtin.reflect('java.lang.System', 'getenv', 'HOME') IS NULL",
    "IDENTIFIER('refl' || 'ect')('java.lang.System', 'getenv', 'HOME') IS NULL",
    "'${env:HOME}' IS NULL",
    "'${spark.app.name}' IS NULL",
    "(SELECT count(*) FROM servers) IS NULL",
    "exists(array(1), x -> reflect('java.lang.System', 'getenv', 'HOME') IS NULL)",
]
VALUE_DOORS: dict[str, Callable[[tailrace.Lake, str], Any]] = {
    "table.delete": lambda lake, e: lake.table("acme.orders").delete(e),
    "search": _search,
    "fulltext_search": lambda lake, e: lake.sql(
        "SELECT * FROM fulltext_search('words', 'ours', 5, where => :e)", {"e": e}
    ),
    "replica": lambda lake, e: lake.jobs.register("acme.orders", "new", _replica_where(e)),
    "SELECT": lambda lake, e: lake.sql(f"SELECT {e} FROM acme.orders"),
    "VALUES": lambda lake, e: lake.sql(f"INSERT INTO acme.orders VALUES (1, {e})"),
    "UPDATE": lambda lake, e: lake.sql(f"UPDATE acme.orders SET v = {e}"),
    "DELETE": lambda lake, e: lake.sql(f"DELETE FROM acme.orders WHERE {e}"),
    "MERGE": lambda lake, e: lake.sql(
        f"MERGE INTO acme.orders AS t USING acme.orders AS s ON {e} WHEN MATCHED THEN DELETE"
    ),
    "view": lambda lake, e: lake.create_view("acme.new", f"SELECT {e} AS x FROM acme.orders"),
    "explain": lambda lake, e: lake.explain(f"SELECT id FROM acme.orders WHERE {e}"),
}


@pytest.mark.parametrize("door", VALUE_DOORS)
def test_no_value_reaches_outside(site: Site, door: str) -> None:
    before = site.acme.snapshot
    let_through = []
    for call in CALLS:
        with contextlib.suppress(*ERRORS):
            VALUE_DOORS[door](site.acme, call)
            let_through.append(call)
    assert let_through == []
    assert site.acme.snapshot == before


def test_the_refusal_names_the_function_and_its_place(site: Site) -> None:
    with pytest.raises(tailrace.InvalidError, match=r"line 2, column 3: the function java_method"):
        site.acme.sql("SELECT\n  java_method('java.lang.System', 'exit', 1)")
    with pytest.raises(
        tailrace.InvalidError, match=r"function to_protobuf\(\) is refused: it reads"
    ):
        site.acme.create_view("acme.new", "SELECT to_protobuf(id) AS x FROM acme.orders")


def test_the_command_line_is_a_door_like_others(site: Site) -> None:
    here = ("--lake", site.lake, "--tenant", "acme")
    for call in (
        ("sql", *here, "-c", f"SELECT * FROM IDENTIFIER('text.`{site.file}`')"),
        ("sql", *here, "-c", "SELECT reflect('java.lang.System', 'getenv', 'HOME')"),
        ("sql", *here, "-c", f"SHOW TABLES; EXPLAIN SELECT * FROM text.`{site.file}`"),
        ("search", *here, "words", "ours", "--where", "v = '${env:HOME}'"),
    ):
        result = CliRunner().invoke(app, call)
        assert isinstance(result.exception, ERRORS), (call, result.output, result.exception)


def test_the_data_source_knows_only_names_of_the_tenant(site: Site) -> None:
    for name in site.relations():
        place = place_of({"lake": site.lake, "table": name, "tenant": "acme"}, {})
        with place.open() as lake, pytest.raises(ERRORS):
            find(lake, name, None)


def test_a_view_that_is_stored_already_is_checked_at_its_refresh(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.delitem(REFUSED, "input_file_name")
        before.setattr("tailrace.store.spark_text.ALLOWED", {"input_file_name"})
        # By another process, from which this one has nothing in memory.
        before.setattr("tailrace.views.query.parse._parsed", LruCache(1000))
        before.setattr("tailrace.views.definition._definitions", LruCache(1000))
        view = site.acme.create_view("acme.old", "SELECT input_file_name() AS x FROM acme.orders")
    with pytest.raises(tailrace.TailraceError, match=r"input_file_name\(\) is refused"):
        view.refresh()
    site.acme.drop_view("acme.old")


def test_names_cannot_hide_a_variable(site: Site) -> None:
    with pytest.raises(tailrace.InvalidError, match="variable of Spark's"):
        site.acme.create_table("acme.new", {"${env:HOME}": "int"})


def test_functions_of_the_operator_stay_usable(site: Site, spark: SparkSession) -> None:
    spark.sql("CREATE TEMPORARY FUNCTION shout(x STRING) RETURNS STRING RETURN x || '!'")
    try:
        assert site.acme.sql("SELECT shout(v) FROM acme.orders").to_pylist() == [
            {"shout(v)": "ours!"}
        ]
        assert len(_search(site.acme, "shout(v) = 'ours!'")) == 1
        view = site.acme.create_view("acme.loud", "SELECT shout(v) AS loud FROM acme.orders")
        view.refresh()
        assert view.to_arrow().to_pylist() == [{"loud": "ours!"}]
        assert view.verify().ok
        site.acme.jobs.register("acme.orders", "copy", _replica_where("shout(v) = 'ours!'"))
        site.acme.run_until_fresh()
        assert site.acme.table("acme.new").to_arrow().num_rows == 1
    finally:
        spark.sql("DROP TEMPORARY FUNCTION shout")
    with pytest.raises(tailrace.InvalidError, match=r"there is no function shout\(\)"):
        site.acme.sql("SELECT shout(v) FROM acme.orders")


def test_temporary_views_are_the_owners(site: Site) -> None:
    assert site.owner.sql("SELECT count(*) AS n FROM servers").to_pylist() == [{"n": 3}]
    with pytest.raises(tailrace.InvalidError, match="there is no table or view main"):
        site.acme.sql("SELECT count(*) AS n FROM servers")


def test_sessions_of_our_own_take_no_path_for_a_table(site: Site, spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    beside = small_session(spark, tiny=True)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        beside.sql(f"SELECT * FROM text.`{site.file}`")
    assert beside.sql("SELECT '${env:HOME}' AS x").collect()[0].x == "${env:HOME}"


def test_what_a_setting_gives_another_meaning_is_refused(site: Site, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    try:
        for call in (
            lambda: site.acme.sql('SELECT "v" FROM acme.orders'),
            lambda: site.acme.table("acme.orders").delete('crc32("v") = 1'),
        ):
            with pytest.raises(tailrace.InvalidError, match="write '…' for a text"):
                call()
    finally:
        spark.conf.unset("spark.sql.ansi.doubleQuotedIdentifiers")
    text = "WITH Servers AS (SELECT id FROM acme.orders) SELECT * FROM servers"
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(tailrace.InvalidError, match="write Servers instead of servers"):
            site.acme.sql(text)
        site.acme.create_view("acme.new_view", text).refresh()
        assert site.acme.view("acme.new_view").to_arrow().column("id").to_pylist() == [2]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_what_makes_the_parser_stumble_is_our_error(site: Site) -> None:
    for call in (
        lambda: site.acme.sql("SELECT map(1) FROM acme.orders"),
        lambda: site.acme.explain("SELECT map(1) AS x FROM acme.orders"),
        lambda: site.acme.table("acme.orders").delete("map(1) IS NULL"),
        lambda: _search(site.acme, "map(1) IS NULL"),
        lambda: site.acme.jobs.register("acme.orders", "no", _replica_where("map(1) IS NULL")),
    ):
        with pytest.raises(tailrace.InvalidError):
            call()
