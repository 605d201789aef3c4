"""The strategy of a refresh.

A cost is in seconds: the rows of tables and changes by the catalog, times the cost of a row on a
small machine, corrected by the error of the last prediction for this view. Only the comparison
counts: a faster machine is faster for every strategy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tailrace.errors import InvalidError
from tailrace.views.definition import Definition
from tailrace.views.incremental.layout import Layout, Way
from tailrace.views.query.plan import (
    Aggregate,
    Explode,
    Filter,
    InnerJoin,
    Limit,
    Node,
    OneRow,
    Project,
    Scan,
    Union,
    Values,
    Window,
)

# Operators whose result only grows when their input does.
_MONOTONE = (Scan, OneRow, Values, Filter, Project, Explode, InnerJoin, Union)


class Strategy(StrEnum):
    """How a refresh was done."""

    BUILD = "build"  # the first time
    NOTHING = "nothing"  # no source changed
    APPEND = "append"  # rows only come, and are added
    MERGE = "merge"  # changes are added to counts and sums of the affected groups
    KEYS = "keys"  # rows with the affected keys are replaced
    ROWS = "rows"  # rows come and go by their values
    FULL = "full"  # all of it is recomputed, and the difference written


@dataclass(frozen=True, kw_only=True)
class _Rates:
    """Seconds on a small machine."""

    start: float  # before the first row
    row: float  # for a row that is read and computed
    look: float  # for a row of which only the key is compared
    decode: float  # for a row that is read to find a changed one
    alone: float  # for a changed row that needs no others
    change: float  # for a changed row that others are joined to


_IN_MEMORY = _Rates(
    start=0.1, row=0.1e-6, look=0.03e-6, decode=0.03e-6, alone=0.4e-6, change=0.5e-6
)
# The process itself finds keys, and one job does the rest.
_ON_SPARK = _Rates(start=0.4, row=0.4e-6, look=0.06e-6, decode=0.05e-6, alone=4e-6, change=10e-6)
# A full refresh, which Spark plans better on the way.
_FULL_START, _FULL_ROW = 1.0, 0.4e-6
# What a full refresh takes beside computing all rows: to find and write the difference.
_DIFFERENCE = 0.3
# The share of a build's time that a full refresh takes: Spark has planned and compiled the query by
# then, and there is little to write.
AGAIN = 0.6
# How far a single measurement is trusted: the machine may have been busy, but never faster.
_LEAST, _MOST = 0.05, 10.0


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a choice depends on."""

    sizes: Mapping[str, int]  # rows of each source
    changes: Mapping[str, int]  # changed rows of those that changed
    decoded: int  # rows that have to be decoded to read the changes
    inserts_only: bool
    in_memory: bool  # the changes and all that follows are computed without Spark
    # By strategy and place: the predicted seconds of the last run, and the actual ones.
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    rebuild: bool = False  # the history since the watermark is gone
    moved: bool = False  # a function of time has another value by now
    refused: str = ""  # why Spark refused the rules' queries, if it did


@dataclass(frozen=True, kw_only=True)
class Option:
    """One strategy, for `explain`."""

    strategy: Strategy
    reason: str = ""  # why it is not possible
    cost: float | None = None  # if it is

    @property
    def possible(self) -> bool:
        return self.cost is not None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The chosen strategy, and all options."""

    strategy: Strategy
    cost: float
    options: tuple[Option, ...] = ()


def choose(definition: Definition, facts: Facts, policy: str) -> Choice:
    """The cheapest strategy that the policy allows."""
    options = options_of(definition, facts)
    full = options[-1]
    others = [option for option in options[:-1] if option.possible]
    if policy == "incremental" and not others:
        reasons = "; ".join(dict.fromkeys(o.reason for o in options if o.reason))
        raise InvalidError(f"this refresh cannot be incremental, as the policy asks: {reasons}")
    best = min(others, key=_cost_of, default=full)
    if policy == "full" or (policy == "auto" and _cost_of(full) < _cost_of(best)):
        best = full
    return Choice(strategy=best.strategy, cost=_cost_of(best), options=tuple(options))


def _cost_of(option: Option) -> float:
    return option.cost or 0


def history_name(strategy: Strategy, facts: Facts) -> str:
    """The key of a strategy's times, which differ between memory and Spark."""
    return str(strategy) if facts.in_memory or strategy is Strategy.FULL else f"{strategy} on Spark"


