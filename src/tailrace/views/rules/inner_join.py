"""Inner joins: a term for each input that changed.

Term i joins the change of input i with the inputs before it as they are at the end, and the
inputs after it as they were at the start; the terms add up to the change of the join. Inputs are
joined in an order in which each is connected with one before it and, read by the keys that
were found there, needs not be read as a whole.

If an input that changed is itself an aggregate or the like, and one column that all inputs with
changes are joined by is known from their changes, the join is computed before and after for those
values instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from tailrace.views.plan import Filter, InnerJoin, JoinKind, KeyJoin, Node
from tailrace.views.program import WEIGHT, Builder, State, Within
from tailrace.views.rules.filter import is_simple
from tailrace.views.rules.rule import (
    Rule,
    affected,
    difference,
    from_query,
    items,
    only_with,
    sub,
    union_all,
)
from tailrace.views.scope import all_of, columns_in


@dataclass
class _Placed:
    """An input that has its place in the order."""

    part: Node
    query: exp.Query
    narrow: bool  # whether a condition leaves few of its rows


@dataclass
class _Chain:
    """Inputs in the order in which they are joined."""

    placed: list[_Placed] = field(default_factory=list)

    @property
    def columns(self) -> set[str]:
        return {column for one in self.placed for column in one.part.columns}


class InnerJoinRule(Rule):
    """See the module."""

    # --- rows -------------------------------------------------------------------------------

    def rows(self, b: Builder, node: InnerJoin, state: State, within: Within | None) -> exp.Query:
        if within is None:
            queries = [
                (part, b.rows(part, state)) for part in self._connected(node, [], narrow=False)
            ]
            return self._joined(node, queries, None)
        same = _classes(node)
        chain = _Chain()
        held = {
            part: found
            for part in node.parts
            if (found := self._within(part, within, same)) is not None
        }
        # Inputs that have the keys first, of those the ones with the fewest rows.
        first = sorted(held, key=lambda part: (b.is_changed(part), not _is_narrow(part)))
        for part in self._connected(node, first, narrow=True):
            limit = self._narrower(b, part, chain, same) or held.get(part)
            if limit is None:
                limit = self._sideways(b, part, chain, same)
            chain.placed.append(_Placed(part, b.rows(part, state, limit), _is_narrow(part)))
        made = self._joined(node, [(one.part, one.query) for one in chain.placed], None)
        covered = {own for own, _ in within.pairs} <= {
            c for part in held for c in _all_of(part, same)
        }
        return made if covered else only_with(made, within, node.columns)

    def _within(self, part: Node, within: Within, same: dict[str, frozenset[str]]) -> Within | None:
        own = set(part.columns)
        names = {
            column: min(same.get(column, frozenset({column})) & own)
            for column, _ in within.pairs
            if same.get(column, frozenset({column})) & own
        }
        return within.on(names)

    def _narrower(
        self, b: Builder, part: Node, chain: _Chain, same: dict[str, frozenset[str]]
    ) -> Within | None:
        """The keys of an input that a condition has made small, if this one is joined to it."""
        if not b.sideways:
            return None
        for one in reversed(chain.placed):
            if one.narrow and (found := self._keys_of(b, part, one, same)) is not None:
                return found
        return None

    def _sideways(
        self, b: Builder, part: Node, chain: _Chain, same: dict[str, frozenset[str]]
    ) -> Within | None:
        if not b.sideways:
            return None
        for one in reversed(chain.placed):
            if (found := self._keys_of(b, part, one, same)) is not None:
                return found
        return None

    def _keys_of(
        self, b: Builder, part: Node, one: _Placed, same: dict[str, frozenset[str]]
    ) -> Within | None:
        for column in one.part.columns:
            here = same.get(column, frozenset()) & set(part.columns)
            if here:
                limit = affected(b, [column], [from_query(one.query.copy(), [column])])
                return limit.on({column: min(here)})
        return None

    # --- change -----------------------------------------------------------------------------

    def delta(self, b: Builder, node: InnerJoin) -> exp.Query:
        changed = [part for part in node.parts if b.is_changed(part)]
        if not all(is_simple(part) for part in changed):
            limit = self._common_keys(b, node, changed)
            if limit is not None:
                return difference(b, node, limit)
        return union_all([self._term(b, node, part) for part in changed])

    def _common_keys(self, b: Builder, node: InnerJoin, changed: Sequence[Node]) -> Within | None:
        """Values of a column that all changed inputs are joined by, if changes tell them."""
        for members in dict.fromkeys(_classes(node).values()):
            parts: list[exp.Query] = []
            for part in changed:
                here = members & set(part.columns)
                found = b.touched(part, [min(here)]) if here else []
                if not found or not b.is_direct(found):
                    break
                parts += found
            else:
                return affected(b, [min(members & set(node.columns))], parts)
        return None

    def _term(self, b: Builder, node: InnerJoin, changed: Node) -> exp.Query:
        delta = b.delta(changed)
        assert delta is not None
        same = _classes(node)
        if not is_simple(changed):
            delta = exp.select(*items([*changed.columns, WEIGHT])).from_(
                b.relation(delta, "d"), copy=False
            )
        chain = _Chain([_Placed(changed, delta, _is_narrow(changed))])
        place = node.parts.index(changed)
        for part in self._connected(node, [changed], narrow=True)[1:]:
            state = State.NEW if node.parts.index(part) < place else State.OLD
            limit = self._narrower(b, part, chain, same) or self._sideways(b, part, chain, same)
            chain.placed.append(_Placed(part, b.rows(part, state, limit), _is_narrow(part)))
        return self._joined(node, [(one.part, one.query) for one in chain.placed], WEIGHT)

    def touched(self, b: Builder, node: InnerJoin, columns: Sequence[str]) -> list[exp.Query]:
        same = _classes(node)
        found: list[exp.Query] = []
        for part in node.parts:
            if not b.is_changed(part):
                continue
            own = set(part.columns)
            names = [same.get(column, frozenset({column})) & own for column in columns]
            if all(names):
                here = [min(name) for name in names]
                found += self._touched_narrowly(b, node, part, here) or b.touched(part, here)
            elif is_simple(part) or b.delta(part) is not None:
                # Also with the others as they were before: a term has each at one end only.
                found += self._touched_through(b, node, part, columns)
        return found

    def _touched_narrowly(
        self, b: Builder, node: InnerJoin, changed: Node, columns: Sequence[str]
    ) -> list[exp.Query]:
        """The same, but only where an input that a condition has made small has a partner.

        Nothing if there is no such input, or it changed, or the change does not tell what it is
        joined by: then the columns alone have to do.
        """
        same = _classes(node)
        if len(set(columns)) < len(columns):
            return []
        for other in node.parts:
            if is_simple(changed) or not b.sideways or b.is_changed(other) or not _is_narrow(other):
                continue
            pairs = {
                min(members & set(changed.columns)): min(members & set(other.columns))
                for members in dict.fromkeys(same.values())
                if members & set(changed.columns) and members & set(other.columns)
            }
            wanted = list(dict.fromkeys([*columns, *pairs]))
            parts = b.touched(changed, wanted) if pairs else []
            if not parts or not b.is_direct(parts):
                continue
            limit = affected(b, wanted, parts)
            keys = {own: key for own, key in limit.pairs if own in pairs}
            near = Within(keys=limit.keys, pairs=tuple((pairs[c], k) for c, k in keys.items()))
            rows = b.rows(other, State.NEW, near)
            return [_with_partner(limit, rows, dict(near.pairs), columns)]
        return []

    def _touched_through(
        self, b: Builder, node: InnerJoin, changed: Node, columns: Sequence[str]
    ) -> list[exp.Query]:
        """Through the inputs between the one that changed and those that have the columns."""
        found: list[exp.Query] = []
        same = _classes(node)
        for state in (State.NEW, State.OLD):
            chain = _Chain(
                [_Placed(changed, from_query(_or_fail(b.delta(changed)), changed.columns), True)]
            )
            order = self._connected(node, [changed], narrow=True)[1:]
            for part in order:
                if set(columns) <= chain.columns:
                    break
                limit = self._sideways(b, part, chain, same)
                chain.placed.append(_Placed(part, b.rows(part, state, limit), _is_narrow(part)))
            pairs = [(one.part, one.query) for one in chain.placed]
            found.append(from_query(self._joined(node, pairs, None), columns))
            if not any(b.is_changed(one.part) for one in chain.placed[1:]):
                break
        return found

    # --- order and text ---------------------------------------------------------------------

    def _connected(self, node: InnerJoin, first: Sequence[Node], *, narrow: bool) -> list[Node]:
        """All inputs: the given ones first, then each that is joined to one before it."""
        order = list(first[:1] if first else node.parts[:1])
        waiting = [part for part in (*first, *node.parts) if part not in order]
        waiting = list(dict.fromkeys(waiting))
        while waiting:
            known = {column for part in order for column in part.columns}

            def rank(part: Node, known: set[str] = known) -> tuple[bool, bool, bool]:
                linked = any(_links(condition, known, part) for condition in node.conditions)
                return not linked, part not in first, narrow and not _is_narrow(part)

            nearest = min(waiting, key=rank)
            waiting.remove(nearest)
            order.append(nearest)
        return order

    def _joined(
        self, node: InnerJoin, queries: Sequence[tuple[Node, exp.Query]], weight: str | None
    ) -> exp.Select:
        columns = [column for part, _ in queries for column in part.columns]
        if len(queries) == len(node.parts):
            columns = list(node.columns)
        made = exp.select(*items([*columns, weight] if weight else columns))
        known: set[str] = set()
        waiting = list(node.conditions)
        for number, (part, query) in enumerate(queries):
            known |= set(part.columns)
            ready = [c for c in waiting if columns_in(c) <= known]
            waiting = [c for c in waiting if c not in ready]
            if number == 0:
                made = made.from_(sub(query, "j0"), copy=False)
                if ready:
                    made = made.where(all_of(ready), copy=False)
                continue
            join = exp.Join(this=sub(query, f"j{number}"))
            if ready:
                join.set("on", all_of(ready))
            else:
                join.set("kind", "CROSS")
            made.append("joins", join)
        return made


def _with_partner(
    limit: Within, rows: exp.Query, pairs: dict[str, str], columns: Sequence[str]
) -> exp.Query:
    """Of keys, the columns of those that rows have."""
    own = dict(limit.pairs)
    same = [
        exp.EQ(
            this=exp.column(exp.to_identifier(key), table="k"),
            expression=exp.column(exp.to_identifier(column), table="q"),
        )
        for column, key in pairs.items()
    ]
    shown = [
        exp.alias_(exp.column(exp.to_identifier(own[column]), table="k"), column, copy=False)
        for column in columns
    ]
    made = exp.select(*shown).from_(
        exp.alias_(exp.to_table(limit.keys), "k", table=True, copy=False), copy=False
    )
    made.append("joins", exp.Join(this=sub(rows), side="LEFT", kind="SEMI", on=all_of(same)))
    return made


def _or_fail(query: exp.Query | None) -> exp.Query:
    assert query is not None
    return query


def _classes(node: InnerJoin) -> dict[str, frozenset[str]]:
    """For each column that is compared for equality, all columns that are equal to it."""
    groups: list[set[str]] = []
    for condition in node.conditions:
        if (
            isinstance(condition, exp.EQ)
            and isinstance(condition.left, exp.Column)
            and isinstance(condition.right, exp.Column)
        ):
            pair = {condition.left.name, condition.right.name}
            joined = [group for group in groups if group & pair]
            groups = [group for group in groups if not group & pair]
            groups.append(pair.union(*joined))
    return {column: frozenset(group) for group in groups for column in group}


def _all_of(part: Node, same: dict[str, frozenset[str]]) -> set[str]:
    return {c for column in part.columns for c in same.get(column, frozenset({column}))}


def _links(condition: exp.Expr, known: set[str], part: Node) -> bool:
    used = columns_in(condition)
    own = used & set(part.columns)
    return bool(own) and bool(used & known) and used <= known | set(part.columns)


def _is_narrow(part: Node) -> bool:
    """Whether a condition on a table is likely to leave few of its rows."""
    while not isinstance(part, Filter):
        if isinstance(part, KeyJoin) and part.kind is JoinKind.SEMI:
            return _is_narrow(part.right)
        if len(part.inputs) != 1:
            return False
        part = part.inputs[0]
    likely = part.condition.find_all(exp.EQ, exp.In, exp.Like)
    return is_simple(part) and any(not tree.args.get("negate") for tree in likely)
