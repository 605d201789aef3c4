"""Queries and expressions as trees: built without parsing, taken apart, and compared.

To pass a tree on is to give it away: each part has one place in one tree.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlglot import exp

_WHOLE = "tailrace_whole"
_PLAIN = 2  # parts of a SELECT: what it shows, and FROM
# What has to be in parentheses inside of another expression.
_LOOSE = (exp.Binary, exp.Unary, exp.Between, exp.In)
# What has no relation inside.
_LEAVES = (exp.Column, exp.Literal, exp.Identifier, exp.DataType, exp.TableAlias)


@contextmanager
def kept() -> Iterator[None]:
    """Pause the garbage collector while many trees are built that are all in use.

    Each is a cycle of parents and parts, and visiting them again and again takes as long as
    building them. Whoever turned the collector off turns it on again, whatever other threads do.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def table(name: str, alias: str | None = None) -> exp.Table:
    """A relation in a FROM."""
    relation = exp.Table(this=exp.Identifier(this=name, quoted=False))
    if alias is not None:
        relation.set("alias", _alias(alias))
    return relation


def whole(name: str, columns: Sequence[str]) -> exp.Select:
    """All columns of a relation."""
    query = select(items(columns), table(name))
    query.meta[_WHOLE] = name
    return query


def sub(query: exp.Query | exp.Table, name: str = "q") -> exp.Expr:
    """A query in a FROM."""
    if isinstance(query, exp.Table):
        return query
    relation = query.meta_get(_WHOLE)
    if relation is not None and len(query.args) == _PLAIN:  # nothing was added to it
        return table(relation, name)
    return exp.Subquery(this=query, alias=_alias(name))


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.Identifier(this=name, quoted=False))


def items(columns: Sequence[str], relation: str | None = None) -> list[exp.Expr]:
    """Columns as a SELECT list."""
    return [column_of(name, relation) for name in columns]


def column_of(name: str, relation: str | None = None, *, quoted: bool = False) -> exp.Column:
    """A column; one of a plan has a name that needs no quotes."""
    tree = exp.Column(this=exp.Identifier(this=name, quoted=quoted))
    if relation is not None:
        tree.set("table", exp.Identifier(this=relation, quoted=False))
    return tree


def named(tree: exp.Expr, name: str) -> exp.Alias:
    """An item of a SELECT list, under a plan's name."""
    return exp.Alias(this=tree, alias=exp.Identifier(this=name, quoted=False))


def select(shown: Sequence[exp.Expr], source: exp.Expr) -> exp.Select:
    """A SELECT from one relation."""
    return exp.Select(expressions=list(shown), from_=exp.From(this=source))


def from_query(query: exp.Query | exp.Table, columns: Sequence[str]) -> exp.Select:
    """Some columns of a query."""
    return select(items(columns), sub(query))


def union_all(parts: Sequence[exp.Query]) -> exp.Query:
    """The rows of all parts, as the lowest tree."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return exp.Union(
        this=union_all(parts[:half]), expression=union_all(parts[half:]), distinct=False
    )


def union_parts(tree: exp.Query) -> list[exp.Query]:
    """The parts of a UNION ALL, in their order."""
    parts, waiting = [], [tree]
    while waiting:
        part = waiting.pop()
        clauses = {name for name, value in part.args.items() if value}
        if isinstance(part, exp.Union) and clauses == {"this", "expression"}:
            waiting += [part.expression, part.this]
        else:
            parts.append(part)
    return parts


def tables_in(tree: exp.Expr) -> Iterator[tuple[exp.Table, int]]:
    """The relations that a query reads, each with the number of SELECTs around it."""
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, exp.Table):
            yield node, depth
        if isinstance(node, exp.Select):
            depth += 1
        for value in node.args.values():
            if type(value) is list:
                waiting += [
                    (one, depth)
                    for one in value
                    if isinstance(one, exp.Expr) and not isinstance(one, _LEAVES)
                ]
            elif isinstance(value, exp.Expr) and not isinstance(value, _LEAVES):
                waiting.append((value, depth))


def names_in(query: exp.Expr) -> set[str]:
    """The names of the relations that a query reads."""
    return {relation.name for relation, _ in tables_in(query)}


def size(tree: exp.Expr) -> int:
    """How many parts a tree has."""
    return sum(1 for _ in tree.walk())


def copied(tree: exp.Expr) -> exp.Expr:
    """A copy of a tree without the parser's notes."""
    root = type(tree)()
    waiting = [(tree, root)]
    while waiting:
        node, copy = waiting.pop()
        for name, value in node.args.items():
            if isinstance(value, exp.Expr):
                part = type(value)()
                copy.set(name, part)
                waiting.append((value, part))
            elif type(value) is list:
                parts = [type(one)() if isinstance(one, exp.Expr) else one for one in value]
                copy.set(name, parts)
                waiting += [
                    (one, part)
                    for one, part in zip(value, parts, strict=True)
                    if isinstance(one, exp.Expr)
                ]
            else:
                copy.args[name] = value
    return root


