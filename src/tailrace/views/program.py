"""A program: the named steps that compute how a result changes.

Owned here: the names of what a program reads, and the steps. For a source number n, `new_n` and
`old_n` are its rows at both ends of the range, and `delta_n` what was inserted (`_w` = 1) and
deleted (`_w` = -1) between. The rules (`rules/`) build queries over these names; a `Builder`
keeps the steps that several of them share.

Always true: the value of a step is a bag of rows, whoever computes it and when. So a step can be
computed first and kept, or be part of one large query: `run` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sqlglot import exp

from tailrace.views.plan import Node, Scan
from tailrace.views.scope import column_of

WEIGHT = "_w"


class State(StrEnum):
    """Which end of the range a source is read at."""

    NEW = "new"
    OLD = "old"


@dataclass(frozen=True, kw_only=True)
class Within:
    """Only rows whose columns have values that are in a relation of keys."""

    keys: str
    pairs: tuple[tuple[str, str], ...]  # a column of the node, a column of the keys

    def on(self, names: Mapping[str, str]) -> Within | None:
        """The same for other columns; None if none of these columns is among them."""
        pairs = tuple((names[own], key) for own, key in self.pairs if own in names)
        return Within(keys=self.keys, pairs=pairs) if pairs else None


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A query that several others use."""

    name: str
    query: exp.Query


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The different values of some columns: few, as a rule, and worth knowing before the rest."""

    name: str
    query: exp.Query
    columns: tuple[str, ...]


@dataclass(kw_only=True)
class Fetch:
    """The rows of a source in which a field has one of the values of a relation of keys."""

    name: str
    source: str
    state: State
    own: str  # the field
    keys: str
    key: str  # the column of the keys
    fields: set[str] = field(default_factory=set)  # that are wanted


Step = Relation | Keys | Fetch


@dataclass(frozen=True, kw_only=True)
class Program:
    """Steps in an order in which each uses only those before it, and the query that ends it."""

    steps: tuple[Step, ...]
    query: exp.Query
    numbers: Mapping[str, int]  # of the sources

    def tables(self) -> set[str]:
        """Everything that it refers to by name, steps included."""
        found = names_in(self.query)
        for step in self.steps:
            found |= {step.keys} if isinstance(step, Fetch) else names_in(step.query)
        return found


def as_one_query(program: Program) -> exp.Query:
    """The whole program as one query, for engines that need no help."""
    query = program.query.copy()
    for step in program.steps:
        body = fetch_query(step, program.numbers) if isinstance(step, Fetch) else step.query.copy()
        query = query.with_(step.name, as_=body, copy=False)
    return query


def fetch_query(step: Fetch, numbers: Mapping[str, int]) -> exp.Select:
    """A fetch as a query."""
    fields = [
        exp.column(exp.to_identifier(name, quoted=True), table="t") for name in sorted(step.fields)
    ]
    source = exp.alias_(
        exp.to_table(f"{step.state}_{numbers[step.source]}"), "t", table=True, copy=False
    )
    same = exp.NullSafeEQ(
        this=exp.column(exp.to_identifier(step.own, quoted=True), table="t"),
        expression=exp.column(step.key, table="k"),
    )
    keys = exp.select(exp.column(step.key)).distinct(copy=False).from_(step.keys, copy=False)
    made = exp.select(*fields).from_(source, copy=False)
    join = exp.Join(
        this=exp.Subquery(this=keys, alias=_alias("k")), side="LEFT", kind="SEMI", on=same
    )
    made.append("joins", join)
    return made


class Builder:
    """Builds the queries of one refresh."""

    def __init__(
        self,
        sources: Sequence[str],
        changed: Iterable[str],
        *,
        keys: Mapping[str, Sequence[str]] | None = None,
        sideways: bool = True,
    ) -> None:
        """`changed` are the sources with changes; `keys` the fields of their primary keys."""
        self.numbers = {source: number for number, source in enumerate(sources)}
        self.changed = frozenset(changed)
        self.source_keys = dict(keys or {})
        # Whether what has been read of one input limits what is read of the next.
        self.sideways = sideways
        self._steps: dict[str, Step] = {}
        self._names: dict[str, str] = {}
        self._deltas: dict[int, exp.Query | None] = {}
        self._nodes: list[Node] = []  # kept alive: memory is by identity

    # --- the rules, by node -----------------------------------------------------------------

    def is_changed(self, node: Node) -> bool:
        return any(scan.source in self.changed for scan in node.scans)

    def rows(self, node: Node, state: State, within: Within | None = None) -> exp.Query:
        """The rows of a node at one end; with `within`, at least those that have the keys.

        Rows beside those may be among them, but then as often as without the limit.
        """
        from tailrace.views.rules import rule_of

        return rule_of(node).rows(self, node, state, within)

    def delta(self, node: Node) -> exp.Query | None:
        """What came and went of a node's rows, with `_w`; None if nothing can have."""
        from tailrace.views.rules import rule_of

        if id(node) not in self._deltas:
            self._nodes.append(node)
            found = rule_of(node).delta(self, node) if self.is_changed(node) else None
            self._deltas[id(node)] = found
        query = self._deltas[id(node)]
        return None if query is None else query.copy()

    def touched(self, node: Node, columns: Sequence[str]) -> list[exp.Query]:
        """Queries for the values of columns in all rows of a node that came or went, at least."""
        from tailrace.views.rules import rule_of

        if not self.is_changed(node):
            return []
        unique = list(dict.fromkeys(columns))
        found = rule_of(node).touched(self, node, unique)
        if len(unique) == len(columns):
            return found
        # The same column twice, as two of a node above: under names of their own.
        made: list[exp.Query] = []
        for query in found:
            names = [item.alias_or_name for item in query.selects]
            shown = [
                exp.alias_(column_of(names[unique.index(column)]), f"x{n}", copy=False)
                for n, column in enumerate(columns)
            ]
            inner = exp.Subquery(this=query, alias=_alias("q"))
            made.append(exp.select(*shown).from_(inner, copy=False))
        return made

    # --- steps ------------------------------------------------------------------------------

    def relation(self, query: exp.Query, hint: str = "r") -> str:
        """The name of a query that is used more than once."""
        return self._step(hint, query, lambda name: Relation(name=name, query=query))

    def keys(self, parts: Sequence[exp.Query], count: int) -> str:
        """The name of the different values that some queries have, in columns k0, k1, …."""
        columns = tuple(f"k{n}" for n in range(count))
        unique = {part.sql("spark"): part for part in parts}
        selects = []
        for part in unique.values():
            names = [item.alias_or_name for item in part.selects]
            items = [
                exp.alias_(column_of(old), new, copy=False)
                for old, new in zip(names, columns, strict=True)
            ]
            selects.append(
                exp.select(*items).from_(exp.Subquery(this=part, alias=_alias("q")), copy=False)
            )
        every: exp.Query = selects[0]
        for other in selects[1:]:
            every = exp.union(every, other, distinct=False, copy=False)
        query = (
            exp.select(*(column_of(c) for c in columns))
            .distinct(copy=False)
            .from_(exp.Subquery(this=every, alias=_alias("q")), copy=False)
        )
        return self._step("k", query, lambda name: Keys(name=name, query=query, columns=columns))

    def fetch(self, scan: Scan, state: State, column: str, keys: str, key: str) -> str:
        """The name of the rows of a source that have one of the keys."""
        own = scan.fields[scan.columns.index(column)]
        text = f"{scan.source} {state} {own} {keys} {key}"
        if text not in self._names:
            name = self._names[text] = f"f{len(self._names)}"
            self._steps[name] = Fetch(
                name=name, source=scan.source, state=state, own=own, keys=keys, key=key
            )
        step = self._steps[self._names[text]]
        assert isinstance(step, Fetch)
        step.fields |= {*scan.fields, *self.source_keys.get(scan.source, ())}
        return step.name

    def leaf(self, source: str, what: str) -> exp.Table:
        """A source: `new`, `old` or `delta`."""
        return exp.to_table(f"{what}_{self.numbers[source]}")

    def _step(self, hint: str, query: exp.Query, make: Callable[[str], Step]) -> str:
        text = f"{hint} {query.sql('spark')}"
        if text not in self._names:
            name = self._names[text] = f"{hint}{len(self._names)}"
            self._steps[name] = make(name)
        return self._names[text]

    def is_direct(self, queries: Iterable[exp.Query]) -> bool:
        """Whether queries need nothing but the changes of sources."""
        waiting = {name for query in queries for name in names_in(query)}
        while waiting:
            name = waiting.pop()
            step = self._steps.get(name)
            if step is None:
                if not name.startswith("delta_"):
                    return False
            elif isinstance(step, Fetch):
                return False
            else:
                waiting |= names_in(step.query)
        return True

    def program(self, query: exp.Query, also: Iterable[str] = ()) -> Program:
        """The steps that a query needs, and the query; `also` names steps that are wanted too."""
        needed: dict[str, Step] = {}

        def need(names: Iterable[str]) -> None:
            for name in names:
                step = self._steps.get(name)
                if step is None or name in needed:
                    continue
                need([step.keys] if isinstance(step, Fetch) else sorted(names_in(step.query)))
                needed[name] = step

        need([*sorted(names_in(query)), *also])
        return Program(steps=tuple(needed.values()), query=query, numbers=self.numbers)


def names_in(query: exp.Expr) -> set[str]:
    """The relations that a query refers to."""
    return {table.name for table in query.find_all(exp.Table)}


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name))
