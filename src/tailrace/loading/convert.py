"""Makes the columns of a file those of a table: which fills which, and a value of the right type.

Always true: which column fills which is settled before any row is read, so that a row can only fail
by its values. A value is refused for what it is itself, never for its neighbours: a column is
converted at once; if that fails, it is halved until the values that don't fit are alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import InvalidError
from tailrace.loading.csv_rows import dialect_of
from tailrace.loading.json_rows import JsonField, json_type
from tailrace.loading.options import Format, OnError, Options
from tailrace.loading.rows import Block, Fitted, Lines, Misfit, nearest, shown
from tailrace.loading.source import InputFile
from tailrace.loading.text import Dialect
from tailrace.spark_sql import types
from tailrace.spark_sql.types import TIMESTAMP, TIMESTAMP_NTZ
from tailrace.store import rows as row_checks
from tailrace.store.schema import Column, TableInfo

# A time with a zone. The time is needed: the end of a date looks like a zone.
_ZONED = r"[T ].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"

Mask = npt.NDArray[np.bool_]
Strict = Callable[[pa.Array], pa.Array]

_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, InvalidError)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How one file fills the table. Sent to Spark's workers."""

    table: str  # for messages
    columns: tuple[Column, ...]
    sources: tuple[int | None, ...]  # for each, the number of the file's column that fills it
    time_zone: str | None = None
    width: int = 0  # columns of the file
    dialect: Dialect | None = None  # of CSV
    json: tuple[JsonField, ...] = ()

    def fit(self, block: Block, part: int) -> Fitted:
        """Convert rows to the table's types, and reject those that don't fit."""
        bad = np.zeros(block.rows.num_rows, bool)
        misfits = list(block.broken)
        arrays = []
        for column, source in zip(self.columns, self.sources, strict=True):
            if source is None:
                given: pa.Array = pa.nulls(len(bad), column.type)
            else:
                given = _whole(block.rows.column(source))
            values, failed = self._convert(given, column)
            arrays.append(values)
            misfits += self._misfits(block, np.flatnonzero(failed & ~bad), part, column, given)
            bad |= failed
        misfits.sort(key=lambda misfit: misfit.line)
        rows = pa.table(arrays, names=[column.name for column in self.columns])
        lines = block.lines
        if bad.any():
            rows, lines = rows.filter(pa.array(~bad)), lines[~bad]
        return Fitted(rows=rows, lines=lines, misfits=misfits)

    def _convert(self, given: pa.Array, column: Column) -> tuple[pa.Array, Mask]:
        if pa.types.is_string(given.type) and not pa.types.is_string(column.type):
            values, failed = from_text(given, column.type, self.time_zone)
        else:
            values, failed = sift(given, _fitting(self.table, column), column.type)
        if not column.nullable and values.null_count:
            failed = failed | _mask(pc.is_null(values))
        return values, failed

    def _misfits(
        self, block: Block, rows: Lines, part: int, column: Column, given: pa.Array
    ) -> Iterator[Misfit]:
        if not len(rows):
            return
        plain = row_checks.plain_rows(pa.table([given.take(pa.array(rows))], names=["value"]))
        for row, row_values in zip(rows, plain, strict=True):
            value = None if row_values["value"] is None else shown(row_values["value"])
            yield Misfit(
                part=part,
                line=int(block.lines[row]),
                column=column.name,
                value=value,
                reason=_reason(value, column, self.time_zone),
                text=block.text(int(row)),
            )


def _reason(value: str | None, column: Column, time_zone: str | None) -> str:
    if value is None or (not value.strip() and not column.nullable):
        return "it must not be NULL"
    reason = f"{value!r} is not a valid {types.spark_type(column.type)}"
    if not pa.types.is_timestamp(column.type):
        return reason
    text = pa.array([value.strip()])
    if column.type == TIMESTAMP and fits(text, TIMESTAMP_NTZ):
        if time_zone is not None:
            return f"{value!r} is not one point in time in {time_zone}"
        return f"{reason}: it names no time zone; give the load one"
    if column.type == TIMESTAMP_NTZ and fits(text, TIMESTAMP):
        return f"{reason}: it names a time zone"
    return reason


