"""How a change of a query's result changes the stored table.

Owned here: the queries that end a program. Their rows have `_tailrace_file` and `_tailrace_pos`,
the address of a stored row that goes; `_tailrace_count`, how often the row beside it comes (0 for
none); `_tailrace_again`, whether its group has to be recomputed; and the stored table's columns.
They read `stored`: the stored rows with their addresses, all or at least those that the change can
touch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql.types import spark_type
from tailrace.store.names import OWN_PREFIX
from tailrace.views.incremental import group_states
from tailrace.views.incremental.group_states import State, Types, case
from tailrace.views.incremental.identity import comparable, has_map, shown_apart
from tailrace.views.incremental.layout import ROWS, VISIBLE, Layout, Way
from tailrace.views.incremental.program import WEIGHT, Builder, End, Within
from tailrace.views.incremental.rules.base import affected, column_items, only_with, with_weight
from tailrace.views.query.plan import origin
from tailrace.views.query.trees import (
    all_of,
    any_of,
    column_of,
    from_query,
    items,
    named,
    renamed,
    select,
    sub,
    table,
    union_all,
    whole,
)

FILE, POS = f"{OWN_PREFIX}file", f"{OWN_PREFIX}pos"
COUNT, AGAIN = f"{OWN_PREFIX}count", f"{OWN_PREFIX}again"
STORED, GROUPS_AGAIN, ALL = "stored", "again", "everything"
# Prefix of columns that say whether a stored row looks unlike the one that goes.
UNLIKE = "_u"
# In a merge, tells the change from the stored states.
_CHANGES = f"{OWN_PREFIX}changes"


# --- all rows --------------------------------------------------------------------------------


def all_rows(b: Builder, layout: Layout, types: Types, within: Within | None = None) -> exp.Query:
    """The rows that the stored table should have, by the query at the end of the range."""
    if layout.way is not Way.MERGE:
        query = b.rows(layout.root, End.NEW, within)
        return from_query(only_with(query, within, layout.root.columns), layout.names)
    groups = layout.groups
    assert groups is not None
    below = b.rows(groups.input, End.NEW, within)
    states = group_states.computed(layout, types, exact=within is not None)
    grouped: exp.Query = select([*items(groups.keys), *column_items(states)], sub(below))
    if groups.keys:
        assert isinstance(grouped, exp.Select)
        grouped = grouped.group_by(*items(groups.keys), copy=False)
    if within is not None:
        grouped = only_with(grouped, within, [*groups.keys, *(name for name, _ in states)])
    # An average is Spark's own, which the value derived from a sum and a count has to equal.
    results = {
        call.source.name: column_of(call.source.name)
        if call.is_average
        else group_states.result(call)
        for call in layout.calls
    }
    return _finished(layout, results, grouped)


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
    return select([*items(extra), *column_items(values)], sub(states))


# --- changes ---------------------------------------------------------------------------------


def full(layout: Layout, rows: exp.Query, types: Types) -> exp.Query:
    """The difference between all rows and the stored ones."""
    new = with_weight(rows, layout.names, 1)
    old = with_weight(whole(STORED, layout.names), layout.names, -1)
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
    for name in columns:
        kind = types.get(name)
        if kind is not None and has_map(kind):
            continue
        if b.is_changed(node) and b.tells(node, [name]):
            return name, affected(b, [name], b.touched(node, [name])).keys
    return None


def stored_origins(layout: Layout) -> list[tuple[str, str]]:
    """Columns of the stored table that pass on columns of tables, with these.

    In such a column, a stored row that a change touches has a value from that change.
    """
    if layout.way is Way.KEYS:
        return []
    node = layout.root if layout.groups is None else layout.groups.input
    columns = layout.names if layout.groups is None else layout.groups.keys
    origins = [(name, origin(node, name)) for name in columns if name in node.columns]
    return [(name, source) for name, source in origins if source is not None]


def again(b: Builder, layout: Layout, types: Types) -> exp.Query:
    """The rows of the groups to recompute: those in the relation `again`, in k0, k1, …."""
    assert layout.groups is not None
    pairs = tuple((key, f"k{n}") for n, key in enumerate(layout.groups.keys))
    return all_rows(b, layout, types, Within(keys=GROUPS_AGAIN, pairs=pairs) if pairs else None)


def again_keys(layout: Layout) -> tuple[str, ...]:
    """The columns that identify such a group."""
    assert layout.groups is not None
    return layout.groups.keys


def _result(
    layout: Layout, address: list[exp.Expr], count: exp.Expr, query: exp.Query
) -> exp.Select:
    """Rows that go, with their address, and come so often."""
    shown = [*address, named(count, COUNT), named(exp.false(), AGAIN), *items(layout.names)]
    return select(shown, sub(query))


def _no_address() -> list[exp.Expr]:
    return [named(exp.cast(exp.Null(), "bigint"), name) for name in (FILE, POS)]


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
    copies = [named(column_of(c), copy) for copy, c in odd.items()]
    marked = select([*items([*names, WEIGHT]), *extra, *copies], sub(delta)) if odd else delta
    net = (
        select(
            [
                *items([*(c for c in names if c not in odd.values()), *comparables, *looks]),
                *(named(_any(copy, types[c]), c) for copy, c in odd.items()),
                named(exp.Sum(this=column_of(WEIGHT)), WEIGHT),
            ],
            sub(marked),
        )
        .group_by(*items([*plain, *comparables, *looks]), copy=False)
        .having(exp.Sum(this=column_of(WEIGHT)).neq(0), copy=False)
    )
    matched = [*plain, *comparables]
    same = [_same(c) for c in matched]
    unlike = [case(_same(c), 0, 1) for c in looks]
    side: exp.Expr = table(STORED, "s")
    if odd:
        places = items([FILE, POS, *plain])
        side = sub(select([*places, *(tree.copy() for tree in extra)], table(STORED)), "s")
    pairs = select(
        [
            *items([FILE, POS], "s"),
            *items([WEIGHT, *names, *comparables, *looks], "n"),
            *(named(tree, f"{UNLIKE}{n}") for n, tree in enumerate(unlike)),
        ],
        sub(net, "n"),
    )
    less = column_of(WEIGHT, "n") < 0
    pairs.append("joins", exp.Join(this=side, side="LEFT", on=all_of([less, *same])))
    order = [*(f"{UNLIKE}{n}" for n in range(len(unlike))), FILE, POS]
    number = exp.Window(
        this=exp.RowNumber(),
        partition_by=items([*matched, *looks]),
        order=exp.Order(expressions=[exp.Ordered(this=column_of(c)) for c in order]),
    )
    numbered = select([*items([FILE, POS, WEIGHT, *names]), named(number, "place")], sub(pairs))
    keep = exp.or_(column_of(WEIGHT) > 0, column_of("place") <= -column_of(WEIGHT))
    came = case(column_of(WEIGHT) > 0, column_of(WEIGHT), 0)
    return _result(layout, items([FILE, POS]), came, numbered).where(keep, copy=False)


def _same(name: str) -> exp.Expr:
    """Whether a change and a stored row have the same value."""
    return exp.NullSafeEQ(this=column_of(name, "n"), expression=column_of(name, "s"))


def _any(name: str, kind: pa.DataType) -> exp.Expr:
    """The one value that all rows have."""
    if pa.types.is_floating(kind):
        return exp.Min(this=column_of(name))
    return exp.Anonymous(this="first", expressions=[column_of(name)])


def _replace(b: Builder, layout: Layout, types: Types) -> exp.Query | None:
    """Replace the rows with the affected keys by what the query gives for these keys."""
    parts = b.touched(layout.root, layout.keys)
    if not parts:
        return None
    limit = affected(b, layout.keys, parts)
    came = all_rows(b, layout, types, limit)
    gone = only_with(whole(STORED, [FILE, POS, *layout.names]), limit, [FILE, POS, *layout.names])
    return union_all(
        [
            _result(layout, _no_address(), exp.convert(1), came),
            _result(layout, items([FILE, POS]), exp.convert(0), gone),
        ]
    )


def _merge(b: Builder, layout: Layout, types: Types) -> exp.Query | None:
    """Merge the states of each group's change with the stored ones.

    By the aggregate functions themselves: a sum of sums has all digits, which `+` may not have.
    """
    groups = layout.groups
    assert groups is not None
    delta = b.delta(groups.input)
    if delta is None:
        return None
    states = group_states.states(layout, types)
    change = _changed_states(groups.keys, states, delta)
    stored = select(
        [
            *items([FILE, POS, *groups.keys]),
            named(exp.convert(0), _CHANGES),
            *column_items([(state.name, state.stored) for state in states]),
        ],
        table(STORED),
    )
    merged = select(
        [
            *(named(exp.Max(this=column_of(name)), name) for name in (FILE, POS)),
            *items(groups.keys),
            *column_items([(state.name, _merged(state, types)) for state in states]),
        ],
        sub(union_all([change, stored])),
    )
    if groups.keys:
        merged = merged.group_by(*items(groups.keys), copy=False)
    merged = merged.having(exp.Max(this=column_of(_CHANGES)) > 0, copy=False)
    kept = items([FILE, POS, *groups.keys, *group_states.names(layout)])
    doubtful = select([*kept, named(group_states.again(layout, types), AGAIN)], sub(merged))
    results = {call.source.name: group_states.result(call, types) for call in layout.calls}
    finished = _finished(layout, results, doubtful, extra=[FILE, POS, AGAIN])
    stays = case(column_of(ROWS) > 0, 1, 0) if groups.keys else exp.convert(1)
    shown = [*items([FILE, POS]), named(stays, COUNT), *items([AGAIN, *layout.names])]
    return select(shown, sub(finished))


def _changed_states(keys: Sequence[str], states: Sequence[State], delta: exp.Query) -> exp.Query:
    """What a change adds to the states of the groups that it changes."""
    changes = [(state.name, state.change) for state in states if state.change is not None]
    grouped = select([*items(keys), *column_items(changes)], sub(delta))
    if keys:
        grouped = grouped.group_by(*items(keys), copy=False)
    values = [
        named(exp.Null() if state.change is None else column_of(state.name), state.name)
        for state in states
    ]
    shown = [*_no_address(), *items(keys), named(exp.convert(1), _CHANGES), *values]
    moved = [state.moved for state in states if state.moved is not None]
    return select(shown, sub(grouped)).where(any_of(moved), copy=False)


def _merged(state: State, types: Types) -> exp.Expr:
    value: exp.Expr = state.merge(this=column_of(state.name))
    if state.merge is exp.Sum and state.name in types:  # a decimal must not grow each time
        value = exp.cast(value, spark_type(types[state.name]), dialect="spark")
    return value
