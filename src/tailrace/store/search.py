"""Searches a table's rows in this process: which of them a filter wants.

Always true: row groups that cannot hold a wanted row by their statistics are not decoded, and of
the columns that are not compared only those row groups where something was found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from tailrace.store.parallel import each, pays
from tailrace.store.reader.batches import Batch, read_groups
from tailrace.store.reader.filters import Filter
from tailrace.store.reader.layout import Layout
from tailrace.store.reader.opened import open_file
from tailrace.store.reader.row_range import RowRange
from tailrace.store.runtime import Runtime
from tailrace.store.scan import LiveFile, Scan
from tailrace.store.schema import Column

# Rows that one task compares, about.
_TASK_ROWS = 524_288

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Task:
    live: LiveFile
    layout: Layout
    groups: Sequence[int]


@dataclass(frozen=True)
class Search:
    """A search in a scan, which should be pruned."""

    runtime: Runtime
    scan: Scan
    where: Filter

    @cached_property
    def rows(self) -> int:
        """The rows of the row groups that are compared."""
        return sum(map(_rows, self._tasks))

    def run(
        self,
        columns: Sequence[Column],
        rows_of: Callable[[LiveFile], RowRange],
        use: Callable[[LiveFile, Batch], T],
    ) -> list[T]:
        """What a function makes of the wanted rows, batch by batch; it is called by threads."""
        kept = self.runtime.kept_files.for_read(self.rows, len({*columns, *self.where.looks_at}))

        def run(task: _Task) -> list[T]:
            storage, file, rows = self.runtime.storage, task.live.file, rows_of(task.live)
            with open_file(storage, file, kept=kept, layout=task.layout) as opened:
                batches = read_groups(
                    opened, task.groups, rows, columns, self.where, use_threads=False
                )
                return [use(task.live, batch) for batch in batches]

        threads = pays(self.runtime.storage, self.rows)
        return [one for found in each(run, self._tasks, threads=threads) for one in found]

    @cached_property
    def _tasks(self) -> list[_Task]:
        return [task for live in self.scan.files for task in self._tasks_of(live)]

    def _tasks_of(self, live: LiveFile) -> list[_Task]:
        runtime = self.runtime
        with open_file(runtime.storage, live.file, kept=runtime.kept_files) as opened:
            groups, layout = opened.groups(RowRange.of(live.file), self.where), opened.layout
        return [
            _Task(live=live, layout=layout, groups=share)
            for share in layout.shares(groups, _TASK_ROWS)
        ]


def _rows(task: _Task) -> int:
    return sum(last - first for first, last in map(task.layout.span, task.groups))
