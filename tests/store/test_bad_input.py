"""Bad input gets its error, naming the column and an example, and the lake is as before.

One lake for all tests of this module: nothing that they do may change it.
"""

from __future__ import annotations

import contextlib
import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sqlalchemy as sa

import tailrace
from tailrace.store import tables as t
from tests.support.lakes import LakeArgs
from tests.support.rows import bag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {
    "id": "bigint",
    "flag": "boolean",
    "tiny": "tinyint",
    "number": "int",
    "small_float": "float",
    "big_float": "double",
    "price": "decimal(5,2)",
    "word": "string not null",
    "bytes": "binary",
    "day": "date",
    "moment": "timestamp",
    "local": "timestamp_ntz",
    "list": "array<int>",
    "times": "array<timestamp>",
    "pair": "struct<a:int,b:float>",
    "map": "map<string,smallint>",
}
ROW: dict[str, Any] = {
    "id": 1,
    "flag": True,
    "tiny": 1,
    "number": 1,
    "small_float": 0.5,
    "big_float": 0.5,
    "price": Decimal("1.50"),
    "word": "one",
    "bytes": b"one",
    "day": date(2024, 2, 29),
    "moment": datetime(2024, 2, 29, 12, tzinfo=UTC),
    "local": datetime(2024, 2, 29, 12),  # noqa: DTZ001  (without a zone is the point)
    "list": [1, None],
    "times": [datetime(2024, 2, 29, 12, tzinfo=UTC)],
    "pair": {"a": 1, "b": None},
    "map": {"x": 1},
}
NAIVE = datetime(2024, 1, 1)  # noqa: DTZ001
AWARE = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def args(tmp_path_factory: pytest.TempPathFactory) -> LakeArgs:
    return LakeArgs(catalog="sqlite", url=str(tmp_path_factory.mktemp("bad")))


@pytest.fixture(scope="module")
def lake(args: LakeArgs, spark: SparkSession) -> Iterator[tailrace.Lake]:
    """A lake with `t`, which has a key and one row, and `plain`, which has neither."""
    with args.connect(spark=spark) as opened:
        opened.create_schema("s")
        opened.create_table("t", COLUMNS, primary_key="id").append([ROW])
        opened.create_table("plain", {"id": "int"})
        before = everything(opened)
        yield opened
        assert everything(opened) == before


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """A good row, as a Spark DataFrame."""
    return spark.sql(
        """
        SELECT 2L AS id, true AS flag, 1Y AS tiny, 1 AS number, 0.5F AS small_float,
          0.5D AS big_float, 1.50BD AS price, 'one' AS word, X'01' AS bytes,
          DATE '2024-02-29' AS day, TIMESTAMP '2024-02-29 12:00:00' AS moment,
          TIMESTAMP_NTZ '2024-02-29 12:00:00' AS local, array(1, NULL) AS list,
          array(TIMESTAMP '2024-02-29 12:00:00') AS times,
          named_struct('a', 1, 'b', 1F) AS pair, map('x', 1S) AS map
        """
    )


def state(lake: tailrace.Lake) -> Any:
    """What a commit would have changed, and what a transaction would have left behind."""
    with lake._runtime.database.read() as connection:
        transactions = connection.execute(sa.select(t.transaction)).all()
    return lake.snapshot, transactions


def everything(lake: tailrace.Lake) -> Any:
    """The same and all that there is: too much to look at after each of these tests."""
    rows = {name: bag(lake.table(name).to_arrow()) for name in lake.tables()}
    columns = {name: lake.table(name).columns for name in lake.tables()}
    return state(lake), rows, columns


@contextlib.contextmanager
def refused(lake: tailrace.Lake, error: type[Exception], *parts: str) -> Iterator[None]:
    """The block fails with the error, whose text has all the parts; the lake is as before."""
    before = state(lake)
    with pytest.raises(error) as caught:
        yield
    assert type(caught.value) is error
    for part in parts:
        assert part in str(caught.value)
    assert state(lake) == before


def good(**changes: Any) -> dict[str, Any]:
    return ROW | {"id": 2} | changes


def arrow(**changes: Any) -> pa.Table:
    row = {
        name: pa.array([value]) if name != "map" else pa.array([value], MAP)
        for name, value in good().items()
    }
    return pa.table(row | changes)


MAP = pa.map_(pa.string(), pa.int16())


