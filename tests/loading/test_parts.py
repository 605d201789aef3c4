"""Parts cover each file once, in order, and know on which line they begin."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tailrace.loading.convert import lay_out
from tailrace.loading.options import Options
from tailrace.loading.parts import Part, PartEnd, PreparedFile, cut, first_lines, joined, tasks
from tailrace.loading.shape import Shape
from tests.support.loading import a_file, a_table

TABLE = a_table(id="bigint")


def prepared(
    name: str, *, size: int = 100, divisible: bool = True, **shape: object
) -> PreparedFile:
    file = a_file(name, size=size)
    known = replace(Shape(columns={"id": pa.int64()}, divisible=divisible), **shape)  # type: ignore[arg-type]
    return PreparedFile(
        file=file, shape=known, layout=lay_out(file, known.columns, TABLE, Options())
    )


def spans(parts: list[Part]) -> list[tuple[int, int | None]]:
    return [(part.start, part.end) for part in parts]


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(1000, [(0, None)]), (50, [(0, 50), (50, None)]), (30, [(0, 33), (33, 66), (66, None)])],
)
def test_a_text_is_cut_into_ranges_of_about_a_size(
    size: int, wanted: list[tuple[int, int | None]]
) -> None:
    assert spans(cut([prepared("a.csv")], size=size, divide=True)) == wanted


def test_what_cannot_be_divided_is_one_part() -> None:
    assert spans(cut([prepared("a.csv", divisible=False)], size=10, divide=True)) == [(0, None)]
    assert spans(cut([prepared("a.csv")], size=10, divide=False)) == [(0, None)]


def test_row_groups_are_taken_together_up_to_a_size() -> None:
    file = prepared("a.parquet", group_rows=(5, 6, 7, 8), group_bytes=(40, 40, 90, 10))
    parts = cut([prepared("b.csv"), file], size=80, divide=False)
    assert [part.number for part in parts] == [0, 1, 2, 3]
    assert spans(parts[1:]) == [(0, 2), (2, 3), (3, 4)]
    assert [part.first_row for part in parts[1:]] == [0, 11, 18]


def test_small_parts_share_a_task_and_large_ones_have_their_own() -> None:
    sizes = [10, 10, 100, 10, 60, 50]
    parts = cut(
        [prepared(f"{n}.csv", size=s) for n, s in enumerate(sizes)], size=1000, divide=False
    )
    assert [[part.size for part in group] for group in tasks(parts, 100)] == [
        [10, 10],
        [100],
        [10, 60],
        [50],
    ]


def ends(*found: tuple[int, int, int]) -> list[PartEnd]:
    return [PartEnd(begin=begin, end=end, lines=lines, rows=0) for begin, end, lines in found]


def test_lines_go_on_within_a_file_and_begin_again_with_the_next() -> None:
    parts = cut([prepared("a.csv"), prepared("b.csv")], size=50, divide=True)
    read = ends((0, 52, 4), (52, 100, 3), (0, 50, 2), (50, 100, 1))
    assert joined(parts, read)
    assert first_lines(parts, read) == [1, 5, 1, 3]


def test_parts_that_do_not_meet_are_noticed() -> None:
    parts = cut([prepared("a.csv")], size=50, divide=True)
    assert not joined(parts, ends((0, 70, 4), (52, 100, 3)))


def test_rows_of_parquet_are_numbered_through_its_parts() -> None:
    file = prepared("a.parquet", group_rows=(5, 6), group_bytes=(90, 90))
    parts = cut([file], size=80, divide=True)
    read = ends((0, 0, 5), (0, 0, 6))
    assert joined(parts, read)
    assert first_lines(parts, read) == [1, 6]
