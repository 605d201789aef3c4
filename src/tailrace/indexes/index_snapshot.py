"""What a search sees: the segments of an index at a snapshot, and what the table says of them.

Always true: it is complete and never changes. Rows that were deleted up to the snapshot are in
`gone`. Its tail is what is not indexed yet: rows of files that no segment names, and of files of
compactions the rows that came after the index was brought up to date last, by their ids. What it
had by then is in its segments, under the places of before: those are looked for by ids, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlglot.errors import SqlglotError

from tailrace import spark_sql
from tailrace.arguments import show
from tailrace.errors import Action, Fix, InvalidError, NotFoundError, UnavailableError
from tailrace.indexes.definition import Definition
from tailrace.indexes.row_addresses import RowSet
from tailrace.indexes.segment import Parts, Segment, parts_at
from tailrace.spark_sql.functions import MOMENT, NONDETERMINISTIC, SESSION, nondeterministic_calls
from tailrace.store import predicate, row_ids
from tailrace.store.deletes import Deleted
from tailrace.store.files import DataFile, Op, Positions, PositionsByFile, RowRange
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Scan
from tailrace.store.schema import ROW_ID_COLUMN, TableInfo


@dataclass(frozen=True, kw_only=True)
class IndexSnapshot:
    """An index at a snapshot of its table."""

    definition: Definition
    table: TableInfo
    at: int
    parts: Parts
    files: Mapping[int, DataFile]  # of the table at the snapshot, by their keys
    gone: RowSet  # of the files that the segments name, or that their rows may have moved to
    deletes: Mapping[int, Deleted]  # of its files, with their snapshots
    tail: tuple[RowRange, ...]
    lost: frozenset[int] = frozenset()  # files that segments name, and that are not there
    moved_to: tuple[DataFile, ...] = ()  # where rows of those may be

    @property
    def tail_rows(self) -> int:
        return sum(piece.rows for piece in self.tail)

    def has_moved(self, segment: Segment) -> bool:
        """Whether rows of a segment may be elsewhere by now."""
        return bool(self.moved_to) and not self.lost.isdisjoint(segment.files)

    def live_piece(self, key: int) -> RowRange:
        """All rows of a file that are there at the snapshot."""
        return RowRange.of(self.files[key], without=self.gone.get(key))

    @property
    def scan(self) -> Scan:
        """The table at the snapshot."""
        return Scan.of(self.table, self.at, self.files.values())


def index_at(
    runtime: Runtime,
    job_id: int,
    table_id: int,
    definition: Definition,
    at: int,
    *,
    tail: bool = True,
    any_format: bool = False,
) -> IndexSnapshot:
    """An index at a snapshot; of any format, if it is not going to be searched."""
    mirror = runtime.mirror
    table = mirror.table_by_id(table_id, at)
    if table is None:
        raise NotFoundError(f"the table of this index is not there at snapshot {at}")
    parts = mirror.read_at(at, lambda connection: parts_at(connection, job_id, at))
    files = {file.key: file for file in mirror.data_files(table, at)}
    now = definition.kind.format
    old = [one for one in parts.segments if one.path and one.format != now]
    if old and not any_format:
        raise UnavailableError(
            f"this index was written by {old[0].format!r}, and here is {now!r}: "
            "it is built anew in the background",
            fix=Fix(Action.REBUILD_INDEX),
        )
    if not any_format:
        definition.columns_of(table)  # one that was dropped is not searched any more
    named = {key for segment in parts.segments for key in segment.files}
    lost = frozenset(named - files.keys())
    outputs = {key: file for key, file in files.items() if file.op is Op.COMPACTION}
    deletes = {
        key: runtime.deletes.read(file.deletes)
        for key, file in files.items()
        if file.deletes is not None
    }
    dead = {key: deleted.at(at) for key, deleted in deletes.items()}
    gone: dict[int, Positions | None] = dict.fromkeys(lost)
    gone |= {key: positions for key, positions in dead.items() if key in named or key in outputs}
    return IndexSnapshot(
        definition=definition,
        table=table,
        at=at,
        parts=parts,
        files=files,
        gone=gone,
        deletes=deletes,
        tail=tuple(_tail(runtime, parts, named, files, dead)) if tail else (),
        lost=lost,
        moved_to=tuple(outputs.values()) if lost else (),
    )


def _tail(
    runtime: Runtime,
    parts: Parts,
    named: Collection[int],
    files: Mapping[int, DataFile],
    dead: PositionsByFile,
) -> Iterator[RowRange]:
    for key, file in files.items():
        without = dead.get(key)
        if file.op is not Op.COMPACTION or not parts.segments:
            if key not in named:
                yield RowRange.of(file, without=without)
        # Rows came before they were moved.
        elif file.begin > parts.begin:
            kept = runtime.kept_files.for_read(file.rows, [ROW_ID_COLUMN])
            later = row_ids.find_from(runtime.storage, file, parts.next_row_id, kept)
            if without is not None:
                later = np.setdiff1d(later, without, assume_unique=True)
            if len(later):
                yield RowRange.at(file, later)


def live_rows(snapshot: IndexSnapshot) -> dict[int, float]:
    """About how many rows of each segment are still there, by the segment's id.

    What was deleted of a file since a segment began is taken to be spread evenly over its rows; and
    what is left of rows whose files are gone, over all of these.
    """
    share = _share_of_lost(snapshot)
    return {
        segment.id: sum(
            rows * (_share(snapshot, segment, key) if key in snapshot.files else share)
            for key, rows in segment.files.items()
        )
        for segment in snapshot.parts.segments
    }


def _share(snapshot: IndexSnapshot, segment: Segment, key: int) -> float:
    """How much of what a segment has of a file is left."""
    deleted = snapshot.deletes.get(key)
    if deleted is None:
        return 1.0
    before, now = len(deleted.at(segment.begin)), len(deleted.at(snapshot.at))
    return 1 - (now - before) / max(1, snapshot.files[key].rows - before)


def _share_of_lost(snapshot: IndexSnapshot) -> float:
    """How much is left of rows whose files are gone.

    What segments don't have by its new place of the files of compactions, is theirs.
    """
    lost = rows = live = 0.0
    for segment in snapshot.parts.segments:
        for key, count in segment.files.items():
            file = snapshot.files.get(key)
            if file is None:
                lost += count
            elif file.op is Op.COMPACTION:
                rows -= count
                live -= count * _share(snapshot, segment, key)
    for key, file in snapshot.files.items():
        if file.op is Op.COMPACTION:
            deleted = snapshot.deletes.get(key)
            rows += file.rows
            live += file.rows - (0 if deleted is None else len(deleted.at(snapshot.at)))
    return min(1.0, max(0.0, live) / max(1.0, rows, lost))


def matching_rows(runtime: Runtime, snapshot: IndexSnapshot, where: object) -> RowSet:
    """The rows that a condition is true of."""
    if not isinstance(where, str) or not where.strip():
        raise InvalidError(f"where is a condition in Spark SQL, not {show(where)}")

    def stats(columns: Iterable[int]) -> Any:
        return runtime.mirror.file_stats(snapshot.table, tuple(columns), snapshot.at)

    return predicate.matching(runtime, snapshot.scan, where, stats)


def is_deterministic(where: str) -> bool:
    """Whether a condition is true of the same rows whenever it is evaluated."""
    try:
        tree = spark_sql.parse_one(where)
    except SqlglotError:
        # Spark may know better, as of a column called desc.
        return _words(where).isdisjoint(NONDETERMINISTIC | MOMENT | SESSION)
    return next(nondeterministic_calls(tree), None) is None


def _words(where: str) -> set[str]:
    try:
        return {token.text.casefold() for token in spark_sql.tokenize(where)}
    except SqlglotError as error:
        raise InvalidError(f"cannot read the condition {show(where)}") from error
