"""The column types and indexes of the catalog's tables, and since when a table is there.

Every table is defined once, by the layer that owns it, and all SQL is built from these definitions.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex
from sqlalchemy.types import TypeDecorator, TypeEngine

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import DDLCompiler

Int = sa.BigInteger
Text = sa.String
# DuckDB declares booleans as BIGINT in a SQLite catalog and as BOOLEAN elsewhere.
Bool = sa.Boolean().with_variant(sa.BigInteger(), "sqlite")
Uuid = sa.String().with_variant(sa.UUID(as_uuid=False), "postgresql")


class Time(TypeDecorator[datetime]):
    """A point in time: `timestamptz` where there is one, DuckDB's text form in SQLite."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        plain = sa.String() if dialect.name == "sqlite" else sa.DateTime(timezone=True)
        return dialect.type_descriptor(plain)

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00")

    def process_result_value(self, value: Any, _dialect: sa.Dialect) -> datetime | None:
        if value is None or isinstance(value, datetime):
            return value
        return datetime.fromisoformat(value)


def since(version: int) -> dict[str, int]:
    """For `info=` of a table: the version of the catalog that it is there from."""
    return {"since": version}


def span() -> tuple[sa.Column[int], sa.Column[int]]:
    """The life of a row: visible at snapshots s with begin <= s < end."""
    return sa.Column("begin_snapshot", Int), sa.Column("end_snapshot", Int)


class PartialIndex(sa.Index):
    """A unique index of the rows for which a condition holds.

    SQLAlchemy's own way names the condition once for each dialect, and imports them all.
    """

    def __init__(self, name: str, *columns: Any, where: sa.ColumnElement[bool]) -> None:
        super().__init__(name, *columns, unique=True)
        self.where = where


@compiles(CreateIndex)
def _create_index(create: CreateIndex, compiler: DDLCompiler, **options: Any) -> str:
    text: str = compiler.visit_create_index(create, **options)  # type: ignore[no-untyped-call]
    if not isinstance(create.element, PartialIndex):
        return text
    where = compiler.sql_compiler.process(
        create.element.where, include_table=False, literal_binds=True
    )
    return f"{text} WHERE {where}"
