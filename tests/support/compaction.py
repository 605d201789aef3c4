"""Compacts some files of a table, as a task of maintenance does, whether it is worth it or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.store import row_ids
from tailrace.store.names import split_name
from tailrace.store.rewrite import rewrite_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import tailrace
    from tailrace.store.files import DataFile


def compact(
    lake: tailrace.Lake,
    name: str,
    choose: Callable[[Sequence[DataFile]], Sequence[DataFile]] = lambda files: files,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Rewrite the chosen files, and do something else before the commit."""
    with lake.transaction() as txn:
        runtime, scan = txn.runtime, txn.scan(*split_name(name))
        wanted = {file.key for file in choose([live.file for live in scan.files])}
        lives = [live for live in scan.files if live.file.key in wanted]
        if lives:
            with runtime.database.read() as connection:
                firsts = row_ids.first_ids(connection, (live.file for live in lives))
            owner = txn.object_owner()
            outputs = rewrite_files(runtime, scan.table, lives, scan.at, owner, firsts)
            txn.own_objects(file.path for file in outputs)
            txn.rewrite(name, [live.file for live in lives], outputs)
        meanwhile()
