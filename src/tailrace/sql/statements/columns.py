"""Columns and their types, as CREATE TABLE and ALTER TABLE give them."""

from __future__ import annotations

from tailrace.errors import InvalidError
from tailrace.spark_sql.types import parse_type
from tailrace.sql.cursor import Cursor
from tailrace.sql.fault import Span

KINDS = (
    "bigint", "int", "smallint", "tinyint", "double", "float", "decimal(p,s)", "string",
    "boolean", "date", "timestamp", "timestamp_ntz", "binary", "array<…>", "map<…>", "struct<…>",
)  # fmt: skip


def read_type(cursor: Cursor, *stops: str) -> str:
    """A type, up to a comma or one of these words."""
    start = cursor.offset
    span = cursor.upto(",", *stops)
    text = cursor.cut(span)
    # A comma may be inside of < >, too.
    while text.count("<") > text.count(">") and cursor.word() == ",":
        cursor.expect(",")
        span = Span(start=start, end=cursor.upto(",", *stops).end)
        text = cursor.cut(span)
    if not text:
        raise cursor.fail("the column's type is missing", hint=f"types: {', '.join(KINDS)}")
    try:
        parse_type(text)
    except InvalidError as error:
        hint = f"types: {', '.join(KINDS)}"
        raise cursor.refuse(span, f"{text} is not a type", hint=hint) from error
    return text
