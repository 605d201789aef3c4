"""The types of columns, for CREATE TABLE and ALTER TABLE."""

from __future__ import annotations

from tailrace.errors import InvalidError
from tailrace.spark_sql.types import parse_type
from tailrace.sql.diagnostics import Span
from tailrace.sql.parser import Parser

KINDS = (
    "bigint", "int", "smallint", "tinyint", "double", "float", "decimal(p,s)", "string",
    "boolean", "date", "timestamp", "timestamp_ntz", "binary", "array<…>", "map<…>", "struct<…>",
)  # fmt: skip


def read_type(parser: Parser, *stops: str) -> str:
    """Read a type, up to a comma or one of these words."""
    start = parser.offset
    span = parser.upto(",", *stops)
    text = parser.cut(span)
    # A comma may also be inside of < >.
    while text.count("<") > text.count(">") and parser.word() == ",":
        parser.expect(",")
        span = Span(start=start, end=parser.upto(",", *stops).end)
        text = parser.cut(span)
    if not text:
        raise parser.fail("the column's type is missing", hint=f"types: {', '.join(KINDS)}")
    try:
        parse_type(text)
    except InvalidError as error:
        hint = f"types: {', '.join(KINDS)}"
        raise parser.refuse(span, f"{text} is not a type", hint=hint) from error
    return text
