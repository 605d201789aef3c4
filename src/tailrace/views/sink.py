"""How a change of a query's result is brought into the stored table.

Owned here: the queries that end a program. Each gives rows of `_tailrace_file` and
`_tailrace_pos`, the place of a stored row that goes; `_tailrace_count`, how often the row beside
it comes (0 for none); `_tailrace_again`, whether its group has to be computed anew; and the stored
table's columns. They read `stored`: the stored rows with their places, all of them or at least
those that the change can touch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from tailrace.store.schema import OWN_PREFIX
from tailrace.views.layout import ROWS, VISIBLE, Call, Layout, Way
from tailrace.views.plan import origin
from tailrace.views.program import WEIGHT, Builder, State, Within
from tailrace.views.rules.rule import (
    affected,
    column_items,
    from_query,
    items,
    only_with,
    sub,
    union_all,
    with_weight,
)
from tailrace.views.scope import all_of, column_of, renamed

FILE, POS = f"{OWN_PREFIX}file", f"{OWN_PREFIX}pos"
COUNT, AGAIN = f"{OWN_PREFIX}count", f"{OWN_PREFIX}again"
STORED, GROUPS_AGAIN, ALL = "stored", "again", "everything"
# Spark's types of aggregate functions' results, by their column.
Types = Mapping[str, str]


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def _zero_if_null(tree: exp.Expr) -> exp.Expr:
    return exp.Coalesce(this=tree, expressions=[_number(0)])


def _of(relation: str, name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name), table=relation)


def _case(condition: exp.Expr, value: exp.Expr, default: exp.Expr | None = None):  # type: ignore[no-untyped-def]
    return exp.Case(ifs=[exp.If(this=condition, true=value)], default=default)


def _greater(tree: exp.Expr, value: int) -> exp.Expr:
    return exp.GT(this=tree, expression=_number(value))


# --- all rows --------------------------------------------------------------------------------


def all_rows(b: Builder, layout: Layout, types: Types, within: Within | None = None) -> exp.Query:
    """The stored table's rows as the query at the end of the range gives them."""
    if layout.way is not Way.MERGE:
        query = b.rows(layout.root, State.NEW, within)
        return from_query(only_with(query, within, layout.root.columns), layout.names)
    groups = layout.groups
    assert groups is not None
    below = b.rows(groups.input, State.NEW, within)
    states = [exp.alias_(exp.Count(this=exp.Star()), ROWS, copy=False)]
    for call in layout.calls:
        tree = call.argument
        if call.extreme is not None:
            states.append(exp.alias_(call.source.call.copy(), call.extreme, copy=False))
        if call.count is not None:
            states.append(exp.alias_(exp.Count(this=tree.copy()), call.count, copy=False))
        if call.total is not None:
            total = _zero_if_null(exp.Sum(this=tree.copy()))
            states.append(exp.alias_(total, call.total, copy=False))
    made: exp.Query = exp.select(*items(groups.keys), *states).from_(sub(below), copy=False)
    if groups.keys:
        assert isinstance(made, exp.Select)
        made = made.group_by(*items(groups.keys), copy=False)
    if within is not None:
        made = only_with(made, within, [*groups.keys, *_state_names(layout)])
    return _finished(layout, types, made)


def _state_names(layout: Layout) -> list[str]:
    calls = [n for c in layout.calls for n in (c.total, c.count, c.extreme) if n is not None]
    return [ROWS, *calls]


def _finished(
    layout: Layout, types: Types, states: exp.Query, extra: Sequence[str] = ()
) -> exp.Select:
    """What the query makes of the groups' states, beside those states."""
    results = {call.source.name: _result(call, types) for call in layout.calls}
    made = dict(layout.values)
    values = []
    for name in layout.names:
        if name in made:
            values.append((name, renamed(made[name], results)))
        elif name == VISIBLE:
            assert layout.visible is not None
            shown = exp.Coalesce(this=renamed(layout.visible, results), expressions=[exp.false()])
            values.append((name, shown))
        else:
            values.append((name, column_of(name)))
    return exp.select(*items(extra), *column_items(values)).from_(sub(states), copy=False)


def _result(call: Call, types: Types) -> exp.Expr:
    if call.extreme is not None:
        return column_of(call.extreme)
    if isinstance(call.source.call, exp.Count):
        return column_of(call.count or ROWS)
    assert call.total is not None
    assert call.count is not None
    value: exp.Expr = column_of(call.total)
    if isinstance(call.source.call, exp.Avg):
        kind = types.get(call.source.name)
        if kind == "double":
            value = exp.Cast(this=value, to=exp.DataType.build("double"))
        value = exp.Div(this=value, expression=column_of(call.count))
        if kind is not None:
            value = exp.Cast(this=value, to=exp.DataType.build(kind, dialect="spark"))
    return exp.paren(_case(_greater(column_of(call.count), 0), value), copy=False)


