"""The one call: find the files, look at them, find or create the table, load, commit.

Always true: all files are one transaction. Either every row that fits becomes visible, in one
snapshot, or nothing does, not even the table that the load would have created.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from tailrace.arguments import Name, TableName, checked
from tailrace.errors import Action, Fix, InvalidError, NotFoundError
from tailrace.loading.convert import lay_out
from tailrace.loading.locally import is_small, load_locally
from tailrace.loading.options import (
    Format,
    OnDuplicate,
    OnError,
    OnExisting,
    Options,
    character,
    one_of,
    text_list,
    zone,
)
from tailrace.loading.parts import PreparedFile
from tailrace.loading.plan import LoadPlan, Progress
from tailrace.loading.rows import check_path
from tailrace.loading.shape import Shape, look_at, merged_columns, sample_bytes, settled
from tailrace.loading.source import InputFile, find_files
from tailrace.loading.with_spark import load_with_spark
from tailrace.log import get_logger
from tailrace.store.schema import TableInfo
from tailrace.store.transaction import Transaction

log = get_logger("tailrace.loading")


@runtime_checkable
class Lake(Protocol):
    """All that a load asks of a lake; `tailrace.Lake` is one."""

    def transaction(self) -> Transaction:
        """Begin a transaction."""
        ...


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """What a load did."""

    table: str
    created: bool  # the table, by this load
    snapshot: int  # that it created; the newest before, if it loaded nothing
    files: int
    rows: int  # loaded
    rejected: int  # rows that did not fit
    repeated: int  # rows left out because the input has their key twice (on_duplicate)
    kept: int  # rows left out because the table has their key (on_existing)
    seconds: float
    engine: str  # "process" or "spark"


@checked
def load(
    lake: Lake,
    files: str | Path | Iterable[str | Path],
    table: TableName,
    *,
    format: str | None = None,  # noqa: A002  (what users call it)
    create: bool = True,
    primary_key: Name | Iterable[Name] | None = None,
    on_error: str = "abort",
    report: str | Path | None = None,
    on_duplicate: str = "reject",
    on_existing: str = "reject",
    header: bool = True,
    columns: str | Iterable[str] | None = None,
    delimiter: str | None = None,
    quote: str | None = '"',
    null: str | Iterable[str] | None = None,
    time_zone: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> LoadReport:
    """Load files into a table, in one transaction.

    load(lake, "orders/*.csv", "sales.orders", primary_key="id", on_error="skip")

    `files` are paths, patterns and URLs of objects; their names say which format they are, unless
    `format` does: "csv", "json" (an object on each line) or "parquet". A table that does not exist
    is created, unless `create` is False, with the columns that are inferred and with
    `primary_key`.

    Rows that don't fit are an error that names them ("abort"), counted ("skip") or written to the
    file `report` ("report"). `on_duplicate` says which row of a key is loaded that the input has
    twice: "reject" the later ones, or the "first" or "last". `on_existing` says what is done with
    a key that the table has: "reject" the row, "replace" the table's, or "keep" it.

    For CSV: `header`, or else `columns` with their names; `delimiter`, `quote` (None: nothing
    quotes), and `null`, texts that mean NULL beside an empty field. `time_zone` is the zone of
    times that name none.
    """
    began = time.monotonic()
    options = Options(
        on_error=one_of(OnError, on_error, "on_error"),
        on_duplicate=one_of(OnDuplicate, on_duplicate, "on_duplicate"),
        on_existing=one_of(OnExisting, on_existing, "on_existing"),
        format=None if format is None else one_of(Format, format, "format"),
        header=header,
        columns=text_list(columns, "columns"),
        delimiter=character(delimiter, "delimiter"),
        quote=character(quote, "quote"),
        nulls=text_list(null, "null") or (),
        time_zone=zone(time_zone),
    )
    report_path = None if report is None else Path(report).expanduser()
    _check(options, report_path)
    key = text_list(primary_key, "primary_key") or ()
    with lake.transaction() as txn:
        inputs = find_files(files, txn.runtime.storage, options.format)
        known = _find(txn, table)
        if known is None and not create:
            raise NotFoundError(f"there is no table {table}: create it first, or let load do it")
        shapes = _look(inputs, options, known)
        info = known or _create(txn, table, shapes, key)
        _check_key(info, key, options)
        plan = LoadPlan(
            txn=txn,
            table=info,
            created=known is None,
            files=tuple(
                PreparedFile(
                    file=file, shape=shape, layout=lay_out(file, shape.columns, info, options)
                )
                for file, shape in zip(inputs, shapes, strict=True)
            ),
            options=options,
            report=report_path,
            tell=progress or (lambda _: None),
        )
        outcome = load_locally(plan) if is_small(plan) else None
        engine = "spark" if outcome is None else "process"
        outcome = outcome or load_with_spark(plan)
    done = LoadReport(
        table=plan.table.full_name,
        created=plan.created,
        snapshot=txn.snapshot,
        files=len(plan.files),
        seconds=time.monotonic() - began,
        engine=engine,
        **asdict(outcome),
    )
    log.info(
        "loaded",
        table=done.table,
        snapshot=done.snapshot,
        files=done.files,
        rows=done.rows,
        rejected=done.rejected,
        seconds=round(done.seconds, 3),
    )
    return done


def _check(options: Options, report: Path | None) -> None:
    if (report is not None) != (options.on_error is OnError.REPORT):
        raise InvalidError(
            "a report needs a file to go to, and only a report does", fix=Fix(Action.NAME_REPORT)
        )
    if report is not None:
        check_path(report)
    if options.columns is not None and options.header:
        raise InvalidError(
            "columns name the fields of files without a header", fix=Fix(Action.SKIP_HEADER)
        )
    if options.quote is not None and options.quote == options.delimiter:
        raise InvalidError(f"{options.quote!r} can't both quote and delimit")


def _find(txn: Transaction, name: str) -> TableInfo | None:
    try:
        return txn.info(name)
    except NotFoundError:
        return None


def _look(files: Sequence[InputFile], options: Options, table: TableInfo | None) -> list[Shape]:
    names = options.columns
    if names is None and table is not None:
        names = tuple(column.name for column in table.columns)
    size = sample_bytes(len(files))
    return [look_at(file, options, size=size, names=names) for file in files]


def _create(txn: Transaction, name: str, shapes: Iterable[Shape], key: Sequence[str]) -> TableInfo:
    columns = merged_columns(shape.columns for shape in shapes)
    if not columns:
        raise InvalidError(f"the files are empty: create {name} first, there is nothing to infer")
    txn.create_table(
        name,
        {column: settled(kind) for column, kind in columns.items()},
        primary_key=key,
    )
    return txn.info(name)


def _check_key(table: TableInfo, key: Sequence[str], options: Options) -> None:
    own = [column.name for column in table.key_columns]
    if key and [name.casefold() for name in key] != [name.casefold() for name in own]:
        said = f"the primary key {', '.join(own)}" if own else "no primary key"
        raise InvalidError(f"{table.full_name} has {said}, not {', '.join(key)}")
    if own:
        return
    if options.on_duplicate is not OnDuplicate.REJECT:
        fix = Fix(Action.LEAVE_OPTION_OUT, "on_duplicate", options.on_duplicate.value)
    elif options.on_existing is not OnExisting.REJECT:
        fix = Fix(Action.LEAVE_OPTION_OUT, "on_existing", options.on_existing.value)
    else:
        return
    raise InvalidError(f"{table.full_name} has no primary key", fix=fix)
