"""Which of 100,000 tables changed since S: ten did.

A thousand tables are created by one transaction, which is timed too. The rest are copies of the
first one's rows in the catalog, because that many transactions would take longer than all else.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import sqlalchemy as sa

import tailrace
from bench import report, timing
from bench.bench import Bench
from bench.report import Row
from tailrace.catalog import ducklake as dl
from tailrace.store import tables as t

TABLES, CREATED, CHANGED, ROUNDS = 100_000, 1_000, 10, 30
# The catalog's tables that have rows for each table of the lake.
COPIED = (dl.table, t.own_table, dl.table_stats, dl.column, t.own_column, dl.schema_versions)


def measure(bench: Bench) -> Iterator[Row]:
    with bench.directory() as place, tailrace.connect(place) as lake:
        yield from _measure(bench, lake, "SQLite")
    url = bench.postgres.url(bench.postgres.create_database())
    with bench.directory() as place, tailrace.connect(url, data=place) as lake:
        yield from _measure(bench, lake, "PostgreSQL")


def _measure(bench: Bench, lake: tailrace.Lake, catalog: str) -> Iterator[Row]:
    count, created = bench.size(TABLES), bench.size(CREATED)
    creating = timing.seconds(lambda: create_tables(lake, created))
    yield Row(
        what=f"creation of {report.count(created)} tables in one transaction, {catalog}",
        measured=f"{report.duration(creating / created)} each",
    )
    copy_tables(lake, created, count)
    assert len(lake.tables()) == count
    since = lake.snapshot
    changed = [f"t{number}" for number in range(0, count, max(1, count // CHANGED))][:CHANGED]
    for name in changed:
        lake.table(name).append([{"id": 1}])
    assert len(lake.changed_tables(since)) == len(changed)
    taken = timing.alternate(ROUNDS, warm_up=3, ours=lambda _: lambda: lake.changed_tables(since))
    yield report.absolute(
        f"which of {report.count(count)} tables changed since S, {catalog}",
        taken["ours"],
        most=0.02,
    )


def create_tables(lake: tailrace.Lake, count: int) -> None:
    with lake.transaction() as txn:
        for number in range(count):
            txn.create_table(f"t{number}", {"id": "bigint"})


def copy_tables(lake: tailrace.Lake, start: int, end: int) -> None:
    """More tables, numbered from start to end, like the first."""
    with lake._runtime.database.lock() as connection:
        first = connection.execute(
            sa.select(dl.table.c.table_id).where(dl.table.c.table_name == "t0")
        ).scalar_one()
        next_id = connection.execute(sa.select(sa.func.max(dl.snapshot.c.next_catalog_id))).scalar()
        for table in COPIED:
            rows = connection.execute(sa.select(table).where(table.c.table_id == first)).mappings()
            for row in rows.all():
                copies = [_named(dict(row), next_id, n - start, n) for n in range(start, end)]
                connection.execute(sa.insert(table), copies)
        connection.execute(
            sa.update(dl.snapshot)
            .where(dl.snapshot.c.snapshot_id == lake.snapshot)
            .values(next_catalog_id=next_id + end - start)
        )


def _named(row: dict[str, object], next_id: int, offset: int, number: int) -> dict[str, object]:
    row = row | {"table_id": next_id + offset}
    if "table_name" in row:
        row |= {"table_name": f"t{number}", "table_uuid": str(uuid4()), "path": f"t{number}/"}
    return row