def sift(given: pa.Array, strict: Strict, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Convert values with `strict`; those that it refuses are NULL, and marked in the mask."""
    try:
        return strict(given), np.zeros(len(given), bool)
    except _REFUSALS:
        if len(given) == 1:
            return pa.nulls(1, kind), np.ones(1, bool)
    half = len(given) // 2
    (low, low_failed), (high, high_failed) = (
        sift(part, strict, kind) for part in (given.slice(0, half), given.slice(half))
    )
    return pa.concat_arrays([low, high]), np.concatenate([low_failed, high_failed])


def from_text(given: pa.Array, kind: pa.DataType, time_zone: str | None) -> tuple[pa.Array, Mask]:
    """Convert texts to a type. Space around them does not count; only an empty text is NULL."""
    strict: Strict = partial(_parse, kind=kind)

    def local(texts: pa.Array) -> pa.Array:
        return pc.assume_timezone(texts.cast(TIMESTAMP_NTZ), time_zone).cast(TIMESTAMP)

    try:
        return strict(given), np.zeros(len(given), bool)
    except _REFUSALS:
        trimmed = pc.utf8_trim_whitespace(given)
    trimmed = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)
    # Most texts that don't fit are found by a pattern, at once: halving takes long.
    failed = _mask(pc.fill_null(pc.invert(pc.match_substring_regex(trimmed, _looks(kind))), False))
    values = pa.nulls(len(given), kind)
    groups = [(~failed, strict)]
    if time_zone is not None and kind == TIMESTAMP:
        zoned = _mask(pc.fill_null(pc.match_substring_regex(trimmed, _ZONED), False))
        groups = [(~failed & zoned, strict), (~failed & ~zoned, local)]
    for some, convert in groups:
        converted, refused = sift(trimmed.filter(pa.array(some)), convert, kind)
        values = pc.replace_with_mask(values, pa.array(some), converted)
        failed[np.flatnonzero(some)[refused]] = True
    return values, failed


def _looks(kind: pa.DataType) -> str:
    """A pattern that every valid text of a type matches; others may, too."""
    if pa.types.is_integer(kind):
        return r"^-?[0-9]+$"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return r"^[-+]?[0-9.iInN]"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    return ""


def fits(texts: pa.Array, kind: pa.DataType) -> bool:
    """Whether all texts, which have no space around them, are values of a type."""
    try:
        _parse(texts, kind)
    except _REFUSALS:
        return False
    return True


def _parse(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    values = texts.cast(kind)
    if pa.types.is_integer(kind) and _has_hex(texts):
        raise InvalidError("Arrow reads hexadecimal, which is not meant here")
    if pa.types.is_floating(kind) and pc.any(pc.is_inf(values)).as_py():
        named = pc.match_substring(texts, "inf", ignore_case=True)
        if pc.any(pc.and_not(pc.is_inf(values), named)).as_py():
            raise InvalidError("a number is too large")
    return values


def _has_hex(texts: pa.Array) -> bool:
    characters = texts.buffers()[2]
    # A look at the raw bytes first is many times cheaper.
    array = np.frombuffer(characters or b"", np.uint8)
    if not ((array == ord("x")) | (array == ord("X"))).any():
        return False
    return bool(pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py())


def _fitting(table: str, column: Column) -> Strict:
    open_column = replace(column, nullable=True)  # NULLs are checked separately

    def strict(values: pa.Array) -> pa.Array:
        fitted = row_checks.fit(pa.table([values], names=[column.name]), table, [open_column])
        return _whole(fitted.column(0)).cast(column.type)

    return strict


def _whole(array: pa.ChunkedArray) -> pa.Array:
    return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()


def _mask(array: pa.Array) -> Mask:
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask


def lay_out(
    file: InputFile, columns: Mapping[str, pa.DataType], table: TableInfo, options: Options
) -> Layout:
    """A file's layout, or an InvalidError that names the file, the column and both types."""
    sources: dict[int, int] = {}
    for number, name in enumerate(columns):
        column = _column(name, table)
        if column is None:
            if file.format is Format.JSON and options.on_error is not OnError.ABORT:
                continue  # only the rows that have it are rejected
            raise _unknown(file, name, table)
        _check(file, name, columns[name], column, table)
        sources[column.id] = number
    fields: tuple[JsonField, ...] = ()
    if file.format is Format.JSON:
        # A later row may have a key that the sample lacks.
        spelled = {name.casefold(): name for name in columns}
        known = [column for column in table.columns if json_type(column.type) is not None]
        fields = tuple(
            JsonField(
                key=spelled.get(column.name.casefold(), column.name),
                column=column.name,
                type=column.type,
            )
            for column in known
        )
        sources = {column.id: number for number, column in enumerate(known)}
    elif columns:
        _check_missing(file, sources, table)
    return Layout(
        table=table.full_name,
        columns=table.columns,
        sources=tuple(sources.get(column.id) for column in table.columns),
        time_zone=options.time_zone,
        width=len(columns),
        dialect=dialect_of(file, options),
        json=fields,
    )


def _column(name: str, table: TableInfo) -> Column | None:
    return next((c for c in table.columns if c.name.casefold() == name.casefold()), None)


def _unknown(file: InputFile, name: str, table: TableInfo) -> InvalidError:
    names = [column.name for column in table.columns]
    near = nearest(name, names) or f"; it has {', '.join(names)}"
    return InvalidError(
        f"{file.name} has a column {name!r}, which {table.full_name} does not have{near}"
    )


def _check(
    file: InputFile, name: str, given: pa.DataType, column: Column, table: TableInfo
) -> None:
    wanted = types.spark_type(column.type)
    if file.format is Format.PARQUET and not types.accepts(column.type, given):
        raise InvalidError(
            f"{file.name}: column {name!r} is {types.spark_type(given)}, but "
            f"{table.full_name}.{column.name} is {wanted}: convert the file, or load it into "
            "another table"
        )
    unreadable = file.format is Format.JSON and json_type(column.type) is None
    if unreadable or (file.format is Format.CSV and not _has_text(column.type)):
        raise InvalidError(
            f"{file.name}: column {name!r} fills {table.full_name}.{column.name}, which is "
            f"{wanted}: such values can't be read from {file.format.upper()}; use Parquet"
        )


def _has_text(kind: pa.DataType) -> bool:
    """Whether CSV has values of a type."""
    return types.is_atomic(kind) and not pa.types.is_binary(kind)


def _check_missing(file: InputFile, sources: dict[int, int], table: TableInfo) -> None:
    for column in table.columns:
        if column.id not in sources and not column.nullable:
            raise InvalidError(
                f"{file.name} has no column {column.name!r}, which must not be NULL in "
                f"{table.full_name}"
            )
