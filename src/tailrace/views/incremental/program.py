"""A program: the named steps that compute how a result changes.

Owned here: the names of what a program reads, and its steps. For source number n, `new_n` and
`old_n` are its rows at the two ends of the range, and `delta_n` what was inserted (`_w` = 1) and
deleted (`_w` = -1) between. The rules (`rules/`) build queries over these names; a `Builder`
keeps the steps that several of them share.

Whatever rules ask of a node is one step, however often they ask, so a program grows with the plan
and not with the number of paths through it. A step that is used once becomes part of its user in
the end (`inlined`).

Always true: the value of a step is a bag of rows, whoever computes it and when. So a step can be
computed first and kept, or be part of one large query: `execution` decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from sqlglot import exp

from tailrace.views.query.optimize import pruned
from tailrace.views.query.plan import Node, Scan
from tailrace.views.query.trees import (
    column_of,
    from_query,
    names_in,
    select,
    shape,
    sub,
    table,
    tables_in,
    union_all,
    whole,
)

if TYPE_CHECKING:
    from tailrace.views.incremental.rules.base import Rule

WEIGHT = "_w"
# The deepest nesting of SELECTs up to which a step becomes part of its user: engines and the writer
# of SQL walk trees by recursion.
_MOST_NESTED = 20


class End(StrEnum):
    """Which end of the range a source is read at."""

    NEW = "new"
    OLD = "old"


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """What programs read of a source: its rows at one end of the range, or its delta."""

    source: str
    number: int  # of the source
    end: End | None = None  # None: the delta, with `_w`

    @property
    def name(self) -> str:
        """Its name in queries."""
        return f"{self.end or 'delta'}_{self.number}"


def leaves_of(sources: Iterable[str]) -> dict[str, Leaf]:
    """All leaves of sources in the order of their numbers, by their names."""
    leaves = [
        Leaf(source=source, number=number, end=end)
        for number, source in enumerate(sources)
        for end in (End.NEW, End.OLD, None)
    ]
    return {leaf.name: leaf for leaf in leaves}


@dataclass(frozen=True, kw_only=True)
class Within:
    """Only rows whose columns have values from a relation of keys."""

    keys: str
    pairs: tuple[tuple[str, str], ...]  # a column of the node, a column of the keys

    def on(self, names: Mapping[str, str]) -> Within | None:
        """The same under other names; None if no column has one."""
        pairs = tuple((names[own], key) for own, key in self.pairs if own in names)
        return Within(keys=self.keys, pairs=pairs) if pairs else None


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A query that several others use."""

    name: str
    query: exp.Query


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The distinct values of some columns: usually few, and worth knowing before the rest."""

    name: str
    query: exp.Query
    columns: tuple[str, ...]
    # All values that there can be whatever changes, if a condition leaves few.
    among: exp.Query | None = None


@dataclass(kw_only=True)
class Fetch:
    """The rows of a source in which a field has one of the values of a relation of keys."""

    name: str
    source: str
    end: End
    own: str  # the field
    keys: str
    key: str  # the column of the keys
    among: exp.Query | None = None  # see `Keys`
    fields: set[str] = field(default_factory=set)  # to read


Step = Relation | Keys | Fetch


@dataclass(frozen=True, kw_only=True)
class Program:
    """Steps, each of which uses only those before it, and the query that ends them."""

    steps: tuple[Step, ...]
    query: exp.Query
    sources: tuple[str, ...]  # in the order of their numbers

    def leaf(self, source: str, end: End | None) -> Leaf:
        """A leaf of one of its sources."""
        return Leaf(source=source, number=self.sources.index(source), end=end)

    def trees(self) -> list[exp.Query]:
        """The queries of all steps, and its own."""
        return [self.query, *(s.query for s in self.steps if not isinstance(s, Fetch))]

    def tables(self) -> set[str]:
        """Everything that it refers to by name, steps included."""
        names = names_in(self.query)
        for step in self.steps:
            names |= {step.keys} if isinstance(step, Fetch) else names_in(step.query)
        return names


def inlined(steps: Sequence[Step], query: exp.Query) -> tuple[list[Step], exp.Query]:
    """The same, with relations that are used once as parts of their users; takes the trees.

    So an engine sees as much at once as possible, and computes only once what is used more often.
    """
    trees = [query, *(step.query for step in steps if not isinstance(step, Fetch))]
    uses = Counter(relation.name for tree in trees for relation, _ in tables_in(tree))
    bodies: dict[str, tuple[exp.Query, int]] = {}
    left: list[Step] = []
    for step in steps:
        if isinstance(step, Fetch):
            left.append(step)
            continue
        body, depth = _with_bodies(step.query, bodies)
        if isinstance(step, Relation) and uses[step.name] == 1 and depth < _MOST_NESTED:
            bodies[step.name] = body, depth
        else:
            left.append(replace(step, query=body))
    return left, _with_bodies(query, bodies)[0]


def _with_bodies(
    query: exp.Query, bodies: Mapping[str, tuple[exp.Query, int]]
) -> tuple[exp.Query, int]:
    """A query with some relations written out, and how deep its SELECTs are nested then."""
    deepest = 0
    for one, depth in list(tables_in(query)):
        body, more = bodies.get(one.name, (None, 0))
        deepest = max(deepest, depth + more)
        if body is None:
            continue
        user = one.find_ancestor(exp.Select)
        if user is None or not _shows_all(user, body):
            one.replace(sub(body, one.alias or "q"))
        elif user is query:
            query = body
        else:
            user.replace(body)
    return query, deepest


def _shows_all(user: exp.Select, body: exp.Query) -> bool:
    """Whether a SELECT only shows a relation, and the relation's query can take its place."""
    if {name for name, value in user.args.items() if value} != {"expressions", "from_"}:
        return False
    if not isinstance(body, exp.Select) and isinstance(user.parent, exp.SetOperation):
        return False
    shown = [item.name for item in user.expressions if isinstance(item, exp.Column)]
    return shown == body.named_selects and len(shown) == len(user.expressions)


