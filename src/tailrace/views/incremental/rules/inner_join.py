"""Inner joins: a term for each input that changed.

Term i joins the change of input i with the inputs before it as they are at the end, and the
inputs after it as they were at the start; the terms add up to the change of the join. Inputs are
joined in an order in which each is connected with an earlier one, so that it is read by the keys
found there and not as a whole. If many inputs changed, the terms share what they read (`_Tree`).

If a changed input is itself an aggregate or the like, and the changes alone tell the values of one
column that joins all changed inputs, the join is computed before and after for those values
instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from tailrace.views.incremental.program import WEIGHT, Builder, End, Within
from tailrace.views.incremental.rules.base import Rule, affected, difference, only_with
from tailrace.views.query.plan import Filter, InnerJoin, JoinKind, KeyJoin, Node
from tailrace.views.query.trees import (
    all_of,
    column_of,
    from_query,
    items,
    named,
    select,
    sub,
    table,
    union_all,
)

# Up to so many changed inputs, each term reads what it needs for itself.
_FEW = 2
_NONE: frozenset[str] = frozenset()


@dataclass
class _Placed:
    """An input that has its place in the order."""

    part: Node
    narrow: bool  # whether a condition leaves few of its rows
    end: End | None = None  # None: its delta
    limit: Within | None = None

    def rows(self, b: Builder, columns: Sequence[str] | None = None) -> exp.Query:
        if self.end is not None:
            return b.rows(self.part, self.end, self.limit, columns)
        delta = b.delta(self.part, columns)
        assert delta is not None
        return delta

    def values(self, b: Builder, column: str) -> exp.Query:
        """One column."""
        return from_query(self.rows(b, [column]), [column])


class _Tree:
    """The inputs of a join as a tree in which neighbours are joined by a column of each.

    Each neighbour sends the other a message: all values of that column in rows on its side that a
    change can reach, whichever input changed. So whatever rows a term needs of an input have
    values from the message that came from the side of the term's change, and a pair of neighbours
    exchanges two messages, however many terms there are.
    """

    def __init__(
        self,
        b: Builder,
        node: InnerJoin,
        order: Sequence[Node],
        links: dict[Node, tuple[Node, str, str]],
    ) -> None:
        """`links` has for an input an earlier one, that one's column, and its own."""
        self._b, self._node = b, node
        # By input and neighbour, the columns that they are joined by.
        self._near: dict[Node, dict[Node, tuple[str, str]]] = {part: {} for part in order}
        for part, (other, theirs, own) in links.items():
            self._near[part][other] = (own, theirs)
            self._near[other][part] = (theirs, own)
        # By sender and receiver; None if no change leads to the sender.
        self._limits: dict[tuple[Node, Node], Within | None] = {}
        # Towards the first input, then away from it. What is sent back is more than needed, but
        # the same for all receivers.
        for part in reversed(order[1:]):
            self._send(part, [links[part][0]])
        for part in order:
            others = [near for near in self._near[part] if (part, near) not in self._limits]
            self._send(part, others)

    def _send(self, sender: Node, receivers: Sequence[Node]) -> None:
        b = self._b
        columns = list(dict.fromkeys(self._near[sender][one][0] for one in receivers))
        placed = [_Placed(sender, False)] if b.is_changed(sender) else []
        for other in self._near[sender]:
            limit = self._limits.get((other, sender))
            if limit is not None:
                placed.append(_Placed(sender, False, End.NEW, limit))
                if b.is_changed(sender):
                    placed.append(_Placed(sender, False, End.OLD, limit))

        def every() -> exp.Query:
            return union_all([from_query(one.rows(b, columns), columns) for one in placed])

        for receiver in receivers:
            if not placed:
                self._limits[sender, receiver] = None
                continue
            own, theirs = self._near[sender][receiver]
            name = b.relation((self, sender, receivers[0]), every)
            limit = affected(b, [own], [select(items([own]), table(name))])
            self._limits[sender, receiver] = limit.on({own: theirs})

    def term(self, changed: Node) -> list[_Placed]:
        """The change of one input, and then what is read of the others."""
        placed = [_Placed(changed, False)]
        reached_from = {changed: changed}
        place = self._node.parts.index(changed)
        for one in placed:
            for part in self._near[one.part]:
                if part not in reached_from:
                    reached_from[part] = one.part
                    end = End.NEW if self._node.parts.index(part) < place else End.OLD
                    placed.append(_Placed(part, False, end, self._limits[one.part, part]))
        return placed


