"""Programs on DuckDB: tables at both ends of a change, and the law that every rule obeys.

The law: what a rule says came and went, added to the old rows, gives the new ones, as bags.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

from tailrace.spark_sql import types
from tailrace.spark_sql.duckdb.engine import without_shared_plans
from tailrace.views.incremental import stored_delta
from tailrace.views.incremental.layout import VISIBLE, layout_of
from tailrace.views.incremental.program import (
    WEIGHT,
    Builder,
    End,
    Fetch,
    Program,
)
from tailrace.views.incremental.rules.base import from_query, union_all, with_weight
from tailrace.views.query import trees
from tailrace.views.query.optimize import pruned
from tailrace.views.query.plan import Query
from tailrace.views.query.scope import Source, SourceColumn
from tailrace.views.query.translate import translate

# Each table: its columns and types, and the columns of its primary key.
TABLES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "t": (
        {"id": "bigint", "a": "int", "b": "string", "v": "decimal(10,2)", "x": "double"},
        ("id",),
    ),
    "u": ({"id": "bigint", "a": "int", "c": "int", "w": "int", "s": "string"}, ("id",)),
    "r": ({"a": "int", "b": "string", "n": "int"}, ()),
    # Values at the edges of their types, with few others between.
    "e": (
        {
            "id": "bigint",
            "h": "tinyint",
            "i": "smallint",
            "j": "int",
            "k": "bigint",
            "d": "decimal(38,18)",
            "f": "decimal(38,38)",
            "x": "double",
            "y": "float",
            "m": "map<string, int>",
        },
        ("id",),
    ),
}
_EDGES: dict[str, list[Any]] = {
    "tinyint": [-128, 127, 0, 1],
    "smallint": [-(2**15), 2**15 - 1, 0, 1],
    "int": [-(2**31), 2**31 - 1, 0, 1],
    "bigint": [-(2**63), 2**63 - 1, 0, 1],
    # A hundred of the largest still have a sum.
    "decimal(38,18)": ["99999999999999999.999999999999999999", "-0.000000000000000001", "0.5", "0"],
    "decimal(38,38)": [f"0.00{'9' * 36}", f"-0.{'0' * 37}1", "0.005", "0"],
    "double": [float("nan"), float("inf"), 0.0, -1.25, 3.0],
    "float": [float("nan"), float("-inf"), 0.0, 0.5],
    "map<string, int>": [{}, {"x": 1}, {"x": 1, "y": None}, {"z": 2**31 - 1}],
}
_KEY_SPACE = 40


def resolve(table: exp.Table) -> Source:
    return _source(table.name.lower())


@cache
def _source(table: str) -> Source:
    columns, key = TABLES[table]
    return Source(
        name=table,
        columns=tuple(
            SourceColumn(
                name=name, type=exp.DataType.build(kind, "spark"), nullable=name not in key
            )
            for name, kind in columns.items()
        ),
    )


def parsed(sql: str) -> exp.Expression:
    return sqlglot.parse_one(sql, dialect="spark")


def planned(query: str | exp.Expression) -> Query:
    """The plan of a query over the tables above; its tree, if given, is used up."""
    made, _ = translate(parsed(query) if isinstance(query, str) else query, resolve)
    needed = {output.column for output in made.outputs}
    return Query(root=pruned(made.root, needed), outputs=made.outputs)


Row = tuple[Any, ...]


@dataclass
class World:
    """Rows of all tables at one moment."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    signs: bool = False  # whether there are negative zeros

    @classmethod
    def random(cls, random: Random, size: int, *, signs: bool = False) -> World:
        made = cls(signs=signs)
        for name, (_, key) in TABLES.items():
            count = random.randint(0, size)
            ids = random.sample(range(_KEY_SPACE), min(count, _KEY_SPACE))
            made.rows[name] = [
                _row(random, name, ids[n] if key else None, signs=signs) for n in range(len(ids))
            ]
        return made

    def changed(self, random: Random, tables: Iterable[str] | None = None) -> World:
        """This world after some inserts, updates and deletes."""
        made = World({name: list(rows) for name, rows in self.rows.items()}, signs=self.signs)

        def new(name: str, key: int | None) -> Row:
            return _row(random, name, key, signs=self.signs)

        for name in tables if tables is not None else _some(random, TABLES):
            rows, (_, key) = made.rows[name], TABLES[name]
            for _ in range(random.randint(0, 4)):
                what = random.random()
                if rows and what < 0.3:
                    rows.pop(random.randrange(len(rows)))
                elif rows and what < 0.6:
                    place = random.randrange(len(rows))
                    rows[place] = new(name, rows[place][0] if key else None)
                else:
                    free = [n for n in range(_KEY_SPACE) if n not in {row[0] for row in rows}]
                    if free or not key:
                        rows.append(new(name, random.choice(free) if key else None))
        return made


