"""Progress is counted by files and by the bytes that are stored."""

from __future__ import annotations

from dataclasses import replace

from tailrace.loading.convert import Filling
from tailrace.loading.layout import Layout
from tailrace.loading.parts import Part
from tailrace.loading.progress import Progress, ProgressCounter
from tests.support.loading import a_file

LAYOUT = Layout(filling=Filling(table="main.t", columns=(), sources=()), width=0)


def test_a_file_is_done_with_its_last_part() -> None:
    text, parquet, empty = a_file("a.csv"), a_file("b.parquet", size=50), a_file("c.csv", size=0)
    whole = Part(number=0, file=text, layout=LAYOUT, size=60)
    parts = [whole, replace(whole, number=1, size=40)]
    # The groups of a Parquet file are larger than the file: they are told uncompressed.
    group = Part(number=2, file=parquet, layout=LAYOUT, size=500)
    parts += [group, replace(group, number=3)]
    told: list[Progress] = []
    counter = ProgressCounter(told.append, [text, parquet, empty], parts)
    for part in parts:
        counter.read([part], rows=10, rejected=1)
    counter.writing()
    assert [one.files_done for one in told] == [1, 1, 2, 2, 3, 3]
    assert [one.bytes_done for one in told] == [0, 60, 100, 100, 150, 150]
    assert {one.bytes for one in told} == {150}
    assert (told[-1].rows, told[-1].rejected, told[-1].doing) == (40, 4, "writing")
