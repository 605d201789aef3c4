"""Commands that list what there is. The catalog answers them, without Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.cli.options import LakeOption, Output, OutputOption, TenantOption, opened_catalog

LimitOption = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=1_000_000_000, help="The most to list.")
]


def status(
    lake: LakeOption = None, tenant: TenantOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Show how fresh everything is.

    Example: tailrace status --lake shop.lake
    """
    from tailrace.cli.printing import document, rows_out, say
    from tailrace.propagation.node import live_nodes, serving_nodes
    from tailrace.sql.listings import SYSTEM_TABLES, listing, system_rows
    from tailrace.store.lookup import newest_snapshot

    with opened_catalog(lake, tenant=tenant) as catalog:
        jobs = system_rows(catalog, "freshness")
        errors = [job["error"] for job in system_rows(catalog, "jobs") if job["error"]]
        with catalog.database.read() as connection:
            newest = newest_snapshot(connection)
            working = live_nodes(connection, catalog.clock, serving=True)
            nodes = serving_nodes(connection, catalog.clock)
        facts = {
            "snapshot": newest,
            "tables": len(listing(catalog, "tables").rows),
            "views": sum(1 for job in jobs if job["kind"] == "view"),
            "indexes": sum(1 for job in jobs if job["kind"] in ("fulltext", "vector")),
            "jobs": len(jobs),
            "behind": sum(1 for job in jobs if job["lag_snapshots"]),
            "failing": len(errors),
            "served": bool(working),
        }
        faults = [f"{node.host}, {node.pid}: {node.fault}" for node in nodes if node.fault]
    if output is Output.JSON:
        document({**facts, "standing_back": faults, "freshness": jobs})
        return
    rows_out(jobs, list(SYSTEM_TABLES["freshness"]), as_json=False)
    is_served = facts["served"] or faults or not jobs
    served = "" if is_served else "; nothing keeps it fresh: run tailrace serve"
    say(
        f"snapshot {facts['snapshot']}, {facts['tables']} tables, {facts['views']} views, "
        f"{facts['indexes']} indexes, "
        f"{facts['behind']} of {facts['jobs']} jobs behind, {facts['failing']} failing{served}"
    )
    for fault in faults:
        say(f"a node stands back ({fault})")


def tables(
    lake: LakeOption = None, tenant: TenantOption = None, output: OutputOption = Output.TEXT
) -> None:
    """List the tables, with their rows, files and bytes.

    Example: tailrace tables --output json
    """
    _list("tables", lake, tenant, output)


def views(
    lake: LakeOption = None, tenant: TenantOption = None, output: OutputOption = Output.TEXT
) -> None:
    """List the materialized views: how fresh they are, and how they were last refreshed.

    Example: tailrace views --lake shop.lake
    """
    _list("views", lake, tenant, output)


def indexes(
    lake: LakeOption = None, tenant: TenantOption = None, output: OutputOption = Output.TEXT
) -> None:
    """List the search indexes: their columns, how fresh and how large they are.

    Example: tailrace indexes --lake shop.lake
    """
    _list("indexes", lake, tenant, output)


def jobs(
    lake: LakeOption = None, tenant: TenantOption = None, output: OutputOption = Output.TEXT
) -> None:
    """List the jobs: their states and watermarks, and the errors of those that fail.

    Example: tailrace jobs --tenant acme
    """
    _list("jobs", lake, tenant, output)


def iterations(
    lake: LakeOption = None,
    tenant: TenantOption = None,
    limit: LimitOption = 20,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the last runs of jobs: what each read and wrote, and how long it took.

    Example: tailrace iterations --limit 5
    """
    _list("iterations", lake, tenant, output, limit)


def snapshots(
    lake: LakeOption = None,
    tenant: TenantOption = None,
    limit: LimitOption = 20,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the last snapshots, and what each changed.

    Example: tailrace snapshots --limit 5
    """
    _list("snapshots", lake, tenant, output, limit)


def tasks(
    lake: LakeOption = None,
    tenant: TenantOption = None,
    limit: LimitOption = 20,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the last tasks of maintenance: what waits, runs, is done or has failed, and why.

    Example: tailrace tasks --limit 5
    """
    _list("tasks", lake, tenant, output, limit)


def _list(
    what: str, lake: str | None, tenant: str | None, output: Output, limit: int | None = None
) -> None:
    from tailrace.cli.printing import rows_out
    from tailrace.sql.listings import listing

    with opened_catalog(lake, tenant=tenant) as catalog:
        listed = listing(catalog, what, limit=limit)
    rows_out(listed.rows, list(listed.columns), as_json=output is Output.JSON)
