"""Where a large backlog is cut: by the counts in the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.propagation.freshness import cut, large_tables
from tailrace.settings import Settings
from tailrace.store import tables as st

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = Settings(iteration_rows=100, iteration_snapshots=4, local_rows=10)


@pytest.fixture
def catalog() -> Iterator[sa.Connection]:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        for table in (dl.data_file, dl.delete_file, st.own_file):
            names = ", ".join(column.name for column in table.columns)
            connection.execute(sa.text(f"CREATE TABLE {table.name} ({names})"))
        yield connection
    engine.dispose()


def add(catalog: sa.Connection, table: int, snapshot: int, rows: int) -> None:
    catalog.execute(
        sa.text(
            f"INSERT INTO {dl.data_file.name} "
            "(table_id, begin_snapshot, record_count, row_id_start) "
            "VALUES (:table, :snapshot, :rows, 0)"
        ),
        {"table": table, "snapshot": snapshot, "rows": rows},
    )


def test_few_changes_are_not_cut(catalog: sa.Connection) -> None:
    for snapshot in range(1, 4):
        add(catalog, 1, snapshot, 3)
    assert cut(catalog, [1], 0, 9, SETTINGS) == (9, True)
    assert cut(catalog, [1], 3, 9, SETTINGS) == (9, True)


def test_a_backlog_is_cut_before_the_rows_are_too_many(catalog: sa.Connection) -> None:
    for snapshot in range(1, 5):
        add(catalog, 1, snapshot, 40)
    add(catalog, 2, 1, 1_000)  # no source
    assert cut(catalog, [1], 0, 9, SETTINGS) == (2, False)
    assert cut(catalog, [1], 2, 9, SETTINGS) == (9, False)  # the rest, which is not few


def test_a_backlog_is_cut_before_the_snapshots_are_too_many(catalog: sa.Connection) -> None:
    for snapshot in range(1, 9):
        add(catalog, snapshot % 2, snapshot, 1)
    assert cut(catalog, [0, 1], 0, 9, SETTINGS) == (4, False)


def test_one_snapshot_is_never_cut(catalog: sa.Connection) -> None:
    add(catalog, 1, 5, 1_000)
    assert cut(catalog, [1], 4, 9, SETTINGS) == (9, False)
    add(catalog, 1, 7, 1_000)
    assert cut(catalog, [1], 4, 9, SETTINGS) == (5, False)
    assert cut(catalog, [1], 4, 5, SETTINGS) == (5, True)  # `large_tables` says the rest


def test_tables_with_many_new_rows_are_large(catalog: sa.Connection) -> None:
    add(catalog, 1, 5, 6)
    add(catalog, 1, 5, 6)
    add(catalog, 2, 5, 10)
    add(catalog, 3, 4, 1_000)
    assert large_tables(catalog, [1, 2, 3], 5, SETTINGS) == {1}
