"""Which files are rewritten: few rows often enough, and no row too often."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.settings import Settings
from tailrace.store.compaction import FileGroup, choose_all, choose_files, live_rows
from tailrace.store.files import DataFile, DeleteFile, Op

if TYPE_CHECKING:
    from collections.abc import Iterable

MB = 1024 * 1024
SETTINGS = Settings(file_bytes=100 * MB)


def make(
    number: int, *, rows: int, deleted: int = 0, size: int | None = None, op: Op = Op.APPEND
) -> DataFile:
    """A file; by default of 50 bytes a row and a footer."""
    deletes = DeleteFile(
        id=number, path="d", data_path="p", begin=1, last=1, count=deleted, size=1_000
    )
    return DataFile(
        key=number,
        path=f"p{number}",
        rows=rows,
        size=3_000 + (rows * 50 if size is None else size),
        footer=3_000,
        op=op,
        id=number,
        begin=number,
        deletes=deletes if deleted else None,
    )


def make_all(counts: Iterable[int]) -> list[DataFile]:
    return [make(number, rows=rows) for number, rows in enumerate(counts)]


def chosen(
    files: Iterable[DataFile], settings: Settings = SETTINGS, **given: Any
) -> list[set[int]]:
    groups = choose_files(files, settings, looked_up=True, **given)
    check(groups)
    return [{file.id for file in group.files} for group in groups]


def all_chosen(files: Iterable[DataFile], **given: Any) -> list[set[int]]:
    groups = choose_all(files, SETTINGS, looked_up=True, **given)
    check(groups)
    return [{file.id for file in group.files} for group in groups]


def check(groups: list[FileGroup]) -> None:
    counts = Counter(file.key for group in groups for file in group.files)
    assert set(counts.values()) <= {1}, "a file is in two groups"
    assert all(group.reason and group.files for group in groups)


# --- small files --------------------------------------------------------------------------------


def test_eight_small_files_become_one() -> None:
    assert chosen(make_all([10] * 7)) == []
    assert chosen(make_all([10] * 8)) == [set(range(8))]
    assert chosen(make_all([10] * 3), Settings(compact_files=3)) == [{0, 1, 2}]


def test_what_is_smaller_is_merged_too_and_what_is_larger_is_not() -> None:
    assert chosen(make_all([*[100] * 8, 1, 2, 10_000])) == [set(range(10))]


def test_a_merge_that_fills_the_tier_above_takes_it_along() -> None:
    # Eight files of 10 rows are 80 rows: the eighth of that size.
    assert chosen(make_all([10] * 8 + [80] * 7)) == [set(range(15))]
    assert chosen(make_all([10] * 8 + [80] * 6)) == [set(range(8))]


def test_many_small_files_are_one_rewrite_not_one_for_each_tier() -> None:
    assert chosen(make_all([10] * 1500)) == [set(range(1500))]


def test_files_of_full_size_are_left_alone() -> None:
    assert chosen(make_all([1_100_000] * 20)) == []  # 55 MB
    assert chosen(make_all([900_000] * 8)) == [set(range(8))]


def test_files_that_others_have_are_left_out() -> None:
    assert chosen(make_all([10] * 9), exclude={4}) == [{0, 1, 2, 3, 5, 6, 7, 8}]
    assert chosen(make_all([10] * 8), exclude=[4]) == []


def test_files_of_a_few_large_rows_are_not_merged_for_their_footers() -> None:
    files = [make(number, rows=10, size=60 * MB) for number in range(8)]
    assert chosen(files) == []


# --- deleted rows and large files ---------------------------------------------------------------


def test_a_file_with_more_than_a_fifth_deleted_is_rewritten() -> None:
    many, few = (make(1, rows=1_200_000, deleted=n) for n in (240_001, 240_000))
    assert chosen([many]) == [{1}]
    assert chosen([few]) == []
    (group,) = choose_files([many], SETTINGS, looked_up=True)
    assert group.reason == "240,001 of 1,200,000 rows are deleted"
    assert group.rows == live_rows(many) == 959_999


def test_a_few_deleted_rows_wait_for_the_next_merge_unless_they_are_large() -> None:
    assert chosen([make(1, rows=1_000, deleted=900)]) == []
    assert chosen([make(1, rows=1_000, deleted=900, size=10 * MB)]) == [{1}]
    # They count as what is left of them.
    assert chosen([make(n, rows=1_000, deleted=995) for n in range(8)]) == [set(range(8))]


def test_files_with_deleted_rows_are_merged_into_one() -> None:
    files = [make(n, rows=100_000 * 9**n, deleted=50_000 * 9**n) for n in range(2)]
    assert chosen(files) == [{0, 1}]


def test_a_file_of_more_than_twice_the_size_is_divided() -> None:
    large, larger = make(1, rows=4_190_000), make(2, rows=4_200_000)
    assert chosen([large, larger]) == [{2}]
    # A row group is the least that a file has.
    assert chosen([make(1, rows=16_384, size=1_000 * MB)]) == []
    # And with so many of its rows deleted, it is not large.
    assert chosen([make(1, rows=4_200_000, deleted=100_000)]) == []


def test_a_rewrite_is_bounded() -> None:
    files = [make(n, rows=1_900_000, deleted=600_000) for n in range(200)]
    groups = choose_files(files, SETTINGS, looked_up=True)
    check(groups)
    assert sum(len(group.files) for group in groups) == 200
    assert max(group.rows * 50 for group in groups) <= 64 * SETTINGS.file_bytes


# --- all ----------------------------------------------------------------------------------------


def test_all_means_whatever_is_not_in_final_form() -> None:
    final = make(1, rows=1_200_000)
    assert all_chosen([final]) == []
    assert all_chosen([make(1, rows=10)]) == []  # nothing to merge it with
    assert all_chosen([make(1, rows=10, deleted=1)]) == [{1}]
    assert all_chosen([final, make(2, rows=10), make(3, rows=1_000)]) == [{2, 3}]
    assert all_chosen([make(1, rows=4_200_000)]) == [{1}]
    assert all_chosen([final, make(2, rows=1_200_000, deleted=1)]) == [{2}]
    assert all_chosen([make(2, rows=10), make(3, rows=10)], exclude={3}) == []


def test_all_takes_full_files_that_overlap() -> None:
    files = make_all([1_200_000] * 5)
    apart: dict[int, Any] = {0: (1, 5), 1: (5, 9), 2: (10, 12), 3: (12, 12), 4: None}
    assert all_chosen(files, bounds=apart) == []
    assert all_chosen(files, bounds={**apart, 3: (11, 12)}) == [{2, 3}]
    assert all_chosen(files, bounds={**apart, 3: (0, 99)}) == [{0, 1, 2, 3}]
    assert all_chosen(files, bounds={0: ("a", "c"), 1: ("b", "b")}) == [{0, 1}]
    (group,) = choose_all(files, SETTINGS, looked_up=True, bounds={0: (1, 3), 1: (2, 4)})
    assert group.reason == "of 2 files: 2 overlapping"


def test_what_overlaps_is_rewritten_together_where_it_is_too_much_for_one() -> None:
    files = make_all([1_200_000] * 300)
    bounds = {n: (n // 2 * 10, n // 2 * 10 + 9 + n % 2) for n in range(300)}
    groups = all_chosen(files, bounds=bounds)
    assert len(groups) > 1
    assert sum(map(len, groups)) == 300
    assert all(len(one) == max(one) - min(one) + 1 for one in groups)


# --- a life -------------------------------------------------------------------------------------


class Life:
    """Commits of a few rows each, and all the rewrites that are chosen in between."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self.settings, self.random = settings, Random(seed)
        self.files: dict[int, tuple[int, set[int]]] = {}  # rows written, and those left
        self.file_of: dict[int, int] = {}
        self.rewrites: Counter[int] = Counter()
        self.live: list[int] = []
        self.rows = self.most_files = 0

    def commit(self, rows: int, deletes: int) -> None:
        new = range(self.rows, self.rows + rows)
        self.rows += rows
        self._add(new)
        self.live += new
        for _ in range(deletes):
            place = self.random.randrange(len(self.live))
            row, self.live[place] = self.live[place], self.live[-1]
            self.live.pop()
            left = self.files[self.file_of[row]][1]
            left.discard(row)
            if not left:
                del self.files[self.file_of[row]]
        while groups := choose_files(self._files(), self.settings, looked_up=True):
            check(groups)
            for group in groups:
                moved = [row for file in group.files for row in self.files.pop(file.id)[1]]
                self.rewrites.update(moved)
                self._add(moved)
        self.most_files = max(self.most_files, len(self.files))

    def _add(self, rows: Iterable[int]) -> None:
        number = max(self.files, default=0) + 1
        left = set(rows)
        self.files[number] = (len(left), left)
        self.file_of.update(dict.fromkeys(left, number))

    def _files(self) -> list[DataFile]:
        return [
            make(number, rows=rows, deleted=rows - len(left))
            for number, (rows, left) in self.files.items()
        ]


@pytest.mark.parametrize("deletes", [0, 2, 5])
def test_over_ten_thousand_commits_files_stay_few_and_rows_are_rewritten_seldom(
    deletes: int,
) -> None:
    life = Life(Settings(), seed=deletes)
    for _ in range(10_000):
        life.commit(10, deletes)
    # Five tiers of fewer than eight files.
    assert life.most_files <= 35
    assert sum(life.rewrites.values()) <= 4 * life.rows
    assert max(life.rewrites.values()) <= 12


def test_what_is_deleted_again_and_again_is_not_rewritten_more_than_four_times_each() -> None:
    life = Life(Settings(), seed=3)
    for _ in range(500):
        life.commit(1_000, 800)
    assert life.most_files <= 35
    assert sum(life.rewrites.values()) <= 5 * life.rows
