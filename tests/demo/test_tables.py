"""What the demo shows fits a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, ConsoleDimensions

from tailrace.demo import derived, searches, tables
from tailrace.demo.freshness import Line, Picture
from tailrace.demo.writer import Commit


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_live_table_fits_the_terminal(width: int) -> None:
    lines = tuple(
        Line(
            derived=one,
            rows=20_000,
            watermark=1234,
            commits_behind=12,
            seconds_behind=10.5,
            error=None,
            strategy="append",
            seconds=1.234,
            refreshes=120,
        )
        for one in derived.ALL
    )
    commit = Commit(snapshot=1234, at=0.0, kind="order", tables=(), text="order 50001: " + "x" * 90)
    found = tuple(
        searches.Search(
            index=index,
            asked=searches.ASKED[index][0],
            snapshot=1234,
            keys=(1,) * 1000,
            limit=10,
            rows=20_000,
            seconds=0.1,
            shown="Sturdy, and it looks good. " * 9,
        )
        for index in derived.INDEXES
    )
    picture = Picture(
        searches=found,
        lines=lines,
        snapshot=1234,
        commits=1000,
        rate=4.0,
        recent=(commit,) * 8,
        cities=(("Utrecht", 12_345_678.9),) * 10,
    )
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=False)
    console.print(tables.live(picture, 10, 60, ConsoleDimensions(width, 24)))
    shown = [line.rstrip() for line in output.getvalue().splitlines()]
    assert max(map(len, shown)) <= width
    assert len(shown) <= 22
    for one in derived.ALL:
        (line,) = [line for line in shown if line.startswith(f"{tables.short(one.name)} ")]
        assert "12 commits, 10.5 s" in line
        assert line.split()[-3:] == ["1,234", "ms", "120"]
    assert any(line.startswith("review_text: sturdy, 1,000 found at 1234: Stur") for line in shown)
    assert any(line.startswith("look_alikes: like Oak bench, of 20,000") for line in shown)
