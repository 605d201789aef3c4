"""When two values of a view's column are the same value.

SQL's `<=>` is not enough to find the stored row that a change deletes: it takes 0.0 for -0.0,
which users can tell apart, and it refuses maps. So rows are matched by a form of the value that
can be compared (`comparable`), and equal ones are told apart by `shown_apart`.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql import types


def has_map(kind: pa.DataType) -> bool:
    """Whether values of a type are or contain maps."""
    return _has(kind, pa.types.is_map)


def has_floats(kind: pa.DataType) -> bool:
    """Whether values of a type are or contain floating-point numbers."""
    return _has(kind, pa.types.is_floating)


def _has(kind: pa.DataType, test: object) -> bool:
    assert callable(test)
    return bool(test(kind)) or any(_has(child.type, test) for child in types.children_of(kind))


def comparable(tree: exp.Expr, kind: pa.DataType, depth: int = 0) -> exp.Expr:
    """A value in a form that Spark compares and groups by: a map as the list of its entries."""
    if not has_map(kind):
        return tree
    name = exp.to_identifier(f"x{depth}")

    def each(values: exp.Expr, body: exp.Expr) -> exp.Expr:
        return exp.Transform(this=values, expression=exp.Lambda(this=body, expressions=[name]))

    def part(whole: exp.Expr, field: str) -> exp.Expr:
        return exp.Dot(this=whole, expression=exp.to_identifier(field, quoted=True))

    if pa.types.is_list(kind):
        return each(tree, comparable(name.copy(), kind.value_type, depth + 1))
    if pa.types.is_map(kind):
        entries = exp.Anonymous(this="map_entries", expressions=[tree])
        if not has_map(kind.item_type):  # keys have none
            return entries
        value = comparable(part(name.copy(), "value"), kind.item_type, depth + 1)
        fields = [exp.Literal.string("k"), part(name.copy(), "key"), exp.Literal.string("v"), value]
        return each(entries, exp.Anonymous(this="named_struct", expressions=fields))
    fields = []
    for number, field in enumerate(kind):
        value = comparable(part(tree.copy(), field.name), field.type, depth + 1)
        fields += [exp.Literal.string(f"f{number}"), value]
    struct = exp.Anonymous(this="named_struct", expressions=fields)
    # The fields of a NULL would be NULLs: another value.
    missing = exp.Is(this=tree.copy(), expression=exp.Null())
    return exp.Case(ifs=[exp.If(this=missing, true=exp.Null())], default=struct)


def shown_apart(tree: exp.Expr, kind: pa.DataType) -> exp.Expr | None:
    """What tells values apart that compare as equal; None if nothing can.

    Zeros have signs, and so has 1 divided by them. It is a power, since division by zero may fail.
    """
    if not has_floats(kind):
        return None
    if not pa.types.is_floating(kind):
        return exp.cast(tree, "string")
    inverse = exp.Pow(this=tree.copy(), expression=exp.Neg(this=exp.Literal.number(1)))
    return exp.and_(
        exp.EQ(this=tree.copy(), expression=exp.Literal.number(0)),
        exp.LT(this=inverse, expression=exp.Literal.number(0)),
        copy=False,
    )
