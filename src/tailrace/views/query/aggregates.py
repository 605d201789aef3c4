"""GROUP BY: the groups, their aggregate functions, and what is computed from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, combinations
from typing import TYPE_CHECKING

from sqlglot import exp

from tailrace.errors import InvalidError
from tailrace.spark_sql.functions import called
from tailrace.views.query.plan import Aggregate, Aggregation, Item, Node, Union
from tailrace.views.query.scope import Scope, UnsupportedError
from tailrace.views.query.trees import column_of, columns_in, outside_queries, renamed

if TYPE_CHECKING:
    from tailrace.views.query.translate import Translator

# Spark's aggregate functions that sqlglot does not know.
_ANONYMOUS = {
    "bool_and", "bool_or", "every", "some", "any", "bit_and", "bit_or", "bit_xor", "collect_set",
    "collect_list", "array_agg", "percentile", "percentile_approx", "approx_percentile", "skewness",
    "kurtosis", "histogram_numeric", "regr_count", "regr_avgx", "regr_avgy", "regr_r2", "regr_sxx",
    "regr_sxy", "regr_syy", "regr_slope", "regr_intercept", "try_sum", "try_avg", "mode",
    "hll_sketch_agg", "hll_union_agg", "count_min_sketch", "std", "listagg", "string_agg",
    "bitmap_construct_agg", "bitmap_or_agg",
}  # fmt: skip
# Functions that take whichever row comes first.
_ANY_ROW = (exp.First, exp.Last, exp.AnyValue)
# Functions that give NULL over no rows.
_NULL_OF_NOTHING = (
    *_ANY_ROW,
    exp.Sum,
    exp.Avg,
    exp.Min,
    exp.Max,
    exp.Stddev,
    exp.StddevPop,
    exp.StddevSamp,
    exp.Variance,
    exp.VariancePop,
    exp.LogicalAnd,
    exp.LogicalOr,
)
_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
# What passes a NULL on, so that a comparison of it is never true.
STRICT = (exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Cast)
_EXACT = (
    exp.Count,
    exp.Min,
    exp.Max,
    exp.LogicalAnd,
    exp.LogicalOr,
    exp.BitwiseAndAgg,
    exp.BitwiseOrAgg,
    exp.BitwiseXorAgg,
    exp.ApproxDistinct,
)


def is_aggregate(tree: exp.Expr) -> bool:
    """Whether an expression has an aggregate function that is not a window's."""
    return next(aggregate_calls(tree), None) is not None


