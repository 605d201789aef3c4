"""What a table is: its columns and key, as frozen values.

Always true: a column's id and its physical name (its name inside Parquet files) never change and
are never given to another column. So a file is read by the physical names of today's columns,
whatever the table looked like when the file was written: a renamed column keeps its physical
name, an added one is missing in older files and reads as NULL, a widened one is widened by the
Parquet reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tailrace.arguments import show
from tailrace.errors import InvalidError, NotFoundError
from tailrace.spark_sql import types
from tailrace.store.names import OWN_PREFIX, check_name, is_hidden

# The hidden columns of every data file: a row's file and its place in it.
FILE = "_file"
POS = "_pos"
# The columns that a change feed adds.
CHANGE = "_change"
SNAPSHOT = "_snapshot"
# The hidden column of files that compaction has made: each row's id, which it had before. In other
# files a row's id follows from its place. The name and the field id are DuckLake's.
ROW_ID = "_ducklake_internal_row_id"
RESERVED = frozenset({FILE, POS, CHANGE, SNAPSHOT, ROW_ID})
# Columns that the store adds in between begin with this; nobody else's may.
STORE_PREFIX = f"{OWN_PREFIX}store_"

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table at one snapshot."""

    id: int  # DuckLake's column_id, and the field id in Parquet
    name: str  # what users call it now
    physical: str  # its name in files, which never changes
    type: pa.DataType
    nullable: bool = True
    inner: tuple[int, ...] = ()  # the ids of nested fields, parents before children
    # For vectors: the number of elements in each value, all of them finite.
    dimension: int | None = None

    @property
    def field(self) -> pa.Field:
        """The Arrow field in files, with Parquet field ids all the way down."""
        ids = iter((self.id, *self.inner))
        return _with_ids(pa.field(self.physical, self.type, self.nullable), ids)


# Their field ids are far from those of any table's columns: without one, DuckDB takes a column's
# place in the file for its id.
HIDDEN = (
    Column(id=2_147_480_001, name=FILE, physical=FILE, type=pa.int64(), nullable=False),
    Column(id=2_147_480_002, name=POS, physical=POS, type=pa.int64(), nullable=False),
)

ROW_ID_COLUMN = Column(
    id=2_147_483_540, name=ROW_ID, physical=ROW_ID, type=pa.int64(), nullable=False
)


def _with_ids(plain: pa.Field, ids: Iterator[int]) -> pa.Field:
    marked = plain.with_metadata({_FIELD_ID: str(next(ids)).encode()})
    kind = plain.type
    inner = [_with_ids(child, ids) for child in types.children_of(kind)]
    if pa.types.is_map(kind):
        return marked.with_type(pa.map_(*inner))
    if pa.types.is_list(kind):
        return marked.with_type(pa.list_(*inner))
    return marked.with_type(pa.struct(inner)) if inner else marked


def nested_count(kind: pa.DataType) -> int:
    """How many ids the nested fields of a type need."""
    return sum(1 + nested_count(child.type) for child in types.children_of(kind))


@dataclass(frozen=True, kw_only=True)
class TableInfo:
    """A table as it is at one snapshot. Ids below 0 are of tables not committed yet."""

    id: int
    uuid: str
    schema_id: int
    schema: str
    name: str
    path: str  # of the table's objects, relative to the lake's, with a slash at the end
    columns: tuple[Column, ...]
    key: tuple[int, ...] = ()  # column ids of the primary key, in order
    next_column_id: int = 1
    physical_names: frozenset[str] = field(default_factory=frozenset)  # ever given, folded
    derived_by: int | None = None  # its owner, a job: nobody else may write to it

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def hidden(self) -> bool:
        """Whether it is one of Tailrace's own tables, which may have reserved column names."""
        return is_hidden(self.name)

    @property
    def is_looked_up(self) -> bool:
        """Whether few of its rows are looked for at a time: by its key, or by those of a view."""
        return bool(self.key) or self.hidden

    @property
    def key_columns(self) -> tuple[Column, ...]:
        by_id = {column.id: column for column in self.columns}
        return tuple(by_id[number] for number in self.key)

    @property
    def arrow_schema(self) -> pa.Schema:
        """What users get from `to_arrow()`."""
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.columns])

    def column(self, name: str) -> Column:
        """The column of that name, whatever its case, as in Spark and DuckDB."""
        for column in self.columns:
            if column.name.casefold() == name.casefold():
                return column
        known = ", ".join(column.name for column in self.columns)
        raise NotFoundError(f"{self.full_name} has no column {name!r}; it has {known}")

    def narrowed(self, names: Iterable[str]) -> TableInfo:
        """The table as a reader of some columns sees it: with those, and the key's."""
        wanted = {self.column(name).id for name in names} | set(self.key)
        wanted = wanted or {self.columns[0].id}  # rows of no columns could not be counted
        return replace(self, columns=tuple(c for c in self.columns if c.id in wanted))

    # Each alteration returns the table as it is afterwards.

    def with_dimension(self, name: str, dimension: int | None) -> TableInfo:
        """With a fixed dimension for a column of vectors; None for any."""
        number = self.column(name).id
        changed = (replace(c, dimension=dimension) if c.id == number else c for c in self.columns)
        return replace(self, columns=tuple(changed))

    def with_column(self, name: str, kind: pa.DataType, *, nullable: bool = True) -> TableInfo:
        return self.with_columns([(name, kind, nullable)])

    def with_columns(self, columns: Iterable[tuple[str, pa.DataType, bool]]) -> TableInfo:
        """With more columns, all at once: adding many one by one would be slow."""
        names = {column.name.casefold() for column in self.columns}
        physical_names, number, new = set(self.physical_names), self.next_column_id, []
        for name, kind, nullable in columns:
            check_name(name, "column")
            types.check_depth(kind)
            _check_fields(name, kind)
            _check_reserved(name, self)
            if name.casefold() in names:
                raise InvalidError(f"{self.full_name} already has a column {name!r}")
            names.add(name.casefold())
            inner = tuple(range(number + 1, number + 1 + nested_count(kind)))
            physical = name
            while physical.casefold() in physical_names:
                physical = f"{physical}_{number}"
            physical_names.add(physical.casefold())
            new.append(
                Column(
                    id=number,
                    name=name,
                    physical=physical,
                    type=kind,
                    nullable=nullable,
                    inner=inner,
                )
            )
            number += 1 + len(inner)
        return replace(
            self,
            columns=(*self.columns, *new),
            next_column_id=number,
            physical_names=frozenset(physical_names),
        )

    def without_column(self, name: str) -> TableInfo:
        column = self.column(name)
        if column.id in self.key:
            raise InvalidError(f"{column.name!r} is part of the primary key of {self.full_name}")
        if len(self.columns) == 1:
            raise InvalidError(f"{column.name!r} is the last column of {self.full_name}")
        return replace(self, columns=tuple(c for c in self.columns if c != column))

    def with_renamed(self, old: str, new: str) -> TableInfo:
        check_name(new, "column")
        column = self.column(old)
        _check_reserved(new, self)
        if any(c.name.casefold() == new.casefold() and c != column for c in self.columns):
            raise InvalidError(f"{self.full_name} already has a column {new!r}")
        return self._replacing(column, replace(column, name=new))

    def with_widened(self, name: str, kind: pa.DataType) -> TableInfo:
        column = self.column(name)
        if not types.can_widen(column.type, kind):
            raise InvalidError(
                f"{self.full_name}.{column.name} is {types.spark_type(column.type)} and cannot "
                f"become {types.spark_type(kind)}: a type can only grow (tinyint, smallint, int, "
                "bigint; float, double; decimal with more digits and the same places)"
            )
        return self._replacing(column, replace(column, type=kind))

    def _replacing(self, old: Column, new: Column) -> TableInfo:
        return replace(self, columns=tuple(new if c == old else c for c in self.columns))