def test_the_good_row_is_good(args: LakeArgs, tmp_path: Any, frame: DataFrame) -> None:
    """Else what follows would prove nothing."""
    with tailrace.connect(tmp_path / "lake") as other:
        table = other.create_table("t", COLUMNS, primary_key="id")
        table.append([good()])
        table.append(arrow(id=pa.array([3])))
        table.append(pd.DataFrame([good(id=4)]))
        table.append(frame.replace(2, 5, subset="id"))
        assert table.to_arrow().num_rows == 4


# --- values in dicts --------------------------------------------------------------------------

BAD_VALUES = [
    ("id", None),
    ("id", "2"),
    ("id", 2.0),
    ("id", 2**63),
    ("flag", 1),
    ("flag", "true"),
    ("tiny", 128),
    ("tiny", -129),
    ("tiny", True),
    ("number", 2**31),
    ("number", 1.5),
    ("number", "1"),
    ("number", Decimal("1.5")),
    ("number", float("nan")),
    ("number", np.int64(2**40)),
    ("small_float", 1e300),
    ("small_float", -1e39),
    ("small_float", "0.5"),
    ("small_float", True),
    ("big_float", "nan"),
    ("big_float", 2**60 + 1),
    ("big_float", Decimal("0.5")),
    ("price", Decimal("1000.00")),
    ("price", Decimal("1.005")),
    ("price", Decimal("NaN")),
    ("price", 1000),
    ("price", 1.5),
    ("price", "1.50"),
    ("word", None),
    ("word", 5),
    ("word", b"one"),
    ("word", "\ud800"),
    ("bytes", "one"),
    ("bytes", 1),
    ("day", AWARE),
    ("day", "2024-01-01"),
    ("day", 19000),
    ("moment", NAIVE),
    ("moment", date(2024, 1, 1)),
    ("moment", 0),
    ("local", AWARE),
    ("local", "2024-01-01"),
    ("list", 1),
    ("list", "12"),
    ("list", [1, "2"]),
    ("list", [1.5]),
    ("list", [2**31]),
    ("list", {"a": 1}),
    ("times", [AWARE, NAIVE]),
    ("pair", {"a": 1}),
    ("pair", {"a": 1, "b": 1.0, "c": 1}),
    ("pair", {"A": 1, "b": 1.0}),
    ("pair", {"a": "1", "b": 1.0}),
    ("pair", {"a": 1, "b": 1e300}),
    ("pair", [1, 1.0]),
    ("map", {"x": 2**15}),
    ("map", {1: 1}),
    ("map", [("x", 1, 2)]),
    ("map", [(None, 1)]),
    ("map", "x"),
]


@pytest.mark.parametrize(("column", "value"), BAD_VALUES)
@pytest.mark.parametrize("write", ["append", "upsert"])
def test_a_value_in_a_dict_that_does_not_fit(
    lake: tailrace.Lake, write: str, column: str, value: Any
) -> None:
    rows = [good(id=7), good(id=8) | {column: value}, good(id=9)]
    with refused(lake, tailrace.InvalidError, f"main.t.{column}", example(value)):
        getattr(lake.table("t"), write)(rows)


def example(value: Any) -> str:
    """What of a bad value the message must show: it, or the bad part of it."""
    if isinstance(value, list) and value and not isinstance(value[0], int):
        value = value[-1]
    elif isinstance(value, list) and value:
        value = next((v for v in value if not isinstance(v, int)), value[-1])
    elif isinstance(value, dict) and set(value) == {"a", "b"}:
        value = next(v for v in value.values() if v != 1)
    elif value == {1: 1}:
        value = 1
    return "NULL" if value is None else repr(value)


def test_rows_that_are_no_rows(lake: tailrace.Lake) -> None:
    table = lake.table("t")
    with refused(lake, tailrace.InvalidError, "main.t", "'word'"):
        table.append([{k: v for k, v in good().items() if k != "word"}])
    with refused(lake, tailrace.InvalidError, "main.t", "'extra'"):
        table.append([good(extra=1)])
    with refused(lake, tailrace.InvalidError, "main.t", "'extra'"):
        table.append([good(), good(id=3, extra=1)])
    with refused(lake, tailrace.InvalidError, "main.t", "WORD"):
        table.append([good(WORD="twice")])
    with refused(lake, tailrace.InvalidError, "main.t", "5"):
        table.append([good() | {5: 5}])
    with refused(lake, tailrace.InvalidError, "main.t", "row 1", "7"):
        table.append([good(), 7])
    for wrong in (None, 7, object(), {"id": 1}, "id", b"id", {1, 2}):
        with refused(lake, tailrace.InvalidError, "main.t", type(wrong).__name__):
            table.append(wrong)


