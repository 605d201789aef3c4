"""Definitions: made once for a query and the tables that it reads, and shared."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tailrace.errors import InvalidError
from tailrace.store.schema import Column, TableInfo
from tailrace.views.definition import Input, ViewInput, define, reader_of, table_input
from tailrace.views.query.trees import shape

if TYPE_CHECKING:
    from tailrace.views.definition import Definition, Find

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
QUERY = "SELECT a, sum(b) AS total FROM t GROUP BY a"


def table(**kinds: pa.DataType) -> TableInfo:
    columns = tuple(
        Column(id=n, name=name, physical=name, type=kind)
        for n, (name, kind) in enumerate(kinds.items(), 1)
    )
    return TableInfo(
        id=1, uuid="t", schema_id=1, schema="main", name="t", path="t/", columns=columns
    )


def reading(info: TableInfo) -> Find:
    def find(_schema: str, _name: str) -> Input:
        return table_input(info)

    return find


PLAIN = table(a=pa.int64(), b=pa.int64())


def test_the_same_query_over_the_same_table_is_understood_once() -> None:
    again = table(a=pa.int64(), b=pa.int64())
    assert define(QUERY, reading(PLAIN)) is define(QUERY, reading(again))


@pytest.mark.parametrize(
    "other",
    [
        table(a=pa.int64(), b=pa.float64()),
        table(a=pa.int64(), b=pa.int64(), c=pa.int64()),
        replace(PLAIN, key=(1,)),
        replace(PLAIN, id=2),
        replace(PLAIN, uuid="another lake's"),
    ],
)
def test_a_table_that_is_not_the_same_gives_another_definition(other: TableInfo) -> None:
    before = define(QUERY, reading(PLAIN))
    assert define(QUERY, reading(other)) is not before
    assert define(QUERY, reading(PLAIN)) is before


def test_the_types_of_a_changed_table_are_its_own() -> None:
    exact = define(QUERY, reading(PLAIN))
    inexact = define(QUERY, reading(table(a=pa.int64(), b=pa.float64())))
    assert exact.layout is not None
    assert exact.layout.way == "merge"
    assert inexact.layout is not None
    assert inexact.layout.way == "keys"


def test_a_query_that_asks_for_the_day_is_another_one_tomorrow() -> None:
    query = "SELECT a FROM t WHERE b = day(current_date())"
    today = define(query, reading(PLAIN), NOON)
    assert define(query, reading(PLAIN), NOON + timedelta(hours=1)) is today
    tomorrow = define(query, reading(PLAIN), NOON + timedelta(days=1))
    assert "2024-02-29" in today.tree.sql("spark")
    assert "2024-03-01" in tomorrow.tree.sql("spark")


def test_a_query_that_asks_for_the_instant_has_its_own() -> None:
    query = "SELECT a FROM t WHERE b < unix_timestamp()"
    first = define(query, reading(PLAIN), NOON)
    second = define(query, reading(PLAIN), NOON + timedelta(seconds=1))
    assert shape(first.tree) != shape(second.tree)


def test_a_view_over_a_view_follows_what_that_one_is() -> None:
    def over(job: int, below: Definition) -> Definition:
        view = ViewInput(job=job, definition=below)
        return define("SELECT a FROM v", lambda _schema, _name: table_input(PLAIN, view))

    one = define("SELECT a, b FROM t", reading(PLAIN))
    other = define("SELECT a, b FROM t WHERE b > 0", reading(PLAIN))
    assert over(1, one) is over(1, one)
    assert over(1, one) is not over(1, other)
    assert over(1, one) is not over(2, one)  # made again under the same name


def test_a_definition_is_not_changed_by_what_is_made_of_it() -> None:
    query = "SELECT * FROM (SELECT a, count(*) AS n FROM t GROUP BY a) AS q ORDER BY n DESC LIMIT 3"
    definition = define(query, reading(PLAIN))
    before = shape(definition.tree)
    reader = reader_of(definition, ())
    reader.limit(1, copy=False)
    assert shape(definition.tree) == before
    assert reader_of(definition, ()).sql() != reader.sql()
    assert define(query, reading(PLAIN)) is definition


def test_what_is_no_query_is_refused() -> None:
    for text in ("", "DROP TABLE t", "SELECT 1; SELECT 2", "SELECT FROM WHERE"):
        with pytest.raises(InvalidError):
            define(text, reading(PLAIN))
    with pytest.raises(InvalidError, match="at least one table"):
        define("SELECT 1 AS one", reading(PLAIN))


def test_the_names_that_a_plan_gives_are_not_those_of_the_query() -> None:
    query = "SELECT a FROM t GROUP BY a HAVING a_1 > 0"
    with pytest.raises(InvalidError, match="there is no column 'a_1'"):
        define(query, reading(PLAIN))


def test_as_many_names_are_given_as_there_are_columns() -> None:
    with pytest.raises(InvalidError, match="3 names are given for 2 columns"):
        define("SELECT x FROM t AS q (x, y, z)", reading(PLAIN))
