"""A table's objects on disk, for tests that take them away or damage them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.store import lookup, table_files
from tailrace.store.files import DataFile
from tailrace.store.names import split_name

if TYPE_CHECKING:
    import tailrace


def data_files(lake: tailrace.Lake, name: str) -> list[Path]:
    """A table's data files, oldest first."""
    return [_path(lake, file.path) for file in _files(lake, name)]


def delete_files(lake: tailrace.Lake, name: str) -> list[Path]:
    """A table's delete files, in the order of the data files that they belong to."""
    return [_path(lake, file.deletes.path) for file in _files(lake, name) if file.deletes]


def _files(lake: tailrace.Lake, name: str) -> list[DataFile]:
    """The catalog knows the order. Times of files don't: two commits can have the same."""
    at = lake.snapshot
    with lake.runtime.database.read() as connection:
        table = lookup.find_table(connection, *split_name(name), at, lake.runtime.tenant)
        assert table is not None, name
        return sorted(table_files.data_files(connection, table, at), key=lambda file: file.id)


def _path(lake: tailrace.Lake, path: str) -> Path:
    return Path(lake.runtime.storage.data_path) / path