# --- values in Arrow and pandas ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "array", "shown"),
    [
        ("id", pa.array([None], pa.int64()), "NULL"),
        ("id", pa.array(["2"]), "string"),
        ("id", pa.array([2.0]), "double"),
        ("id", pa.array([2**63], pa.uint64()), str(2**63)),
        ("flag", pa.array([1]), "int64"),
        ("tiny", pa.array([128]), "128"),
        ("number", pa.array([-(2**31) - 1]), str(-(2**31) - 1)),
        ("number", pa.array([1.0]), "double"),
        ("small_float", pa.array([1e39]), "1e+39"),
        ("small_float", pa.array([2**24 + 1]), str(2**24 + 1)),
        ("big_float", pa.array([2**60 + 1]), str(2**60 + 1)),
        ("price", pa.array([1000]), "1000"),
        ("price", pa.array([Decimal("1.005")]), "1.005"),
        ("price", pa.array([1.5]), "double"),
        ("word", pa.array([None], pa.string()), "NULL"),
        ("word", pa.array([b"x"]), "binary"),
        ("word", pa.array([1]), "int64"),
        ("bytes", pa.array(["x"]), "string"),
        ("day", pa.array([NAIVE]), "timestamp"),
        ("moment", pa.array([NAIVE]), "timestamp"),
        ("moment", pa.array([1], pa.timestamp("ns", "UTC")), "timestamp"),
        ("moment", pa.array([2**62], pa.timestamp("s", "UTC")), "timestamp"),
        ("local", pa.array([AWARE]), "timestamp"),
        ("list", pa.array([["a"]]), "list"),
        ("list", pa.array([[2**31]]), "array<int>"),
        ("list", pa.array([1]), "int64"),
        ("times", pa.array([[NAIVE]]), "timestamp"),
        ("pair", pa.array([{"a": 1}]), "struct"),
        ("pair", pa.array([{"a": 1, "b": 1e300}]), "struct"),
        ("pair", pa.array([{"a": 1, "b": None, "c": 1}]), "struct"),
        ("map", pa.array([{"x": 1}]), "struct"),
        ("map", pa.array([{"x": 2**20}], pa.map_(pa.string(), pa.int32())), str(2**20)),
    ],
)
def test_an_arrow_column_that_does_not_fit(
    lake: tailrace.Lake, column: str, array: pa.Array, shown: str
) -> None:
    rows = arrow(**{column: array})
    with refused(lake, tailrace.InvalidError, f"main.t.{column}", shown):
        lake.table("t").append(rows)
    with refused(lake, tailrace.InvalidError, f"main.t.{column}", shown):
        lake.table("t").upsert(rows.to_batches()[0])


def test_arrow_columns_that_are_missing_unknown_or_doubled(lake: tailrace.Lake) -> None:
    table = lake.table("t")
    with refused(lake, tailrace.InvalidError, "main.t", "'word'"):
        table.append(arrow().drop_columns(["word"]))
    with refused(lake, tailrace.InvalidError, "main.t", "'extra'"):
        table.append(arrow(extra=pa.array([1])))
    with refused(lake, tailrace.InvalidError, "main.t", "'WORD'"):
        table.append(arrow(WORD=pa.array(["x"])))
    with refused(lake, tailrace.InvalidError, "main.t", "'word'"):
        table.append(arrow().append_column("word", pa.array(["x"])))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", None),
        ("id", "2"),
        ("tiny", 128),
        ("number", 1.5),
        ("small_float", 1e39),
        ("price", 1.5),
        ("word", None),
        ("word", 5),
        ("moment", NAIVE),
        ("local", AWARE),
        ("list", ["a"]),
    ],
)
def test_a_pandas_column_that_does_not_fit(lake: tailrace.Lake, column: str, value: Any) -> None:
    rows = pd.DataFrame([good() | {column: value}])
    with refused(lake, tailrace.InvalidError, f"main.t.{column}"):
        lake.table("t").append(rows)


