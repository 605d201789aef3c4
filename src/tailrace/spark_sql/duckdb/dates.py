"""Finds days that a query spells out, as in DATE '1995-03-31' - INTERVAL 1 MONTH."""

from __future__ import annotations

import calendar
import datetime as dt
import re

from sqlglot import exp

_PLAIN = re.compile(r"\d{4}-\d\d-\d\d")


def day_of(tree: exp.Expr) -> dt.date | None:
    """The day that an expression spells out; None if it is anything else."""
    if isinstance(tree, exp.Paren):
        return day_of(tree.this)
    if isinstance(tree, exp.Cast) and tree.to.is_type("date"):
        text = tree.this
        if isinstance(text, exp.Literal) and text.is_string:
            try:
                return dt.date.fromisoformat(text.this) if _PLAIN.fullmatch(text.this) else None
            except ValueError:
                return None
    if isinstance(tree, exp.Add | exp.Sub) and isinstance(tree.expression, exp.Interval):
        day, interval = day_of(tree.this), tree.expression
        count = interval.this
        if day is not None and isinstance(count, exp.Literal) and count.this.isdigit():
            sign = 1 if isinstance(tree, exp.Add) else -1
            try:
                return _moved(day, sign * int(count.this), interval.text("unit").upper())
            except (OverflowError, ValueError):  # past the years that Python has
                return None
    return None


def _moved(day: dt.date, count: int, unit: str) -> dt.date | None:
    if unit in ("DAY", "DAYS"):
        return day + dt.timedelta(days=count)
    if unit not in ("MONTH", "MONTHS", "YEAR", "YEARS"):
        return None
    months = day.year * 12 + day.month - 1 + count * (12 if unit.startswith("YEAR") else 1)
    year, month = divmod(months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return dt.date(year, month + 1, min(day.day, last))
