"""Jobs of views in the job log: found without what reads queries, so that lists start sooner."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace.propagation import joblog
from tailrace.propagation import tables as t
from tailrace.propagation.job import JobRecord

# The kind of these jobs, and their name but for those that build a replacement.
VIEW = "view"


def jobs_of_views(connection: sa.Connection, tenant: str) -> list[JobRecord]:
    """The jobs that keep a tenant's views fresh, without those that build replacements."""
    c = t.job.c
    return joblog.records(connection, c.tenant == tenant, c.kind == VIEW, c.name == VIEW)