def _corrected(cost: float, strategy: Strategy, facts: Facts) -> float:
    """A cost, corrected by the last run's time compared with its prediction."""
    past = facts.history.get(history_name(strategy, facts))
    if not past or past[0] <= 0:
        return cost
    return cost * min(max(past[1] / past[0], _LEAST), _MOST)


def full_cost(definition: Definition, sizes: Mapping[str, int]) -> float:
    """The cost of computing all of it, uncorrected."""
    if definition.layout is None:
        return _FULL_START + _FULL_ROW * sum(sizes.values())
    return _FULL_START + _FULL_ROW * sum(
        sizes.get(s.source, 0) for s in definition.layout.root.scans
    )


def plain_cost(definition: Definition, facts: Facts, strategy: Strategy) -> float:
    """The cost of a strategy, uncorrected."""
    if strategy is Strategy.FULL or definition.layout is None:
        return full_cost(definition, facts.sizes)
    return _cost(definition.layout, facts)


def options_of(definition: Definition, facts: Facts) -> list[Option]:
    """Every strategy, the full one last: why it is not possible, or what it would cost."""
    layout = definition.layout
    blocked = definition.reason
    if facts.rebuild:
        blocked = "the changes since the last refresh are no longer kept"
    elif facts.refused:
        blocked = facts.refused
    elif facts.moved:
        blocked = f"{', '.join(definition.moments)} has moved on"
    options = []
    for strategy, reason in (
        (Strategy.APPEND, _no_append(layout, facts)),
        (Strategy.MERGE, _not_this(layout, Way.MERGE)),
        (Strategy.KEYS, _not_this(layout, Way.KEYS)),
        (Strategy.ROWS, _not_this(layout, Way.BAG)),
    ):
        cost = None
        if layout is not None and not blocked and not reason:
            cost = _corrected(_cost(layout, facts), strategy, facts)
            if strategy is Strategy.APPEND:  # nothing stored is looked for
                cost *= 0.9
        options.append(Option(strategy=strategy, reason=blocked or reason, cost=cost))
    whole = _corrected(full_cost(definition, facts.sizes), Strategy.FULL, facts) + _DIFFERENCE
    return [*options, Option(strategy=Strategy.FULL, cost=whole)]


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
    # By name, so that no new operator is taken for monotone by mistake.
    return all(isinstance(one, _MONOTONE) for one in node.walk())


def _cost(layout: Layout, facts: Facts) -> float:
    """The cost of the changed rows, and of the rows of sources that they lead to."""
    scans = layout.root.scans
    changed = sum(facts.changes.get(scan.source, 0) for scan in scans)
    rates = _IN_MEMORY if facts.in_memory else _ON_SPARK
    if _is_own_change(layout):
        return rates.start + rates.alone * changed + rates.decode * facts.decoded
    looked_at = sum(facts.sizes.get(scan.source, 0) for scan in scans)
    whole = rates.row * _read_whole(layout, facts)
    reading = rates.decode * facts.decoded + rates.look * looked_at
    return rates.start + rates.change * changed + reading + whole


def _is_own_change(layout: Layout) -> bool:
    """Whether the change of one table is all that is needed."""
    node = layout.groups.input if layout.groups is not None else layout.root
    return node.is_simple and layout.way is not Way.KEYS


def _read_whole(layout: Layout, facts: Facts) -> float:
    """The rows of operators over all rows, whose input is computed before and after."""
    rows = 0.0
    for one in layout.root.walk():
        whole = (
            isinstance(one, Limit)
            or (isinstance(one, Aggregate) and not one.keys and one is not layout.groups)
            or (isinstance(one, Window) and not one.partition)
        )
        if whole and any(isinstance(s, Scan) and s.source in facts.changes for s in one.walk()):
            rows += 2.0 * sum(facts.sizes.get(scan.source, 0) for scan in one.scans)
    return rows