def _some(random: Random, names: Iterable[str]) -> list[str]:
    return [name for name in names if random.random() < 0.6]


def _row(random: Random, name: str, key: int | None, *, signs: bool = False) -> Row:
    row: list[Any] = []
    for column, kind in TABLES[name][0].items():
        if column == "id":
            row.append(key)
        elif random.random() < 0.15:
            row.append(None)
        elif name == "e":
            # Zeros have signs only where Spark compares: DuckDB joins them by their bits.
            zero = [-0.0] if signs and kind in ("double", "float") else []
            row.append(random.choice([*_EDGES[kind], *zero]))
        elif kind == "string":
            row.append(random.choice(["x", "y", "z", ""]))
        elif kind.startswith("decimal"):
            row.append(f"{random.randint(-300, 300) / 100:.2f}")
        elif kind == "double":
            row.append(random.choice([0.0, 0.5, -1.25, 3.0]))
        else:
            row.append(random.randint(0, 3))
    return tuple(row)


_DUCK = {"string": "varchar", "map<string, int>": "map(varchar, int)"}


class Engine:
    """DuckDB with the relations that programs read."""

    def __init__(self) -> None:
        self.connection = duckdb.connect(":memory:")
        without_shared_plans(self.connection)
        self.connection.execute("SET threads = 1")
        self.connection.execute("SET default_null_order = 'nulls_first'")

    def load(self, old: World, new: World) -> set[str]:
        """Make `old_n`, `new_n` and `delta_n`; returns the tables that changed."""
        changed = set()
        for number, (name, (columns, _)) in enumerate(TABLES.items()):
            kinds = {c: _DUCK.get(kind, kind) for c, kind in columns.items()}
            before, after = list(old.rows[name]), list(new.rows[name])
            delta: list[Row] = []
            for row in list(before):
                if row in after:  # the very same NaN is in both, or none
                    after.remove(row)
                else:
                    delta.append((*row, -1))
            delta += [(*row, 1) for row in after]
            if delta:
                changed.add(name)
            self._table(f"old_{number}", kinds, old.rows[name])
            self._table(f"new_{number}", kinds, new.rows[name])
            self._table(f"delta_{number}", {**kinds, "_w": "int"}, delta)
        return changed

    def _table(self, name: str, kinds: Mapping[str, str], rows: Sequence[Row]) -> None:
        columns = ", ".join(f'"{column}" {kind}' for column, kind in kinds.items())
        self.connection.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
        if rows:
            values = ", ".join("(" + ", ".join(_literal(v) for v in row) + ")" for row in rows)
            self.connection.execute(f"INSERT INTO {name} VALUES {values}")

    def fetch(self, query: exp.Expression) -> list[Row]:
        return self.connection.execute(query.sql("duckdb", copy=False)).fetchall()

    def plain(self, query: str | exp.Expression, end: str) -> list[Row]:
        """A query by DuckDB alone, at one end; its tree, if given, is used up."""
        tree = parsed(query) if isinstance(query, str) else query
        local = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        for table in tree.find_all(exp.Table):
            if table.name.lower() not in local:
                number = list(TABLES).index(table.name.lower())
                alias = table.alias or table.name
                table.replace(exp.alias_(exp.to_table(f"{end}_{number}"), alias, table=True))
        return self.fetch(tree)


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, dict):
        pairs = (f"{_literal(key)}: {_literal(one)}" for key, one in value.items())
        return f"MAP {{{', '.join(pairs)}}}"
    return f"'{value}'" if isinstance(value, str | float) else repr(value)


