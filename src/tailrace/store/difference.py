"""What came and went between two scans of one table, of which one may be a transaction's own.

The change feed is of committed snapshots; this compares the files and deletes of any two states.
"""

from __future__ import annotations

import numpy as np

from tailrace.store.changes import Feed, deleted_file, deleted_rows, inserted_file
from tailrace.store.deletes import Deleted
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Scan


def difference(runtime: Runtime, old: Scan, new: Scan) -> Feed:
    """The changes from one to the other, as a feed."""
    before = {live.file.key: live for live in old.files}
    after = {live.file.key: live for live in new.files}
    deltas = []
    for key, live in after.items():
        dead = live.dead(runtime, new.at)
        if key not in before:
            if len(dead) < live.file.rows:
                deltas.append(inserted_file(live.file, new.at, dead))
            continue
        gone = np.setdiff1d(dead, before[key].dead(runtime, old.at), assume_unique=True)
        if len(gone):
            marks = np.full(len(gone), new.at, np.int64)
            deltas.append(deleted_rows(live.file, Deleted(positions=gone, snapshots=marks)))
    for key, live in before.items():
        if key not in after:
            deltas.append(deleted_file(live.file, new.at, live.dead(runtime, old.at)))
    return Feed(table=new.table, deltas=tuple(deltas), net=True)
