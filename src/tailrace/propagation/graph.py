"""The graph of tables and the jobs between them: a job must not feed itself."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from tailrace.errors import InvalidError
from tailrace.propagation import tables as t
from tailrace.store import tables as st


def check_no_loop(
    connection: sa.Connection, job: str, sources: Iterable[int], outputs: Iterable[int]
) -> None:
    """Refuse outputs from which existing jobs lead back to a source."""
    ends = set(sources)
    seen: set[int] = set()
    reached = set(outputs)
    while reached:
        if reached & ends:
            raise InvalidError(
                f"{job} would feed itself: what it writes leads back to one of its sources; "
                "write to a table that none of its sources is derived from"
            )
        seen |= reached
        reached = _next_tables(connection, reached) - seen


def longest_chain(connection: sa.Connection) -> int:
    """How many jobs the longest chain has: each follows a table that the one before writes."""
    source, output = t.job_source.c, st.output.c
    query = (
        sa.select(output.owner, source.job_id)
        .select_from(st.output)
        .join(t.job_source, source.table_id == output.table_id)
        .distinct()
    )
    after: dict[int, set[int]] = {}
    for before, behind in connection.execute(query):
        after.setdefault(before, set()).add(behind)
    length, level = 1, set(after)
    while level := {job for before in level for job in after.get(before, ())}:
        length += 1
        if length > len(after) + 1:
            break  # a loop, which no commit allows
    return length


def _next_tables(connection: sa.Connection, tables: Iterable[int]) -> set[int]:
    source, output, job = t.job_source.c, st.output.c, t.job.c
    query = (
        sa.select(output.table_id)
        .select_from(t.job_source)
        .join(t.job, job.job_id == source.job_id)
        .join(st.output, output.owner == source.job_id)
        .where(source.table_id.in_(list(tables)), job.dropped_at.is_(None))
    )
    return set(connection.execute(query).scalars())
