"""UNION, INTERSECT and EXCEPT: two results become one, column by column."""

from __future__ import annotations

from sqlglot import exp

from tailrace.errors import InvalidError
from tailrace.views.query.from_clause import Relations, Result
from tailrace.views.query.plan import (
    Aggregate,
    Node,
    SetKind,
    SetOperation,
    Union,
)
from tailrace.views.query.scope import EXACT_TYPES, UnsupportedError
from tailrace.views.query.trees import column_of

_UNKNOWN = exp.DataType.Type.UNKNOWN


def combined(relations: Relations, query: exp.SetOperation, left: Result, right: Result) -> Result:
    """The result of a set operation on two others."""
    if len(left.outputs) != len(right.outputs):
        raise InvalidError("both sides of a set operation need the same number of columns")
    nodes = _as_doubles(relations, [_aligned(relations, result) for result in (left, right)])
    names = [output.name for output in left.outputs]
    if query.args.get("by_name"):
        raise UnsupportedError("UNION BY NAME")
    columns = tuple(_column(relations, nodes, n, name) for n, name in enumerate(names))
    converted = frozenset(name for name in columns if name not in relations.names.types)
    distinct = bool(query.args.get("distinct"))
    node: Node
    if isinstance(query, exp.Union):
        if distinct:
            nodes = [_with_repeats(n) for n in nodes]
        parts = [part for n in nodes for part in _parts_of(n)]
        node = Union(columns=columns, parts=tuple(parts), converted=converted)
        if distinct:
            relations.names.check_groupable(columns)
            node = Aggregate(input=node, keys=columns, calls=())
    else:
        relations.names.check_groupable(columns)
        word = "except" if isinstance(query, exp.Except) else "intersect"
        kind = SetKind(word if distinct else f"{word} all")
        node = SetOperation(
            columns=columns, kind=kind, left=nodes[0], right=nodes[1], converted=converted
        )
    return Result.named(node, names)


def _column(relations: Relations, nodes: list[Node], place: int, name: str) -> str:
    """A new column; its type is known if the values of both sides stay as they are."""
    names = relations.names
    sides = [column_of(node.columns[place]) for node in nodes]
    common = names.common_type(*sides)
    kinds = [names.types.get(side.name) for side in sides]
    if common is None and all(kind is not None and kind.this != _UNKNOWN for kind in kinds):
        shown = " and ".join(kind.sql("spark") for kind in kinds if kind is not None)
        raise UnsupportedError(f"{name} is {shown}: cast one side's to the other's type")
    return names.new(name, common)


def _as_doubles(relations: Relations, nodes: list[Node]) -> list[Node]:
    """Both sides, with exact numbers as doubles where the other side has doubles."""
    double = exp.DataType.build("double")
    types = relations.names.types
    places = [
        place
        for place, columns in enumerate(zip(*(node.columns for node in nodes), strict=True))
        if _is_double_and_exact([types.get(column) for column in columns])
    ]
    if not places:
        return nodes
    return [
        relations.projected(
            node,
            [
                (c, exp.cast(column_of(c), double) if n in places else column_of(c))
                for n, c in enumerate(node.columns)
            ],
        )
        for node in nodes
    ]


def _is_double_and_exact(kinds: list[exp.DataType | None]) -> bool:
    """Whether one type is double, and the other exact."""
    known = [kind.this for kind in kinds if kind is not None]
    return exp.DataType.Type.DOUBLE in known and not EXACT_TYPES.isdisjoint(known)


def _aligned(relations: Relations, result: Result) -> Node:
    """A node with exactly the outputs, in their order."""
    wanted = tuple(output.column for output in result.outputs)
    if result.node.columns == wanted:
        return result.node
    items = [(output.name, column_of(output.column)) for output in result.outputs]
    return relations.projected(result.node, items)


def _parts_of(node: Node) -> tuple[Node, ...]:
    """The parts of a UNION ALL that can be merged into a longer one."""
    return node.parts if isinstance(node, Union) and not node.converted else (node,)


def _with_repeats(node: Node) -> Node:
    """A UNION as a UNION ALL, if that is what a node is."""
    if not isinstance(node, Aggregate) or node.calls or node.keys != node.input.columns:
        return node
    return node.input if isinstance(node.input, Union) else node