class InnerJoinRule(Rule):
    """See the module."""

    # --- rows -------------------------------------------------------------------------------

    def rows(self, b: Builder, node: InnerJoin, end: End, within: Within | None) -> exp.Query:
        if within is None:
            order = self._connected(node, [], narrow=False)
            return self._joined(b, node, [_Placed(part, False, end) for part in order], None)
        same = node.equal
        placed: list[_Placed] = []
        held = {
            part: limit
            for part in node.parts
            if (limit := self._within(part, within, same)) is not None
        }
        # First the inputs that have the keys, of these the ones with the fewest rows.
        first = sorted(held, key=lambda part: (b.is_changed(part), not _is_narrow(part)))
        for part in self._connected(node, first, narrow=True):
            narrow = [one for one in placed if one.narrow]
            limit = self._sideways(b, part, narrow, same) or held.get(part)
            if limit is None:
                limit = self._sideways(b, part, placed, same)
            placed.append(_Placed(part, _is_narrow(part), end, limit))
        joined = self._joined(b, node, placed, None)
        covered = {own for own, _ in within.pairs} <= {
            c for part in held for c in _all_of(part, same)
        }
        return joined if covered else only_with(joined, within, node.columns)

    def _within(self, part: Node, within: Within, same: dict[str, frozenset[str]]) -> Within | None:
        own = set(part.columns)
        names = {
            column: min(same.get(column, frozenset({column})) & own)
            for column, _ in within.pairs
            if same.get(column, frozenset({column})) & own
        }
        return within.on(names)

    def _sideways(
        self, b: Builder, part: Node, placed: Sequence[_Placed], same: dict[str, frozenset[str]]
    ) -> Within | None:
        """The keys of an input that this one is joined to, the last of those."""
        for one in reversed(placed) if b.sideways else ():
            for own in one.part.columns:
                here = same.get(own, _NONE) & set(part.columns)
                if here:
                    limit = affected(b, [own], [one.values(b, own)], _few(b, one.part, own))
                    return limit.on({own: min(here)})
        return None

    # --- change -----------------------------------------------------------------------------

    def delta(self, b: Builder, node: InnerJoin) -> exp.Query:
        changed = [part for part in node.parts if b.is_changed(part)]
        if not all(part.is_simple for part in changed):
            limit = self._common_keys(b, node, changed)
            if limit is not None:
                return difference(b, node, limit)
        if len(changed) > _FEW and b.sideways and (tree := self._tree(b, node)) is not None:
            return union_all([self._joined(b, node, tree.term(one), WEIGHT) for one in changed])
        return union_all([self._term(b, node, part) for part in changed])

    def _tree(self, b: Builder, node: InnerJoin) -> _Tree | None:
        """None if an input is not joined to an earlier one by a column of each."""
        order = self._connected(node, [], narrow=True)
        links: dict[Node, tuple[Node, str, str]] = {}
        for place, part in enumerate(order):
            for other in reversed(order[:place]):
                both = [c for c in other.columns if node.equal.get(c, _NONE) & set(part.columns)]
                if both:
                    here = min(node.equal[both[0]] & set(part.columns))
                    links[part] = (other, both[0], here)
                    break
        return _Tree(b, node, order, links) if len(links) == len(order) - 1 else None

    def _common_keys(self, b: Builder, node: InnerJoin, changed: Sequence[Node]) -> Within | None:
        """The values of a column that joins all changed inputs, if the changes tell them."""
        for members in dict.fromkeys(node.equal.values()):
            here = [members & set(part.columns) for part in changed]
            if all(
                own and b.tells(part, [min(own)]) for part, own in zip(changed, here, strict=True)
            ):
                parts = [
                    query
                    for part, own in zip(changed, here, strict=True)
                    for query in b.touched(part, [min(own)])
                ]
                return affected(b, [min(members & set(node.columns))], parts)
        return None

    def _term(self, b: Builder, node: InnerJoin, changed: Node) -> exp.Query:
        same = node.equal
        placed = [_Placed(changed, _is_narrow(changed))]
        place = node.parts.index(changed)
        for part in self._connected(node, [changed], narrow=True)[1:]:
            end = End.NEW if node.parts.index(part) < place else End.OLD
            by_rows = sorted(placed, key=lambda one: one.narrow)  # those with few rows are last
            limit = self._sideways(b, part, by_rows, same)
            placed.append(_Placed(part, _is_narrow(part), end, limit))
        return self._joined(b, node, placed, WEIGHT)

    def touched(self, b: Builder, node: InnerJoin, columns: Sequence[str]) -> list[exp.Query]:
        queries: list[exp.Query] = []
        through: list[Node] = []
        for part in node.parts:
            if not b.is_changed(part):
                continue
            own = set(part.columns)
            names = [node.equal.get(column, frozenset({column})) & own for column in columns]
            if all(names):
                here = [min(name) for name in names]
                queries += self._touched_narrowly(b, node, part, here) or b.touched(part, here)
            else:
                through.append(part)
        if len(through) > _FEW:
            return super().touched(b, node, columns)
        for part in through:
            # At both ends of the others: a term has each at one end only.
            queries += self._touched_through(b, node, part, columns)
        return queries

    def tells(self, b: Builder, node: InnerJoin, columns: Sequence[str]) -> bool:
        for part in node.parts:
            if not b.is_changed(part):
                continue
            own = set(part.columns)
            names = [node.equal.get(column, frozenset({column})) & own for column in columns]
            here = [min(name) for name in names if name]
            if (
                len(here) < len(columns)
                or self._narrow_partner(b, node, part, here) is not None
                or not b.tells(part, here)
            ):
                return False
        return True

    def _touched_narrowly(
        self, b: Builder, node: InnerJoin, changed: Node, columns: Sequence[str]
    ) -> list[exp.Query]:
        """The same, but only for rows with a partner in an input that a condition makes small.

        Nothing if there is no such input.
        """
        partner = self._narrow_partner(b, node, changed, columns)
        if partner is None:
            return []
        other, pairs = partner
        wanted = list(dict.fromkeys([*columns, *pairs]))
        limit = affected(b, wanted, b.touched(changed, wanted))
        keys = {own: key for own, key in limit.pairs if own in pairs}
        near = Within(keys=limit.keys, pairs=tuple((pairs[c], k) for c, k in keys.items()))
        rows = b.rows(other, End.NEW, near)
        return [_with_partner(limit, rows, dict(near.pairs), columns)]

    def _narrow_partner(
        self, b: Builder, node: InnerJoin, changed: Node, columns: Sequence[str]
    ) -> tuple[Node, dict[str, str]] | None:
        """An unchanged input that a condition makes small, and the columns that join it.

        None, too, if the change does not tell the values of these columns.
        """
        if changed.is_simple or not b.sideways or len(set(columns)) < len(columns):
            return None
        own = set(changed.columns)
        for other in node.parts:
            if b.is_changed(other) or not _is_narrow(other):
                continue
            pairs = {
                min(members & own): min(members & set(other.columns))
                for members in dict.fromkeys(node.equal.values())
                if members & own and members & set(other.columns)
            }
            if pairs and b.tells(changed, [*columns, *pairs]):
                return other, pairs
        return None

    def _touched_through(
        self, b: Builder, node: InnerJoin, changed: Node, columns: Sequence[str]
    ) -> list[exp.Query]:
        """Through the inputs between the one that changed and those that have the columns."""
        queries: list[exp.Query] = []
        same = node.equal
        for end in (End.NEW, End.OLD):
            placed = [_Placed(changed, True)]
            missing = set(columns) - set(changed.columns)
            for part in self._connected(node, [changed], narrow=True)[1:]:
                if not missing:
                    break
                limit = self._sideways(b, part, placed, same)
                placed.append(_Placed(part, _is_narrow(part), end, limit))
                missing -= set(part.columns)
            queries.append(from_query(self._joined(b, node, placed, None), columns))
            if not any(b.is_changed(one.part) for one in placed[1:]):
                break
        return queries

    # --- order and text ---------------------------------------------------------------------

    def _connected(self, node: InnerJoin, first: Sequence[Node], *, narrow: bool) -> list[Node]:
        """All inputs: the given ones first, then each that is joined to an earlier one."""
        order = list(first[:1] if first else node.parts[:1])
        waiting = [part for part in dict.fromkeys((*first, *node.parts)) if part not in order]
        own = {part: set(part.columns) for part in node.parts}
        after = {part: (part not in first, narrow and not _is_narrow(part)) for part in waiting}
        known = set(order[0].columns)
        while waiting:
            used = [columns for columns in node.used if columns & known]

            def rank(
                part: Node,
                known: set[str] = known,
                used: Sequence[frozenset[str]] = used,
            ) -> tuple[bool, tuple[bool, bool]]:
                linked = any(c & own[part] and c <= known | own[part] for c in used)
                return not linked, after[part]

            nearest = min(waiting, key=rank)
            waiting.remove(nearest)
            order.append(nearest)
            known |= own[nearest]
        return order

    def _joined(
        self, b: Builder, node: InnerJoin, placed: Sequence[_Placed], weight: str | None
    ) -> exp.Select:
        columns = [column for one in placed for column in one.part.columns]
        if len(placed) == len(node.parts):
            columns = list(node.columns)
        shown = items([*columns, weight] if weight else columns)
        joined = select(shown, sub(placed[0].rows(b), "j0"))
        known: set[str] = set()
        waiting = list(zip(node.conditions, node.used, strict=True))
        for number, one in enumerate(placed):
            known |= set(one.part.columns)
            ready = [condition for condition, used in waiting if used <= known]
            waiting = [(condition, used) for condition, used in waiting if not used <= known]
            if number == 0:
                if ready:
                    joined = joined.where(all_of(ready), copy=False)
                continue
            join = exp.Join(this=sub(one.rows(b), f"j{number}"))
            if ready:
                join.set("on", all_of(ready))
            else:
                join.set("kind", "CROSS")
            joined.append("joins", join)
        return joined


