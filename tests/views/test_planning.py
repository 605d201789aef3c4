"""Planning: what a program comes to, measured in what does not depend on the machine.

The queries are TPC-DS's, whose WITH queries are joined with themselves, and shapes that are long or
deep: none of them may end in a RecursionError.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from tailrace.errors import InvalidError
from tailrace.spark_sql import types
from tailrace.store.schema import Column, TableInfo
from tailrace.views.definition import Definition, Input, define, spelled_out, table_input
from tailrace.views.incremental import stored_delta
from tailrace.views.incremental.program import Builder, Fetch, Program
from tailrace.views.query.parse import TOO_DEEP
from tailrace.views.query.trees import names_in
from tailrace.views.refresh.compile import compiled, types_of_leaves
from tests.support import duck
from tests.support.tpcds.keys import KEYS

if TYPE_CHECKING:
    from tailrace.views.refresh.compile import Compiled

# Those that took longest when each use of a WITH query was a copy.
WORST = [4, 5, 11, 23, 31, 47, 64, 66, 67, 75, 80]
WIDTH = 300


@cache
def tpcds() -> tuple[dict[str, TableInfo], dict[int, str]]:
    """Its tables, without rows, and its queries in Spark's words."""
    from duckdb_extensions import import_extension

    with duckdb.connect(config=duck._settings()) as connection:
        import_extension("tpcds", con=connection)
        connection.load_extension("tpcds")
        connection.execute("CALL dsdgen(sf=0)")
        names = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        tables = {}
        for (name,) in names:
            columns = connection.execute(f"DESCRIBE {name}").fetchall()
            tables[name] = _table(name, {column: _kind(kind) for column, kind, *_ in columns})
        queries = connection.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall()
    return tables, {
        number: sqlglot.transpile(text, read="duckdb", write="spark")[0] for number, text in queries
    }


def _kind(name: str) -> str:
    return name.lower().replace("varchar", "string").replace("integer", "int")


def _table(name: str, columns: dict[str, str]) -> TableInfo:
    key = KEYS.get(name, (next(iter(columns)),))
    made = tuple(
        Column(
            id=n,
            name=column,
            physical=column,
            type=types.parse_type(kind),
            nullable=column not in key,
        )
        for n, (column, kind) in enumerate(columns.items(), 1)
    )
    return TableInfo(
        id=1,
        uuid=name,
        schema_id=1,
        schema="main",
        name=name,
        path=f"{name}/",
        columns=made,
        key=tuple(column.id for column in made if column.name in key),
    )


def find_tpcds(_schema: str, name: str) -> Input:
    return table_input(tpcds()[0][name.lower()])


@cache
def find_wide(_schema: str, name: str) -> Input:
    """`t` has many columns, and any other table few."""
    columns = ["id", "a", "b", *(f"c{n}" for n in range(WIDTH if name == "t" else 1))]
    return table_input(_table(name, dict.fromkeys(columns, "bigint")))


def builder(made: Definition, *, small: bool = True) -> Builder:
    """For changes of all tables."""
    keys = {g.name: [c.name for c in g.table.key_columns] for g in made.inputs.values() if g.table}
    return Builder(list(keys), list(keys), keys=keys, sideways=small)


def program_of(made: Definition, *, small: bool = True) -> Program:
    """What a refresh runs."""
    assert made.layout is not None, made.reason
    b = builder(made, small=small)
    query = stored_delta.change(b, made.layout, {})
    assert query is not None
    limit = stored_delta.stored_limit(b, made.layout, {})
    return b.program(query, [limit[1]] if limit else [])


def said(made: Definition, program: Program) -> Compiled:
    assert made.layout is not None
    kinds = {}
    for column in made.layout.columns:
        known = made.types.get(column.column)
        try:
            kinds[column.column] = types.parse_type(known.sql("spark") if known else "bigint")
        except InvalidError:
            kinds[column.column] = types.parse_type("bigint")
    columns = {name: table.columns for name, table in made.tables.items()}
    return compiled(program, types_of_leaves(columns, kinds))


