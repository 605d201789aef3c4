"""The address in the table (file and position), the id and the key of each row of a segment.

A row that compaction has moved is looked for by its id, once, when a segment is opened (`follow`).
From then on it has the address that the table has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.objects import Storage
from tailrace.store.files import DataFile, Positions
from tailrace.store.open_file import KeptFiles
from tailrace.store.row_ids import RowIds, WantedIds, find_in
from tailrace.store.schema import FILE, POS, ROW_ID_COLUMN, Column

NAME = "rows.parquet"
ROW = "_row"  # the column of ids
Numbers = npt.NDArray[np.int64]
# Some rows of a table: by data file their positions, or None for all rows of the file.
RowSet = Mapping[int, Positions | None]


def write_rows(
    directory: Path, files: Numbers, positions: Numbers, keys: pa.Table, ids: RowIds | None = None
) -> None:
    """Write the addresses of a segment; numbers that count up take next to no space."""
    table = pa.table([pa.array(files), pa.array(positions)], names=[FILE, POS])
    counts_up = {POS: "DELTA_BINARY_PACKED"}
    if ids is not None:
        table = table.append_column(ROW, pa.array(ids))
        counts_up[ROW] = "DELTA_BINARY_PACKED"
    for name, array in zip(keys.column_names, keys.columns, strict=True):
        table = table.append_column(name, array)
    for field in keys.schema:
        if pa.types.is_integer(field.type):
            counts_up[field.name] = "DELTA_BINARY_PACKED"
    pq.write_table(
        table,
        directory / NAME,
        compression="zstd",
        use_dictionary=[name for name in table.column_names if name not in counts_up],
        column_encoding=counts_up,
    )


def key_name(column: Column) -> str:
    """What a key column is called in a segment: by its id, since it may be renamed."""
    return f"c{column.id}"


@dataclass(frozen=True)
class RowAddresses:
    """The row addresses of an open segment, by position."""

    files: Numbers
    positions: Numbers
    keys: pa.Table  # one chunk a column

    @staticmethod
    def read(directory: Path) -> RowAddresses:
        names = [name for name in pq.read_schema(directory / NAME).names if name != ROW]
        table = pq.read_table(directory / NAME, columns=names).combine_chunks()
        files, positions = table.column(FILE).to_numpy(), table.column(POS).to_numpy()
        return RowAddresses(files, positions, table.drop_columns([FILE, POS]))

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def _by_address(self) -> tuple[Numbers, Mapping[int, tuple[int, int]], Numbers]:
        """Positions by address in the segment; each file's range of them; positions in files."""
        order = np.lexsort((self.positions, self.files))
        sorted_files = self.files[order]
        keys, starts = np.unique(sorted_files, return_index=True)
        stops = [*starts[1:], len(order)]
        ranges = {
            int(key): (int(start), int(stop))
            for key, start, stop in zip(keys, starts, stops, strict=True)
        }
        return order, ranges, self.positions[order]

    def find(self, rows: RowSet) -> npt.NDArray[np.bool_]:
        """Which of its rows are among these."""
        order, ranges, sorted_positions = self._by_address
        is_found = np.zeros(len(self), bool)
        for key, (start, stop) in ranges.items():
            if key not in rows:
                continue
            wanted = rows[key]
            if wanted is None:
                is_found[order[start:stop]] = True
            elif len(wanted):
                held = sorted_positions[start:stop]
                at = np.minimum(np.searchsorted(wanted, held), len(wanted) - 1)
                is_found[order[start:stop][wanted[at] == held]] = True
        return is_found

    def by_file(self, rows: npt.NDArray[np.bool_]) -> dict[int, Positions]:
        """The addresses of some of its rows."""
        order, ranges, sorted_positions = self._by_address
        wanted = rows[order]
        return {
            key: sorted_positions[start:stop][wanted[start:stop]]
            for key, (start, stop) in ranges.items()
            if wanted[start:stop].any()
        }

    def key_values(self, positions: Numbers, columns: Sequence[Column]) -> list[pa.Array]:
        """The keys of some rows, a column each, in the types that the columns have now."""
        arrays, chosen = [], pa.array(positions)
        for column in columns:
            held = self.keys.column(key_name(column))
            # Of one chunk, unless that were too large; Arrow is quicker with an array.
            one = held.num_chunks == 1
            values = held.chunk(0).take(chosen) if one else held.take(chosen).combine_chunks()
            arrays.append(values if values.type == column.type else values.cast(column.type))
        return arrays


@dataclass(frozen=True)
class LostRows:
    """Rows of a segment whose files are gone: they were deleted, or compaction has moved them."""

    addresses: RowAddresses  # of the segment
    places: Numbers  # of these rows in it
    ids: RowIds

    @staticmethod
    def read(directory: Path, lost: Collection[int], firsts: Mapping[int, int] | None) -> LostRows:
        """Those of some files; `firsts` has the first id of each, where the segment has no ids."""
        addresses = RowAddresses.read(directory)
        places = np.flatnonzero(np.isin(addresses.files, np.array(sorted(lost), np.int64)))
        if firsts is None:
            ids = pq.read_table(directory / NAME, columns=[ROW]).column(0).to_numpy()[places]
        else:
            keys, which = np.unique(addresses.files[places], return_inverse=True)
            # What was not in the catalog any more when ids became known: no row has such an id.
            starts = np.array([firsts.get(int(key), _NO_ROW) for key in keys], np.int64)
            ids = starts[which] + addresses.positions[places]
        return LostRows(addresses, places, ids)


_NO_ROW = -(2**62)


def follow(
    storage: Storage,
    moved_to: Sequence[DataFile],
    lost: Sequence[LostRows],
    kept: KeptFiles | None = None,
) -> list[RowAddresses]:
    """The addresses of segments whose rows may be in files of compactions by now.

    Those that are not keep their address, which nothing has any more. The ids of each file are read
    once for all segments, and of row groups that have none of the rows not at all.
    """
    if not lost:
        return []
    ids = np.concatenate([one.ids for one in lost])
    order = np.argsort(ids, kind="stable")
    wanted = WantedIds(ids[order])
    files = np.concatenate([one.addresses.files[one.places] for one in lost])
    positions = np.concatenate([one.addresses.positions[one.places] for one in lost])
    for file in moved_to:
        own = None if kept is None else kept.for_read(file.rows, [ROW_ID_COLUMN])
        for found_at, found in find_in(storage, file, wanted, own):
            there = order[wanted.places(found)]
            files[there], positions[there] = file.key, found_at
    moved, start = [], 0
    for one in lost:
        stop = start + len(one.places)
        new_files, new_positions = one.addresses.files.copy(), one.addresses.positions.copy()
        new_files[one.places], new_positions[one.places] = files[start:stop], positions[start:stop]
        moved.append(RowAddresses(new_files, new_positions, one.addresses.keys))
        start = stop
    return moved
