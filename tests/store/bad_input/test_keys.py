"""Keys that repeat, exist or are none, and bad predicates, are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pytest

import tailrace
from tests.support.refused import ROW, arrow, good, refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
