"""The simplest queries over Arrow tables: columns and conditions, without starting a Spark job.

It is for keys, where a value too many does no harm: a condition that it does not know is left
out. What is not such a query at all is left to Spark (None).
"""

from __future__ import annotations

import calendar
import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tailrace.views.scope import conjuncts

Tables = Mapping[str, pa.Table]
_KNOWN = {"expressions", "from_", "where", "distinct"}


def evaluate(query: exp.Expr, tables: Tables) -> pa.Table | None:
    """A query's rows, or more."""
    if isinstance(query, exp.Subquery):
        return evaluate(query.this, tables)
    if isinstance(query, exp.Union):
        return _union(query, tables)
    if not isinstance(query, exp.Select) or set(_said(query)) - _KNOWN:
        return None
    below = _source(query, tables)
    if below is None:
        return None
    where = query.args.get("where")
    condition = None if where is None else arrow_condition(where.this, below.schema)
    if condition is not None:
        below = below.filter(condition)
    names, columns = [], []
    for item in query.selects:
        value = item.this if isinstance(item, exp.Alias) else item
        if not isinstance(value, exp.Column) or value.name not in below.column_names:
            return None
        names.append(item.alias_or_name)
        columns.append(below.column(value.name))
    made = pa.table(columns, names=names)
    if query.args.get("distinct"):
        made = made.group_by(names).aggregate([])
    return made


def _union(query: exp.Union, tables: Tables) -> pa.Table | None:
    left, right = evaluate(query.left, tables), evaluate(query.right, tables)
    if query.args.get("distinct") or left is None or right is None:
        return None
    if left.schema.types != right.schema.types:
        return None
    return pa.concat_tables([left, right.rename_columns(left.column_names)])


def _source(query: exp.Select, tables: Tables) -> pa.Table | None:
    source = query.args["from_"].this if query.args.get("from_") else None
    if isinstance(source, exp.Table):
        return tables.get(source.name)
    return None if source is None else evaluate(source, tables)


def arrow_condition(tree: exp.Expr, schema: pa.Schema) -> pc.Expression | None:
    """The parts of a condition that Arrow can check; None if there is none."""
    known = [found for part in conjuncts(tree) if (found := _condition(part, schema)) is not None]
    if not known:
        return None
    made = known[0]
    for other in known[1:]:
        made = made & other
    return made


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
    if kind in _COMPARE and set(_said(tree)) == {"this", "expression"}:
        one, other = tree.this, tree.args["expression"]
        if not isinstance(one, exp.Column):
            one, other, kind = other, one, _MIRROR.get(kind, kind)
        return _compared(
            one, [other], schema, lambda field, values: _COMPARE[kind](field, values[0])
        )
    if isinstance(tree, exp.In) and set(_said(tree)) == {"this", "expressions"}:
        return _compared(
            tree.this, tree.expressions, schema, lambda field, values: field.isin(values)
        )
    if isinstance(tree, exp.Between) and set(_said(tree)) == {"this", "low", "high"}:
        return _compared(
            tree.this,
            [tree.args["low"], tree.args["high"]],
            schema,
            lambda field, values: (field >= values[0]) & (field <= values[1]),
        )
    if isinstance(tree, exp.Like) and set(_said(tree)) <= {"this", "expression", "negate"}:
        pattern = tree.expression
        if isinstance(tree.this, exp.Column) and pattern.is_string and "\\" not in pattern.this:
            found = _field(tree.this, schema)
            if found is not None and found.type == pa.string():
                matches = pc.match_like(pc.field(found.name), pattern.this)
                return ~matches if tree.args.get("negate") else matches
    return None


def _said(tree: exp.Expr) -> list[str]:
    """The parts that a tree has: one that is not known here may turn its meaning around."""
    return [name for name, value in tree.args.items() if value]


def _field(tree: exp.Expr, schema: pa.Schema) -> pa.Field | None:
    if not isinstance(tree, exp.Column) or tree.name not in schema.names:
        return None
    return schema.field(tree.name)


def _compared(tree: exp.Expr, values: list[exp.Expr], schema: pa.Schema, make: Any):  # type: ignore[no-untyped-def]
    field = _field(tree, schema)
    if field is None:
        return None
    made = [_literal(value, field.type) for value in values]
    return None if any(value is None for value in made) else make(pc.field(field.name), made)


def _literal(tree: exp.Expr, kind: pa.DataType) -> pa.Scalar | None:
    """A literal as a value of a column's type; None where Spark might compare otherwise."""
    if isinstance(tree, exp.Paren):
        return _literal(tree.this, kind)
    sign = 1
    if isinstance(tree, exp.Neg):
        sign, tree = -1, tree.this
    if kind == pa.date32():
        day = _day(tree)
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


def _day(tree: exp.Expr) -> dt.date | None:
    """A date that is written out, or some days, months or years from one."""
    if isinstance(tree, exp.Paren):
        return _day(tree.this)
    if isinstance(tree, exp.Cast) and tree.to.is_type("date"):
        text = tree.this
        if isinstance(text, exp.Literal) and text.is_string:
            try:
                return dt.date.fromisoformat(text.this)
            except ValueError:
                return None
    if isinstance(tree, exp.Add | exp.Sub) and isinstance(tree.expression, exp.Interval):
        day, interval = _day(tree.this), tree.expression
        count = interval.this
        if day is not None and isinstance(count, exp.Literal) and count.this.isdigit():
            sign = 1 if isinstance(tree, exp.Add) else -1
            return _moved(day, sign * int(count.this), interval.text("unit").upper())
    return None


def _moved(day: dt.date, count: int, unit: str) -> dt.date | None:
    if unit in ("DAY", "DAYS"):
        return day + dt.timedelta(days=count)
    if unit not in ("MONTH", "MONTHS", "YEAR", "YEARS"):
        return None
    months = day.year * 12 + day.month - 1 + count * (12 if unit.startswith("YEAR") else 1)
    year, month = divmod(months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return dt.date(year, month + 1, min(day.day, last))