def test_pandas_columns_that_are_mixed_missing_or_unknown(lake: tailrace.Lake) -> None:
    table = lake.table("t")
    with refused(lake, tailrace.InvalidError, "main.t", "number", "'x'"):
        table.append(pd.DataFrame([good(), good(id=3, number="x")]))
    with refused(lake, tailrace.InvalidError, "main.t", "'word'"):
        table.append(pd.DataFrame([good()]).drop(columns="word"))
    with refused(lake, tailrace.InvalidError, "main.t", "'extra'"):
        table.append(pd.DataFrame([good(extra=1)]))
    with refused(lake, tailrace.InvalidError, "main.plain", "0"):
        lake.table("plain").append(pd.DataFrame([[1]]))


# --- values in Spark --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "expression", "shown"),
    [
        # Refused by their types, before any job.
        ("id", "'2'", "string"),
        ("flag", "1", "int"),
        ("number", "1.5D", "double"),
        ("small_float", "'0.5'", "string"),
        ("price", "1.5D", "double"),
        ("word", "5", "int"),
        ("word", "X'00'", "binary"),
        ("bytes", "'x'", "string"),
        ("day", "TIMESTAMP '2024-01-01 00:00:00'", "timestamp"),
        ("moment", "TIMESTAMP_NTZ '2024-01-01 00:00:00'", "timestamp"),
        ("local", "TIMESTAMP '2024-01-01 00:00:00'", "timestamp"),
        ("list", "array('a')", "list"),
        ("times", "array(TIMESTAMP_NTZ '2024-01-01 00:00:00')", "timestamp"),
        ("pair", "named_struct('a', 1)", "struct"),
        ("pair", "named_struct('a', 1, 'b', 1D)", "struct"),
        ("map", "map(1, 1S)", "map"),
        ("number", "INTERVAL '1' DAY", "interval"),
        # Refused by their values, in a worker.
        ("tiny", "128", "128"),
        ("price", "1000.00BD", "1000.00"),
        ("small_float", "1e39D", "1e+39"),
        ("word", "CAST(NULL AS STRING)", "NULL"),
        ("id", "CAST(NULL AS BIGINT)", "NULL"),
        ("list", "array(2147483648L)", "array<int>"),
    ],
)
def test_a_spark_column_that_does_not_fit(
    lake: tailrace.Lake, frame: DataFrame, column: str, expression: str, shown: str
) -> None:
    from pyspark.sql import functions as F

    with refused(lake, tailrace.InvalidError, column, shown):
        lake.table("t").append(frame.withColumn(column, F.expr(expression)))


def test_spark_columns_that_are_missing_unknown_or_doubled(
    lake: tailrace.Lake, frame: DataFrame
) -> None:
    table = lake.table("t")
    with refused(lake, tailrace.InvalidError, "main.t", "'word'"):
        table.append(frame.drop("word"))
    with refused(lake, tailrace.InvalidError, "main.t", "'extra'"):
        table.upsert(frame.selectExpr("*", "1 AS extra"))
    with refused(lake, tailrace.InvalidError, "main.t", "'Word'"):
        table.append(frame.selectExpr("*", "'x' AS Word"))


# --- keys -------------------------------------------------------------------------------------


def test_a_key_twice_in_one_batch(lake: tailrace.Lake, frame: DataFrame) -> None:
    table = lake.table("t")
    rows = [good(id=7), good(id=8), good(id=7)]
    for write in (table.append, table.upsert):
        with refused(lake, tailrace.InvalidError, "main.t", "'id': 7"):
            write(rows)
        with refused(lake, tailrace.InvalidError, "main.t", "'id': 7"):
            write(pd.DataFrame(rows))
        with refused(lake, tailrace.InvalidError, "main.t", "'id': 2"):
            write(pa.concat_tables([arrow(), arrow()]))
        with refused(lake, tailrace.InvalidError, "main.t", "'id': 2"):
            write(frame.unionAll(frame))


def test_a_key_that_exists(lake: tailrace.Lake, frame: DataFrame) -> None:
    table = lake.table("t")
    for rows in ([good(id=9), ROW], arrow(id=pa.array([1])), pd.DataFrame([ROW])):
        with refused(lake, tailrace.InvalidError, "main.t", "'id': 1", "upsert"):
            table.append(rows)
    with refused(lake, tailrace.InvalidError, "main.t", "'id': 1", "upsert"):
        table.append(frame.replace(2, 1, subset="id"))


