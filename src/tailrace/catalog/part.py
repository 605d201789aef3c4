"""What one layer keeps in the catalog: its tables, made of these types, and its system views.

Every table is defined once, by the layer that owns it, and all SQL is built from these definitions.
Each layer says since which version of the catalog each of its tables is there, and adds what else a
version has changed. `opening` puts the parts of all layers in one order, by version.

The system views are what a lake knows about itself, as views in its database. `SELECT … FROM
tailrace.jobs` reads them, and so can any program that can read the catalog's database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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


def no_views(_dialect: str) -> Mapping[str, str]:
    """For a layer that has nothing to show in a system view."""
    return {}


def new_views(_connection: sa.Connection) -> None:
    """The step to a version with other system views: they are created anew after every step."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A layer's part of the catalog."""

    tables: sa.MetaData  # each with `info=since(…)`
    # What is done to get to a version, after its tables were created. Never change a step that was
    # released: add one.
    steps: Mapping[int, Callable[[sa.Connection], None]] = field(default_factory=dict)
    # System views by name, for a database of the dialect "sqlite" or "postgresql". They may read
    # those that come before them.
    views: Callable[[str], Mapping[str, str]] = no_views

    @property
    def version(self) -> int:
        """The last version that changed anything here."""
        return max([*(_since(table) for table in self.tables.sorted_tables), *self.steps])

    def bring_to(self, version: int, connection: sa.Connection) -> None:
        """Do what a version has added to the one before."""
        added = [table for table in self.tables.sorted_tables if _since(table) == version]
        self.tables.create_all(connection, tables=added)
        step = self.steps.get(version)
        if step is not None:
            step(connection)


def _since(table: sa.Table) -> int:
    return int(table.info["since"])


VIEW_PREFIX = "tailrace_sys_"


def drop_views(connection: sa.Connection, parts: Iterable[Part]) -> None:
    """Drop the views that exist."""
    for name in reversed(_texts(connection, parts)):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {VIEW_PREFIX}{name}")


def create_views(connection: sa.Connection, parts: Iterable[Part]) -> None:
    """Create the views, replacing those of an older version."""
    parts = list(parts)
    drop_views(connection, parts)
    for name, text in _texts(connection, parts).items():
        connection.exec_driver_sql(f"CREATE VIEW {VIEW_PREFIX}{name} AS {text}")


def _texts(connection: sa.Connection, parts: Iterable[Part]) -> dict[str, str]:
    dialect = connection.dialect.name
    return {name: text for part in parts for name, text in part.views(dialect).items()}
