"""Which rows of its sources and of the stored table a program needs, by its queries.

A row too many does no harm: in doubt, all rows are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from tailrace.views.incremental.program import Fetch, Program
from tailrace.views.query.scope import any_of, renamed
from tailrace.views.query.trees import shape, tables_in


@dataclass(frozen=True, kw_only=True)
class StoredLimit:
    """Which stored rows a change can touch."""

    # A column of the stored table, a step of keys, and the column of these keys.
    keys: tuple[str, str, str] | None = None
    # Columns of the stored table, each with the relations and columns that have all its values.
    origins: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()


NO_LIMIT = StoredLimit()


def values_read(
    program: Program, columns: Sequence[tuple[str, str]]
) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Where the values of columns are read; `columns` are pairs of stored and program columns.

    Columns that the program does not simply read from a relation are left out.
    """
    wanted = {column for _, column in columns}
    read: dict[str, dict[tuple[str, str], None]] = {column: {} for column in wanted}
    for tree in program.trees():
        for item in tree.find_all(exp.Alias):
            select = item.parent
            if item.alias not in wanted or not isinstance(select, exp.Select):
                continue
            source = select.args["from_"].this if select.args.get("from_") else None
            if isinstance(source, exp.Table) and isinstance(item.this, exp.Column):
                read[item.alias][source.name, item.this.name] = None
    return tuple((own, tuple(read[column])) for own, column in columns if read[column])


def fetch_conditions(program: Program) -> dict[str, exp.Expr | None]:
    """For each fetch, a condition on the source's fields that holds for all its users, if any."""
    fetches = {step.name for step in program.steps if isinstance(step, Fetch)}
    conditions: dict[str, list[exp.Expr] | None] = {}
    for tree in program.trees():
        for table, _ in tables_in(tree):
            if table.name not in fetches:
                continue
            condition = _condition_of(table)
            known = conditions.setdefault(table.name, [])
            if condition is None or known is None:
                conditions[table.name] = None
            else:
                known.append(condition)
    return {name: _any_of(parts or ()) for name, parts in conditions.items()}


def _any_of(conditions: Sequence[exp.Expr]) -> exp.Expr | None:
    different = list({shape(condition): condition for condition in conditions}.values())
    if len(different) > 1:
        return any_of(different)
    return different[0] if different else None


def _condition_of(table: exp.Table) -> exp.Expr | None:
    """The WHERE above a use of a table, on the table's own fields."""
    inner = table.find_ancestor(exp.Select)
    if inner is None:
        return None
    above: exp.Expr | None = inner.parent
    while isinstance(above, exp.Union | exp.Subquery | exp.From):
        above = above.parent
    if not isinstance(above, exp.Select) or above.args.get("where") is None:
        return None
    if above.args.get("joins"):
        return None
    fields = {
        item.alias_or_name: exp.column(exp.to_identifier(item.this.name, quoted=True))
        for item in inner.selects
        if isinstance(item, exp.Alias) and isinstance(item.this, exp.Column)
    }
    condition = above.args["where"].this
    if not all(column.name in fields for column in condition.find_all(exp.Column)):
        return None
    return renamed(condition, fields)