def aggregate_calls(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The outermost aggregate functions of an expression."""
    if isinstance(tree, exp.Query):
        return
    if isinstance(tree, exp.Window):
        own = tree.this
        for part in (*own.iter_expressions(), *tree.iter_expressions()):
            if part is not own:
                yield from aggregate_calls(part)
        return
    if _is_call(tree):
        yield tree
        return
    for child in tree.iter_expressions():
        yield from aggregate_calls(child)


def _is_call(tree: exp.Expr) -> bool:
    if isinstance(tree, exp.Filter | exp.WithinGroup):
        return True
    if isinstance(tree, exp.Anonymous):
        return tree.name.lower() in _ANONYMOUS
    return isinstance(tree, exp.AggFunc) and not isinstance(
        tree, exp.RowNumber | exp.Lead | exp.Lag | exp.FirstValue | exp.LastValue | exp.NthValue
    )


def plain_call(call: exp.Expr) -> exp.Expr:
    """An aggregate function without FILTER, where it can be written without."""
    if isinstance(call, exp.CountIf):
        return exp.Count(this=_when(call.this, exp.Literal.number(1)))
    if not isinstance(call, exp.Filter):
        return call.copy()
    inner, condition = plain_call(call.this), call.expression.this
    argument = inner.this
    if isinstance(inner, exp.Count) and isinstance(argument, exp.Star):
        return exp.Count(this=_when(condition, exp.Literal.number(1)))
    known = isinstance(inner, exp.Count | exp.Sum | exp.Avg | exp.Min | exp.Max)
    if known and not isinstance(argument, exp.Distinct) and not inner.expressions:
        return type(inner)(this=_when(condition, argument))
    return call.copy()


def _when(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    branch = exp.If(this=condition.copy(), true=value.copy())
    return exp.Case(ifs=[branch])


def over_nothing(tree: exp.Expr) -> exp.Expr | None:
    """What an expression gives over no rows at all, if not NULL."""
    if _is_null_of_nothing(tree):
        return None
    holder = exp.Paren(this=tree.copy())
    for call in list(aggregate_calls(holder)):
        call.replace(_of_nothing(call))
    result: exp.Expr = holder.this
    return result


def _is_null_of_nothing(tree: exp.Expr) -> bool:
    """Whether an expression is surely NULL over no rows."""
    if _is_call(tree):
        return isinstance(_of_nothing(tree), exp.Null)
    parts = tree.iter_expressions() if isinstance(tree, STRICT) else ()
    return any(_is_null_of_nothing(part) for part in parts)


def _of_nothing(call: exp.Expr) -> exp.Expr:
    """What an aggregate function gives over no rows."""
    plain = plain_call(call)
    inner = plain.this if isinstance(plain, exp.Filter) else plain
    if isinstance(inner, exp.Count | exp.ApproxDistinct):
        return exp.Literal.number(0)
    if isinstance(inner, _NULL_OF_NOTHING):
        return exp.Null()
    raise UnsupportedError(f"{call.sql('spark')[:60]} in a correlated subquery")


class Groups:
    """The groups of one SELECT, and how expressions over their input read after it."""

    def __init__(self, translator: Translator, node: Node) -> None:
        self._translator, self._names = translator, translator.names
        self.node = node  # what is grouped, and in the end the aggregate
        self._replaced: dict[str, exp.Expr] = {}  # by the text of what a column stands for
        self._calls: dict[str, Aggregation] = {}

    def group(
        self,
        group: exp.Group | None,
        scope: Scope,
        items: Sequence[Item],
        late: list[exp.Expr],
        open_conditions: list[exp.Expr],
    ) -> list[exp.Expr]:
        """Group the rows; returns the open conditions, over the groups.

        `late` are all expressions computed from groups, as written over the ungrouped input.
        """
        keys, sets = self._keys(group, scope, items)
        opened = []
        for condition in open_conditions:
            key, rewritten = self._correlation(condition)
            keys.append(key)
            opened.append(rewritten)
        if sets is not None:
            if opened:
                raise UnsupportedError("GROUPING SETS in a correlated subquery")
            keys = self._expand(keys, sets, late)
        else:
            self._take_calls(late, {})
        unique = tuple(dict.fromkeys(keys))
        self._names.check_groupable(unique)
        self.node = Aggregate(input=self.node, keys=unique, calls=tuple(self._calls.values()))
        return opened

    def after(self, tree: exp.Expr, scalars: AbstractSet[str]) -> exp.Expr:
        """An expression over the groups; `scalars` are columns with the values of subqueries."""
        holder = exp.Paren(this=tree.copy())
        self._replace(holder.this)
        known = set(self.node.columns)
        for column in outside_queries(holder):
            if column.name in scalars - known:
                raise UnsupportedError("a scalar subquery in the SELECT list of groups")
            if column.name not in known and not column.table:
                shown = column.name.rpartition("_")[0]
                raise InvalidError(f"{shown!r} is neither in the GROUP BY nor in an aggregate")
        result: exp.Expr = holder.this
        return result

    def _replace(self, tree: exp.Expr) -> None:
        if isinstance(tree, exp.Query):
            return
        # A window function is outermost: only its arguments are computed from groups.
        inside_window = isinstance(tree.parent, exp.Window) and tree.parent.this is tree
        value = None if inside_window else self._replaced.get(tree.sql("spark"))
        if value is not None:
            tree.replace(value.copy())
            return
        for child in list(tree.iter_expressions()):
            self._replace(child)

    def _take_calls(self, late: list[exp.Expr], moved: Mapping[str, exp.Expr]) -> None:
        for tree in late:
            for call in aggregate_calls(tree):
                text = call.sql("spark")
                if text not in self._replaced:
                    aggregation = self._calls[text] = self._call(renamed(call, moved))
                    self._replaced[text] = column_of(aggregation.name)

    # --- keys -------------------------------------------------------------------------------

    def _keys(
        self, group: exp.Group | None, scope: Scope, items: Sequence[Item]
    ) -> tuple[list[str], list[tuple[str, ...]] | None]:
        """All keys, and those of each grouping set if there are several."""
        if group is None:
            return [], None
        if group.args.get("all"):
            return [self._key(value) for _, value in items if not is_aggregate(value)], None

        def key(tree: exp.Expr) -> str:
            return self._key(self._translator.bound_late(tree, scope, items))

        plain = [key(tree) for tree in group.expressions if not isinstance(tree, _SETS)]
        clauses = [tree for tree in group.expressions if isinstance(tree, _SETS)]
        for kind in _SETS:
            clauses += group.args.get(kind.key) or ()
        if not clauses:
            return plain, None
        if len(clauses) > 1:
            raise UnsupportedError("several ROLLUP, CUBE or GROUPING SETS in one GROUP BY")
        (clause,) = clauses
        given = clause.expressions
        always = plain if given else []  # GROUP BY a, b WITH ROLLUP
        if isinstance(clause, exp.GroupingSets):
            own: list[Sequence[str]] = [
                [key(tree) for tree in (one.expressions if isinstance(one, exp.Tuple) else [one])]
                for one in given
            ]
        else:
            own = _sets_of(clause, [key(tree) for tree in given] or plain)
        sets = [(*always, *members) for members in own]
        return list(dict.fromkeys([*always, *chain(*own)])), sets

    def _key(self, tree: exp.Expr) -> str:
        """A group key as a column of the input."""
        while isinstance(tree, exp.Paren):
            tree = tree.this
        if isinstance(tree, exp.Column):
            self._replaced[tree.sql("spark")] = tree.copy()
            return tree.name
        text = tree.sql("spark")
        known = self._replaced.get(text)
        if known is not None:
            return known.name
        self.node, name = self._translator.with_column(self.node, tree, "g")
        self._replaced[text] = column_of(name)
        return name

    def _correlation(self, condition: exp.Expr) -> tuple[str, exp.Expr]:
        """An open condition of a subquery with aggregates: its inner side becomes a key."""
        own = set(self.node.columns)
        if isinstance(condition, exp.EQ):
            for inner, outer in (
                (condition.left, condition.right),
                (condition.right, condition.left),
            ):
                if columns_in(inner) and columns_in(inner) <= own and not columns_in(outer) & own:
                    key = self._key(inner)
                    return key, exp.EQ(this=column_of(key), expression=outer.copy())
        raise UnsupportedError(f"a correlated subquery with {condition.sql('spark')}")

    def _expand(
        self, keys: list[str], sets: list[tuple[str, ...]], late: list[exp.Expr]
    ) -> list[str]:
        """Every row once for each grouping set, with NULL for the keys that are not in it."""
        if len(set(map(frozenset, sets))) != len(sets):
            raise UnsupportedError("the same grouping set twice")
        # Spark's number of a set has a bit for each key that is not in it.
        bits = {key: 1 << n for n, key in enumerate(reversed(keys))}
        numbers = [sum(bits[key] for key in keys if key not in members) for members in sets]
        names, before = self._names, self.node
        parts = []
        for members, number in zip(sets, numbers, strict=True):
            items: list[Item] = [(c, column_of(c)) for c in before.columns]
            items += [(k, column_of(k) if k in members else exp.Null()) for k in keys]
            items.append(("grouping_id", exp.Literal.number(number)))
            parts.append(self._translator.projected(before, items))
        every = [*before.columns, *keys, "grouping_id"]
        columns = tuple(names.new(c, names.types.get(c)) for c in every)
        self.node = Union(columns=columns, parts=tuple(parts))
        width = len(before.columns)
        moved = {old: column_of(new) for old, new in zip(before.columns, columns, strict=False)}
        mark = columns[-1]
        grouped = dict(zip(keys, columns[width:-1], strict=True))
        self._replaced = {t: column_of(grouped[key.name]) for t, key in self._replaced.items()}
        lacking = {
            key: [n for members, n in zip(sets, numbers, strict=True) if key not in members]
            for key in keys
        }
        for tree in late:
            self._grouping(tree, lacking, mark)
        self._take_calls(late, moved)
        return [*grouped.values(), mark]

    def _grouping(self, tree: exp.Expr, lacking: Mapping[str, list[int]], mark: str) -> None:
        """`grouping(key)` and `grouping_id()` follow from the number of the set."""
        for call in tree.find_all(exp.Func):
            name = called(call)
            if name == "grouping_id":
                self._replaced[call.sql("spark")] = exp.cast(column_of(mark), "bigint")
            elif name == "grouping":
                (key,) = call.expressions or [call.this]
                out = [exp.Literal.number(number) for number in lacking[key.name]]
                inside = exp.In(this=column_of(mark), expressions=out) if out else exp.false()
                value = exp.Case(
                    ifs=[exp.If(this=inside, true=exp.Literal.number(1))],
                    default=exp.Literal.number(0),
                )
                self._replaced[call.sql("spark")] = exp.cast(value, "tinyint")

    # --- functions --------------------------------------------------------------------------

    def _call(self, call: exp.Expr) -> Aggregation:
        plain = plain_call(call)
        base = plain.this if isinstance(plain, exp.Filter | exp.WithinGroup) else plain
        if isinstance(base, _ANY_ROW) or base.find(*_ANY_ROW):
            raise UnsupportedError(f"{call.sql('spark')} depends on the order of rows")
        exact, decimal = isinstance(base, _EXACT), False
        if isinstance(base, exp.Sum | exp.Avg):
            argument = base.this
            if isinstance(argument, exp.Distinct):
                argument = argument.expressions[0]
            exact = self._names.is_exact(argument)
            decimal = self._names.is_decimal(argument)
        name = self._names.new(base.key, self._names.type_of(plain))
        return Aggregation(name=name, call=plain, exact=exact, decimal=decimal)


def _sets_of(clause: exp.Expr, keys: list[str]) -> list[Sequence[str]]:
    """The grouping sets of a ROLLUP or a CUBE."""
    sizes = range(len(keys), -1, -1)
    if isinstance(clause, exp.Rollup):
        return [keys[:size] for size in sizes]
    return [members for size in sizes for members in combinations(keys, size)]
