"""Which segments are rebuilt next, and why: a function of an index at a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tailrace.indexes.definition import KINDS, Definition
from tailrace.indexes.index_snapshot import IndexSnapshot, live_rows
from tailrace.indexes.maintenance import next_rebuild
from tailrace.indexes.segment import Centroids, Parts, Segment
from tailrace.indexes.text.kind import TextOptions
from tailrace.indexes.vectors.kind import VectorOptions
from tailrace.store.deletes import Deleted
from tailrace.store.files import DataFile, Op
from tailrace.store.schema import TableInfo

TEXT = Definition(using="fulltext", columns=(1,), options=TextOptions())
VECTOR = Definition(using="vector", columns=(1,), options=VectorOptions(dimension=2))
TABLE = TableInfo(id=1, uuid="", schema_id=1, schema="main", name="t", path="", columns=())
AT = 10


def segment(number: int, rows: int, *, centroids: int | None = None, using: str = "") -> Segment:
    """One of a data file of the same number."""
    return Segment(
        id=number, begin=1, path=f"{number}.segment", size=rows * 100, checksum=str(number),
        rows=rows, files={number: rows}, format=using or KINDS["fulltext"].format,
        centroids=centroids,
    )  # fmt: skip


def vectors(number: int, rows: int, centroids: int | None = None) -> Segment:
    return segment(number, rows, centroids=centroids, using=KINDS["vector"].format)


def trained(number: int, rows: int) -> Centroids:
    return Centroids(
        id=number, path="c", size=1, checksum="c", lists=16, trained_rows=rows, probes=2,
        calibrated_rows=rows,
    )  # fmt: skip


def index(
    segments: Sequence[Segment],
    definition: Definition = TEXT,
    *,
    centroids: Sequence[Centroids] = (),
    deleted: dict[int, int] | None = None,  # how many rows of each file, at a later snapshot
    moved: dict[int, int] | None = None,  # rows of files of compactions, in place of the others
) -> IndexSnapshot:
    files = {one.id: data_file(one.id, one.rows) for one in segments}
    if moved is not None:
        files = {key: data_file(key, rows, Op.COMPACTION) for key, rows in moved.items()}
    deletes = {
        key: Deleted(positions=np.arange(count), snapshots=np.full(count, 5))
        for key, count in (deleted or {}).items()
    }
    parts = Parts(segments=tuple(segments), centroids={one.id: one for one in centroids})
    return IndexSnapshot(
        definition=definition, table=TABLE, at=AT, parts=parts, files=files, gone={},
        deletes=deletes, tail=(),
    )  # fmt: skip


def data_file(key: int, rows: int, op: Op = Op.APPEND) -> DataFile:
    return DataFile(key=key, path="", rows=rows, size=1, footer=1, op=op, begin=1)


def chosen(snapshot: IndexSnapshot) -> tuple[str, list[int], bool] | None:
    rebuild = next_rebuild(snapshot, merge_segments=4, exact_rows=50_000)
    if rebuild is None:
        return None
    return rebuild.reason, [one.id for one in rebuild.segments], rebuild.trains


def test_a_few_segments_are_left_alone() -> None:
    assert chosen(index([segment(1, 900), segment(2, 90_000), segment(3, 10)])) is None
    assert chosen(index([])) is None


def test_many_of_one_size_are_merged_the_small_ones_first() -> None:
    small = [segment(number, 10 * number) for number in range(1, 5)]
    large = [segment(number, 100_000) for number in range(11, 15)]
    assert chosen(index([*large, *small])) == ("many segments", [1, 2, 3, 4], False)
    assert chosen(index(large)) == ("many segments", [11, 12, 13, 14], False)


def test_the_largest_are_never_merged() -> None:
    assert chosen(index([segment(number, 2_000_000) for number in range(1, 9)])) is None


@pytest.mark.parametrize(("count", "rebuilt"), [(199, False), (201, True)])
def test_a_fifth_of_deleted_rows_is_too_much(count: int, *, rebuilt: bool) -> None:
    snapshot = index([segment(1, 1000), segment(2, 1000)], deleted={2: count})
    assert chosen(snapshot) == (("deleted rows", [2], False) if rebuilt else None)


def test_a_file_that_is_gone_has_no_live_rows() -> None:
    snapshot = index([segment(1, 1000)])
    assert live_rows(replace(snapshot, files={})) == {1: 0}


def test_rows_that_were_moved_are_there_still() -> None:
    both = [segment(1, 1000), segment(2, 3000)]
    assert chosen(index(both, moved={7: 2000, 8: 2000})) is None
    assert live_rows(index(both, moved={7: 4000})) == {1: 1000, 2: 3000}
    # Rows that are not worth finding are moved with the others.
    assert live_rows(index(both, moved={7: 9000})) == {1: 1000, 2: 3000}


def test_what_was_moved_and_deleted_is_counted() -> None:
    both = [segment(1, 1000), segment(2, 3000)]
    half = index(both, moved={7: 4000}, deleted={7: 2000})
    assert live_rows(half) == {1: 500, 2: 1500}
    assert chosen(half) == ("deleted rows", [1], False)
    assert live_rows(index(both, moved={7: 2000})) == {1: 500, 2: 1500}  # deleted before
    # One that was rebuilt has its rows by their new place, and is not rebuilt again.
    rebuilt = replace(segment(1, 500), files={7: 500}, begin=6)
    assert live_rows(index([rebuilt, both[1]], moved={7: 2000})) == {1: 500, 2: 1500}
    alone = index([rebuilt, both[1]], moved={7: 500})
    assert live_rows(alone) == {1: 500, 2: 0}
    assert chosen(alone) == ("deleted rows", [2], False)


def test_other_formats_come_first() -> None:
    old = segment(2, 5, using="fulltext-0 tantivy-0.1")
    many = [segment(number, 10) for number in range(3, 9)]
    assert chosen(index([segment(1, 5), old, *many])) == ("format", [2], False)


def test_vectors_are_divided_once_there_are_many() -> None:
    assert chosen(index([vectors(1, 50_000)], VECTOR)) is None
    assert chosen(index([vectors(1, 50_001)], VECTOR)) == ("lists", [1], True)


def test_new_lists_when_the_index_has_outgrown_them() -> None:
    known = [trained(7, 20_000)]
    fits = index([vectors(1, 80_000, 7)], VECTOR, centroids=known)
    assert chosen(fits) is None
    outgrown = index([vectors(1, 80_001, 7)], VECTOR, centroids=known)
    assert chosen(outgrown) == ("lists", [1], True)


def test_what_older_lists_divide_follows_the_newest() -> None:
    both = [trained(7, 60_000), trained(8, 60_000)]
    mixed = index([vectors(1, 40_000, 7), vectors(2, 40_000, 8)], VECTOR, centroids=both)
    assert chosen(mixed) == ("other lists", [1], False)
