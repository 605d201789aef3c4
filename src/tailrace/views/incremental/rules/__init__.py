"""The rules: for each operator, how a change of its inputs changes its rows.

This is the table of all rules. A rule gives three queries for a node: its rows at one end of the
range (only those with some keys, if asked), the change of its rows, and the values of some columns
in all rows that may have come or gone.
"""

from __future__ import annotations

from tailrace.views.incremental.rules.base import Rule
from tailrace.views.incremental.rules.inner_join import InnerJoinRule
from tailrace.views.incremental.rules.key_join import KeyJoinRule
from tailrace.views.incremental.rules.linear import (
    ConstantRule,
    ExplodeRule,
    FilterRule,
    ProjectRule,
    ScanRule,
    UnionRule,
)
from tailrace.views.incremental.rules.recomputed import (
    AggregateRule,
    LimitRule,
    SetOperationRule,
    WindowRule,
)
from tailrace.views.query import plan

RULES: dict[type[plan.Node], Rule] = {
    plan.Scan: ScanRule(),  # the changes of the table
    plan.OneRow: ConstantRule(),  # never changes
    plan.Values: ConstantRule(),
    plan.Filter: FilterRule(),  # applied to the change
    plan.Project: ProjectRule(),
    plan.Explode: ExplodeRule(),
    plan.Union: UnionRule(),
    plan.InnerJoin: InnerJoinRule(),  # a term for each input that changed
    plan.KeyJoin: KeyJoinRule(),  # the affected join keys, before and after
    plan.Aggregate: AggregateRule(),  # the affected groups, before and after
    plan.SetOperation: SetOperationRule(),  # the affected rows, before and after
    plan.Window: WindowRule(),  # the affected partitions, before and after
    plan.Limit: LimitRule(),  # all of it, before and after
}
