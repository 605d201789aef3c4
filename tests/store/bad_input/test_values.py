"""A value that does not fit gets its error, naming the column and an example."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tailrace
from tests.support.lakes import LakeArgs
from tests.support.refused import AWARE, COLUMNS, NAIVE, arrow, good, refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def test_the_good_row_is_good(args: LakeArgs, tmp_path: Any, frame: DataFrame) -> None:
    """Else what follows would prove nothing."""
    with tailrace.connect(tmp_path / "lake") as other:
        table = other.create_table("t", COLUMNS, primary_key="id")
        table.append([good()])
        table.append(arrow(id=pa.array([3])))
        table.append(pd.DataFrame([good(id=4)]))
        table.append(frame.replace(2, 5, subset="id"))
        assert table.to_arrow().num_rows == 4


# --- in dicts --------------------------------------------------------------------------------

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


# --- in Arrow and pandas ---------------------------------------------------------------------


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


# --- in Spark --------------------------------------------------------------------------------


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


def test_what_is_not_a_number_is_still_a_number_of_a_kind(tmp_path: Any) -> None:
    """Not bad input: infinities and NaN are values of a float."""
    with tailrace.connect(tmp_path) as other:
        table = other.create_table("f", {"f": "float", "d": "double"})
        table.append([{"f": value, "d": value} for value in (math.inf, -math.inf, math.nan)])
        assert str(table.to_arrow().column("f").to_pylist()) == "[inf, -inf, nan]"
