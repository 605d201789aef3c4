"""Which rows of its sources and of the stored table a program needs, by its queries.

A row too many does no harm: in doubt, all rows are needed. Simple conditions become Arrow's, so
that rows are filtered while they are read; parts that might not mean the same as in Spark are left
out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tailrace.spark_sql.duckdb.translated import day_of
from tailrace.views.incremental.program import Fetch, Program
from tailrace.views.query.trees import any_of, conjuncts, renamed, shape, tables_in


@dataclass(frozen=True, kw_only=True)
class StoredLimit:
    """Which stored rows a change can touch."""

    # A column of the stored table, a step of keys, and the column of these keys.
    keys: tuple[str, str, str] | None = None
    # Columns of the stored table, each with the relations and columns that have all its values.
    origins: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()


NO_LIMIT = StoredLimit()
# What a query has that only selects columns of rows in memory.
_PLAIN = {"expressions", "from_", "joins", "where", "distinct"}
_SAME = (exp.EQ, exp.NullSafeEQ)


def values_read(
    program: Program, columns: Sequence[tuple[str, str]]
) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Where the values of columns are read; `columns` are pairs of stored and program columns.

    Columns that the program does not simply read from a relation are left out.
    """
    wanted = {column for _, column in columns}
    read: dict[str, dict[tuple[str, str], None]] = {column: {} for column in wanted}
    for tree in program.trees():
        for item in tree.find_all(exp.Alias):
            select = item.parent
            if item.alias not in wanted or not isinstance(select, exp.Select):
                continue
            source = select.args["from_"].this if select.args.get("from_") else None
            if isinstance(source, exp.Table) and isinstance(item.this, exp.Column):
                read[item.alias][source.name, item.this.name] = None
    return tuple((own, tuple(read[column])) for own, column in columns if read[column])


def fetch_conditions(program: Program) -> dict[str, exp.Expr | None]:
    """For each fetch, a condition on the source's fields that holds for all its users, if any."""
    fetches = {step.name for step in program.steps if isinstance(step, Fetch)}
    conditions: dict[str, list[exp.Expr] | None] = {}
    for tree in program.trees():
        for table, _ in tables_in(tree):
            if table.name not in fetches:
                continue
            condition = _condition_of(table)
            known = conditions.setdefault(table.name, [])
            if condition is None or known is None:
                conditions[table.name] = None
            else:
                known.append(condition)
    return {name: _any_of(parts or ()) for name, parts in conditions.items()}


def _any_of(conditions: Sequence[exp.Expr]) -> exp.Expr | None:
    different = list({shape(condition): condition for condition in conditions}.values())
    if len(different) > 1:
        return any_of(different)
    return different[0] if different else None


def _condition_of(table: exp.Table) -> exp.Expr | None:
    """The WHERE above a use of a table, on the table's own fields."""
    inner = table.find_ancestor(exp.Select)
    if inner is None:
        return None
    above: exp.Expr | None = inner.parent
    while isinstance(above, exp.Union | exp.Subquery | exp.From):
        above = above.parent
    if not isinstance(above, exp.Select) or above.args.get("where") is None:
        return None
    if above.args.get("joins"):
        return None
    fields = {
        item.alias_or_name: exp.column(exp.to_identifier(item.this.name, quoted=True))
        for item in inner.selects
        if isinstance(item, exp.Alias) and isinstance(item.this, exp.Column)
    }
    condition = above.args["where"].this
    if not all(column.name in fields for column in condition.find_all(exp.Column)):
        return None
    return renamed(condition, fields)


def arrow_condition(tree: exp.Expr, schema: pa.Schema) -> pc.Expression | None:
    """The parts of a condition that Arrow can check; None if there is none."""
    parts = [_condition(part, schema) for part in conjuncts(tree)]
    known = [part for part in parts if part is not None]
    if not known:
        return None
    combined = known[0]
    for other in known[1:]:
        combined = combined & other
    return combined


