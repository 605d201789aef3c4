"""What a process keeps of data files in memory: their layouts, and columns that it has decoded.

Always true: a data file never changes, so what is kept of it is right for as long as it is kept.
Which of its rows are deleted is not known here. Only small reads are kept: a large one would push
out what is looked up again and again, and is rarely repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

import pyarrow as pa

from tailrace.lru import LruCache
from tailrace.store.reader.layout import Layout
from tailrace.store.schema import Column

# A value takes about so many bytes, and a read is small if it takes at most this part of the room.
_VALUE_BYTES, _SMALL = 16, 4


class _Store:
    def __init__(self, room: int) -> None:
        self.room = room
        self.layouts: LruCache[Layout] = LruCache(room // 4, lambda layout: layout.size)
        # By file, row group, and the column's name and type.
        self.columns: LruCache[pa.ChunkedArray] = LruCache(room, lambda values: values.nbytes)
        self.lock = Lock()
        self.decoded = 0


@dataclass(frozen=True)
class KeptFiles:
    """What is kept, as one read uses it."""

    _store: _Store
    keeps: bool = False  # whether it keeps what it decodes, and uses what is kept

    @staticmethod
    def of(room: int) -> KeptFiles:
        """Nothing yet, and later up to so many bytes of columns."""
        return KeptFiles(_Store(room))

    def for_read(self, rows: int, columns: int) -> KeptFiles:
        """For a read of so many rows: what it decodes is kept if that is little."""
        room = self._store.room
        return replace(self, keeps=rows * columns * _VALUE_BYTES * _SMALL <= room > 0)

    @property
    def decoded(self) -> int:
        """Rows decoded so far. Those of a row group count once for each read that decodes some."""
        return self._store.decoded

    def count(self, rows: int) -> None:
        """Rows are about to be decoded."""
        with self._store.lock:
            self._store.decoded += rows

    def layout(self, file: int) -> Layout | None:
        """The layout of a file, by its key."""
        return self._store.layouts.get(file)

    def keep_layout(self, file: int, layout: Layout) -> None:
        if self._store.room:
            self._store.layouts.put(file, layout)

    def columns(
        self, file: int, group: int, columns: Sequence[Column]
    ) -> dict[str, pa.ChunkedArray]:
        """Those of some columns of a row group that are at hand, by their physical names."""
        store = self._store.columns
        held = {c.physical: store.get((file, group, c.physical, c.type)) for c in columns}
        return {name: values for name, values in held.items() if values is not None}

    def keep(self, file: int, group: int, columns: Mapping[str, pa.ChunkedArray]) -> None:
        """Keep columns of a row group."""
        for name, values in columns.items():
            if self.keeps and values.nbytes * _SMALL <= self._store.room:
                self._store.columns.put((file, group, name, values.type), values)

    def clear(self) -> None:
        """Forget everything."""
        self._store.layouts.clear()
        self._store.columns.clear()
