"""The tables of propagation: jobs, what they read and did, and the nodes that run them."""

from __future__ import annotations

from uuid import uuid4

import sqlalchemy as sa

from tailrace.catalog.columns import Int, PartialIndex, Text, Time, since
from tailrace.catalog.configuration import own_metadata
from tailrace.catalog.part import Part, new_views
from tailrace.propagation.system_views import system_views

metadata = sa.MetaData()

counter = sa.Table(
    "tailrace_counter",
    metadata,
    sa.Column("name", Text, primary_key=True),
    sa.Column("value", Int, nullable=False),
    info=since(2),
)
job = sa.Table(
    "tailrace_job",
    metadata,
    sa.Column("job_id", Int, primary_key=True, autoincrement=False),
    sa.Column("tenant", Text, nullable=False),
    # Schema and name, folded, of the table that the job is named under.
    sa.Column("home", Text, nullable=False),
    sa.Column("name", Text, nullable=False),
    # The consumer's kind: also in the spec, and here for those who look for it.
    sa.Column("kind", Text, nullable=False),
    sa.Column("spec", Text, nullable=False),
    sa.Column("state", Text, nullable=False),
    # The snapshot that the output reflects; NULL before the first iteration.
    sa.Column("watermark", Int),
    # Where the iteration that was begun ends: a retry has to end there too.
    sa.Column("claim_to", Int),
    # 1 if that iteration only brings the job closer to the others of its group.
    sa.Column("catches_up", Int, nullable=False),
    # The node that runs it; NULL at rest.
    sa.Column("node_id", Text),
    # Rises whenever what runs must be stopped: a commit with an older one is refused.
    sa.Column("epoch", Int, nullable=False),
    # The number of the last write of the row, out of one sequence for all jobs of the lake.
    sa.Column("lsn", Int, nullable=False),
    # Failures in a row, and when to try again.
    sa.Column("tries", Int, nullable=False),
    sa.Column("retry_at", Time),
    # JSON: the last error, and what the consumer remembers.
    sa.Column("status", Text, nullable=False),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("dropped_at", Time),
    sa.Index("tailrace_ix_job_lsn", "lsn"),
    info=since(2),
)
PartialIndex(
    "tailrace_ix_job_name",
    job.c.tenant,
    job.c.home,
    sa.func.lower(job.c.name),
    where=job.c.dropped_at.is_(None),
)
job_source = sa.Table(
    "tailrace_job_source",
    metadata,
    sa.Column("job_id", Int, primary_key=True, autoincrement=False),
    sa.Column("position", Int, primary_key=True, autoincrement=False),
    sa.Column("table_id", Int, nullable=False),
    sa.Index("tailrace_ix_job_source", "table_id"),
    info=since(2),
)
node = sa.Table(
    "tailrace_node",
    metadata,
    sa.Column("node_id", Text, primary_key=True),
    # 1: until further notice; 0: only until something is fresh.
    sa.Column("serves", Int, nullable=False),
    sa.Column("host", Text, nullable=False),
    sa.Column("pid", Int, nullable=False),
    sa.Column("started_at", Time, nullable=False),
    sa.Column("heartbeat_at", Time, nullable=False),
    # Why it stands back and claims nothing; NULL if it is well. Added in version 9.
    sa.Column("fault", Text),
    info=since(2),
)
iteration = sa.Table(
    "tailrace_iteration",
    metadata,
    sa.Column("iteration_id", Int, primary_key=True, autoincrement=False),
    sa.Column("job_id", Int, nullable=False),
    sa.Column("tenant", Text, nullable=False),
    sa.Column("sources", Text, nullable=False),  # JSON: the names of the tables
    sa.Column("from_snapshot", Int),
    sa.Column("to_snapshot", Int, nullable=False),
    sa.Column("kind", Text, nullable=False),
    sa.Column("strategy", Text),
    sa.Column("node_id", Text, nullable=False),
    sa.Column("started_at", Time, nullable=False),
    sa.Column("ended_at", Time, nullable=False),
    sa.Column("day", Text, nullable=False),  # of its end, in UTC
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("rows_read", Int, nullable=False),
    sa.Column("bytes_read", Int, nullable=False),
    sa.Column("rows_written", Int, nullable=False),
    sa.Column("bytes_written", Int, nullable=False),
    sa.Column("error", Text),
    sa.Index("tailrace_ix_iteration_job", "job_id", "iteration_id"),
    sa.Index("tailrace_ix_iteration_day", "day", "tenant"),
    info=since(2),
)
usage = sa.Table(
    "tailrace_usage",
    metadata,
    sa.Column("tenant", Text, primary_key=True),
    sa.Column("day", Text, primary_key=True),
    sa.Column("iterations", Int, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("rows_read", Int, nullable=False),
    sa.Column("bytes_read", Int, nullable=False),
    sa.Column("rows_written", Int, nullable=False),
    sa.Column("bytes_written", Int, nullable=False),
    info=since(2),
)
version = sa.Table(
    "tailrace_version",
    metadata,
    sa.Column("table_id", Int, primary_key=True, autoincrement=False),
    # The snapshot that made this version of a derived table.
    sa.Column("commit_snapshot", Int, primary_key=True, autoincrement=False),
    # The snapshot of the sources that it reflects.
    sa.Column("label", Int, nullable=False),
    info=since(3),
)
job_upstream = sa.Table(
    "tailrace_job_upstream",
    metadata,
    sa.Column("job_id", Int, primary_key=True, autoincrement=False),
    sa.Column("position", Int, primary_key=True, autoincrement=False),
    # A job whose output this one reads at the same label: brought there first, in one commit.
    sa.Column("upstream_id", Int, nullable=False),
    sa.Index("tailrace_ix_job_upstream", "upstream_id"),
    info=since(3),
)


def _begin_counting(connection: sa.Connection) -> None:
    counters = [{"name": name, "value": 0} for name in ("job", "lsn", "iteration")]
    connection.execute(sa.insert(counter), counters)
    # What tells this lake from others, for keys that are given to systems outside.
    connection.execute(sa.insert(own_metadata).values(key="lake_id", value=uuid4().hex[:12]))


def _add_faults(connection: sa.Connection) -> None:
    """Why a node stands back."""
    # A new lake has the column already: its tables are made as they are today.
    columns = sa.inspect(connection).get_columns(node.name)
    if all(column["name"] != node.c.fault.name for column in columns):
        connection.exec_driver_sql("ALTER TABLE tailrace_node ADD COLUMN fault VARCHAR")


PART = Part(
    tables=metadata,
    steps={2: _begin_counting, 5: new_views, 7: new_views, 9: _add_faults, 10: new_views},
    views=system_views,
)