# --- changes ---------------------------------------------------------------------------------


def full(layout: Layout, rows: exp.Query) -> exp.Query:
    """The difference between all rows and what is stored."""
    new = with_weight(rows, layout.names, 1)
    old = with_weight(from_query(exp.to_table(STORED), layout.names), layout.names, -1)
    return _apply(layout, union_all([new, old]))


def change(b: Builder, layout: Layout, types: Types) -> exp.Query | None:
    """What comes and goes by the layout's way; None if nothing can have changed."""
    if layout.way is Way.MERGE:
        return _merge(b, layout, types)
    if layout.way is Way.KEYS:
        return _replace(b, layout, types)
    delta = b.delta(layout.root)
    return None if delta is None else _apply(layout, delta)


def appended(b: Builder, layout: Layout) -> exp.Query | None:
    """The rows that come, for a change in which nothing goes."""
    delta = b.delta(layout.root)
    return None if delta is None else from_query(delta, layout.names)


def stored_limit(b: Builder, layout: Layout) -> tuple[str, str] | None:
    """A column of the stored table and a step of keys: stored rows beside those are not needed."""
    if layout.way is Way.KEYS:
        return layout.keys[0], affected(b, layout.keys, b.touched(layout.root, layout.keys)).keys
    if layout.groups is not None:
        node, columns = layout.groups.input, layout.groups.keys
    else:
        node, columns = layout.root, layout.names
    for column in columns:
        parts = b.touched(node, [column])
        if parts and b.is_direct(parts):
            return column, affected(b, [column], parts).keys
    return None


def stored_origins(layout: Layout) -> list[tuple[str, str]]:
    """Columns of the stored table, and the tables' columns that they are passed on from.

    A stored row that a change touches has, in such a column, a value that the change was computed
    with.
    """
    if layout.way is Way.KEYS:
        return []
    node = layout.root if layout.groups is None else layout.groups.input
    columns = layout.names if layout.groups is None else layout.groups.keys
    found = [(column, origin(node, column)) for column in columns if column in node.columns]
    return [(column, source) for column, source in found if source is not None]


def again(b: Builder, layout: Layout, types: Types) -> exp.Query:
    """The rows of groups that have to be computed anew: those of `again`, in k0, k1, …."""
    assert layout.groups is not None
    pairs = tuple((key, f"k{n}") for n, key in enumerate(layout.groups.keys))
    return all_rows(b, layout, types, Within(keys=GROUPS_AGAIN, pairs=pairs) if pairs else None)


def again_keys(layout: Layout) -> tuple[str, ...]:
    """The columns that tell such a group."""
    assert layout.groups is not None
    return layout.groups.keys


def _apply(layout: Layout, delta: exp.Query) -> exp.Query:
    """Rows by their values: of equal ones, as many go as were deleted."""
    names = layout.names
    net = (
        exp.select(*items(names), exp.alias_(exp.Sum(this=column_of(WEIGHT)), WEIGHT, copy=False))
        .from_(sub(delta), copy=False)
        .group_by(*items(names), copy=False)
        .having(exp.NEQ(this=exp.Sum(this=column_of(WEIGHT)), expression=_number(0)), copy=False)
    )
    number = exp.Window(
        this=exp.RowNumber(),
        partition_by=[_of("n", name) for name in names],
        order=exp.Order(
            expressions=[exp.Ordered(this=_of("s", FILE)), exp.Ordered(this=_of("s", POS))]
        ),
    )
    same = [exp.NullSafeEQ(this=_of("n", c), expression=_of("s", c)) for c in names]
    found = exp.select(
        exp.alias_(_of("s", FILE), FILE, copy=False),
        exp.alias_(_of("s", POS), POS, copy=False),
        exp.alias_(_of("n", WEIGHT), WEIGHT, copy=False),
        exp.alias_(number, "place", copy=False),
        *(exp.alias_(_of("n", c), c, copy=False) for c in names),
    ).from_(sub(net, "n"), copy=False)
    side = exp.alias_(exp.to_table(STORED), "s", table=True, copy=False)
    less = exp.LT(this=_of("n", WEIGHT), expression=_number(0))
    found.append("joins", exp.Join(this=side, side="LEFT", on=all_of([less, *same])))
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
        .from_(sub(found), copy=False)
        .where(keep, copy=False)
    )


