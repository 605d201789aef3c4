"""How a change of a query's result changes the stored table.

Owned here: the queries that end a program. Their rows have `_tailrace_file` and `_tailrace_pos`,
the address of a stored row that goes; `_tailrace_count`, how often the row beside it comes (0 for
none); `_tailrace_again`, whether its group has to be recomputed; and the stored table's columns.
They read `stored`: the stored rows with their addresses, all or at least those that the change can
touch.

Long because the ways to apply a change (append, merge groups, replace keys or rows) share one form
of result, and are read side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql.types import spark_type
from tailrace.store.names import OWN_PREFIX
from tailrace.views.incremental import averages
from tailrace.views.incremental.identity import comparable, has_map, shown_apart
from tailrace.views.incremental.layout import ROWS, VISIBLE, Call, Layout, Way
from tailrace.views.incremental.program import WEIGHT, Builder, End, Within
from tailrace.views.incremental.rules.rule import affected, column_items, only_with, with_weight
from tailrace.views.query.plan import origin
from tailrace.views.query.trees import (
    all_of,
    any_of,
    column_of,
    from_query,
    items,
    renamed,
    sub,
    union_all,
)

FILE, POS = f"{OWN_PREFIX}file", f"{OWN_PREFIX}pos"
COUNT, AGAIN = f"{OWN_PREFIX}count", f"{OWN_PREFIX}again"
STORED, GROUPS_AGAIN, ALL = "stored", "again", "everything"
# The types of the stored table's columns, and of averages, by what programs call them.
Types = Mapping[str, pa.DataType]
# Prefix of columns that say whether a stored row looks unlike the one that goes.
UNLIKE = "_u"
# In a merge: what tells the change from the stored states, the stored extreme, and the deleted one.
_CHANGES, _KEPT, _GONE = f"{OWN_PREFIX}changes", "_kept", "_gone"


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def _of(relation: str, name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name), table=relation)


def _case(condition: exp.Expr, value: exp.Expr, default: exp.Expr | None = None):  # type: ignore[no-untyped-def]
    return exp.Case(ifs=[exp.If(this=condition, true=value)], default=default)


def _greater(tree: exp.Expr, value: int) -> exp.Expr:
    return exp.GT(this=tree, expression=_number(value))


# --- all rows --------------------------------------------------------------------------------


def all_rows(b: Builder, layout: Layout, types: Types, within: Within | None = None) -> exp.Query:
    """The rows that the stored table should have, by the query at the end of the range."""
    if layout.way is not Way.MERGE:
        query = b.rows(layout.root, End.NEW, within)
        return from_query(only_with(query, within, layout.root.columns), layout.names)
    groups = layout.groups
    assert groups is not None
    below = b.rows(groups.input, End.NEW, within)
    states = [exp.alias_(exp.Count(this=exp.Star()), ROWS, copy=False)]
    shown = []
    for call in layout.calls:
        if call.extreme is not None:
            states.append(exp.alias_(call.source.call.copy(), call.extreme, copy=False))
        if call.count is not None:
            counted = exp.Count(this=call.argument.copy())
            states.append(exp.alias_(counted, call.count, copy=False))
        if call.total is not None:
            total: exp.Expr = exp.Sum(this=averages.summand(call, types))
            if within is not None and types.get(call.total) == pa.int64():
                # Exact in any order: Spark's own sum may overflow on the way to one that fits.
                summand = averages.signed_summand(call, types)
                total = exp.cast(exp.Sum(this=summand), "bigint", dialect="spark")
            states.append(exp.alias_(total, call.total, copy=False))
        if call.spread is not None:
            states.append(exp.alias_(exp.Sum(this=averages.spread(call)), call.spread, copy=False))
        if isinstance(call.source.call, exp.Avg):
            # Spark's own, which the value derived from a sum and a count has to equal.
            shown.append(call.source.name)
            states.append(exp.alias_(call.source.call.copy(), call.source.name, copy=False))
    grouped: exp.Query = exp.select(*items(groups.keys), *states).from_(sub(below), copy=False)
    if groups.keys:
        assert isinstance(grouped, exp.Select)
        grouped = grouped.group_by(*items(groups.keys), copy=False)
    if within is not None:
        grouped = only_with(grouped, within, [*groups.keys, *_state_names(layout), *shown])
    results = {call.source.name: _result(call) for call in layout.calls}
    return _finished(layout, results | {name: column_of(name) for name in shown}, grouped)


def _state_names(layout: Layout) -> list[str]:
    calls = [n for c in layout.calls for n in (c.total, c.count, c.extreme, c.spread) if n]
    return [ROWS, *calls]


def _finished(
    layout: Layout, results: Mapping[str, exp.Expr], states: exp.Query, extra: Sequence[str] = ()
) -> exp.Select:
    """The groups' states, and what the query derives from them."""
    computed = dict(layout.values)
    values = []
    for name in layout.names:
        if name in computed:
            values.append((name, renamed(computed[name], results)))
        elif name == VISIBLE:
            assert layout.visible is not None
            shown = exp.Coalesce(this=renamed(layout.visible, results), expressions=[exp.false()])
            values.append((name, shown))
        else:
            values.append((name, column_of(name)))
    return exp.select(*items(extra), *column_items(values)).from_(sub(states), copy=False)


