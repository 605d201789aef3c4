"""Indexes in SQL: making and dropping them, seeing how they are, and searching in a FROM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tailrace
from tests.support import duck
from tests.support.lakes import LakeArgs

ORDERS = """
CREATE SCHEMA sales;
CREATE TABLE sales.orders (id BIGINT PRIMARY KEY, note STRING, region STRING, place ARRAY<FLOAT>);
INSERT INTO sales.orders VALUES
    (1, 'late delivery of a gift', 'eu', array(0.1, 0.2)),
    (2, 'delivered on time', 'us', array(1, 0)),
    (3, NULL, 'us', NULL),
    (4, 'late, very late', 'us', array(0, 1));
CREATE INDEX note_ft ON sales.orders USING FULLTEXT (note);
CREATE INDEX near ON sales.orders USING VECTOR (place) WITH (metric = 'l2')
"""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[tailrace.Lake]:
    with tailrace.connect(tmp_path / "lake") as lake:
        lake.sql(ORDERS)
        yield lake


def rows(lake: tailrace.Lake, query: str, **args: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(query, args).to_pylist()]


# --- without Spark -------------------------------------------------------------------------------


def test_indexes_are_created_with_their_table_in_one_commit(lake: tailrace.Lake) -> None:
    before = lake.snapshot
    made = lake.sql(
        "CREATE TABLE notes (id BIGINT PRIMARY KEY, index INT, note STRING, v ARRAY<FLOAT>, "
        "INDEX note_ft USING FULLTEXT (note) WITH (language = 'english'), "
        "INDEX `near by` USING VECTOR (v) WITH (dimension = 2, priority = 3))"
    )
    assert made.snapshot == before + 1 == lake.snapshot
    assert [index.name for index in lake.indexes("notes")] == ["near by", "note_ft"]
    lake.sql("INSERT INTO notes VALUES (1, 2, 'late gifts', array(0.5, 1))")
    lake.run_until_fresh()
    assert rows(lake, "SELECT id, index FROM fulltext_search('notes.note_ft', 'gift')") == [(1, 2)]


def test_a_table_whose_index_is_wrong_is_not_created(lake: tailrace.Lake) -> None:
    before = lake.snapshot
    for wrong, said in (
        ("INDEX a USING FULLTEXT (nope)", "has no column nope"),
        ("INDEX a USING FULLTEXT (id)", "text"),
        ("INDEX a USING BTREE (id)", "valid here: FULLTEXT, VECTOR"),
        ("INDEX a USING FULLTEXT (note), INDEX a USING FULLTEXT (note)", "already"),
        ("INDEX a USING VECTOR (v)", "dimension"),
    ):
        with pytest.raises(tailrace.InvalidError, match=said):
            lake.sql(f"CREATE TABLE w (id BIGINT, note STRING, v ARRAY<FLOAT>, {wrong})")
    with pytest.raises(tailrace.InvalidError, match="is described as"):
        lake.create_table("w", {"note": "string"}, indexes={"a": {"kind": "fulltext"}})
    assert lake.snapshot == before
    table = lake.create_table(
        "w", {"note": "string"}, indexes={"a": {"using": "fulltext", "columns": ["note"]}}
    )
    assert lake.snapshot == before + 1
    assert [index.name for index in lake.indexes(table.name)] == ["a"]


def test_indexes_need_no_spark_to_be_managed(lake: tailrace.Lake) -> None:
    made = lake.sql(
        "CREATE INDEX IF NOT EXISTS both ON sales.orders USING FULLTEXT (region, note) WITH ("
        "tokenizer = 'simple', weights = '3, 1', positions = FALSE, interval = '10s', priority = 2)"
    )
    assert "REFRESH INDEX, builds it" in made.message
    again = lake.sql("CREATE INDEX IF NOT EXISTS both ON sales.orders USING FULLTEXT (note)")
    assert again.message == "the index both on sales.orders exists already"
    options = lake.index("sales.orders", "both").definition.options
    assert (options.tokenizer, options.weights) == ("simple", (3.0, 1.0))
    assert not options.positions
    spec = lake.jobs.status("sales.orders", "both").spec
    assert spec["trigger"]["schedule"] == {"interval": "10s"}
    assert spec["priority"] == 2
    assert "paused" in lake.sql("PAUSE JOB both ON sales.orders").message
    lake.sql("DROP INDEX both ON sales.orders; DROP INDEX IF EXISTS both ON sales.orders")
    assert (
        lake.sql("DROP INDEX IF EXISTS x ON nowhere").message
        == "there is no index x on main.nowhere"
    )
    assert [index.name for index in lake.indexes()] == ["near", "note_ft"]
    assert lake.runtime.spark.session is None


def test_an_index_is_refreshed_and_shown(lake: tailrace.Lake) -> None:
    before = {row["name"]: row for row in lake.sql("SHOW INDEXES").to_pylist()}
    assert before["near"]["using"] == "vector"
    assert (before["near"]["watermark"], before["near"]["pending_rows"]) == (None, 4)
    done = lake.sql("REFRESH INDEX note_ft ON sales.orders")
    assert (
        done.message
        == f"note_ft on sales.orders: 3 rows in 1 segment, as of snapshot {lake.snapshot}"
    )
    lake.sql("REFRESH INDEX near ON sales.orders FULL")
    lake.sql("INSERT INTO sales.orders VALUES (5, 'x', 'y', NULL)")
    lake.table("sales.orders").delete([{"id": 1}])
    for row in lake.sql("SHOW INDEXES").to_pylist():
        status = lake.index(row["table"], row["name"]).status()
        assert (row["using"], row["columns"]) == (status.using, ", ".join(status.columns))
        assert (row["state"], row["watermark"]) == (status.state, status.watermark)
        assert (row["pending_rows"], row["rows"]) == (status.pending_rows, status.rows) == (1, 3)
        assert (row["segments"], row["bytes"]) == (status.segments, status.size_bytes)
        assert row["lag_snapshots"] == 2
        assert row["lag_seconds"] > 0
    lake.sql("ALTER TABLE sales.orders RENAME COLUMN note TO remark")
    assert {row["columns"] for row in lake.sql("SHOW INDEXES").to_pylist()} == {"remark", "place"}
    lake.sql("DROP TABLE sales.orders")
    assert lake.sql("SHOW INDEXES").to_pylist() == []


def test_a_search_before_the_index_is_built_says_what_to_do(lake: tailrace.Lake) -> None:
    with pytest.raises(
        tailrace.UnavailableError, match=r"REFRESH INDEX note_ft ON sales\.orders builds it now"
    ):
        lake.sql("SELECT * FROM fulltext_search('note_ft', 'late')")
    with pytest.raises(tailrace.InvalidError, match=r"say how long .* WITH \(dimension = 128\)"):
        lake.sql("CREATE TABLE empty (v ARRAY<FLOAT>); CREATE INDEX e ON empty USING VECTOR (v)")
    assert lake.runtime.spark.session is None


# --- with Spark ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
def test_a_search_is_a_table_of_a_query(lake: tailrace.Lake) -> None:
    lake.run_until_fresh()
    found = lake.sql("SELECT * FROM fulltext_search('note_ft', 'late')")
    assert found.columns == ["id", "note", "region", "place", "score"]
    own = lake.index("sales.orders", "note_ft").search("late").select(["id", "score"]).to_pylist()
    assert [{"id": row["id"], "score": row["score"]} for row in found.to_pylist()] == own
    joined = (
        "SELECT o.id, s.score > 0 FROM fulltext_search('sales.orders.note_ft', 'late delivery', 10)"
        " s JOIN sales.orders o ON o.id = s.id ORDER BY s.score DESC"
    )
    assert rows(lake, joined) == [(1, True), (4, True)]
    nearest = "SELECT id FROM vector_search('near', array(0.1, -2.5e-1), limit => 2)"
    assert rows(lake, nearest) == [(1,), (2,)]
    # Braces, quotes, a name of its own, both kinds in one query, several lines.
    assert rows(
        lake,
        "SELECT Fulltext_Search.id, '{x}' AS x\n"
        "FROM FULLTEXT_SEARCH(\n  'note_ft',\n  \"'gift'\"\n)\n"
        "JOIN vector_search ('near', array(0, 1), 3) AS v(a, b, c, d, e) ON id = a",
    ) == [(1, "{x}")]
    assert rows(lake, "WITH fulltext_search(a) AS (SELECT 1) SELECT a FROM fulltext_search") == [
        (1,)
    ]
    assert rows(lake, "SELECT 'fulltext_search(1)' AS a") == [("fulltext_search(1)",)]
    # In statements that write.
    late = "SELECT id FROM fulltext_search('note_ft', 'late')"
    lake.sql(f"CREATE TABLE hits AS {late}; INSERT INTO hits SELECT id + 10 FROM ({late})")
    assert lake.table("hits").to_arrow().num_rows == 4
    assert lake.sql(f"DELETE FROM sales.orders WHERE id IN ({late})").message.startswith("2 rows")


@pytest.mark.usefixtures("spark")
def test_what_is_searched_for_may_be_a_parameter(lake: tailrace.Lake) -> None:
    lake.run_until_fresh()
    injected = "late' {x} OR 1=1 -- "
    query = "SELECT id FROM fulltext_search(:index, :q, :n) WHERE id < :most AND :q IS NOT NULL"
    given = {"index": "note_ft", "q": injected, "n": 1, "most": 9}
    assert rows(lake, query, **given) == [(4,)]
    for vector in ([0, 1], np.array([0, 1], np.float32)):
        assert rows(lake, "SELECT id FROM vector_search('near', :v, 1)", v=vector) == [(4,)]


@pytest.mark.usefixtures("spark")
def test_options_of_a_search_have_names(lake: tailrace.Lake) -> None:
    lake.run_until_fresh()
    then = lake.snapshot
    lake.sql("UPDATE sales.orders SET region = 'asia' WHERE id = 4")
    lake.sql("INSERT INTO sales.orders VALUES (5, 'late again', 'eu', NULL)")
    query = "SELECT id, region FROM fulltext_search('note_ft', 'late', {}) ORDER BY id"
    assert rows(lake, query.format("freshness => 'indexed'")) == [(1, "eu"), (4, "us")]
    latest = [(1, "eu"), (4, "asia"), (5, "eu")]
    assert rows(lake, query.format("freshness => 'latest'")) == latest
    assert rows(lake, query.format(f"at => {then}")) == [(1, "eu"), (4, "us")]
    assert rows(lake, query.format("limit => 1, where => \"region = 'eu'\"")) == [(1, "eu")]
    marked = "SELECT highlight FROM fulltext_search('note_ft', 'gift', highlight => true)"
    assert rows(lake, marked) == [("late delivery of a <b>gift</b>",)]


@pytest.mark.usefixtures("spark")
def test_indexes_are_a_system_table(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        lake.sql(ORDERS)
        lake.run_until_fresh()
        lake.sql("INSERT INTO sales.orders VALUES (5, 'x', 'y', NULL)")
        query = (
            "SELECT object, name, kind, columns, state, watermark, lag_snapshots, pending_rows, "
            "rows, segments, error FROM tailrace.indexes WHERE bytes > 0 ORDER BY name"
        )
        both = [
            ("sales.orders", *facts, "idle", lake.snapshot - 1, 1, 1, 3, 1, None)
            for facts in (("near", "vector", "place"), ("note_ft", "fulltext", "note"))
        ]
        assert rows(lake, query) == both
        options = "SELECT get_json_object(options, '$.metric') FROM tailrace.indexes ORDER BY name"
        assert rows(lake, options) == [("l2",), (None,)]
        with lake_args.connect(tenant="other") as other:
            assert other.sql("SHOW INDEXES").to_pylist() == []
        with duck.attach(lake_args) as connection:
            found = connection.execute(
                "SELECT name, columns, CAST(rows AS INT) "
                "FROM __ducklake_metadata_lake.tailrace_sys_indexes ORDER BY name"
            ).fetchall()
        assert found == [("near", "place", 3), ("note_ft", "note", 3)]