def trees(program: Program) -> list[exp.Query]:
    return [program.query, *(s.query for s in program.steps if not isinstance(s, Fetch))]


def size(program: Program) -> int:
    return sum(1 for tree in trees(program) for _ in tree.walk())


# --- how large programs are ----------------------------------------------------------------------


@pytest.mark.parametrize("number", WORST)
def test_a_program_grows_with_the_query_and_its_tables(number: int) -> None:
    text = tpcds()[1][number]
    made = define(text, find_tpcds)
    assert made.layout is not None
    scans = len(made.layout.root.scans)
    words = sum(1 for _ in sqlglot.parse_one(text, dialect="spark").walk())
    program = program_of(made)
    assert len(program.steps) <= 20 * scans
    assert size(program) <= 30 * (words + 40 * scans)
    assert size(program_of(made, small=False)) <= 20 * (words + 40 * scans)


def _star(tables: int) -> str:
    joined = " ".join(f"JOIN t AS t{n} ON t{n}.id = t0.c{n}" for n in range(1, tables))
    return f"SELECT t0.id, sum(t1.b) AS s FROM t AS t0 {joined} GROUP BY t0.id"


def _with_itself(count: int) -> str:
    joined = " ".join(f"JOIN c AS c{n} ON c{n}.a = c0.a" for n in range(1, count))
    shown = ", ".join(f"c{n}.s AS s{n}" for n in range(count))
    return (
        "WITH c AS (SELECT x.a, sum(y.b) AS s FROM t AS x JOIN t AS y ON y.id = x.c1 GROUP BY x.a) "
        f"SELECT c0.a, {shown} FROM c AS c0 {joined}"
    )


def test_inputs_of_a_join_that_changed_read_the_others_together() -> None:
    few, many = (program_of(define(_star(n), find_wide)) for n in (6, 12))
    assert len(many.steps) < 2.3 * len(few.steps)
    assert size(many) < 4.5 * size(few)  # a term has each input, and each input has a term


def test_a_with_query_costs_the_same_each_time_it_is_used() -> None:
    few, many = (program_of(define(_with_itself(n), find_wide)) for n in (3, 6))
    assert len(many.steps) < 2.5 * len(few.steps)
    assert size(many) < 2.5 * size(few)


def test_the_levels_of_a_rollup_share_their_input() -> None:
    query = "SELECT {0}, sum(x.b) AS s FROM t AS x JOIN t AS y ON y.id = x.a GROUP BY ROLLUP ({0})"
    few, many = (
        program_of(define(query.format(", ".join(f"x.c{n}" for n in range(count))), find_wide))
        for count in (1, 6)
    )
    assert len(many.steps) == len(few.steps)


def test_parts_of_a_union_that_a_condition_rules_out_are_not_computed() -> None:
    parts = " UNION ALL ".join(f"SELECT '{word}' AS word, a FROM t" for word in ("x", "y", "X"))
    made = define(f"SELECT a FROM ({parts}) AS q WHERE word = 'x'", find_wide)
    assert made.layout is not None
    assert len(made.layout.root.scans) == 2  # a session may find x and X equal
    made = define(f"SELECT a FROM ({parts}) AS q WHERE word = 'z'", find_wide)
    assert made.layout is not None
    assert len(made.layout.root.scans) == 3


@pytest.mark.parametrize("number", WORST)
def test_what_is_said_to_follow_from_changes_alone_does(number: int) -> None:
    made = define(tpcds()[1][number], find_tpcds)
    assert made.layout is not None
    b = builder(made)
    for node in set(made.layout.root.walk()):
        for column in node.columns:
            if b.tells(node, [column]):
                assert _is_direct(b, b.touched(node, [column])), (node, column)


