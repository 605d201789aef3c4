"""Which way a refresh takes.

A cost is in rows that have to be read and computed, by what the catalog says of tables and
changes. What a row costs in each way is learned from the view's own last runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tailrace.errors import InvalidError
from tailrace.views.definition import Definition
from tailrace.views.layout import Layout, Way
from tailrace.views.plan import Aggregate, Limit, Node, Scan, SetOperation, Window
from tailrace.views.rules.filter import is_simple


class Strategy(StrEnum):
    """How a refresh was done."""

    BUILD = "build"  # the first time
    NOTHING = "nothing"  # no source changed
    APPEND = "append"  # rows only come, and are added
    MERGE = "merge"  # counts and sums of the affected groups are added up
    KEYS = "keys"  # rows with the affected keys are replaced
    ROWS = "rows"  # rows come and go by their values
    FULL = "full"  # all of it is computed, and the difference written


# A row of a change passes through several steps; a row of a table is read once.
_CHANGE_FACTOR = 6.0
# What a refresh costs before its first row, in rows: Spark decides more on the way in full.
_START, _START_FULL = 100_000.0, 300_000.0
# Beyond this share of its sources a change is computed anew.
_MUCH = 0.5


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a choice depends on."""

    sizes: Mapping[str, int]  # rows of each source
    changes: Mapping[str, int]  # changed rows of those that changed
    inserts_only: bool
    # By strategy, the cost and the seconds of the last run.
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    rebuild: bool = False  # the history since the watermark is gone
    moved: bool = False  # a function of the moment says something else


@dataclass(frozen=True, kw_only=True)
class Option:
    """One strategy, for `explain`."""

    strategy: Strategy
    possible: bool
    reason: str = ""
    cost: float | None = None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The strategy that is taken, and the others."""

    strategy: Strategy
    cost: float
    options: tuple[Option, ...] = ()


def choose(made: Definition, facts: Facts, policy: str) -> Choice:
    """The cheapest strategy that the policy allows."""
    options = list(options_of(made, facts))
    full = next(o for o in options if o.strategy is Strategy.FULL)
    others = [o for o in options if o.possible and o.strategy is not Strategy.FULL]
    if policy == "full":
        return Choice(strategy=Strategy.FULL, cost=full.cost or 0, options=tuple(options))
    if not others:
        if policy == "incremental":
            reasons = "; ".join(dict.fromkeys(o.reason for o in options if o.reason))
            raise InvalidError(f"this refresh cannot be incremental, as the policy asks: {reasons}")
        return Choice(strategy=Strategy.FULL, cost=full.cost or 0, options=tuple(options))
    best = min(others, key=lambda o: o.cost or 0)
    if policy == "auto" and _seconds(full, facts) < _seconds(best, facts):
        best = full
    return Choice(strategy=best.strategy, cost=best.cost or 0, options=tuple(options))


def _seconds(option: Option, facts: Facts) -> float:
    """What a strategy will take: by its last run if there was one, else in rows."""
    cost = option.cost or 0.0
    past = facts.history.get(str(option.strategy))
    rate = 1e-6
    if past and past[0] > 0:
        # One run is one measurement, which may have met a busy machine.
        rate = min(max(past[1] / past[0], 0.2e-6), 5e-6)
    return cost * rate


def options_of(made: Definition, facts: Facts) -> list[Option]:
    """Every strategy: whether it is possible, and what it would cost."""
    layout = made.layout
    total = float(sum(facts.sizes.values()))
    if layout is not None:
        total = sum(facts.sizes.get(scan.source, 0) for scan in layout.root.scans)
    full = Option(strategy=Strategy.FULL, possible=True, cost=_START_FULL + total)
    blocked = made.reason
    if facts.rebuild:
        blocked = "the changes since the last refresh are no longer kept"
    elif facts.moved:
        blocked = f"{', '.join(made.moments)} has moved on"
    ways = {Way.MERGE: Strategy.MERGE, Way.KEYS: Strategy.KEYS, Way.BAG: Strategy.ROWS}
    found = []
    for way, strategy in ways.items():
        reason = blocked or _not_this(layout, way)
        cost = None if reason or layout is None else _cost(layout, facts)
        found.append(Option(strategy=strategy, possible=not reason, reason=reason, cost=cost))
    reason = blocked or _no_append(layout, facts)
    cost = None
    if not reason and layout is not None:
        cost = _cost(layout, facts) * 0.9
    found.insert(0, Option(strategy=Strategy.APPEND, possible=not reason, reason=reason, cost=cost))
    return [*found, full]


def _not_this(layout: Layout | None, way: Way) -> str:
    if layout is None or layout.way is way:
        return ""
    if layout.reason:
        return layout.reason
    if way is Way.MERGE:
        return "the query does not end in an aggregate"
    if way is Way.KEYS:
        return "there is a cheaper way than to replace rows by key"
    return "the query ends in an aggregate, whose groups are merged"


def _no_append(layout: Layout | None, facts: Facts) -> str:
    if layout is None or layout.way is not Way.BAG:
        return "the query is not only of rows that stay once they have come"
    if not facts.inserts_only:
        return "rows were deleted or updated"
    if not is_monotone(layout.root):
        return "a new row can change or remove another row of the result"
    return ""


def is_monotone(node: Node) -> bool:
    """Whether rows that come to the sources only ever add rows to the result."""
    from tailrace.views.plan import KeyJoin

    refused = (Aggregate, Window, Limit, SetOperation, KeyJoin)
    return not any(isinstance(one, refused) for one in node.walk())


def _cost(layout: Layout, facts: Facts) -> float:
    """Rows of changes, and of sources that have to be read to know what they lead to."""
    changed = sum(facts.changes.get(scan.source, 0) for scan in layout.root.scans)
    read = 0.0
    if not _is_own_change(layout):
        # Others are read by keys, which costs a part of a scan; how much is learned.
        read = 0.5 * sum(facts.sizes.get(scan.source, 0) for scan in layout.root.scans)
    whole = _read_whole(layout, facts)
    return _START + _CHANGE_FACTOR * changed + read + whole


def _is_own_change(layout: Layout) -> bool:
    """Whether the change of one table is all that is needed."""
    node = layout.groups.input if layout.groups is not None else layout.root
    return is_simple(node) and layout.way is not Way.KEYS


def _read_whole(layout: Layout, facts: Facts) -> float:
    """Operators over all rows, whose input is computed before and after."""
    found = 0.0
    for one in layout.root.walk():
        whole = (
            isinstance(one, Limit)
            or (isinstance(one, Aggregate) and not one.keys and one is not layout.groups)
            or (isinstance(one, Window) and not one.partition)
        )
        if whole and any(isinstance(s, Scan) and s.source in facts.changes for s in one.walk()):
            found += 2.0 * sum(facts.sizes.get(scan.source, 0) for scan in one.scans)
    return found
