"""Deleted rows of a data file: positions, and the snapshots since which they are deleted.

Owned here: the delete file's layout. A delete file keeps a snapshot for each position as soon as it
holds deletes of more than one; a data file has at most one delete file at a time.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from dataclasses import dataclass
from posixpath import basename
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.errors import CorruptError
from tailrace.objects import Storage
from tailrace.store.files import NONE, DeleteFile, Positions
from tailrace.store.open_file import open_parquet
from tailrace.store.write import new_object_name

PATH_FIELD, POS_FIELD, SNAPSHOT_FIELD = "file_path", "pos", "_ducklake_internal_snapshot_id"
# The format's reserved field ids.
_FIELDS = {PATH_FIELD: 2147483646, POS_FIELD: 2147483645, SNAPSHOT_FIELD: 2147483539}
_CACHED_POSITIONS = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Deleted:
    """Positions and, in parallel, the snapshot that deleted each."""

    positions: Positions
    snapshots: npt.NDArray[np.int64]

    def at(self, snapshot: int) -> Positions:
        """The positions that are deleted at a snapshot."""
        return self.positions[self.snapshots <= snapshot]

    def within(self, since: int, until: int) -> Deleted:
        """The deletes of the snapshots (since, until]."""
        wanted = (self.snapshots > since) & (self.snapshots <= until)
        return Deleted(positions=self.positions[wanted], snapshots=self.snapshots[wanted])

    def plus(self, positions: Positions, snapshot: int) -> Deleted:
        """These and further ones."""
        every = np.concatenate([self.positions, positions])
        marks = np.concatenate([self.snapshots, np.full(len(positions), snapshot, np.int64)])
        order = np.argsort(every, kind="stable")
        return Deleted(positions=every[order], snapshots=marks[order])


NOTHING = Deleted(positions=NONE, snapshots=np.empty(0, np.int64))


@dataclass(frozen=True, kw_only=True)
class WrittenDeletes:
    """A delete file that a commit is about to make visible."""

    path: str  # relative to the lake
    begin: int | None  # None: the commit's own snapshot
    last: int | None  # the snapshot written for the newest positions; None: no snapshots written
    count: int
    size: int
    footer: int


class DeleteFiles:
    """Reads delete files, and remembers the latest: they never change."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._cache: OrderedDict[str, Deleted] = OrderedDict()
        self._held = 0
        self._lock = Lock()

    def read(self, file: DeleteFile | None) -> Deleted:
        """All deletes that a delete file holds; none for a data file without one."""
        if file is None:
            return NOTHING
        with self._lock:
            if file.path in self._cache:
                self._cache.move_to_end(file.path)
                return self._cache[file.path]
        found = self._load(file)
        with self._lock:
            if file.path not in self._cache:
                self._cache[file.path] = found
                self._held += len(found.positions)
            while self._held > _CACHED_POSITIONS and len(self._cache) > 1:
                self._held -= len(self._cache.popitem(last=False)[1].positions)
        return found

    def _load(self, file: DeleteFile) -> Deleted:
        columns = [POS_FIELD, SNAPSHOT_FIELD] if file.is_partial else [POS_FIELD]
        with open_parquet(self._storage, file.path) as parquet:
            self._check(file, parquet.metadata)
            table = parquet.read(columns=columns)
        positions = table.column(POS_FIELD).to_numpy()
        if file.is_partial:
            snapshots = table.column(SNAPSHOT_FIELD).to_numpy()
        else:
            snapshots = np.full(len(positions), file.begin, np.int64)
        return Deleted(positions=positions, snapshots=snapshots)

    def _check(self, file: DeleteFile, footer: pq.FileMetaData) -> None:
        """Refuse an object that is not the one that the catalog means."""
        uri = self._storage.uri(file.path)
        if footer.num_rows != file.count:
            raise CorruptError(
                f"the object {uri} holds {footer.num_rows} deletes; the catalog says {file.count}"
            )
        # By its name alone, which is unique: a lake's directory may have been moved.
        chunk = footer.row_group(0).column(0)
        if chunk.path_in_schema != PATH_FIELD or (
            basename(chunk.statistics.min) != basename(file.data_path)
        ):
            raise CorruptError(f"the object {uri} holds the deletes of another file")


def write_deletes(
    storage: Storage, *, data_path: str, old: Deleted, new: Positions, snapshot: int, txn_id: str
) -> WrittenDeletes:
    """Write the delete file of a data file: the old deletes and the new ones.

    `snapshot` is the one that the commit will create. The first deletes of a data file are
    written without it, because they get it from the catalog's row.
    """
    first = len(old.positions) == 0
    every = old.plus(new, snapshot)
    count = len(every.positions)
    uri = storage.uri(data_path)
    arrays: dict[str, Any] = {
        # A dictionary of one entry: the path is written once, whatever the number of rows.
        PATH_FIELD: pa.repeat(uri, count),
        POS_FIELD: pa.array(every.positions),
    }
    if not first:
        arrays[SNAPSHOT_FIELD] = pa.array(every.snapshots)
    fields = [
        pa.field(name, array.type, False, {b"PARQUET:field_id": str(_FIELDS[name]).encode()})
        for name, array in arrays.items()
    ]
    table = pa.table(list(arrays.values()), schema=pa.schema(fields))
    directory = data_path.rpartition("/")[0]
    path = f"{directory}/{new_object_name(txn_id, '-delete')}"
    with storage.open_write(path) as sink:
        pq.write_table(table, sink.native, compression="zstd")
    (footer_size,) = struct.unpack("<I", sink.tail[:4])
    return WrittenDeletes(
        path=path,
        begin=None if first else int(old.snapshots.min()),
        last=None if first else snapshot,
        count=count,
        size=sink.size,
        footer=footer_size,
    )