def _result(call: Call, types: Types | None = None) -> exp.Expr:
    """What a function gives, from its states."""
    if call.extreme is not None:
        return column_of(call.extreme)
    if isinstance(call.source.call, exp.Count):
        return column_of(call.count or ROWS)
    assert call.total is not None
    assert call.count is not None
    value: exp.Expr = column_of(call.total)
    if types is not None and isinstance(call.source.call, exp.Avg):
        return exp.paren(averages.from_states(call, types), copy=False)
    return exp.paren(_case(_greater(column_of(call.count), 0), value), copy=False)


# --- changes ---------------------------------------------------------------------------------


def full(layout: Layout, rows: exp.Query, types: Types) -> exp.Query:
    """The difference between all rows and the stored ones."""
    new = with_weight(rows, layout.names, 1)
    old = with_weight(from_query(exp.to_table(STORED), layout.names), layout.names, -1)
    return _apply(layout, union_all([new, old]), types)


def change(b: Builder, layout: Layout, types: Types) -> exp.Query | None:
    """What comes and goes, by the layout's way; None if nothing can have changed."""
    if layout.way is Way.MERGE:
        return _merge(b, layout, types)
    if layout.way is Way.KEYS:
        return _replace(b, layout, types)
    delta = b.delta(layout.root)
    return None if delta is None else _apply(layout, delta, types)


def appended(b: Builder, layout: Layout) -> exp.Query | None:
    """The rows that come, for a change in which nothing goes."""
    delta = b.delta(layout.root)
    return None if delta is None else from_query(delta, layout.names)


def stored_limit(b: Builder, layout: Layout, types: Types) -> tuple[str, str] | None:
    """A column of the stored table and a step of keys: only stored rows with these are needed."""
    if layout.way is Way.KEYS:
        return layout.keys[0], affected(b, layout.keys, b.touched(layout.root, layout.keys)).keys
    if layout.groups is not None:
        node, columns = layout.groups.input, layout.groups.keys
    else:
        node, columns = layout.root, layout.names
    for column in columns:
        kind = types.get(column)
        if kind is not None and has_map(kind):
            continue
        if b.is_changed(node) and b.tells(node, [column]):
            return column, affected(b, [column], b.touched(node, [column])).keys
    return None


def stored_origins(layout: Layout) -> list[tuple[str, str]]:
    """Columns of the stored table that pass on columns of tables, with these.

    In such a column, a stored row that a change touches has a value from that change.
    """
    if layout.way is Way.KEYS:
        return []
    node = layout.root if layout.groups is None else layout.groups.input
    columns = layout.names if layout.groups is None else layout.groups.keys
    origins = [(column, origin(node, column)) for column in columns if column in node.columns]
    return [(column, source) for column, source in origins if source is not None]


def again(b: Builder, layout: Layout, types: Types) -> exp.Query:
    """The rows of the groups to recompute: those in the relation `again`, in k0, k1, …."""
    assert layout.groups is not None
    pairs = tuple((key, f"k{n}") for n, key in enumerate(layout.groups.keys))
    return all_rows(b, layout, types, Within(keys=GROUPS_AGAIN, pairs=pairs) if pairs else None)


