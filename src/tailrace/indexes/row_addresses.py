"""The address in the table (file and position), and the key, of each row of a segment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.store.files import Positions
from tailrace.store.schema import FILE, POS, Column

NAME = "rows.parquet"
Numbers = npt.NDArray[np.int64]
# Some rows of a table: by data file their positions, or None for all rows of the file.
RowSet = Mapping[int, Positions | None]


def write_rows(directory: Path, files: Numbers, positions: Numbers, keys: pa.Table) -> None:
    """Write the addresses of a segment; numbers that count up take next to no space."""
    table = pa.table([pa.array(files), pa.array(positions)], names=[FILE, POS])
    for name, array in zip(keys.column_names, keys.columns, strict=True):
        table = table.append_column(name, array)
    counts_up = {POS: "DELTA_BINARY_PACKED"}
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
        table = pq.read_table(directory / NAME).combine_chunks()
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
