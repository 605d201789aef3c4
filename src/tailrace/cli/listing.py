"""Commands that list what there is. The catalog answers them: no Spark is started."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tailrace.cli.options import LakeOption, Output, OutputOption, TenantOption, opened

LimitOption = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=1_000_000_000, help="How many, at most.")
]


def status(
    lake: LakeOption = None, tenant: TenantOption = None, output: OutputOption = Output.TEXT
) -> None:
    """How fresh everything is.

    Example: tailrace status --lake shop.lake
    """
    from tailrace.cli.printing import document, say
    from tailrace.sql import overview, system

    with opened(lake, tenant=tenant) as found:
        jobs = system.rows(found.runtime, "freshness")
        errors = [job["error"] for job in system.rows(found.runtime, "jobs") if job["error"]]
        facts = {
            "snapshot": found.snapshot,
            "tables": len(overview.tables(found.runtime)),
            "views": sum(1 for job in jobs if job["kind"] == "view"),
            "indexes": sum(1 for job in jobs if job["kind"] in ("fulltext", "vector")),
            "jobs": len(jobs),
            "behind": sum(1 for job in jobs if job["lag_snapshots"]),
            "failing": len(errors),
            "served": found.is_served(),
        }
        faults = [f"{node.host}, {node.pid}: {node.fault}" for node in found.nodes() if node.fault]
    if output is Output.JSON:
        document({**facts, "standing_back": faults, "freshness": jobs})
        return
    _rows(jobs, list(system.TABLES["freshness"]), output)
    is_served = facts["served"] or faults or not jobs
    served = "" if is_served else "; nobody serves it: tailrace serve"
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
    """The tables, with their rows, files and bytes."""
    from tailrace.sql import overview

    with opened(lake, tenant=tenant) as found:
        _rows(overview.tables(found.runtime), list(overview.TABLES), output)


def views(
    lake: LakeOption = None, tenant: TenantOption = None, output: OutputOption = Output.TEXT
) -> None:
    """The materialized views: how fresh they are, and how they were last refreshed."""
    from tailrace.sql import overview

    with opened(lake, tenant=tenant) as found:
        _rows(overview.views(found.runtime), list(overview.VIEWS), output)


def indexes(
    lake: LakeOption = None, tenant: TenantOption = None, output: OutputOption = Output.TEXT
) -> None:
    """The search indexes: what they are of, how fresh and how large they are."""
    from tailrace.sql import overview

    with opened(lake, tenant=tenant) as found:
        _rows(overview.indexes(found.runtime), list(overview.INDEXES), output)


def jobs(
    lake: LakeOption = None, tenant: TenantOption = None, output: OutputOption = Output.TEXT
) -> None:
    """The jobs: their states, watermarks, and the errors of those that fail."""
    _system("jobs", lake, tenant, output)


def iterations(
    lake: LakeOption = None,
    tenant: TenantOption = None,
    limit: LimitOption = 20,
    output: OutputOption = Output.TEXT,
) -> None:
    """The last runs of jobs: what each read, wrote and took."""
    _system("iterations", lake, tenant, output, limit)


def snapshots(
    lake: LakeOption = None,
    tenant: TenantOption = None,
    limit: LimitOption = 20,
    output: OutputOption = Output.TEXT,
) -> None:
    """The last snapshots, and what each changed."""
    _system("snapshots", lake, tenant, output, limit)


def _system(
    name: str, lake: str | None, tenant: str | None, output: Output, limit: int | None = None
) -> None:
    from tailrace.sql import system

    with opened(lake, tenant=tenant) as found:
        _rows(system.rows(found.runtime, name, limit=limit), list(system.TABLES[name]), output)


def _rows(rows: list[dict[str, Any]], names: list[str], output: Output) -> None:
    from tailrace.cli.printing import rows_out

    rows_out(rows, names, as_json=output is Output.JSON)


def add_to(app: typer.Typer) -> None:
    """Enter the commands."""
    for command in (status, tables, views, indexes, jobs, iterations, snapshots):
        app.command()(command)