def _rule_of(node: Node) -> Rule:
    from tailrace.views.incremental.rules import RULES  # which are built from this module

    return RULES[type(node)]


class Builder:
    """Builds the queries of one refresh, and finally makes a program of them."""

    def __init__(
        self,
        sources: Sequence[str],
        changed: Iterable[str],
        *,
        keys: Mapping[str, Sequence[str]] | None = None,
        sideways: bool = True,
    ) -> None:
        """`changed` are the sources with changes; `keys` the fields of their primary keys."""
        self._sources = tuple(sources)
        self.changed = frozenset(changed)
        self.source_keys = dict(keys or {})
        # Whether the rows read of one input limit what is read of the next.
        self.sideways = sideways
        self._steps: dict[str, Step] = {}  # each uses only those before it
        # The names of steps, by what they are for or by their queries.
        self._names: dict[Hashable, str] = {}
        self._narrow: dict[tuple[Node, frozenset[str]], Node] = {}

    # --- the rules, by node -----------------------------------------------------------------

    def is_changed(self, node: Node) -> bool:
        return not self.changed.isdisjoint(node.sources)

    def rows(
        self,
        node: Node,
        end: End,
        within: Within | None = None,
        columns: Iterable[str] | None = None,
    ) -> exp.Query:
        """The rows of a node at one end; with `within`, at least those that have the keys.

        Other rows may be among them, but then as often as without the limit. `columns` are those
        that are needed; None for all.
        """
        if not self.is_changed(node):
            end = End.NEW
        if not node.sources:
            return _rule_of(node).rows(self, node, end, within)
        if node.is_simple and (end is End.NEW or within is None):
            if columns is not None:
                more = () if within is None else (own for own, _ in within.pairs)
                node = self._narrowed(node, {*columns, *more})
            return _rule_of(node).rows(self, node, end, within)
        name = self.relation(
            (node, end, within), lambda: _rule_of(node).rows(self, node, end, within)
        )
        return whole(name, node.columns)

    def delta(self, node: Node, columns: Iterable[str] | None = None) -> exp.Query | None:
        """The change of a node's rows, with `_w`; None if there can be none."""
        if not self.is_changed(node):
            return None
        if node.is_simple:
            node = node if columns is None else self._narrowed(node, columns)
            return _rule_of(node).delta(self, node)
        name = self.relation(node, lambda: _rule_of(node).delta(self, node), "d")
        return whole(name, [*node.columns, WEIGHT])

    def touched(self, node: Node, columns: Sequence[str]) -> list[exp.Query]:
        """Queries for the values of columns in all rows of a node that came or went, or in more."""
        if not self.is_changed(node):
            return []
        unique = list(dict.fromkeys(columns))
        queries = _rule_of(node).touched(self, node, unique)
        if len(unique) == len(columns):
            return queries
        # The same column twice, for two of a node above: give each a name of its own.
        renamed: list[exp.Query] = []
        for query in queries:
            names = [item.alias_or_name for item in query.selects]
            shown = [
                exp.alias_(column_of(names[unique.index(column)]), f"x{n}", copy=False)
                for n, column in enumerate(columns)
            ]
            renamed.append(select(shown, sub(query)))
        return renamed

    def tells(self, node: Node, columns: Sequence[str]) -> bool:
        """Whether `touched` needs nothing but the changes of sources."""
        unique = list(dict.fromkeys(columns))
        return not self.is_changed(node) or _rule_of(node).tells(self, node, unique)

    def tells_all(self, node: Node) -> bool:
        """Whether `delta` needs nothing but the changes of sources."""
        return not self.is_changed(node) or _rule_of(node).tells_all(self, node)

    def _narrowed(self, node: Node, columns: Iterable[str]) -> Node:
        """A node with only some of its columns."""
        key = (node, frozenset(columns))
        if key not in self._narrow:
            self._narrow[key] = pruned(node, set(columns))
        return self._narrow[key]

    # --- steps ------------------------------------------------------------------------------

    def relation(self, what: Hashable, make: Callable[[], exp.Query], hint: str = "r") -> str:
        """The name of a query, which is built when it is first asked for."""
        if what not in self._names:
            query = make()
            name = self._new_name(what, hint)
            self._steps[name] = Relation(name=name, query=query)
        return self._names[what]

    def keys(self, parts: Sequence[exp.Query], count: int, among: exp.Query | None = None) -> str:
        """The name of the distinct values of some queries, in columns k0, k1, …."""
        columns = tuple(f"k{n}" for n in range(count))
        unique = {shape(part): part for part in parts}
        what = ("k", *unique)
        if what in self._names:
            return self._names[what]
        selects: list[exp.Query] = []
        for part in unique.values():
            names = [item.alias_or_name for item in part.selects]
            named = [
                exp.alias_(column_of(old), new, copy=False)
                for old, new in zip(names, columns, strict=True)
            ]
            selects.append(select(named, sub(part)))
        query = from_query(union_all(selects), columns).distinct(copy=False)
        name = self._new_name(what, "k")
        self._steps[name] = Keys(name=name, query=query, columns=columns, among=among)
        return name

    def fetch(self, scan: Scan, end: End, column: str, keys: str, key: str) -> str:
        """The name of the rows of a source that have one of the keys."""
        own = scan.fields[scan.columns.index(column)]
        what = (scan.source, end, own, keys, key)
        if what not in self._names:
            name, known = self._new_name(what, "f"), self._steps.get(keys)
            among = known.among if isinstance(known, Keys) else None
            self._steps[name] = Fetch(
                name=name, source=scan.source, end=end, own=own, keys=keys, key=key, among=among
            )
        step = self._steps[self._names[what]]
        assert isinstance(step, Fetch)
        step.fields |= {*scan.fields, *self.source_keys.get(scan.source, ())}
        return step.name

    def leaf(self, source: str, end: End | None) -> exp.Table:
        """A source's rows at one end; without an end, its delta."""
        return table(Leaf(source=source, number=self._sources.index(source), end=end).name)

    def _new_name(self, what: Hashable, hint: str) -> str:
        return self._names.setdefault(what, f"{hint}{len(self._names)}")

    def program(self, query: exp.Query, also: Iterable[str] = ()) -> Program:
        """A query with the steps that it needs, and the steps in `also`."""
        needed: set[str] = set()
        waiting = [*names_in(query), *also]
        while waiting:
            step = self._steps.get(waiting.pop())
            if step is not None and step.name not in needed:
                needed.add(step.name)
                waiting += [step.keys] if isinstance(step, Fetch) else names_in(step.query)
        steps = [step for name, step in self._steps.items() if name in needed]
        steps, query = inlined(steps, query)
        return Program(steps=tuple(steps), query=query, sources=self._sources)