def _is_direct(b: Builder, queries: list[exp.Query]) -> bool:
    waiting = {name for query in queries for name in names_in(query)}
    while waiting:
        name = waiting.pop()
        step = b._steps.get(name)
        if isinstance(step, Fetch) or (step is None and not name.startswith("delta_")):
            return False
        if step is not None:
            waiting |= names_in(step.query)
    return True


# --- long and deep ones --------------------------------------------------------------------------


def _nested(levels: int) -> str:
    query = "SELECT a FROM t"
    for n in range(levels):
        query = f"SELECT a + 1 AS a FROM ({query}) AS s{n} WHERE a > {n}"
    return query


def _cases(levels: int) -> str:
    value = "a"
    for n in range(levels):
        value = f"CASE WHEN a = {n} THEN {n} ELSE {value} END"
    return f"SELECT id, {value} AS v FROM t"


def _list(pattern: str, count: int, by: str = ", ") -> str:
    return by.join(pattern.format(n) for n in range(count))


LONG = {
    "sums and minima": (
        f"SELECT a, {_list('sum(c{0}) AS s{0}', 40)}, {_list('min(c{0}) AS m{0}', 40)} "
        "FROM t GROUP BY a"
    ),
    "group keys": (
        f"SELECT {_list('c{0}', 100)}, count(*) AS n FROM t GROUP BY {_list('c{0}', 100)}"
    ),
    "columns": "SELECT * FROM t",
    "DISTINCT of columns": f"SELECT DISTINCT {_list('c{0}', 200)} FROM t",
    "a CASE": f"SELECT id, CASE {_list('WHEN a = {0} THEN {0}', 300, ' ')} END AS k FROM t",
    "OR": f"SELECT id FROM t WHERE {_list('a = {0} AND b = {0}', 500, ' OR ')}",
    "AND": f"SELECT id FROM t WHERE {_list('(a <> {0} OR b = 1)', 500, ' AND ')}",
    "HAVING": (
        f"SELECT a, sum(b) AS s FROM t GROUP BY a HAVING {_list('sum(b) <> {0}', 100, ' AND ')}"
    ),
    "an ON": f"SELECT x.id FROM t AS x JOIN t AS y ON {_list('x.c{0} = y.c{0}', 100, ' AND ')}",
    "UNION ALL": _list("SELECT id, a + {0} AS a FROM u", 200, " UNION ALL "),
    "UNION": _list("SELECT id, a + {0} AS a FROM u", 100, " UNION "),
    "EXCEPT": _list("SELECT id, a + {0} AS a FROM u", 10, " EXCEPT "),
    "a sum": f"SELECT id, {_list('c{0}', 200, ' + ')} AS s FROM t",
    "subqueries in each other": _nested(15),
    "CASEs in each other": _cases(20),
}


@pytest.mark.parametrize("query", LONG.values(), ids=LONG)
def test_a_long_query_is_planned(query: str) -> None:
    made = define(spelled_out(query, find_wide), find_wide)
    for small in (True, False):
        program = program_of(made, small=small)
        for tree in trees(program):
            assert tree.sql("spark")
        if small:
            said(made, program)


_PARENTHESES = f"SELECT {'(' * 300}a{')' * 300} AS a FROM t"


@pytest.mark.parametrize("query", [_nested(500), _cases(200), _PARENTHESES])
def test_a_query_that_is_nested_too_deeply_is_refused(query: str) -> None:
    with pytest.raises(InvalidError, match=TOO_DEEP):
        spelled_out(query, find_wide)
    with pytest.raises(InvalidError, match=TOO_DEEP):
        define(query, find_wide)


def test_a_plan_that_is_nested_too_deeply_is_computed_in_full() -> None:
    made = define(_list("SELECT id, a + {0} AS a FROM u", 100, " EXCEPT "), find_wide)
    assert made.layout is None
    assert made.reason == TOO_DEEP