def test_a_table_without_a_key_takes_no_keys(lake: tailrace.Lake) -> None:
    plain = lake.table("plain")
    with refused(lake, tailrace.InvalidError, "main.plain", "primary key"):
        plain.upsert([{"id": 1}])
    with refused(lake, tailrace.InvalidError, "main.plain", "primary key"):
        plain.delete([{"id": 1}])


def test_keys_to_delete_that_are_no_keys(lake: tailrace.Lake, frame: DataFrame) -> None:
    table = lake.table("t")
    with refused(lake, tailrace.InvalidError, "main.t", "'id'"):
        table.delete([{"word": "one"}])
    with refused(lake, tailrace.InvalidError, "main.t.id", "'1'"):
        table.delete([{"id": "1"}])
    with refused(lake, tailrace.InvalidError, "main.t.id", "NULL"):
        table.delete([{"id": None}])
    with refused(lake, tailrace.InvalidError, "main.t.id", "double"):
        table.delete(pa.table({"id": [1.0]}))
    with refused(lake, tailrace.InvalidError, "main.t", "'id'"):
        table.delete(pd.DataFrame([{"word": "one"}]))
    with refused(lake, tailrace.InvalidError, "main.t", "'id'"):
        table.delete(frame.select("word"))
    with refused(lake, tailrace.InvalidError, "main.t.id", "string"):
        table.delete(frame.selectExpr("'1' AS id"))
    for wrong in (None, 7, b"id = 1", {"id": 1}):
        with refused(lake, tailrace.InvalidError, "main.t"):
            table.delete(wrong)


@pytest.mark.parametrize(
    "predicate",
    [
        "",
        "   ",
        "id =",
        "id = = 1",
        "nothing = 1",
        "id",
        "word",
        "id + 1",
        "sum(id) > 1",
        "id = 1; DROP TABLE t",
        "no_such_function(id)",
        "explode(list) = 1",
        "row_number() OVER (ORDER BY id) = 1",
        "pair.nothing = 1",
        "_pos = 0",
        "_file > 0",
        "assert_true(id > 1) IS NULL",
        "CAST(word AS INT) = 1",
        "1 / (id - 1) > 0",
        "raise_error('stop') = 1",
    ],
)
def test_a_bad_predicate(lake: tailrace.Lake, predicate: str) -> None:
    with refused(lake, tailrace.InvalidError, "main.t", repr(predicate)):
        lake.table("t").delete(predicate)


# --- names and types --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", ".", "a.", ".a", "a.b.c", "a`b", "`a", "``", "s.``", "a\0b", "x" * 256, None, 5]
)
def test_a_bad_table_name(lake: tailrace.Lake, name: Any) -> None:
    for use in (lake.table, lake.drop_table, lambda n: lake.create_table(n, {"id": "int"})):
        with refused(lake, tailrace.InvalidError, repr(name).strip("'")[:20]):
            use(name)


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 256, None, 5])
def test_a_bad_schema_or_column_name(lake: tailrace.Lake, name: Any) -> None:
    uses: list[Callable[[], object]] = [
        lambda: lake.create_schema(name),
        lambda: lake.create_table("u", {name: "int"}),
        lambda: lake.table("plain").add_column(name, "int"),
        lambda: lake.table("plain").rename_column("id", name),
    ]
    for use in uses:
        with refused(lake, tailrace.InvalidError, "name"):
            use()


