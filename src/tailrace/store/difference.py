"""What came and went between two scans of one table, of which one may be a transaction's own.

The change feed is of committed snapshots; this compares the files and deletes of any two states.
"""

from __future__ import annotations

import numpy as np

from tailrace.store.changes import DELETE, INSERT, DeletedRows, Feed, WholeFile
from tailrace.store.deletes import Deleted
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Scan


def difference(runtime: Runtime, old: Scan, new: Scan) -> Feed:
    """The changes from one to the other, as a feed."""
    before = {live.file.key: live for live in old.files}
    after = {live.file.key: live for live in new.files}
    whole, some = [], []
    for key, live in after.items():
        dead = live.dead(runtime, new.at)
        if key not in before:
            if len(dead) < live.file.rows:
                whole.append(
                    WholeFile(file=live.file, change=INSERT, snapshot=new.at, without=dead)
                )
            continue
        gone = np.setdiff1d(dead, before[key].dead(runtime, old.at), assume_unique=True)
        if len(gone):
            marks = np.full(len(gone), new.at, np.int64)
            some.append(
                DeletedRows(file=live.file, deleted=Deleted(positions=gone, snapshots=marks))
            )
    for key, live in before.items():
        if key not in after:
            dead = live.dead(runtime, old.at)
            whole.append(WholeFile(file=live.file, change=DELETE, snapshot=new.at, without=dead))
    return Feed(table=new.table, whole=tuple(whole), some=tuple(some), net=True)
