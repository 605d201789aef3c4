"""A row for each row: applied to rows and to changes alike."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tailrace.views.incremental.program import WEIGHT, Builder, End, Within
from tailrace.views.incremental.rules.rule import Rule, column_items, with_rest
from tailrace.views.query.plan import OneRow, Project
from tailrace.views.query.trees import items, select, sub


def _passed(node: Project) -> dict[str, str]:
    """The columns that are only passed on, with their names below."""
    return {name: value.name for name, value in node.items if isinstance(value, exp.Column)}


class ProjectRule(Rule):
    """See the module."""

    def rows(self, b: Builder, node: Project, end: End, within: Within | None) -> exp.Query:
        below = None if within is None else within.on(_passed(node))
        query = b.rows(node.input, end, below)
        shown = column_items(node.items)
        one = isinstance(node.input, OneRow)
        projected = exp.Select(expressions=shown) if one else select(shown, sub(query))
        return with_rest(projected, within, below, node.columns)

    def delta(self, b: Builder, node: Project) -> exp.Query:
        below = b.delta(node.input)
        assert below is not None
        return select([*column_items(node.items), *items([WEIGHT])], sub(below))

    def touched(self, b: Builder, node: Project, columns: Sequence[str]) -> list[exp.Query]:
        passed = _passed(node)
        if node.is_simple or not all(column in passed for column in columns):
            return super().touched(b, node, columns)
        return b.touched(node.input, [passed[column] for column in columns])

    def tells(self, b: Builder, node: Project, columns: Sequence[str]) -> bool:
        passed = _passed(node)
        if not all(column in passed for column in columns):
            return self.tells_all(b, node)
        return b.tells(node.input, [passed[column] for column in columns])

    def tells_all(self, b: Builder, node: Project) -> bool:
        return b.tells_all(node.input)