def again_keys(layout: Layout) -> tuple[str, ...]:
    """The columns that identify such a group."""
    assert layout.groups is not None
    return layout.groups.keys


def _apply(layout: Layout, delta: exp.Query, types: Types) -> exp.Query:
    """Match rows by their values: of equal ones, as many go as were deleted.

    Of stored rows that compare as equal, those that look the same go first.
    """
    names = layout.names
    comparables = {
        f"_m{n}": comparable(column_of(c), types[c])
        for n, c in enumerate(names)
        if c in types and has_map(types[c])
    }
    looks = {
        f"_l{n}": look
        for n, c in enumerate(names)
        if c in types and (look := shown_apart(column_of(c), types[c])) is not None
    }
    extra = column_items([*comparables.items(), *looks.items()])
    plain = [c for n, c in enumerate(names) if f"_m{n}" not in comparables]
    # Columns that cannot be grouped by, or would change their value: the same within a group.
    odd = {
        f"_v{n}": c for n, c in enumerate(names) if {f"_m{n}", f"_l{n}"} & {*comparables, *looks}
    }
    marked = exp.select(
        *items([*names, WEIGHT]),
        *extra,
        *column_items([(copy, column_of(c)) for copy, c in odd.items()]),
    ).from_(sub(delta), copy=False)
    net = (
        exp.select(
            *items([*(c for c in names if c not in odd.values()), *comparables, *looks]),
            *(exp.alias_(_any(copy, types[c]), c, copy=False) for copy, c in odd.items()),
            exp.alias_(exp.Sum(this=column_of(WEIGHT)), WEIGHT, copy=False),
        )
        .from_(sub(marked if odd else delta), copy=False)
        .group_by(*items([*plain, *comparables, *looks]), copy=False)
        .having(exp.NEQ(this=exp.Sum(this=column_of(WEIGHT)), expression=_number(0)), copy=False)
    )
    stored = exp.select(*items([FILE, POS, *plain]), *(tree.copy() for tree in extra)).from_(
        exp.to_table(STORED), copy=False
    )
    matched = [*plain, *comparables]
    same = [exp.NullSafeEQ(this=_of("n", c), expression=_of("s", c)) for c in matched]
    unlike = [
        _case(exp.NullSafeEQ(this=_of("n", c), expression=_of("s", c)), _number(0), _number(1))
        for c in looks
    ]
    side = sub(stored, "s")
    if not odd:
        side = exp.alias_(exp.to_table(STORED), "s", table=True, copy=False)
    pairs = exp.select(
        exp.alias_(_of("s", FILE), FILE, copy=False),
        exp.alias_(_of("s", POS), POS, copy=False),
        exp.alias_(_of("n", WEIGHT), WEIGHT, copy=False),
        *(exp.alias_(_of("n", c), c, copy=False) for c in [*names, *comparables, *looks]),
        *column_items([(f"{UNLIKE}{n}", tree) for n, tree in enumerate(unlike)]),
    ).from_(sub(net, "n"), copy=False)
    less = exp.LT(this=_of("n", WEIGHT), expression=_number(0))
    pairs.append("joins", exp.Join(this=side, side="LEFT", on=all_of([less, *same])))
    order = [*(f"{UNLIKE}{n}" for n in range(len(unlike))), FILE, POS]
    number = exp.Window(
        this=exp.RowNumber(),
        partition_by=items([*matched, *looks]),
        order=exp.Order(expressions=[exp.Ordered(this=column_of(c)) for c in order]),
    )
    numbered = exp.select(
        *items([FILE, POS, WEIGHT, *names]), exp.alias_(number, "place", copy=False)
    ).from_(sub(pairs), copy=False)
    keep = exp.or_(
        _greater(column_of(WEIGHT), 0),
        exp.LTE(this=column_of("place"), expression=exp.Neg(this=column_of(WEIGHT))),
    )
    came = _case(_greater(column_of(WEIGHT), 0), column_of(WEIGHT), _number(0))
    return (
        exp.select(
            *items([FILE, POS]),
            exp.alias_(came, COUNT, copy=False),
            exp.alias_(exp.false(), AGAIN, copy=False),
            *items(names),
        )
        .from_(sub(numbered), copy=False)
        .where(keep, copy=False)
    )