def _with_partner(
    limit: Within, rows: exp.Query, pairs: dict[str, str], columns: Sequence[str]
) -> exp.Query:
    """The columns of those keys that some rows have."""
    own = dict(limit.pairs)
    same = [
        exp.EQ(this=column_of(key, "k"), expression=column_of(name, "q"))
        for name, key in pairs.items()
    ]
    query = select([named(column_of(own[c], "k"), c) for c in columns], table(limit.keys, "k"))
    query.append("joins", exp.Join(this=sub(rows), side="LEFT", kind="SEMI", on=all_of(same)))
    return query


def _all_of(part: Node, same: dict[str, frozenset[str]]) -> set[str]:
    return {c for column in part.columns for c in same.get(column, frozenset({column}))}


def _few(b: Builder, part: Node, own: str) -> exp.Query | None:
    """All values of a column, if a condition on a table that has not changed leaves few."""
    if isinstance(part, KeyJoin) and part.kind is JoinKind.SEMI:
        others = dict(part.pairs)
        return _few(b, part.right, others[own]) if own in others else _few(b, part.left, own)
    if b.is_changed(part) or not part.is_simple or not _is_narrow(part):
        return None
    return from_query(b.rows(part, End.NEW, None, [own]), [own]).distinct(copy=False)


def _is_narrow(part: Node) -> bool:
    """Whether a condition is likely to leave few rows of a table."""
    while not isinstance(part, Filter):
        if isinstance(part, KeyJoin) and part.kind is JoinKind.SEMI:
            return _is_narrow(part.right)
        if len(part.inputs) != 1:
            return False
        part = part.inputs[0]
    likely = part.condition.find_all(exp.EQ, exp.In, exp.Like)
    return part.is_simple and any(not tree.args.get("negate") for tree in likely)
