"""Creating, altering and dropping what exists in a lake, in a transaction's workspace.

Always true: the transaction sees its changes at once. Whether others have changed the same since
its base snapshot, the commit finds out.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tailrace.arguments import show
from tailrace.errors import Action, Fix, InvalidError, NotFoundError
from tailrace.store.lookup import ViewInfo
from tailrace.store.names import (
    OWN_SCHEMA,
    check_name,
    check_new_name,
    fold,
    is_hidden,
    quoted_name,
    split_name,
)
from tailrace.store.schema import TableInfo, new_columns, parse_columns
from tailrace.store.workspace import Draft, SchemaWork, TableWork, ViewWork

if TYPE_CHECKING:
    from tailrace.store.table import Table


class Definitions(Draft):
    """The schemas, tables and views of a transaction."""

    def create_schema(self, name: str) -> None:
        """Create a schema."""
        check_name(name, "schema")
        if fold(name) == OWN_SCHEMA:
            raise InvalidError(f"the schema name {name!r} is Tailrace's own: choose another")
        self._check_open()
        if self._schema_id(name) is not None:
            raise InvalidError(f"the schema {name!r} exists already")
        taken = self._schema_row(name)
        if taken is not None and taken.tenant != self._runtime.tenant:
            raise InvalidError(f"the schema name {name!r} is taken: choose another")
        number = self._work.provisional_id()
        dropped = self._work.schemas.get(fold(name))
        self._work.schemas[fold(name)] = SchemaWork(
            id=number,
            name=name,
            path=_new_path(name),
            created=True,
            replaces=dropped.id if dropped is not None else None,
        )

    def drop_schema(self, name: str) -> None:
        """Drop an empty schema."""
        self._check_open()
        number = self._schema_id(name)
        if number is None:
            raise NotFoundError(f"there is no schema {name!r}")
        if fold(name) == "main":
            raise InvalidError("the schema 'main' cannot be dropped")
        every = [*self.list_views(), *self.list_tables()]
        inside = sorted((plain for schema, plain in every if schema == fold(name)), key=is_hidden)
        if inside:
            raise InvalidError(
                f"the schema {name!r} still has tables or views ({', '.join(inside[:3])}): "
                "drop them first"
            )
        work = self._work.schemas.get(fold(name))
        if work is not None:
            del self._work.schemas[fold(name)]
            if work.replaces is None:
                return
            number = work.replaces
        dropped = SchemaWork(id=number, name=name, path="", created=False)
        self._work.schemas[fold(name)] = dropped

    def create_table(
        self,
        name: str,
        columns: Any,
        *,
        primary_key: Iterable[str] | str | None = None,
        hidden: bool = False,
    ) -> Table:
        """Create a table; see `Lake.create_table`.

        A `hidden` one is Tailrace's own: its name begins with `_tailrace_`, and those of its
        columns that users don't see may, too.
        """
        self._check_open()
        schema, plain = split_name(name)
        check_new_name(plain, "table", hidden=hidden)
        schema_id = self._place_for(schema, plain)
        key = [primary_key] if isinstance(primary_key, str) else list(primary_key or ())
        bare = TableInfo(
            id=self._work.provisional_id(),
            uuid=str(uuid4()),
            schema_id=schema_id,
            schema=schema,
            name=plain,
            path=self._schema_path(schema) + _new_path(plain),
            columns=(),
        )
        info = new_columns(bare, parse_columns(columns), key)
        self._work.add(TableWork(base=None, info=info))
        return self.table(name)

    def drop_table(self, name: str) -> None:
        """Drop a table. Older snapshots still have it."""
        self._check_open()
        schema, plain = split_name(name)
        if self._peek_view(schema, plain) is not None:
            raise InvalidError(
                f"{schema}.{plain} is a view, not a table", fix=Fix(Action.DROP_VIEW)
            )
        self._find_own(schema, plain).dropped = True

    def create_view(self, name: str, sql: str, *, columns: Iterable[str] = ()) -> ViewInfo:
        """Create a view that other engines see: the text of a query, in DuckDB's dialect.

        Tables of the view's own schema are best named without it: then the text is right under
        any name that a reader attaches the lake as. `columns` are other names for the query's.
        """
        self._check_open()
        schema, plain = split_name(name)
        check_new_name(plain, "view")
        schema_id = self._place_for(schema, plain)
        info = ViewInfo(
            id=self._work.provisional_id(),
            uuid=str(uuid4()),
            schema_id=schema_id,
            schema=schema,
            name=plain,
            sql=sql,
            columns=_check_definition(sql, columns),
        )
        key = (fold(schema), fold(plain))
        self._work.views.setdefault(key, ViewWork(base=None, info=None)).info = info
        return info

    def drop_view(self, name: str) -> ViewInfo:
        """Drop a view, and return what it was. Older snapshots still have it."""
        self._check_open()
        schema, plain = split_name(name)
        view = self._peek_view(schema, plain)
        if view is None:
            raise NotFoundError(f"there is no view {schema}.{plain}")
        self._work.views[(fold(view.schema), fold(view.name))].info = None
        return view

    def replace_view(self, name: str, sql: str, *, columns: Iterable[str] = ()) -> ViewInfo:
        """Give a view another query: readers see either the old one or the new one."""
        names = _check_definition(sql, columns)  # before the old one is gone
        old = self.drop_view(name)
        return self.create_view(quoted_name(old.schema, old.name), sql, columns=names)

    def alter(self, schema: str, name: str, change: Callable[[TableInfo], TableInfo]) -> None:
        """Replace a table's description by what `change` makes of it."""
        self._check_open()
        work = self._find_own(schema, name)
        work.info = change(work.info)

    def _place_for(self, schema: str, name: str) -> int:
        """The id of the schema for a new table or view, whose name has to be free."""
        schema_id = self._schema_id(schema)
        if schema_id is None:
            taken = self._schema_row(schema)
            if taken is not None and taken.tenant != self._runtime.tenant:
                raise NotFoundError(
                    f"the tenant {self._runtime.tenant!r} has no schema {schema!r}, and that name "
                    "is taken",
                    fix=Fix(Action.CREATE_ANOTHER_SCHEMA),
                )
            raise NotFoundError(
                f"there is no schema {schema!r}", fix=Fix(Action.CREATE_SCHEMA, schema)
            )
        if self._peek(schema, name) is not None:
            raise InvalidError(f"the table {schema}.{name} exists already")
        if self._peek_view(schema, name) is not None:
            raise InvalidError(f"the view {schema}.{name} exists already")
        return schema_id

    def _schema_path(self, name: str) -> str:
        work = self._work.schemas.get(fold(name))
        if work is not None:
            return work.path
        row = self._schema_row(name)
        assert row is not None
        return str(row.path)


def _new_path(name: str) -> str:
    """A directory for a new schema or table: unique, and readable if its name allows."""
    readable = name if re.fullmatch(r"[A-Za-z0-9_]{1,64}", name) else ""
    return f"{readable}-{secrets.token_hex(4)}/".lstrip("-")


def _check_definition(sql: object, columns: Iterable[str]) -> tuple[str, ...]:
    """Refuse what cannot be stored of a view; returns the columns."""
    if not isinstance(sql, str) or not sql.strip() or "\0" in sql:
        raise InvalidError(f"a view needs the text of a query, not {show(sql)}")
    names = tuple(columns)
    for name in names:
        check_name(name, "column")
    return names