def _any(column: str, kind: pa.DataType) -> exp.Expr:
    """The one value that all rows have."""
    if pa.types.is_floating(kind):
        return exp.Min(this=column_of(column))
    return exp.Anonymous(this="first", expressions=[column_of(column)])


def _replace(b: Builder, layout: Layout, types: Types) -> exp.Query | None:
    """Replace the rows with the affected keys by what the query gives for these keys."""
    parts = b.touched(layout.root, layout.keys)
    if not parts:
        return None
    limit = affected(b, layout.keys, parts)
    came = exp.select(
        exp.alias_(exp.cast(exp.Null(), "bigint"), FILE, copy=False),
        exp.alias_(exp.cast(exp.Null(), "bigint"), POS, copy=False),
        exp.alias_(_number(1), COUNT, copy=False),
        exp.alias_(exp.false(), AGAIN, copy=False),
        *items(layout.names),
    ).from_(sub(all_rows(b, layout, types, limit)), copy=False)
    stored = from_query(exp.to_table(STORED), [FILE, POS, *layout.names])
    gone = exp.select(
        *items([FILE, POS]),
        exp.alias_(_number(0), COUNT, copy=False),
        exp.alias_(exp.false(), AGAIN, copy=False),
        *items(layout.names),
    ).from_(sub(only_with(stored, limit, [FILE, POS, *layout.names])), copy=False)
    return union_all([came, gone])


def _merge(b: Builder, layout: Layout, types: Types) -> exp.Query | None:
    """Merge the states of each group's change with the stored ones.

    By the aggregate functions themselves: a sum of sums has all digits, which `+` may not have.
    """
    groups = layout.groups
    assert groups is not None
    delta = b.delta(groups.input)
    if delta is None:
        return None
    change = _changed_states(layout, types, delta)
    stored = exp.select(
        *items([FILE, POS, *groups.keys]),
        exp.alias_(_number(0), _CHANGES, copy=False),
        *column_items(_stored_states(layout, types)),
    ).from_(exp.to_table(STORED), copy=False)
    both = sub(union_all([change, stored]))
    merged = exp.select(
        *(exp.alias_(exp.Max(this=column_of(c)), c, copy=False) for c in (FILE, POS)),
        *items(groups.keys),
        *column_items(_merged_states(layout, types)),
    ).from_(both, copy=False)
    if groups.keys:
        merged = merged.group_by(*items(groups.keys), copy=False)
    merged = merged.having(_greater(exp.Max(this=column_of(_CHANGES)), 0), copy=False)
    doubtful = exp.select(
        *items([FILE, POS, *groups.keys, *_state_names(layout)]),
        exp.alias_(_again(layout, types), AGAIN, copy=False),
    ).from_(sub(merged), copy=False)
    results = {call.source.name: _result(call, types) for call in layout.calls}
    finished = _finished(layout, results, doubtful, extra=[FILE, POS, AGAIN])
    stays = (
        _case(_greater(column_of(ROWS), 0), _number(1), _number(0)) if groups.keys else (_number(1))
    )
    return exp.select(
        *items([FILE, POS]), exp.alias_(stays, COUNT, copy=False), *items([AGAIN, *layout.names])
    ).from_(sub(finished), copy=False)


