"""A row for each row: applied to rows and to changes alike."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tailrace.views.plan import OneRow, Project
from tailrace.views.program import WEIGHT, Builder, State, Within
from tailrace.views.rules.filter import is_simple
from tailrace.views.rules.rule import Rule, column_items, items, only_with, sub


def _passed(node: Project) -> dict[str, str]:
    """The columns that are only passed on, and what they are called below."""
    return {name: value.name for name, value in node.items if isinstance(value, exp.Column)}


class ProjectRule(Rule):
    """See the module."""

    def rows(self, b: Builder, node: Project, state: State, within: Within | None) -> exp.Query:
        below = None if within is None else within.on(_passed(node))
        query = b.rows(node.input, state, below)
        made = exp.select(*column_items(node.items))
        if not isinstance(node.input, OneRow):
            made = made.from_(sub(query), copy=False)
        lost = within is not None and (below is None or len(below.pairs) < len(within.pairs))
        return only_with(made, within, node.columns) if lost else made

    def delta(self, b: Builder, node: Project) -> exp.Query:
        below = b.delta(node.input)
        assert below is not None
        return exp.select(*column_items(node.items), *items([WEIGHT])).from_(sub(below), copy=False)

    def touched(self, b: Builder, node: Project, columns: Sequence[str]) -> list[exp.Query]:
        passed = _passed(node)
        if is_simple(node) or not all(column in passed for column in columns):
            return super().touched(b, node, columns)
        return b.touched(node.input, [passed[column] for column in columns])
