"""Which rows a program needs, told from its queries."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sqlglot import parse_one

from tailrace.views.incremental.program import End, Fetch, Leaf, Program, Relation, leaves_of
from tailrace.views.refresh.needed_rows import (
    fetch_conditions,
    plain_rows,
    selected_rows,
    values_read,
)
from tailrace.views.refresh.programs import prepare

FETCH = Fetch(
    name="f0", source="main.t", end=End.NEW, own="id", keys="k0", key="k0", fields={"id", "a"}
)


def program(query: str, *steps: str) -> Program:
    relations = [
        Relation(name=f"r{n}", query=parse_one(text))  # type: ignore[arg-type]
        for n, text in enumerate(steps)
    ]
    return Program(
        steps=(FETCH, *relations),
        query=parse_one(query),  # type: ignore[arg-type]
        sources=("main.t",),
    )


def conditions(query: str, *steps: str) -> dict[str, str | None]:
    found = fetch_conditions(program(query, *steps))
    return {name: None if tree is None else tree.sql() for name, tree in found.items()}


INNER = "(SELECT a AS a_1 FROM f0) AS q"


def test_a_condition_above_a_fetch_is_one_on_its_fields() -> None:
    query = f"SELECT q.a_1 FROM {INNER} WHERE q.a_1 > 3"
    assert conditions(query) == {"f0": '"a" > 3'}


def test_a_fetch_that_is_used_without_a_condition_has_none() -> None:
    query = f"SELECT q.a_1 FROM {INNER} WHERE q.a_1 > 3"
    assert conditions(query, f"SELECT q.a_1 FROM {INNER}") == {"f0": None}


def test_conditions_of_several_uses_are_alternatives() -> None:
    query = f"SELECT q.a_1 FROM {INNER} WHERE q.a_1 > 3"
    assert conditions(query, query) == {"f0": '"a" > 3'}
    other = f"SELECT q.a_1 FROM {INNER} WHERE q.a_1 < 1"
    assert conditions(query, other) == {"f0": '"a" > 3 OR "a" < 1'}


def test_a_condition_on_more_than_the_fetch_does_not_count() -> None:
    joined = f"SELECT q.a_1 FROM {INNER} JOIN k0 ON TRUE WHERE q.a_1 > 3"
    assert conditions(joined) == {"f0": None}
    computed = "SELECT q.b FROM (SELECT a + 1 AS b FROM f0) AS q WHERE q.b > 3"
    assert conditions(computed) == {"f0": None}


def test_where_values_are_read_is_told_once_for_each_column() -> None:
    query = "SELECT a AS a_1 FROM delta_0 UNION ALL SELECT a AS a_1 FROM delta_0"
    made = program(query, "SELECT b AS a_1 FROM f0", "SELECT a + 1 AS c_2 FROM f0")
    read = values_read(made, [("shown", "a_1"), ("other", "c_2"), ("third", "nowhere")])
    assert read == (("shown", (("delta_0", "a"), ("f0", "b"))),)


def test_a_program_that_reads_stored_rows_says_so() -> None:
    assert prepare(program("SELECT a FROM stored")).reads_stored
    assert not prepare(program("SELECT a FROM f0")).reads_stored


def test_a_leaf_has_a_name_of_its_own() -> None:
    leaves = leaves_of(["main.t", "main.u"])
    assert set(leaves) == {"new_0", "old_0", "delta_0", "new_1", "old_1", "delta_1"}
    assert leaves["delta_1"] == Leaf(source="main.u", number=1)
    assert leaves["old_0"] == Leaf(source="main.t", number=0, end=End.OLD)
    assert program("SELECT a FROM f0").leaf("main.t", End.NEW) == leaves["new_0"]


ROWS = {
    "d": pa.table({"a": [1, 2, 2, None], "b": ["x", "y", "y", "z"], "_w": [1, -1, 1, -1]}),
    "k": pa.table({"k0": [2, None]}),
    "t": pa.table({"c": [1, 2], "b": ["x", "y"]}),
    "s": pa.table({"a": ["2"]}),
    "x": pa.table({"a": [0.0]}),
    "y": pa.table({"k0": [-0.0]}),
}


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("SELECT a FROM d", [1, 2, 2, None]),
        ("SELECT DISTINCT k0 FROM (SELECT a AS k0 FROM (SELECT a, b FROM d) AS q) AS q",
         [1, 2, 2, None]),
        ("SELECT a FROM d WHERE b = 'y'", [2, 2]),
        ("SELECT a FROM d WHERE b = 'y' AND upper(b) = 'X'", [2, 2]),
        ("SELECT a FROM d WHERE upper(b) = 'X'", [1, 2, 2, None]),
        ("SELECT a FROM d WHERE _w < 0 UNION ALL SELECT k0 FROM k", [2, None, 2, None]),
        ("SELECT n.a AS x FROM d AS n LEFT ANTI JOIN (SELECT k0 FROM k) AS k ON n.a = k.k0",
         [1, 2, 2, None]),
        ("SELECT q.a FROM d AS q LEFT SEMI JOIN (SELECT DISTINCT k0 FROM k) AS k "
         "ON q.a IS NOT DISTINCT FROM k.k0", [2, 2, None]),
        ("SELECT q.a FROM d AS q LEFT SEMI JOIN k AS k ON q.a = k.k0", [2, 2, None]),
        ("SELECT q.a FROM d AS q LEFT SEMI JOIN t AS k ON k.c = q.a AND k.b = q.b AND c > _w",
         [1, 2, 2]),
        ("SELECT a FROM d LEFT SEMI JOIN k ON a = k0", [2, 2, None]),
        ("SELECT j0.a FROM d AS j0 JOIN k AS j1 ON j0.a = j1.k0", [2, 2, None]),
        ("SELECT a FROM (SELECT a, k0 FROM d AS j0 JOIN k AS j1 ON a > k0) AS q", [1, 2, 2, None]),
        ("SELECT a FROM d AS j0 JOIN elsewhere AS j1 ON a > x WHERE j1.b = 'z' AND j0.b = 'y'",
         [2, 2]),
        ("SELECT n.a FROM d AS n LEFT JOIN k ON n.a = k.k0 WHERE k.k0 IS NULL", [1, 2, 2, None]),
        ("SELECT a FROM (SELECT a, a + 1 AS b FROM d WHERE b = 'y') AS q WHERE b = 3", [2, 2]),
        ("SELECT a FROM (SELECT a, 1 AS b, _w FROM d UNION ALL SELECT k0, k0, 'x' FROM k) AS q",
         [1, 2, 2, None, 2, None]),
    ],
)  # fmt: skip
def test_plain_rows_are_those_of_the_query_and_maybe_more(
    query: str, values: list[int | None]
) -> None:
    rows = plain_rows(parse_one(query, dialect="spark"), ROWS.get)
    assert rows is not None
    assert rows.column(0).to_pylist() == values


@pytest.mark.parametrize(
    ("query", "exact"),
    [
        ("SELECT DISTINCT a AS k0 FROM (SELECT a, b FROM d) AS q UNION SELECT k0 FROM k", True),
        ("SELECT a FROM d WHERE b = 'y'", False),
        ("SELECT a FROM (SELECT a FROM d WHERE upper(b) = 'X') AS q", False),
        ("SELECT n.a FROM d AS n LEFT ANTI JOIN (SELECT k0 FROM k) AS k ON n.a = k.k0", False),
        ("SELECT q.a FROM d AS q LEFT SEMI JOIN k AS k ON q.a IS NOT DISTINCT FROM k.k0", False),
    ],
)
def test_selected_rows_are_those_of_a_query_without_conditions(query: str, exact: bool) -> None:
    tree = parse_one(query, dialect="spark")
    rows = selected_rows(tree, ROWS.get)
    assert (rows is not None) == exact
    if rows is not None:
        assert set(rows.column(0).to_pylist()) == {1, 2, None}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM elsewhere",
        "SELECT a + 1 AS a FROM d",
        "SELECT a FROM d GROUP BY a",
        "SELECT a FROM d ORDER BY a LIMIT 1",
        "SELECT a FROM d UNION ALL SELECT a FROM s",
        "SELECT a FROM d EXCEPT SELECT k0 FROM k",
        "SELECT k.k0 FROM d AS q JOIN k ON q.a = k.k0",
        "SELECT q.a FROM d AS q JOIN elsewhere AS k ON q.a = k.k0",
        "SELECT q.a FROM d AS q LEFT SEMI JOIN k AS k ON q.a > k.k0",
        "SELECT q.a FROM d AS q FULL JOIN k AS k ON q.a = k.k0",
        "SELECT q.a FROM d AS q RIGHT JOIN k AS k ON q.a = k.k0",
        "SELECT x FROM (SELECT a AS x, b FROM d UNION ALL SELECT k0 + 1, 'x' FROM k) AS q",
        "SELECT q.a FROM d AS q LEFT SEMI JOIN s AS k ON q.a IS NOT DISTINCT FROM k.a",
        "SELECT q.a FROM x AS q LEFT SEMI JOIN y AS k ON q.a IS NOT DISTINCT FROM k.k0",
    ],
)
def test_rows_that_take_more_than_a_selection_are_left_to_an_engine(query: str) -> None:
    assert plain_rows(parse_one(query, dialect="spark"), ROWS.get) is None
