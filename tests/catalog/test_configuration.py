"""The lake's configuration, as rows of the catalog."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from tailrace.catalog import configuration
from tailrace.catalog.configuration import PART, own_metadata
from tailrace.configuration import Configuration

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANGED = Configuration(snapshot_retention=timedelta(days=30))


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    with sa.create_engine("sqlite://").begin() as opened:
        PART.bring_to(1, opened)
        opened.execute(sa.insert(own_metadata).values(key="version", value="10"))
        yield opened


def rows(connection: sa.Connection) -> dict[str, str]:
    return {row.key: row.value for row in connection.execute(sa.select(own_metadata))}


def test_what_was_never_changed_has_its_default(connection: sa.Connection) -> None:
    assert configuration.read(connection) == Configuration()


def test_what_is_written_is_read_again(connection: sa.Connection) -> None:
    configuration.write(connection, CHANGED)
    assert configuration.read(connection) == CHANGED


def test_only_what_differs_from_the_defaults_is_stored(connection: sa.Connection) -> None:
    configuration.write(connection, CHANGED)
    stored = {"configuration.snapshot_retention": "2592000.0"}
    assert rows(connection) == {"version": "10", **stored}
    configuration.write(connection, Configuration())
    assert rows(connection) == {"version": "10"}


def test_what_a_newer_version_has_written_is_left_out(connection: sa.Connection) -> None:
    connection.execute(sa.insert(own_metadata).values(key="configuration.later", value="1"))
    assert configuration.read(connection) == Configuration()