@pytest.mark.parametrize("name", ["_file", "_pos", "_change", "_snapshot", "_POS", "_Tailrace_x"])
def test_a_reserved_column_name(lake: tailrace.Lake, name: str) -> None:
    uses: list[Callable[[], object]] = [
        lambda: lake.create_table("u", {"id": "int", name: "int"}),
        lambda: lake.table("plain").add_column(name, "int"),
        lambda: lake.table("plain").rename_column("id", name),
    ]
    for use in uses:
        with refused(lake, tailrace.InvalidError, repr(name), "reserved"):
            use()


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "integr",
        "int int",
        "varchar(5)",
        "char(5)",
        "decimal(39,2)",
        "decimal(0,0)",
        "decimal(5,6)",
        "decimal(5,-1)",
        "decimal(5,2,1)",
        "decimal(a,b)",
        "array",
        "array<>",
        "array<int",
        "map<int>",
        "struct<>",
        "struct<int>",
        "struct<a:int,A:int>",
        "struct<a:int,a:string>",
        "array<void>",
        "interval",
        "interval day",
        "variant",
        "void",
        "null",
        "json",
        "int; drop table t",
        "int default 5",
        None,
        5,
    ],
)
def test_a_bad_type(lake: tailrace.Lake, kind: Any) -> None:
    with refused(lake, tailrace.InvalidError):
        lake.create_table("u", {"id": "int", "c": kind})
    with refused(lake, tailrace.InvalidError):
        lake.table("plain").add_column("c", kind)
    with refused(lake, tailrace.InvalidError):
        lake.table("plain").widen_column("id", kind)


def test_bad_columns_and_keys_of_a_new_table(lake: tailrace.Lake) -> None:
    def make(columns: Any, **options: Any) -> Callable[[], object]:
        return lambda: lake.create_table("u", columns, **options)

    for columns, key, shown in (
        ({}, None, "column"),
        (None, None, "columns"),
        (["id"], None, "columns"),
        ("id int", None, "columns"),
        ({"id": "int", "ID": "int"}, None, "'ID'"),
        (pa.schema([("id", pa.int64()), ("id", pa.int32())]), None, "'id'"),
        (pa.schema([("id", pa.time64("us"))]), None, "time64"),
        (pa.schema([("id", pa.null())]), None, "null"),
        (pa.schema([("id", pa.uint64())]), None, "uint64"),
        (pa.schema([("id", pa.struct([("a", pa.int8()), ("A", pa.int8())]))]), None, "'A'"),
        ({"id": "int"}, ["id", "ID"], "twice"),
        ({"id": "double"}, "id", "'id'"),
        ({"id": "array<int>"}, ["id"], "'id'"),
        ({"id": "map<int,int>"}, ["id"], "'id'"),
    ):
        with refused(lake, tailrace.InvalidError, shown):
            make(columns, primary_key=key)()
    with refused(lake, tailrace.NotFoundError, "'nothing'"):
        make({"id": "int"}, primary_key="nothing")()
    with refused(lake, tailrace.InvalidError, "main.T", "exists"):
        lake.create_table("T", {"id": "int"})
    with refused(lake, tailrace.InvalidError, "exists"):
        lake.create_schema("S")
    with refused(lake, tailrace.InvalidError, "exists"):
        lake.create_schema("main")


# --- things that do not exist -----------------------------------------------------------------


def test_what_does_not_exist_is_not_found(lake: tailrace.Lake) -> None:
    newest = lake.snapshot
    table = lake.table("t")
    uses: list[tuple[Callable[[], object], str]] = [
        (lambda: lake.table("nothing"), "main.nothing"),
        (lambda: lake.table("nowhere.t"), "nowhere.t"),
        (lambda: lake.drop_table("nothing"), "main.nothing"),
        (lambda: lake.drop_schema("nowhere"), "'nowhere'"),
        (lambda: lake.create_table("nowhere.t", {"id": "int"}), "'nowhere'"),
        (lambda: lake.transaction().table("nothing"), "main.nothing"),
        (lambda: table.drop_column("nothing"), "'nothing'"),
        (lambda: table.rename_column("nothing", "x"), "'nothing'"),
        (lambda: table.widen_column("nothing", "bigint"), "'nothing'"),
        (lambda: table.to_arrow(at=newest + 1), str(newest + 1)),
        (lambda: table.to_df(at=-1), "-1"),
        (lambda: table.to_arrow(at=0), "snapshot 0"),
        (lambda: lake.tables(at=newest + 1), str(newest + 1)),
        (lambda: table.changes(0, newest + 1), str(newest + 1)),
        (lambda: table.changes(-1, newest), "-1"),
        (lambda: table.changes(newest + 1, newest + 2), str(newest + 2)),
        (lambda: table.changes(0, 1), "snapshot 1"),
    ]
    for use, shown in uses:
        with refused(lake, tailrace.NotFoundError, shown):
            use()