def _replace(b: Builder, layout: Layout, types: Types) -> exp.Query | None:
    """Rows with the affected keys go, and what the query gives for those keys comes."""
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
    """The change of each group's counts and sums, added to what is stored."""
    groups = layout.groups
    assert groups is not None
    delta = b.delta(groups.input)
    if delta is None:
        return None
    came = _greater(column_of(WEIGHT), 0)
    states = [exp.alias_(exp.Sum(this=column_of(WEIGHT)), ROWS, copy=False)]
    changes = []  # conditions under which a group is not as it was
    for call in layout.calls:
        tree = call.argument
        if call.count is not None:
            is_null = exp.Is(this=tree.copy(), expression=exp.Null())
            counted = _case(is_null, _number(0), column_of(WEIGHT))
            states.append(exp.alias_(exp.Sum(this=counted), call.count, copy=False))
        if call.total is not None:
            signed = _case(came.copy(), tree.copy(), exp.Neg(this=exp.paren(tree.copy())))
            states.append(exp.alias_(exp.Sum(this=signed), call.total, copy=False))
        if call.extreme is not None:
            function = type(call.source.call)
            for suffix, condition in (("i", came), ("d", exp.not_(came))):
                value = function(this=_case(condition.copy(), tree.copy()))
                states.append(exp.alias_(value, f"{call.extreme}{suffix}", copy=False))
            changes.append(f"{call.extreme}i")
            changes.append(f"{call.extreme}d")
    grouped = exp.select(*items(groups.keys), *states).from_(sub(delta), copy=False)
    if groups.keys:
        grouped = grouped.group_by(*items(groups.keys), copy=False)
    moved: list[exp.Expr] = [
        exp.NEQ(this=_zero_if_null(column_of(name)), expression=_number(0))
        for name in _state_names(layout)
        if not name.startswith(f"{OWN_PREFIX}m")
    ]
    moved += [exp.not_(exp.Is(this=column_of(name), expression=exp.Null())) for name in changes]
    grouped = (
        exp.select(exp.Star()).from_(sub(grouped), copy=False).where(exp.or_(*moved), copy=False)
    )
    stored_keys = {key: key for key in groups.keys}
    merged = exp.select(
        exp.alias_(_of("s", FILE), FILE, copy=False),
        exp.alias_(_of("s", POS), POS, copy=False),
        exp.alias_(_again(layout), AGAIN, copy=False),
        *(exp.alias_(_of("g", key), key, copy=False) for key in groups.keys),
        *(_sums(layout, types)),
    ).from_(sub(grouped, "g"), copy=False)
    side = exp.alias_(exp.to_table(STORED), "s", table=True, copy=False)
    if groups.keys:
        same = [
            exp.NullSafeEQ(this=_of("g", key), expression=_of("s", own))
            for key, own in stored_keys.items()
        ]
        merged.append("joins", exp.Join(this=side, side="LEFT", on=all_of(same)))
    else:
        merged.append("joins", exp.Join(this=side, kind="CROSS"))
    finished = _finished(layout, types, merged, extra=[FILE, POS, AGAIN])
    stays = (
        _case(_greater(column_of(ROWS), 0), _number(1), _number(0)) if groups.keys else (_number(1))
    )
    return exp.select(
        *items([FILE, POS]), exp.alias_(stays, COUNT, copy=False), *items([AGAIN, *layout.names])
    ).from_(sub(finished), copy=False)


def _sums(layout: Layout, types: Types) -> list[exp.Expr]:
    made = []
    for name in _state_names(layout):
        if name.startswith(f"{OWN_PREFIX}m"):
            continue
        value: exp.Expr = exp.Add(
            this=_zero_if_null(_of("s", name)), expression=_zero_if_null(_of("g", name))
        )
        if name in types:  # a decimal must not grow by a digit each time
            value = exp.Cast(this=value, to=exp.DataType.build(types[name], dialect="spark"))
        made.append(exp.alias_(value, name, copy=False))
    for call in layout.calls:
        if call.extreme is not None:
            function = exp.Least if call.is_min else exp.Greatest
            kept, came = _of("s", call.extreme), _of("g", f"{call.extreme}i")
            # Engines differ in what they make of a NULL here.
            both = exp.Coalesce(
                this=function(this=kept, expressions=[came]),
                expressions=[kept.copy(), came.copy()],
            )
            made.append(exp.alias_(both, call.extreme, copy=False))
    return made


def _again(layout: Layout) -> exp.Expr:
    """Whether a value that went may have been the least or greatest of a group that stays."""
    doubts = []
    for call in layout.calls:
        if call.extreme is None:
            continue
        compare = exp.LT if call.is_min else exp.GT
        gone = _of("g", f"{call.extreme}d")
        safe = exp.Coalesce(
            this=compare(this=_of("s", call.extreme), expression=gone), expressions=[exp.false()]
        )
        doubts.append(
            exp.and_(exp.not_(exp.Is(this=gone.copy(), expression=exp.Null())), exp.not_(safe))
        )
    if not doubts:
        return exp.false()
    rows = exp.Add(this=_zero_if_null(_of("s", ROWS)), expression=_of("g", ROWS))
    assert layout.groups is not None
    stays = _greater(exp.paren(rows), 0) if layout.groups.keys else exp.true()
    return exp.and_(stays, exp.paren(exp.or_(*doubts)))