def selected_rows(tree: exp.Expr, relation: Callable[[str], pa.Table | None]) -> pa.Table | None:
    """The distinct rows of a query, some of them perhaps twice, if it only selects columns.

    Of a `relation`, of several one below the other: without conditions and joins.
    """
    clauses = {name for name, value in tree.args.items() if value}
    if isinstance(tree, exp.Table):
        return relation(tree.name)
    if isinstance(tree, exp.Subquery):
        return selected_rows(tree.this, relation)
    if isinstance(tree, exp.Union) and clauses <= {"this", "expression", "distinct"}:
        one, other = selected_rows(tree.left, relation), selected_rows(tree.right, relation)
        if one is None or other is None or one.schema.types != other.schema.types:
            return None
        return pa.concat_tables([one, other.rename_columns(one.column_names)])
    if not isinstance(tree, exp.Select) or not clauses <= _PLAIN - {"joins", "where"}:
        return None
    rows = selected_rows(tree.args["from_"].this, relation) if tree.args.get("from_") else None
    items = [item.unalias() for item in tree.selects]
    if rows is None or not all(isinstance(item, exp.Column) for item in items):
        return None
    if not {item.name for item in items} <= set(rows.column_names):
        return None
    return pa.table(
        [rows.column(item.name) for item in items], [item.alias_or_name for item in tree.selects]
    )


def plain_rows(tree: exp.Expr, relation: Callable[[str], pa.Table | None]) -> pa.Table | None:
    """The distinct rows of a query and maybe more, if that takes no more than a selection.

    That is: columns of a `relation`, of several one below the other, or of those with a value that
    another has. Rows that its conditions and joins leave out may be there. Columns that it
    computes, or takes from what it joins, are not.
    """
    clauses = {name for name, value in tree.args.items() if value}
    if isinstance(tree, exp.Table):
        return relation(tree.name)
    if isinstance(tree, exp.Subquery):
        return plain_rows(tree.this, relation)
    if isinstance(tree, exp.Union) and clauses <= {"this", "expression", "distinct"}:
        return _all_rows(tree, relation)
    if not isinstance(tree, exp.Select) or not clauses <= _PLAIN or not tree.args.get("from_"):
        return None
    source = tree.args["from_"].this
    rows = plain_rows(source, relation)
    own = {"", source.alias_or_name}
    for join in tree.args.get("joins") or ():
        rows = None if rows is None else _joined(rows, own, join, relation)
    if rows is None:
        return None
    where = tree.args.get("where")
    for part in () if where is None else conjuncts(where.this):
        condition = None
        if all(column.table in own for column in part.find_all(exp.Column)):
            condition = arrow_condition(part, rows.schema)
        rows = rows if condition is None else rows.filter(condition)
    shown = {}
    for item in tree.selects:
        value = item.unalias()
        if isinstance(value, exp.Column) and value.table in own and value.name in rows.column_names:
            shown[item.alias_or_name] = rows.column(value.name)
    return pa.table(shown) if shown else None


def _all_rows(union: exp.Union, relation: Callable[[str], pa.Table | None]) -> pa.Table | None:
    """The rows of both sides, with the columns that both have."""
    one, other = plain_rows(union.left, relation), plain_rows(union.right, relation)
    if one is None or other is None:
        return None
    pairs = {
        left: right
        for left, right in zip(union.left.named_selects, union.right.named_selects, strict=True)
        if left in one.column_names
        and right in other.column_names
        and one.schema.field(left).type == other.schema.field(right).type
    }
    if not pairs:
        return None
    named = other.select(list(pairs.values())).rename_columns(list(pairs))
    return pa.concat_tables([one.select(list(pairs)), named])


def _joined(
    rows: pa.Table, own: Collection[str], join: exp.Join, relation: Callable[[str], pa.Table | None]
) -> pa.Table | None:
    """The rows that a join leaves, and maybe more; `own` are names of their relation."""
    side, kind = join.side, join.kind
    if (side, kind) in {("LEFT", "ANTI"), ("LEFT", ""), ("", "CROSS")}:
        return rows
    if (side, kind) not in {("LEFT", "SEMI"), ("", ""), ("", "INNER")}:
        return None
    partners = plain_rows(join.this, relation)
    conditions = conjuncts(join.args.get("on"))
    wanted: dict[str, pa.ChunkedArray] = {}
    for part in conditions if partners is not None else ():
        wanted |= _partners_values(part, rows, own, partners, join.alias_or_name)
    if not wanted and (kind == "SEMI" or any(isinstance(c, _SAME) for c in conditions)):
        return None  # far too many might be left
    for name, values in wanted.items():
        rows = rows.filter(pc.is_in(rows.column(name), values.combine_chunks()))
    return rows


