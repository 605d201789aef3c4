"""The tables that a query names, and what stands in their place."""

from __future__ import annotations

import pytest

from tailrace import spark_sql
from tailrace.sql.table_references import references, substituted


def replaced(sql: str, **aliases: str) -> str:
    """The query with `{0}`, `{1}`, … for its tables, in the order of the text."""
    tree = spark_sql.parse_one(sql)
    found = sorted(references(sql, tree), key=lambda reference: reference.span.start)
    stand_ins = [(reference, str(number)) for number, reference in enumerate(found)]
    return substituted(sql, tree, stand_ins, aliases=aliases)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM t", "SELECT * FROM {0} AS `t`"),
        ("SELECT * FROM sales.t x", "SELECT * FROM {0} x"),
        ("select id\nfrom `a``b`", "select id\nfrom {0} AS `a``b`"),
        ("SELECT sales.t.id FROM sales.t", "SELECT t.id FROM {0} AS `t`"),
        ("SELECT x.id FROM sales.t x", "SELECT x.id FROM {0} x"),
        ("SELECT s.t.c.f FROM s.t", "SELECT t.c.f FROM {0} AS `t`"),
        ("FROM a, b JOIN s.c", "FROM {0} AS `a`, {1} AS `b` JOIN {2} AS `c`"),
        ("SELECT '{x}' FROM t", "SELECT '{{x}}' FROM {0} AS `t`"),
        ("FROM t TABLESAMPLE (5) JOIN u", "FROM {0} TABLESAMPLE (5) AS `t` JOIN {1} AS `u`"),
        ("SELECT * FROM t VERSION AS OF 3 WHERE true", "SELECT * FROM {0} AS `t` WHERE true"),
        ("WITH a AS (FROM b) SELECT * FROM a", "WITH a AS (FROM {0} AS `b`) SELECT * FROM a"),
        ("VALUES (1 IN (SELECT id FROM t))", "VALUES (1 IN (SELECT id FROM {0} AS `t`))"),
    ],
)  # fmt: skip
def test_only_names_are_replaced(sql: str, expected: str) -> None:
    assert replaced(sql) == expected


def test_a_table_keeps_the_name_that_the_user_gave() -> None:
    assert replaced("SELECT * FROM stand_in", stand_in="search") == "SELECT * FROM {0} AS `search`"


@pytest.mark.parametrize(
    ("sql", "version"),
    [
        ("SELECT * FROM t", None),
        ("SELECT * FROM t VERSION AS OF 3", ("VERSION", "3")),
        ("SELECT * FROM t FOR VERSION AS OF 3", ("VERSION", "3")),
        ("SELECT * FROM t TIMESTAMP AS OF '2026-01-31' AS x", ("TIMESTAMP", "2026-01-31")),
        ("SELECT * FROM t VERSION AS OF 3 + 1", ("VERSION", "")),  # no literal, as an error says
    ],
)
def test_a_version_belongs_to_the_table(sql: str, version: tuple[str, str] | None) -> None:
    (reference,) = references(sql, spark_sql.parse_one(sql))
    assert reference.full_name == "main.t"
    assert reference.version == version


def test_tables_of_with_are_not_the_lakes() -> None:
    sql = "WITH t AS (SELECT * FROM u) SELECT * FROM t JOIN s.t ON true"
    names = {reference.full_name for reference in references(sql, spark_sql.parse_one(sql))}
    assert names == {"main.u", "s.t"}