def _changed_states(layout: Layout, types: Types, delta: exp.Query) -> exp.Query:
    """What a change adds to the states of the groups that it changes."""
    groups = layout.groups
    assert groups is not None
    came = _greater(column_of(WEIGHT), 0)
    extremes = [call.extreme for call in layout.calls if call.extreme is not None]
    states: list[tuple[str, exp.Expr]] = [(ROWS, exp.Sum(this=column_of(WEIGHT)))]
    moved: list[exp.Expr] = [exp.NEQ(this=column_of(ROWS), expression=_number(0))]
    for call in layout.calls:
        tree = call.argument
        if call.count is not None:
            is_null = exp.Is(this=tree.copy(), expression=exp.Null())
            counted = _case(is_null, _number(0), column_of(WEIGHT))
            states.append((call.count, exp.Sum(this=counted)))
            moved.append(exp.NEQ(this=column_of(call.count), expression=_number(0)))
        if call.total is not None:
            summand = averages.signed_summand(call, types)
            negative = exp.Neg(this=exp.paren(summand.copy()))
            states.append((call.total, exp.Sum(this=_case(came.copy(), summand, negative))))
            moved.append(exp.NEQ(this=column_of(call.total), expression=_number(0)))
        if call.spread is not None:
            # It never falls: doubles that were added are not subtracted exactly.
            more = _case(came.copy(), averages.spread(call))
            states.append((call.spread, exp.Sum(this=more)))
        if call.extreme is not None:
            function = type(call.source.call)
            gone = f"{call.extreme}{_GONE}"
            for name, condition in ((call.extreme, came.copy()), (gone, exp.not_(came))):
                states.append((name, function(this=_case(condition, tree.copy()))))
                moved.append(exp.not_(exp.Is(this=column_of(name), expression=exp.Null())))
    names = [name for name, _ in states]
    grouped = exp.select(*items(groups.keys), *column_items(states)).from_(sub(delta), copy=False)
    if groups.keys:
        grouped = grouped.group_by(*items(groups.keys), copy=False)
    return (
        exp.select(
            *(exp.alias_(exp.cast(exp.Null(), "bigint"), c, copy=False) for c in (FILE, POS)),
            *items(groups.keys),
            exp.alias_(_number(1), _CHANGES, copy=False),
            *items(names),
            *(exp.alias_(exp.Null(), f"{extreme}{_KEPT}", copy=False) for extreme in extremes),
        )
        .from_(sub(grouped), copy=False)
        .where(any_of(moved), copy=False)
    )


def _stored_states(layout: Layout, types: Types) -> list[tuple[str, exp.Expr]]:
    """The stored states, in the order of `_changed_states`."""
    states: list[tuple[str, exp.Expr]] = [(ROWS, column_of(ROWS))]
    for call in layout.calls:
        if call.count is not None:
            states.append((call.count, column_of(call.count)))
        if call.total is not None:
            states.append((call.total, averages.wide(column_of(call.total), types.get(call.total))))
        if call.spread is not None:
            states.append((call.spread, column_of(call.spread)))
        if call.extreme is not None:
            states.append((call.extreme, column_of(call.extreme)))
            states.append((f"{call.extreme}{_GONE}", exp.Null()))
    extremes = [call.extreme for call in layout.calls if call.extreme is not None]
    return states + [(f"{extreme}{_KEPT}", column_of(extreme)) for extreme in extremes]


def _merged_states(layout: Layout, types: Types) -> list[tuple[str, exp.Expr]]:
    """The merged states: counts and sums are added, extremes compared."""
    states: list[tuple[str, exp.Expr]] = []
    for name in [ROWS, *(n for c in layout.calls for n in (c.count, c.total, c.spread) if n)]:
        value: exp.Expr = exp.Sum(this=column_of(name))
        if name in types:  # a decimal must not grow by some digits each time
            value = exp.cast(value, spark_type(types[name]), dialect="spark")
        states.append((name, value))
    for call in layout.calls:
        if call.extreme is not None:
            function = type(call.source.call)
            names = [f"{call.extreme}{suffix}" for suffix in ("", _GONE, _KEPT)]
            states += [(name, function(this=column_of(name))) for name in names]
    return states


def _again(layout: Layout, types: Types) -> exp.Expr:
    """Whether a group has to be recomputed.

    A deleted value may have been its least or greatest, or its average is not certain from its sum
    and count.
    """
    doubts: list[exp.Expr] = []
    for call in layout.calls:
        if call.extreme is not None:
            compare = exp.LT if call.is_min else exp.GT
            gone = column_of(f"{call.extreme}{_GONE}")
            kept = column_of(f"{call.extreme}{_KEPT}")
            safe = exp.Coalesce(this=compare(this=kept, expression=gone), expressions=[exp.false()])
            doubts.append(
                exp.and_(exp.not_(exp.Is(this=gone.copy(), expression=exp.Null())), exp.not_(safe))
            )
        elif isinstance(call.source.call, exp.Avg):
            doubts += averages.doubts(call, types)
    if not doubts:
        return exp.false()
    assert layout.groups is not None
    stays = _greater(column_of(ROWS), 0) if layout.groups.keys else exp.true()
    doubtful = exp.and_(stays, exp.paren(any_of(doubts)))
    return exp.Coalesce(this=doubtful, expressions=[exp.false()])