def _partners_values(
    tree: exp.Expr, rows: pa.Table, own: Collection[str], partners: pa.Table, partner: str
) -> dict[str, pa.ChunkedArray]:
    """The column and its values, if a condition says that a partner has the same."""
    if not isinstance(tree, _SAME):
        return {}
    for one, other in ((tree.left, tree.right), (tree.right, tree.left)):
        if not isinstance(one, exp.Column) or not isinstance(other, exp.Column):
            return {}
        if one.table not in own or other.table not in ("", partner):
            continue
        if one.name not in rows.column_names or other.name not in partners.column_names:
            continue
        kind, values = rows.schema.field(one.name).type, partners.column(other.name)
        # To Arrow, the two zeros are different values.
        if kind == values.type and not pa.types.is_floating(kind):
            return {one.name: values}
    return {}


_COMPARE: dict[type[exp.Expr], Any] = {
    exp.EQ: lambda a, b: a == b,
    exp.NEQ: lambda a, b: a != b,
    exp.LT: lambda a, b: a < b,
    exp.LTE: lambda a, b: a <= b,
    exp.GT: lambda a, b: a > b,
    exp.GTE: lambda a, b: a >= b,
}
_MIRROR: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
}


def _condition(tree: exp.Expr, schema: pa.Schema) -> pc.Expression | None:
    if isinstance(tree, exp.Paren):
        return _condition(tree.this, schema)
    if isinstance(tree, exp.And | exp.Or):
        left, right = _condition(tree.left, schema), _condition(tree.right, schema)
        if left is None or right is None:
            return None
        return left & right if isinstance(tree, exp.And) else left | right
    kind = type(tree)
    if kind in _COMPARE and set(_arguments(tree)) == {"this", "expression"}:
        one, other = tree.this, tree.args["expression"]
        if not isinstance(one, exp.Column):
            one, other, kind = other, one, _MIRROR.get(kind, kind)
        return _compared(
            one, [other], schema, lambda field, values: _COMPARE[kind](field, values[0])
        )
    if isinstance(tree, exp.In) and set(_arguments(tree)) == {"this", "expressions"}:
        return _compared(
            tree.this, tree.expressions, schema, lambda field, values: field.isin(values)
        )
    if isinstance(tree, exp.Between) and set(_arguments(tree)) == {"this", "low", "high"}:
        return _compared(
            tree.this,
            [tree.args["low"], tree.args["high"]],
            schema,
            lambda field, values: (field >= values[0]) & (field <= values[1]),
        )
    if isinstance(tree, exp.Like) and set(_arguments(tree)) <= {"this", "expression", "negate"}:
        pattern = tree.expression
        if isinstance(tree.this, exp.Column) and pattern.is_string and "\\" not in pattern.this:
            field = _field(tree.this, schema)
            if field is not None and field.type == pa.string():
                matches = pc.match_like(pc.field(field.name), pattern.this)
                return ~matches if tree.args.get("negate") else matches
    return None


def _arguments(tree: exp.Expr) -> list[str]:
    """The arguments that a tree has: one that is unknown here may invert its meaning."""
    return [name for name, value in tree.args.items() if value]


def _field(tree: exp.Expr, schema: pa.Schema) -> pa.Field | None:
    if not isinstance(tree, exp.Column) or tree.name not in schema.names:
        return None
    return schema.field(tree.name)


def _compared(tree: exp.Expr, values: list[exp.Expr], schema: pa.Schema, make: Any):  # type: ignore[no-untyped-def]
    field = _field(tree, schema)
    if field is None:
        return None
    scalars = [_literal(value, field.type) for value in values]
    return None if any(value is None for value in scalars) else make(pc.field(field.name), scalars)


def _literal(tree: exp.Expr, kind: pa.DataType) -> pa.Scalar | None:
    """A literal in a column's type; None where Spark might compare otherwise."""
    if isinstance(tree, exp.Paren):
        return _literal(tree.this, kind)
    sign = 1
    if isinstance(tree, exp.Neg):
        sign, tree = -1, tree.this
    if kind == pa.date32():
        day = day_of(tree)
        return None if day is None else pa.scalar(day, kind)
    if not isinstance(tree, exp.Literal):
        return None
    if tree.is_string:
        return pa.scalar(tree.this, kind) if kind == pa.string() and sign > 0 else None
    try:
        number = sign * Decimal(tree.this)
    except ArithmeticError:
        return None
    if pa.types.is_integer(kind) and number == int(number) and abs(number) < 2**31:
        return pa.scalar(int(number), pa.int64()).cast(kind) if _fits(number, kind) else None
    if pa.types.is_decimal(kind):
        try:
            return pa.scalar(number, kind)
        except pa.ArrowInvalid:
            return None
    return None


def _fits(number: Decimal, kind: pa.DataType) -> bool:
    return bool(abs(number) < 2 ** (kind.bit_width - 1))
