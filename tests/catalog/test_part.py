"""What a layer keeps in the catalog, version by version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from tailrace.catalog.part import VIEW_PREFIX, Int, Part, create_views, drop_views, since, span
from tailrace.parts import CATALOG_PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    with sa.create_engine("sqlite://").begin() as opened:
        yield opened


def part(steps: dict[int, list[str]] | None = None, **tables: int) -> Part:
    """A part with these tables, each since a version; a step notes what tables it found."""
    metadata = sa.MetaData()
    for name, version in tables.items():
        sa.Table(name, metadata, sa.Column("id", Int), info=since(version))

    def step(seen: list[str]) -> object:
        return lambda connection: seen.extend(names(connection))

    return Part(
        tables=metadata,
        steps={version: step(seen) for version, seen in (steps or {}).items()},  # type: ignore[misc]
    )


def names(connection: sa.Connection) -> list[str]:
    return sorted(sa.inspect(connection).get_table_names())


def test_its_version_is_the_last_that_changed_anything() -> None:
    assert part(a=1, b=4).version == 4
    assert part({6: []}, a=1).version == 6


def test_a_version_creates_its_tables_and_no_others(connection: sa.Connection) -> None:
    both = part(a=1, b=2)
    both.bring_to(1, connection)
    assert names(connection) == ["a"]
    both.bring_to(2, connection)
    assert names(connection) == ["a", "b"]
    both.bring_to(3, connection)
    assert names(connection) == ["a", "b"]


def test_a_step_finds_the_tables_of_its_version(connection: sa.Connection) -> None:
    seen: list[str] = []
    part({2: seen}, a=1, b=2).bring_to(1, connection)
    assert seen == []
    part({2: seen}, b=2).bring_to(2, connection)
    assert seen == ["a", "b"]


def test_system_views_may_read_those_of_lower_layers(connection: sa.Connection) -> None:
    low = Part(tables=sa.MetaData(), views=lambda dialect: {"low": f"SELECT '{dialect}' AS name"})
    query = f"SELECT name FROM {VIEW_PREFIX}low"
    high = Part(tables=sa.MetaData(), views=lambda _: {"high": query})
    for _ in range(2):  # again: in place of those that are there
        create_views(connection, (low, high))
    rows = connection.exec_driver_sql(f"SELECT name FROM {VIEW_PREFIX}high")
    assert rows.scalar_one() == "sqlite"
    drop_views(connection, (low, high))
    assert sa.inspect(connection).get_view_names() == []


def test_a_row_lives_from_one_snapshot_to_another() -> None:
    assert [column.name for column in span()] == ["begin_snapshot", "end_snapshot"]


def test_no_two_layers_have_a_table_or_a_view_of_the_same_name() -> None:
    tables = [name for one in CATALOG_PARTS for name in one.tables.tables]
    views = [name for one in CATALOG_PARTS for name in one.views("sqlite")]
    assert len(set(tables)) == len(tables)
    assert len(set(views)) == len(views)
    assert {name.partition("_")[0] for name in tables} == {"tailrace"}


def test_every_layer_has_the_same_views_in_either_database() -> None:
    for one in CATALOG_PARTS:
        assert list(one.views("sqlite")) == list(one.views("postgresql"))
        assert "{" not in "".join(one.views("sqlite").values())


def test_this_tailrace_writes_version_11() -> None:
    assert max(one.version for one in CATALOG_PARTS) == 11
