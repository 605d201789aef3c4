"""What an index is: its kind, columns and options, checked once and then stored with its job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.arguments import show
from tailrace.errors import InvalidError
from tailrace.indexes.kind import IndexKind
from tailrace.indexes.text.kind import FullText
from tailrace.indexes.vectors.kind import Vector
from tailrace.store.schema import Column, TableInfo

# The kinds of indexes that there are, by their names.
KINDS: dict[str, IndexKind] = {kind.name: kind for kind in (FullText(), Vector())}


@dataclass(frozen=True, kw_only=True)
class NewIndex:
    """An index as a user asks for it; nothing of it is checked yet."""

    table: str
    name: str
    using: object
    columns: object  # a name, or a list of names
    options: Mapping[str, Any] | None = None
    trigger: str | Mapping[str, Any] | None = None
    priority: int = 0

    @property
    def kind(self) -> IndexKind:
        """The kind that is asked for; InvalidError if there is none."""
        kind = KINDS.get(self.using.casefold()) if isinstance(self.using, str) else None
        if kind is None:
            known = " or ".join(map(repr, KINDS))
            raise InvalidError(f"an index is using={known}, not {show(self.using)}")
        return kind


@dataclass(frozen=True, kw_only=True)
class Definition:
    """An index, as its job's spec stores it."""

    using: str  # the name of its kind
    columns: tuple[int, ...]  # ids: a column may be renamed
    options: Any  # of the type that its kind has

    @property
    def kind(self) -> IndexKind:
        """How it is built and searched."""
        return KINDS[self.using]

    def columns_of(self, table: TableInfo) -> list[Column]:
        """Its columns as they are called now."""
        by_id = {column.id: column for column in table.columns}
        if any(number not in by_id for number in self.columns):
            raise InvalidError(
                f"{table.full_name} no longer has a column of this index: drop the index"
            )
        return [by_id[number] for number in self.columns]

    def to_spec(self) -> dict[str, Any]:
        """As the spec of the index's job has it."""
        own: dict[str, Any] = self.options.to_dict()
        return {"kind": self.using, "column_ids": list(self.columns), **own}

    @staticmethod
    def from_spec(stored: Mapping[str, Any]) -> Definition:
        """The inverse of `to_spec`."""
        options = {k: v for k, v in stored.items() if k not in ("kind", "column_ids")}
        return Definition(
            using=stored["kind"],
            columns=tuple(stored["column_ids"]),
            options=KINDS[stored["kind"]].options_type.from_dict(options),
        )


def define(table: TableInfo, new: NewIndex) -> Definition:
    """A new index, checked; a vector's dimension may still have to be found out."""
    kind, columns = new.kind, _columns(table, new.columns)
    given = {str(name).casefold(): value for name, value in (new.options or {}).items()}
    options = kind.define(table, columns, given)
    if given:
        raise InvalidError(f"a {kind.name} index has no option {sorted(given)[0]!r}")
    ids = tuple(column.id for column in columns)
    return Definition(using=kind.name, columns=ids, options=options)


def _columns(table: TableInfo, given: object) -> list[Column]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not names or not all(isinstance(n, str) for n in names):
        raise InvalidError('an index needs columns: columns=["note"]')
    columns = [table.column(name) for name in names]
    if len({column.id for column in columns}) != len(columns):
        raise InvalidError("an index names a column twice")
    return columns
