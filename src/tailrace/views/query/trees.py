"""Queries as trees, built without parsing or copying.

To pass a tree on is to give it away: each part has one place in one tree.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager

from sqlglot import exp

_WHOLE = "tailrace_whole"
_PLAIN = 2  # parts of a SELECT: what it shows, and FROM
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
    return [column(name, relation) for name in columns]


def column(name: str, relation: str | None = None, *, quoted: bool = False) -> exp.Column:
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