def shape(tree: exp.Expr) -> tuple[Hashable, ...]:
    """Equal for trees with the same parts in the same places."""
    words: list[Hashable] = []
    waiting: list[object] = [tree]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, exp.Expr):
            words.append(str(node))
            continue
        arguments = [(name, value) for name, value in node.args.items() if value]
        words.append(node.key)
        for name, value in arguments:
            if type(value) is list:
                words += (name, len(value))
                waiting += value
            else:
                words.append(name)
                waiting.append(value)
    return tuple(words)


def outside_queries(holder: exp.Expr) -> list[exp.Column]:
    """The columns of an expression outside of its subqueries."""
    parts = holder.walk(prune=lambda part: isinstance(part, exp.Query))
    return [part for part in parts if isinstance(part, exp.Column)]


def columns_in(tree: exp.Expr) -> set[str]:
    """The plan's columns that an expression uses."""
    return {column.name for column in tree.find_all(exp.Column)}


def renamed(tree: exp.Expr, names: Mapping[str, exp.Expr]) -> exp.Expr:
    """A copy of an expression with other expressions in place of columns."""
    holder = exp.Paren(this=tree.copy())
    for column in list(holder.find_all(exp.Column)):
        if column.name in names:
            value = names[column.name].copy()
            # One value stays one, whatever is around it.
            loose = isinstance(value, _LOOSE) and not isinstance(value, exp.Paren)
            column.replace(exp.Paren(this=value) if loose else value)
    result: exp.Expr = holder.this
    return result


def conjuncts(tree: exp.Expr | None) -> list[exp.Expr]:
    """The parts of an AND."""
    parts: list[exp.Expr] = []
    waiting = [] if tree is None else [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, exp.Paren):
            waiting.append(part.this)
        elif isinstance(part, exp.And):
            waiting += [part.right, part.left]
        else:
            parts.append(part)
    return parts


def all_of(conditions: Sequence[exp.Expr]) -> exp.Expr:
    """The AND of conditions."""
    return connected(exp.And, [copied(c) for c in conditions]) if conditions else exp.true()


def any_of(conditions: Sequence[exp.Expr]) -> exp.Expr:
    """The OR of conditions."""
    return connected(exp.Or, [copied(c) for c in conditions]) if conditions else exp.false()


def connected(kind: type[exp.Connector], parts: Sequence[exp.Expr]) -> exp.Expr:
    """The AND or OR of parts in their order, as the lowest tree: others walk it by recursion."""
    if len(parts) == 1:
        return parts[0]
    sides = [connected(kind, part) for part in (parts[: len(parts) // 2], parts[len(parts) // 2 :])]
    held = [
        exp.Paren(this=side) if isinstance(side, exp.Connector) and type(side) is not kind else side
        for side in sides
    ]
    return kind(this=held[0], expression=held[1])


def balanced(tree: exp.Query) -> exp.Query:
    """A query with its long ANDs and ORs as the lowest trees."""
    for connector in list(tree.find_all(exp.And, exp.Or)):
        kind = type(connector)
        if type(connector.parent) is kind:
            continue
        connector.replace(connected(kind, list(connector.flatten(unnest=False))))
    return tree