def builder(changed: Iterable[str], *, sideways: bool = True, keyed: bool = True) -> Builder:
    keys = {name: key for name, (_, key) in TABLES.items() if key} if keyed else {}
    return Builder(list(TABLES), changed, keys=keys, sideways=sideways)


def bag(rows: Iterable[Row]) -> dict[Row, int]:
    """Rows with their counts; numbers by value, so that engines' types don't matter."""
    counts: dict[Row, int] = {}
    for row in rows:
        key = tuple(_plain(value) for value in row)
        counts[key] = counts.get(key, 0) + 1
    return counts


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return tuple(sorted(map(_plain, value), key=repr))
    if isinstance(value, dict):
        return tuple(sorted((key, _plain(one)) for key, one in value.items()))
    if isinstance(value, Decimal):
        return _plain(float(value)) if abs(value) < 10**9 else round(value, 6)
    if isinstance(value, int):
        return value
    try:
        number = round(float(value), 6) + 0.0
        return "nan" if math.isnan(number) else number
    except (TypeError, ValueError):
        return value


def check_delta(engine: Engine, query: Query, changed: Iterable[str], **options: bool) -> None:
    """The law, for a query's root: old rows, and what came and went, are the new rows."""
    b = builder(changed, **options)
    root = query.root
    columns = list(root.columns)
    parts = [
        with_weight(b.rows(root, End.OLD), columns, 1),
        with_weight(b.rows(root, End.NEW), columns, -1),
    ]
    delta = b.delta(root)
    if delta is not None:
        parts.append(from_query(delta, [*columns, WEIGHT]))
    left = exp.select(
        exp.Star(), exp.alias_(exp.func("sum", exp.column(WEIGHT)), "left_over")
    ).from_(exp.Subquery(this=union_all(parts), alias=exp.TableAlias(this=exp.to_identifier("q"))))
    left.set("expressions", [*(exp.column(c) for c in columns), left.expressions[1]])
    left = left.group_by(*(exp.column(c) for c in columns))
    left = left.having(exp.func("sum", exp.column(WEIGHT)).neq(0))
    text = as_one_query(b.program(left))
    wrong = engine.fetch(text)
    assert not wrong, f"{wrong}\n{text.sql('duckdb', pretty=True)}"


def _fetch_query(step: Fetch, program: Program) -> exp.Select:
    """A fetch as a query."""
    fields = [
        exp.column(exp.to_identifier(name, quoted=True), table="t") for name in sorted(step.fields)
    ]
    source = trees.table(program.leaf(step.source, step.end).name, "t")
    same = exp.NullSafeEQ(
        this=exp.column(exp.to_identifier(step.own, quoted=True), table="t"),
        expression=exp.column(step.key, table="k"),
    )
    keys = trees.select(trees.items([step.key]), trees.table(step.keys)).distinct(copy=False)
    made = trees.select(fields, source)
    made.append("joins", exp.Join(this=trees.sub(keys, "k"), side="LEFT", kind="SEMI", on=same))
    return made


def as_one_query(program: Program) -> exp.Query:
    """The whole program as one query; its trees are used up."""
    query = program.query
    for step in program.steps:
        body = _fetch_query(step, program) if isinstance(step, Fetch) else step.query
        query = query.with_(step.name, as_=body, copy=False)
    return query