def test_snapshots_that_make_no_sense(lake: tailrace.Lake) -> None:
    table = lake.table("t")
    with refused(lake, tailrace.InvalidError, "since=3", "until=2"):
        table.changes(3, 2)
    uses: list[Callable[[Any], object]] = [
        lambda at: table.to_arrow(at=at),
        lambda at: table.to_df(at=at),
        lambda at: lake.tables(at=at),
        table.changes,
        lambda at: table.changes(0, at),
    ]
    for wrong in ("1", 1.0, True, date(2024, 1, 1)):
        for use in uses:
            with refused(lake, tailrace.InvalidError, repr(wrong)):
                use(wrong)
    with refused(lake, tailrace.InvalidError, "None"):
        table.changes(None)  # type: ignore[arg-type]


def test_a_transaction_has_neither_time_travel_nor_a_feed(lake: tailrace.Lake) -> None:
    mine = lake.transaction().table("t")
    with refused(lake, tailrace.InvalidError, "lake.table"):
        mine.to_arrow(at=1)
    with refused(lake, tailrace.InvalidError, "lake.table"):
        mine.changes(0)


# --- alterations ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("id", "int"),
        ("id", "bigint"),
        ("id", "decimal(20,0)"),
        ("id", "string"),
        ("number", "smallint"),
        ("number", "double"),
        ("number", "float"),
        ("big_float", "float"),
        ("price", "decimal(4,2)"),
        ("price", "decimal(5,2)"),
        ("price", "decimal(10,1)"),
        ("price", "decimal(10,3)"),
        ("price", "double"),
        ("word", "binary"),
        ("day", "timestamp"),
        ("local", "timestamp"),
        ("list", "array<bigint>"),
        ("pair", "struct<a:bigint,b:float>"),
        ("flag", "tinyint"),
    ],
)
def test_a_type_that_would_not_hold_every_value(
    lake: tailrace.Lake, column: str, kind: str
) -> None:
    with refused(lake, tailrace.InvalidError, f"main.t.{column}", kind.split("<", maxsplit=1)[0]):
        lake.table("t").widen_column(column, kind)


def test_columns_that_cannot_go_or_come(lake: tailrace.Lake) -> None:
    table = lake.table("t")
    uses: list[tuple[Callable[[], object], str]] = [
        (lambda: table.drop_column("ID"), "primary key"),
        (lambda: lake.table("plain").drop_column("id"), "last column"),
        (lambda: table.add_column("WORD", "int"), "'WORD'"),
        (lambda: table.rename_column("day", "Word"), "'Word'"),
        (lambda: lake.drop_schema("main"), "'main'"),
    ]
    for use, shown in uses:
        with refused(lake, tailrace.InvalidError, shown):
            use()


def test_a_schema_with_tables_cannot_be_dropped(tmp_path: Any) -> None:
    with tailrace.connect(tmp_path) as other:
        other.create_schema("full")
        other.create_table("full.t", {"id": "int"})
        with refused(other, tailrace.InvalidError, "'full'", "t"):
            other.drop_schema("full")


# --- places -----------------------------------------------------------------------------------


def test_a_place_that_is_none(tmp_path: Any) -> None:
    for place in ("mysql://u:secret@h/db", "postgresql://u:secret@h:port/db", "http://secret@x/y"):
        with pytest.raises(tailrace.InvalidError) as caught:
            tailrace.connect(place)
        assert "secret" not in str(caught.value)
    with pytest.raises(tailrace.InvalidError, match=re.escape("ftp://x/y")):
        tailrace.connect(tmp_path / "lake", data="ftp://x/y")


def test_a_lake_keeps_its_objects_where_they_are(lake: tailrace.Lake, args: LakeArgs) -> None:
    with refused(lake, tailrace.InvalidError, "elsewhere", "data="):
        args.connect(data="elsewhere")


def test_a_new_lake_on_postgres_needs_a_place_for_objects(postgres_url: str) -> None:
    with pytest.raises(tailrace.InvalidError, match="data="):
        tailrace.connect(postgres_url)


def test_what_is_not_a_number_is_still_a_number_of_a_kind(tmp_path: Any) -> None:
    """Not bad input: infinities and NaN are values of a float."""
    with tailrace.connect(tmp_path) as other:
        table = other.create_table("f", {"f": "float", "d": "double"})
        table.append([{"f": value, "d": value} for value in (math.inf, -math.inf, math.nan)])
        assert str(table.to_arrow().column("f").to_pylist()) == "[inf, -inf, nan]"
