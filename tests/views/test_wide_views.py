"""Views of queries that are long or deep: built, and then kept up, in memory and on Spark."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.views.test_rules import SEED

if TYPE_CHECKING:
    import tailrace

pytestmark = pytest.mark.early  # Spark takes long to plan these

WIDTH = 200


def _list(pattern: str, count: int, by: str = ", ") -> str:
    return by.join(pattern.format(n) for n in range(count))


def _nested(levels: int) -> str:
    query = "SELECT id, a FROM t"
    for n in range(levels):
        query = f"SELECT id, a + 1 AS a FROM ({query}) AS s{n} WHERE a > {n}"
    return query


VIEWS = {
    "sums_and_minima": (
        f"SELECT a, {_list('sum(c{0}) AS s{0}', 40)}, {_list('min(c{0}) AS m{0}', 40)} "
        "FROM t GROUP BY a"
    ),
    "group_keys": (
        f"SELECT a, {_list('c{0}', 40)}, sum(b) AS s FROM t GROUP BY a, {_list('c{0}', 40)}"
    ),
    "distinct_columns": f"SELECT DISTINCT {_list('c{0}', WIDTH)} FROM t",
    "long_case": f"SELECT id, CASE {_list('WHEN a = {0} THEN b + {0}', 200, ' ')} END AS v FROM t",
    "long_or": f"SELECT id, a FROM t WHERE {_list('a = {0} AND b <> {0}', 300, ' OR ')}",
    "long_and": f"SELECT id, a FROM t WHERE {_list('(a <> {0} OR b = 1)', 200, ' AND ')}",
    "subqueries": _nested(15),
    "parts": _list("SELECT id, a + {0} AS a FROM t WHERE b = {0}", 20, " UNION ALL "),
}


# Spark takes long to compile them.
_MARKS = {name: [pytest.mark.stress] for name in ("long_case", "long_and", "parts")}


@pytest.mark.parametrize("name", [pytest.param(name, marks=_MARKS.get(name, [])) for name in VIEWS])
def test_a_long_view_follows_its_table(in_memory: tailrace.Lake, follow: Any, name: str) -> None:
    random = Random(f"{SEED}/{name}")
    columns = {"id": "bigint", "a": "bigint", "b": "bigint", **_columns("bigint")}
    table = in_memory.create_table("t", columns, primary_key="id")
    table.upsert([_row(random, n) for n in range(40)])

    def change() -> None:
        table.upsert([_row(random, n) for n in (3, 5, 7, 40, 41)])
        table.delete("id IN (1, 2)")

    assert set(follow({name: VIEWS[name]}, [change])) <= {"merge", "rows"}


def _columns(kind: str) -> dict[str, str]:
    return {f"c{n}": kind for n in range(WIDTH)}


def _row(random: Random, number: int) -> dict[str, int]:
    few = {name: random.randint(0, 2) for name in ("a", "b")}
    return {"id": number, **few, **{name: number % 5 + len(name) for name in _columns("")}}
