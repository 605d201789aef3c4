"""Sequences of numbers that are never given twice.

Always true: numbers are taken under the commit lock, in the transaction that uses them.
"""

from __future__ import annotations

import sqlalchemy as sa

from tailrace.catalog.part import Int
from tailrace.store.tables import counter

# Built once: every write of the job log runs them.
_VALUE = counter.c.value
# Goes on by so many in some sequences.
COUNT = (
    sa.update(counter)
    .where(counter.c.name.in_(sa.bindparam("which", expanding=True)))
    .values(value=_VALUE + sa.bindparam("many", type_=Int))
)
_COUNT_AND_TELL = COUNT.returning(_VALUE)


def next_number(connection: sa.Connection, name: str, count: int = 1) -> int:
    """The next number of a sequence, never given twice; with a count, the last of so many."""
    given = {"which": [name], "many": count}
    return int(connection.execute(_COUNT_AND_TELL, given).scalar_one())


def counted(name: str) -> sa.ColumnElement[int]:
    """In a statement after `COUNT`: the last number of a sequence, or the one so far `back`."""
    last = sa.select(_VALUE).where(counter.c.name == name).scalar_subquery()
    return last - sa.bindparam("back", type_=Int)
