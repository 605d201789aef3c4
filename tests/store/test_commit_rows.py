"""A snapshot in the making: the numbers that it gives, and its own rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.store import tables as t
from tailrace.store.commit_rows import NewSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 11, 18, tzinfo=UTC)


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    """The catalog of an empty lake."""
    with sa.create_engine("sqlite://").begin() as opened:
        dl.PART.bring_to(1, opened)
        t.PART.bring_to(1, opened)
        dl.enter_first_rows(opened, data_path="/lake/", now=NOW, creator="test")
        yield opened


def snapshot(connection: sa.Connection, number: int) -> Any:
    query = sa.select(dl.snapshot).where(dl.snapshot.c.snapshot_id == number)
    return connection.execute(query).one()


def test_it_follows_the_newest_and_goes_on_with_its_ids(connection: sa.Connection) -> None:
    first = NewSnapshot(connection)
    assert first.number == 1
    assert [first.new_catalog_id(-1), first.new_catalog_id(-2)] == [1, 2]
    assert first.ids == {-1: 1, -2: 2}
    assert [first.new_file_id(), first.new_file_id()] == [0, 1]
    first.write(NOW)
    first.statements.flush()
    second = NewSnapshot(connection)
    assert (second.number, second.new_catalog_id(-1), second.new_file_id()) == (2, 3, 2)


def test_it_says_what_it_changes_as_ducklake_does(connection: sa.Connection) -> None:
    new = NewSnapshot(connection)
    new.note("created_table", '"main"."t"')
    new.note("inserted_into_table", 1)
    new.write(NOW)
    new.statements.flush()
    query = sa.select(dl.snapshot_changes.c.changes_made).order_by(
        dl.snapshot_changes.c.snapshot_id.desc()
    )
    changes = connection.execute(query).scalars().first()
    assert changes == 'created_table:"main"."t",inserted_into_table:1'


def test_the_schema_version_rises_with_columns_and_names_only(connection: sa.Connection) -> None:
    rows = NewSnapshot(connection)
    rows.note("inserted_into_table", 1)
    rows.write(NOW)
    rows.statements.flush()
    assert snapshot(connection, 1).schema_version == 0
    columns = NewSnapshot(connection)
    columns.note_columns(7)
    columns.write(NOW)
    columns.statements.flush()
    assert snapshot(connection, 2).schema_version == 1
    (version,) = connection.execute(sa.select(dl.schema_versions)).all()
    assert tuple(version) == (2, 1, 7)
    names = NewSnapshot(connection)
    names.changes_names = True
    names.write(NOW)
    names.statements.flush()
    assert snapshot(connection, 3).schema_version == 2


def test_rows_end_once(connection: sa.Connection) -> None:
    new = NewSnapshot(connection)
    assert new.end(dl.schema, dl.schema.c.schema_name == "main") == 1
    assert new.end(dl.schema, dl.schema.c.schema_name == "main") == 0
    assert connection.execute(sa.select(dl.schema.c.end_snapshot)).scalar_one() == 1


def test_a_table_notes_what_changed_last(connection: sa.Connection) -> None:
    row = {"primary_key": "[]", "last_change_snapshot": 0, "last_alter_snapshot": 0}
    connection.execute(sa.insert(t.own_table), [{"table_id": i, **row} for i in (1, 2)])
    new = NewSnapshot(connection)
    new.mark_changed(1)
    new.mark_altered(2)
    new.statements.flush()
    c = t.own_table.c
    marks = sa.select(c.table_id, c.last_change_snapshot, c.last_alter_snapshot)
    assert [tuple(one) for one in connection.execute(marks)] == [(1, 1, 0), (2, 0, 1)]


def test_a_statement_for_no_rows_is_not_sent(connection: sa.Connection) -> None:
    assert NewSnapshot(connection).run(sa.insert(dl.column), []) is None