class StoredView:
    """A view's stored rows, kept up on DuckDB by the queries of `stored_delta`."""

    def __init__(self, engine: Engine, query: Query) -> None:
        self.engine = engine
        self.layout = layout_of(query)
        b = builder(())
        rows = as_one_query(b.program(stored_delta.all_rows(b, self.layout, {})))
        run = self.engine.connection.execute
        kinds = run(f"DESCRIBE {rows.sql('duckdb')}").fetchall()
        # Spark's sums of whole numbers are of 64 bits.
        wanted = {name: "BIGINT" if kind == "HUGEINT" else kind for name, kind, *_ in kinds}
        columns = ", ".join(f'"{name}"::{wanted[name]} AS "{name}"' for name in self.layout.names)
        run(
            f"CREATE OR REPLACE TABLE stored AS SELECT 1::bigint AS {stored_delta.FILE}, "
            f"row_number() OVER () AS {stored_delta.POS}, {columns} FROM ({rows.sql('duckdb')})"
        )
        held = run("SELECT * FROM stored LIMIT 0").to_arrow_table().schema
        self.types = {name: types.canonical(held.field(name).type) for name in self.layout.names}
        self.places = 1_000_000

    def refresh(self, changed: Iterable[str], *, full: bool = False, **options: bool) -> None:
        b = builder(changed, **options)
        if full:
            made: exp.Query | None = stored_delta.full(
                self.layout, stored_delta.all_rows(b, self.layout, self.types), self.types
            )
        else:
            made = stored_delta.change(b, self.layout, self.types)
        if made is None:
            return
        program = as_one_query(b.program(made))
        run = self.engine.connection.execute
        run(f"CREATE OR REPLACE TEMP TABLE change AS {program.sql('duckdb')}")
        again = run(f"SELECT count(*) FROM change WHERE {stored_delta.AGAIN}").fetchone()
        if again and again[0]:
            keys = stored_delta.again_keys(self.layout)
            shown = ", ".join(f'"{key}" AS k{n}' for n, key in enumerate(keys)) or "1 AS k0"
            groups = f"SELECT {shown} FROM change WHERE {stored_delta.AGAIN}"
            run(f"CREATE OR REPLACE TEMP TABLE again AS {groups}")
            b = builder(changed, **options)
            query = stored_delta.again(b, self.layout, self.types)
            once_more = as_one_query(b.program(query)).sql("duckdb")
            run(f"CREATE OR REPLACE TEMP TABLE more AS {once_more}")
        file, pos = stored_delta.FILE, stored_delta.POS
        run(
            f"DELETE FROM stored USING change "
            f"WHERE stored.{file} = change.{file} AND stored.{pos} = change.{pos}"
        )
        columns = ", ".join(f'"{name}"' for name in self.layout.names)
        count, once_more = stored_delta.COUNT, stored_delta.AGAIN
        self._add(f"SELECT {columns} FROM change, range({count}::bigint) WHERE NOT {once_more}")
        if again and again[0]:
            self._add(f"SELECT {columns} FROM more")

    def _add(self, rows: str) -> None:
        self.engine.connection.execute(
            f"INSERT INTO stored SELECT 1, {self.places} + row_number() OVER (), * FROM ({rows})"
        )
        self.places += 1_000_000

    def visible(self) -> list[Row]:
        """What users see."""
        shown = [c.column for c in self.layout.columns if not c.hidden]
        query = exp.select(*(exp.column(name) for name in shown)).from_("stored")
        if any(c.column == VISIBLE for c in self.layout.columns):
            query = query.where(exp.column(VISIBLE))
        limit = self.layout.limit
        if limit is not None:
            query = query.order_by(*(tree.copy() for tree in limit.order))
            if limit.count is not None:
                query = query.limit(limit.count)
            if limit.offset:
                query = query.offset(limit.offset)
        return self.engine.fetch(query)
