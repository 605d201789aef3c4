"""INSERT INTO: writes literals without Spark; a query's rows stay in Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.spark_sql.types import of_columns, spark_type
from tailrace.sql import query_frame
from tailrace.sql.diagnostics import Span
from tailrace.sql.literals import NotALiteralError, rows_of
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, Run, counted, done
from tailrace.sql.statements.edits import fitted
from tailrace.store.schema import Column, TableInfo

if TYPE_CHECKING:
    from tailrace.lake import Lake

# Twice as many as a decimal can have: enough to round any of them.
_DIGITS = 77


@dataclass(frozen=True, kw_only=True)
class Insert:
    """`INSERT INTO table [(column, …)] VALUES … | SELECT …`."""

    parser: Parser  # for errors that show a place
    name: str
    columns: tuple[tuple[str, Span], ...]  # empty: all, in their order
    query: Span

    def run(self, lake: Lake, args: Mapping[str, Any]) -> Result:
        query = self.parser.query(self.query)
        with lake.transaction() as txn:
            table = txn.info(self.name)
            into = self._targets(table)
            try:
                given = rows_of(query_frame.parse(query), args)
            except NotALiteralError:
                frame = query_frame.frame_of(lake, query, args)
                with query.spark_faults():
                    txn.table(self.name).append(self._fitted(table, into, frame))
            else:
                txn.table(self.name).append(self._rows(table, into, given))
            count = sum(rows for _, rows, _ in txn.written())
        message = f"{counted(count, 'row')} inserted into {self.name}"
        return done(lake, message, {"rows": count}, snapshot=txn.snapshot)

    def _targets(self, table: TableInfo) -> list[Column]:
        if not self.columns:
            return list(table.columns)
        known = [column.name for column in table.columns]
        targets: list[Column] = []
        for name, span in self.columns:
            column = table.column(self.parser.known_column(name, span, known, table.full_name))
            if column in targets:
                raise self.parser.refuse(span, f"the column {name} is there twice")
            targets.append(column)
        return targets

    def _check_count(self, table: TableInfo, into: Sequence[Column], count: int) -> None:
        if count != len(into):
            raise self.parser.refuse(
                self.query,
                f"{count} values are given for {len(into)} columns of {table.full_name}",
                hint=f"the columns: {', '.join(column.name for column in into)}",
            )

    def _rows(
        self, table: TableInfo, into: Sequence[Column], given: Sequence[Sequence[Any]]
    ) -> list[dict[str, Any]]:
        for row in given:
            self._check_count(table, into, len(row))
        empty = dict.fromkeys(column.name for column in table.columns)
        return [
            {**empty, **{c.name: _of_kind(v, c.type) for c, v in zip(into, row, strict=True)}}
            for row in given
        ]

    def _fitted(self, table: TableInfo, into: Sequence[Column], frame: Any) -> Any:
        from pyspark.sql import functions as F

        self._check_count(table, into, len(frame.columns))
        named = frame.toDF(*(column.name for column in into))
        given = of_columns(named.schema)
        return named.select(
            *(
                fitted(c.name, given[c.name], table)
                if c.name in given
                else F.lit(None).alias(c.name)
                for c in table.columns
            )
        )


def _of_kind(value: Any, kind: pa.DataType) -> Any:
    """A number as the Python type of a column: 1 can become a decimal, and 1.5 a float."""
    if isinstance(value, list) and pa.types.is_list(kind):
        return [_of_kind(one, kind.value_type) for one in value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    try:
        if pa.types.is_floating(kind):
            return float(value)
        if pa.types.is_decimal(kind):
            with localcontext(prec=_DIGITS, rounding=ROUND_HALF_UP):  # as Spark rounds
                return Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale))
        if pa.types.is_integer(kind) and isinstance(value, Decimal) and value == int(value):
            return int(value)
    except (ArithmeticError, ValueError) as error:
        raise InvalidError(f"{value} does not fit {spark_type(kind)}") from error
    return value


def read(parser: Parser) -> Run:
    """After INSERT INTO."""
    parser.accept("TABLE")
    name = parser.object_name("the table")
    columns: list[tuple[str, Span]] = []
    if parser.word() == "(" and parser.word(1) not in ("SELECT", "WITH", "VALUES", "("):
        columns = parser.columns()
    if parser.word() not in ("VALUES", "SELECT", "WITH", "FROM", "("):
        for word in ("VALUES", "SELECT", "WITH"):
            parser.accept(word)
        raise parser.fail()
    return Insert(parser=parser, name=name, columns=tuple(columns), query=parser.rest()).run
