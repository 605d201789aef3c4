"""`tailrace load`: files into a table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.options import (
    DataOption,
    LakeOption,
    Output,
    OutputOption,
    TenantOption,
    opened,
)

if TYPE_CHECKING:
    from tailrace.loading import LoadReport, Progress


def load(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Files, or patterns.")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Created if it does not exist.")],
    key: Annotated[
        str | None, typer.Option(metavar="COL,COL", help="The primary key of a new table.")
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option("--format", help="csv, json or parquet; by default by the name."),
    ] = None,
    on_error: Annotated[
        str, typer.Option(help="Rows that do not fit: abort, skip, or report (see --report).")
    ] = "abort",
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write rows that do not fit.")
    ] = None,
    on_duplicate: Annotated[
        str, typer.Option(help="A key that occurs twice in the input: reject, first or last.")
    ] = "reject",
    on_existing: Annotated[
        str, typer.Option(help="A key that the table has already: reject, replace or keep.")
    ] = "reject",
    header: Annotated[bool, typer.Option(help="Whether CSV files begin with column names.")] = True,
    columns: Annotated[
        str | None, typer.Option(metavar="COL,COL", help="Column names of files without a header.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="What separates CSV fields.")] = None,
    quote: Annotated[str, typer.Option(help="The quote character of CSV; empty for none.")] = '"',
    null: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="A text that means NULL.")
    ] = None,
    time_zone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="The time zone of times that name none.")
    ] = None,
    lake: LakeOption = None,
    data: DataOption = None,
    tenant: TenantOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Load CSV, JSON Lines or Parquet files into a table, in one transaction.

    Examples:

      tailrace load orders.csv sales.orders --key id

      tailrace load 'in/*.csv.gz' sales.orders --on-error report --report rejected.csv

      tailrace load changes.parquet sales.orders --on-duplicate last --on-existing replace
    """
    from tailrace.cli.printing import document, say
    from tailrace.cli.spark import cancellable, working
    from tailrace.loading import load as load_files
    from tailrace.sql.result import counted

    with opened(lake, tenant=tenant, data=data, create=True) as found, working(found) as doing:

        def work() -> LoadReport:
            return load_files(
                found,
                files,
                table,
                format=file_format,
                primary_key=_names(key),
                on_error="report" if report is not None and on_error == "abort" else on_error,
                report=report,
                on_duplicate=on_duplicate,
                on_existing=on_existing,
                header=header,
                columns=_names(columns),
                delimiter=delimiter,
                quote=quote or None,
                null=null,
                time_zone=time_zone,
                progress=lambda now: doing(_progress(now)),
            )

        done = cancellable(found, work, message="cancelled: nothing was loaded")
    if output is Output.JSON:
        document(asdict(done))
        return
    made = "created and " if done.created else ""
    left_out = [
        f"{count:,} {what}"
        for count, what in (
            (done.rejected, "rejected"),
            (done.repeated, "repeated in the input"),
            (done.kept, "in the table already"),
        )
        if count
    ]
    more = f"; left out: {', '.join(left_out)}" if left_out else ""
    say(
        f"{done.table}: {made}{done.rows:,} rows loaded from "
        f"{counted(done.files, 'file')}{more} ({done.seconds:.2f} s)"
    )


def _names(given: str | None) -> list[str] | None:
    return None if given is None else [name.strip() for name in given.split(",")]


def _progress(now: Progress) -> str:
    share = f"{100 * now.bytes_done // now.bytes} %" if now.bytes else ""
    rejected = f", {now.rejected:,} rejected" if now.rejected else ""
    return (
        f"{now.doing} {share}: {now.files_done:,} of {now.files:,} files, "
        f"{now.rows:,} rows{rejected}"
    )
