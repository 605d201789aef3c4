"""Queries in files of their own, and what DuckDB answers to them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import duckdb


def read(directory: Path) -> dict[str, str]:
    """The queries of a folder by the names of their files, in Spark's SQL."""
    return {path.stem: path.read_text() for path in sorted(directory.glob("*.sql"))}


def copy_tables(
    connection: duckdb.DuckDBPyConnection, tables: Iterable[str], at: int | None = None
) -> None:
    """Give a DuckDB that has the lake attached its own copies of tables, at a snapshot."""
    version = f" AT (VERSION => {int(at)})" if at is not None else ""
    for name in tables:
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM lake.{name}{version}"
        )


def ask(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """DuckDB's answer to a query in Spark's SQL."""
    return connection.execute(to_duckdb(query)).to_arrow_table()


def to_duckdb(query: str) -> str:
    """A query in DuckDB's dialect."""
    (translated,) = sqlglot.transpile(query, read="spark", write="duckdb")
    return translated


def differences(ours: pa.Table, theirs: pa.Table) -> list[str]:
    """What tells two bags of rows apart, in words; the order of rows and the names don't count.

    Numbers may differ by 1e-9 of their size or, where Spark rounds a decimal that DuckDB keeps as
    a double (averages and quotients), by one in the last digit.
    """
    if ours.num_columns != theirs.num_columns:
        return [f"{ours.column_names} against {theirs.column_names}"]
    if ours.num_rows != theirs.num_rows:
        return [f"{ours.num_rows} rows against {theirs.num_rows}"]
    steps = [
        _step(mine, other)
        for mine, other in zip(ours.schema.types, theirs.schema.types, strict=True)
    ]
    pairs = zip(_sorted(ours, steps), _sorted(theirs, steps), strict=True)
    return [f"{mine} against {other}" for mine, other in pairs if not _alike(mine, other, steps)]


def limited_differences(ours: pa.Table, whole: pa.Table, terms: int, limit: int) -> list[str]:
    """What tells rows apart from the first ones of an ordered answer, in words.

    The last columns of the whole answer, so many, are what it is ordered by. The order leaves open
    which of the rows that are equal to the last one are taken; the others have to be there.
    """
    shown = whole.select(range(whole.num_columns - terms))
    if whole.num_rows <= limit:
        return differences(ours, shown)
    if ours.num_rows != limit:
        return [f"{ours.num_rows} rows against {limit} of {whole.num_rows}"]
    keys = list(
        zip(*(column.to_pylist() for column in whole.columns[shown.num_columns :]), strict=True)
    )
    ties = [n for n, key in enumerate(keys) if key == keys[limit - 1]] or range(whole.num_rows)
    steps = [_step(a, b) for a, b in zip(ours.schema.types, shown.schema.types, strict=True)]
    left = _sorted(ours, steps)
    theirs = list(zip(*(column.to_pylist() for column in shown.columns), strict=True))
    missing = _unmatched(theirs[: ties[0]], left, steps)
    surplus = _unmatched(list(left), theirs[ties[0] : ties[-1] + 1], steps)
    return [*(f"missing: {row}" for row in missing), *(f"surplus: {row}" for row in surplus)]


def _unmatched(
    rows: list[tuple[Any, ...]], among: list[tuple[Any, ...]], steps: list[Decimal | None]
) -> list[tuple[Any, ...]]:
    """The rows that are not among others, from which those that are get removed."""
    missing = []
    for row in rows:
        place = next((n for n, other in enumerate(among) if _alike(row, other, steps)), None)
        if place is None:
            missing.append(row)
        else:
            among.pop(place)
    return missing


def _step(ours: pa.DataType, theirs: pa.DataType) -> Decimal | None:
    """How far apart values of a column may be; None: they have to be equal."""
    if not any(pa.types.is_decimal(t) or pa.types.is_floating(t) for t in (ours, theirs)):
        return None
    if pa.types.is_decimal(ours) and pa.types.is_floating(theirs):
        return Decimal(1).scaleb(-ours.scale)
    return Decimal(0)


def _sorted(rows: pa.Table, steps: list[Decimal | None]) -> list[tuple[Any, ...]]:
    """The rows in an order that values which are only nearly equal decide last."""
    found = zip(*(column.to_pylist() for column in rows.columns), strict=True)

    def order(row: tuple[Any, ...]) -> list[tuple[bool, Any]]:
        exact = [value for value, step in zip(row, steps, strict=True) if step is None]
        nearly = [value for value, step in zip(row, steps, strict=True) if step is not None]
        return [
            *((value is not None, repr(value)) for value in exact),
            *((value is not None, value or 0) for value in nearly),
        ]

    return sorted(found, key=order)


def _alike(ours: tuple[Any, ...], theirs: tuple[Any, ...], steps: list[Decimal | None]) -> bool:
    return all(_near(a, b, step) for a, b, step in zip(ours, theirs, steps, strict=True))


def _near(a: Any, b: Any, step: Decimal | None) -> bool:
    if step is None or a is None or b is None:
        return bool(a == b)
    a, b = Decimal(a), Decimal(b)
    return abs(a - b) <= max(step, Decimal("1e-9") * max(abs(a), abs(b)))
