"""What is done for an index between its iterations: merges, new centroids, calibration.

Always true: maintenance changes how an index is stored, never what it finds. It rebuilds segments
from the table's rows and swaps them in one commit; if one of them was replaced meanwhile, it gives
up. Iterations and searches go on all the while.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from tailrace.errors import ConflictError, NotFoundError
from tailrace.indexes import segment as segments
from tailrace.indexes.build import SEGMENT_BYTES, SEGMENT_ROWS, build
from tailrace.indexes.definition import Definition
from tailrace.indexes.index_snapshot import IndexSnapshot, index_at, live_rows
from tailrace.indexes.reader import Opener
from tailrace.indexes.segment import Centroids, Segment
from tailrace.log import get_logger
from tailrace.propagation import joblog
from tailrace.propagation.job import JobRecord
from tailrace.store.files import NONE, Op, RowRange

if TYPE_CHECKING:
    from tailrace.store.runtime import Runtime
    from tailrace.store.transaction import Transaction
    from tailrace.store.workspace import Commit

log = get_logger("tailrace.indexes")

Begin = Callable[[], "Transaction"]

# Segments with fewer rows are all in the smallest tier.
_SMALLEST = 1_000
# Larger segments are not merged: building would split the result again.
_LARGEST, _LARGEST_BYTES = SEGMENT_ROWS // 4, SEGMENT_BYTES // 4
# The share of deleted rows from which a segment is built anew.
_DELETED = 0.2
# How many times as many rows an index may have as when it was trained, and calibrated.
_OUTGROWN, _CALIBRATED = 4.0, 1.5
_ROUNDS = 4


def find_job(connection: sa.Connection, job_id: int) -> JobRecord:
    """The job of an index; NotFoundError if it was dropped."""
    job = joblog.record(connection, job_id)
    if job is None or job.dropped_at is not None:
        raise NotFoundError("this index was dropped")
    return job


@dataclass(frozen=True, kw_only=True)
class Rebuild:
    """Segments to rebuild from the table."""

    reason: str
    segments: tuple[Segment, ...]
    trains: bool = False  # whether with new centroids


def maintain(runtime: Runtime, begin: Begin, job_id: int, stopped: Callable[[], bool]) -> None:
    """Do what an index needs now; give up if another process is doing it."""
    maintenance = Maintenance(runtime, begin, job_id)
    try:
        for _ in range(_ROUNDS):
            if stopped() or not maintenance.rebuild_next():
                break
        if not stopped():
            maintenance.calibrate()
    except (ConflictError, NotFoundError) as error:
        log.info("index maintenance given up", job_id=job_id, reason=str(error)[:200])


def is_due(runtime: Runtime, job_id: int) -> bool:
    """Whether an index needs maintenance now."""
    try:
        current = current_index(runtime, job_id)
    except NotFoundError:
        return False
    if current is None:
        return False
    rebuild = next_rebuild(
        current[1],
        merge_segments=runtime.settings.merge_segments,
        exact_rows=runtime.settings.exact_rows,
    )
    return rebuild is not None or grown_centroids(current[1]) is not None


def current_index(runtime: Runtime, job_id: int) -> tuple[JobRecord, IndexSnapshot] | None:
    """The job of an index, and what it has; None before its first iteration."""
    with runtime.database.read() as connection:
        job = find_job(connection, job_id)
        (table_id,) = joblog.sources_of(connection, [job.id])[job.id]
    if job.watermark is None:
        return None
    definition = Definition.from_spec(job.spec.consumer)
    at = job.watermark
    return job, index_at(runtime, job.id, table_id, definition, at, tail=False, any_format=True)


def grown_centroids(snapshot: IndexSnapshot) -> tuple[Centroids, int] | None:
    """The newest centroids, and the rows they divide, if these have outgrown the calibration."""
    newest = snapshot.parts.newest_centroids
    if newest is None or not snapshot.definition.kind.is_trained:
        return None
    rows = sum(one.rows for one in snapshot.parts.segments if one.centroids == newest.id)
    return (newest, rows) if rows > newest.calibrated_rows * _CALIBRATED else None


class Maintenance:
    """The maintenance of one index."""

    def __init__(self, runtime: Runtime, begin: Begin, job_id: int) -> None:
        self._runtime, self._begin, self._job_id = runtime, begin, job_id

    def _current(self) -> tuple[JobRecord, IndexSnapshot] | None:
        return current_index(self._runtime, self._job_id)

    def rebuild_next(self) -> bool:
        """Do the most urgent rebuild; False if none is needed."""
        current = self._current()
        if current is None:
            return False
        job, snapshot = current
        rebuild = next_rebuild(
            snapshot,
            merge_segments=self._runtime.settings.merge_segments,
            exact_rows=self._runtime.settings.exact_rows,
        )
        if rebuild is None:
            return False
        self._replace(job, snapshot, rebuild)
        return True

    def rebuild(self) -> None:
        """Rebuild all segments."""
        current = self._current()
        if current is not None:
            job, snapshot = current
            is_large = sum(live_rows(snapshot).values()) > self._runtime.settings.exact_rows
            trains = snapshot.definition.kind.is_trained and is_large
            rebuild = Rebuild(reason="rebuild", segments=snapshot.parts.segments, trains=trains)
            self._replace(job, snapshot, rebuild)
            self.calibrate()

    def _replace(self, job: JobRecord, snapshot: IndexSnapshot, rebuild: Rebuild) -> None:
        runtime, definition = self._runtime, snapshot.definition
        pieces = self._pieces(snapshot, rebuild)
        with self._begin() as txn:
            centroids: Centroids | None = None
            if rebuild.trains:
                from tailrace.indexes.vectors import training

                rows = round(sum(live_rows(snapshot).values()))
                centroids = training.train(txn, job.id, definition, snapshot.table, pieces, rows)
                if centroids is None and rebuild.reason != "rebuild":
                    raise ConflictError("too few vectors to divide them")
            elif rebuild.reason != "rebuild":
                centroids = snapshot.parts.newest_centroids
            few = not rebuild.trains
            built = build(txn, definition, snapshot.table, pieces, centroids, few=few)
            runtime.step("segments merged")

            def enter(commit: Commit) -> None:
                connection = commit.connection
                now = find_job(connection, job.id)
                assert now.watermark is not None
                segments.check_centroids(connection, centroids)
                # What the index has is what it had. The history since then may be gone by now, so
                # that the table could not tell.
                taken_in = segments.taken_in(connection, job.id)
                ids = [segment.id for segment in rebuild.segments]
                ended = segments.end(connection, ids, now.watermark, runtime.clock.now())
                if ended != len(ids):
                    raise ConflictError("a segment was replaced meanwhile")
                segments.enter(connection, job.id, built, now.watermark, next_row_id=taken_in)

            txn.on_commit(enter)
        runtime.step("merge committed")
        log.info(
            "segments merged",
            index=job.full_name,
            reason=rebuild.reason,
            before=len(rebuild.segments),
            after=len(built),
            rows=sum(segment.rows for segment in built),
        )

    def _pieces(self, snapshot: IndexSnapshot, rebuild: Rebuild) -> list[RowRange]:
        """The live rows of some segments.

        By the files where segments have them whole; by row addresses where they share files.
        """
        own = {segment.id for segment in rebuild.segments}
        others = [segment for segment in snapshot.parts.segments if segment.id not in own]
        outputs = {key for key, file in snapshot.files.items() if file.op is Op.COMPACTION}
        named = {
            key
            for segment in rebuild.segments
            for key in segment.files
            if key in snapshot.files and key not in outputs
        }
        whole = named.difference(*(segment.files for segment in others))
        if not others:  # the index has all rows there are: no segment need be read
            whole.update(outputs)
        pieces = [snapshot.live_piece(key) for key in sorted(whole)]
        # Of a file of a compaction, another segment may have rows under the places of before.
        elsewhere = {*named, *outputs, *(snapshot.lost if outputs else ())} - whole
        shared = [one for one in rebuild.segments if not elsewhere.isdisjoint(one.files)]
        if others and shared:
            stored = [segment for segment in shared if segment.path]
            for rows in self._opener().addresses(snapshot, stored):
                live = rows.by_file(~rows.find(snapshot.gone))
                for key, positions in live.items():
                    if key not in whole:
                        pieces.append(RowRange.at(snapshot.files[key], positions))
            # Also where nothing is left: what no segment names is what the index lacks.
            names = {key for one in stored for key in one.files if key in named - whole}
            pieces += [RowRange.at(snapshot.files[key], NONE) for key in sorted(names)]
        if not pieces and outputs:
            # A segment without rows says up to where they were taken in.
            pieces.append(RowRange.at(snapshot.files[min(outputs)], NONE))
        return pieces

    def calibrate(self) -> None:
        """Measure again how many lists a search looks at, if the index has grown since.

        Rows that are unlike the older ones end up in few lists: then it is trained anew.
        """
        current = self._current()
        grown = None if current is None else grown_centroids(current[1])
        if current is None or grown is None:
            return
        from tailrace.indexes.vectors import training

        (job, snapshot), (newest, rows) = current, grown
        opener = self._opener()
        has_grown = rows > newest.trained_rows * _CALIBRATED
        if has_grown and training.is_uneven(opener, snapshot, newest):
            rebuild = Rebuild(reason="uneven lists", segments=snapshot.parts.segments, trains=True)
            self._replace(job, snapshot, rebuild)
        else:
            training.calibrate(self._runtime, opener.open(snapshot, tail=False), newest)

    def _opener(self) -> Opener:
        runtime = self._runtime
        return Opener(
            runtime.storage, cache_bytes=runtime.settings.cache_bytes, kept=runtime.kept_files
        )


def next_rebuild(
    snapshot: IndexSnapshot, *, merge_segments: int, exact_rows: int
) -> Rebuild | None:
    """The most urgent rebuild: of old formats, then lists, deleted rows, many segments."""
    every = snapshot.parts.segments
    kind = snapshot.definition.kind
    old = tuple(one for one in every if one.path and one.format != kind.format)
    live = live_rows(snapshot)
    rows = sum(live.values())
    has_lists = kind.is_trained and rows > exact_rows
    if old:
        # With centroids of the new format, too.
        return Rebuild(reason="format", segments=old, trains=has_lists)
    if has_lists and (rebuild := _outgrown(snapshot, rows)) is not None:
        return rebuild
    for one in every:
        if one.rows and live[one.id] < one.rows * (1 - _DELETED):
            return Rebuild(reason="deleted rows", segments=(one,))
    tiers: dict[int, list[Segment]] = {}
    for one in every:
        if live[one.id] <= _LARGEST and one.size <= _LARGEST_BYTES:
            tiers.setdefault(_tier(live[one.id], merge_segments), []).append(one)
    for tier in sorted(tiers):
        if len(tiers[tier]) >= merge_segments:
            return Rebuild(reason="many segments", segments=tuple(tiers[tier]))
    return None


def _tier(rows: float, factor: int) -> int:
    return int(math.log(max(rows, _SMALLEST) / _SMALLEST, max(2, factor)))


def _outgrown(snapshot: IndexSnapshot, rows: float) -> Rebuild | None:
    newest = snapshot.parts.newest_centroids
    if newest is None or rows > newest.trained_rows * _OUTGROWN:
        return Rebuild(reason="lists", segments=snapshot.parts.segments, trains=True)
    other = tuple(one for one in snapshot.parts.segments if one.rows and one.centroids != newest.id)
    return Rebuild(reason="other lists", segments=other) if other else None