def new_columns(
    table: TableInfo, columns: Iterable[tuple[str, pa.DataType, bool]], key: Sequence[str]
) -> TableInfo:
    """The table with its first columns and its key."""
    for name in key:
        check_name(name, "key column")
    wanted = {name.casefold() for name in key}

    def is_nullable(name: object, nullable: bool) -> bool:  # noqa: FBT001
        return nullable and not (isinstance(name, str) and name.casefold() in wanted)

    table = table.with_columns((n, kind, is_nullable(n, given)) for n, kind, given in columns)
    if not table.columns:
        raise InvalidError(f"{table.full_name} needs at least one column")
    if len(wanted) != len(key):
        raise InvalidError(f"the primary key of {table.full_name} names a column twice")
    parts = [table.column(name) for name in key]
    for part in parts:
        if not types.can_be_key(part.type):
            raise InvalidError(
                f"{part.name!r} cannot be part of a primary key: "
                f"{types.spark_type(part.type)} has no single meaning of equality"
            )
    return replace(table, key=tuple(part.id for part in parts))


def parse_columns(given: object) -> list[tuple[str, pa.DataType, bool]]:
    """Columns from a dict of Spark type names, an Arrow schema or a Spark StructType.

    A type name may end in NOT NULL: `{"id": "bigint not null"}`.
    """
    if isinstance(given, pa.Schema):
        return [(f.name, types.canonical(f.type), f.nullable) for f in given]
    if hasattr(given, "jsonValue") and hasattr(given, "fields"):
        try:
            fields = given.jsonValue()["fields"]
            return [(f["name"], types.from_spark(f["type"]), f["nullable"]) for f in fields]
        except RecursionError:
            raise InvalidError(
                f"a type has at most {types.DEEPEST} types inside each other"
            ) from None
    if isinstance(given, dict):
        result = []
        for name, text in given.items():
            if isinstance(text, pa.DataType):
                result.append((name, types.canonical(text), True))
                continue
            if not isinstance(text, str):
                raise InvalidError(f"the type of column {show(name)} must be text, as in 'bigint'")
            plain = re.sub(r"(?<!\s)\s+not\s+null\s*$", "", text, flags=re.IGNORECASE)
            result.append((name, types.parse_type(plain), plain == text))
        return result
    raise InvalidError("give columns as a dict of Spark type names, an Arrow or a Spark schema")


def _check_reserved(name: str, table: TableInfo) -> None:
    prefix = STORE_PREFIX if table.hidden else OWN_PREFIX
    if name.casefold() in RESERVED or name.casefold().startswith(prefix):
        raise InvalidError(f"the column name {name!r} is reserved: choose another")


def _check_fields(column: str, kind: pa.DataType) -> None:
    """Refuse a struct with unnamed fields, or with two whose names differ only by case."""
    seen = set()
    for child in types.children_of(kind):
        check_name(child.name, f"field of {column!r}")
        if child.name.casefold() in seen:
            raise InvalidError(f"{column!r} has two fields called {child.name!r}")
        seen.add(child.name.casefold())
        _check_fields(column, child.type)
