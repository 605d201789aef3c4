"""What the demo shows fits a terminal, and what it says depends on what happened."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console, ConsoleDimensions

from tailrace.demo import derived, display, searches
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
    console.print(display.live(picture, 10, 60, ConsoleDimensions(width, 24)))
    shown = [line.rstrip() for line in output.getvalue().splitlines()]
    assert max(map(len, shown)) <= width
    assert len(shown) <= 22
    for one in derived.ALL:
        (line,) = [line for line in shown if line.startswith(f"{display.short(one.name)} ")]
        assert "12 commits, 10.5 s" in line
        assert line.split()[-3:] == ["1,234", "ms", "120"]
    assert any(line.startswith("review_text: sturdy, 1,000 found at 1234: Stur") for line in shown)
    assert any(line.startswith("look_alikes: like Oak bench, of 20,000") for line in shown)


def test_tables_are_counted_in_words() -> None:
    counts = {"shop.orders": 50_000, "shop.order_lines": 150_000}
    assert display.counted(counts) == "50,000 orders, 150,000 order lines"


def test_what_to_try_next_names_the_lake() -> None:
    kept = display.commands(Path("/tmp/my shop"))
    assert kept[0] == "tailrace status --lake '/tmp/my shop'"
    assert kept[-1].startswith("tailrace demo --keep '/tmp/my shop'")
    assert display.commands(None)[0] == "tailrace demo --keep shop.lake"  # there is none yet


def test_searches_are_summed_up() -> None:
    assert display.searched([], None) == "Nothing was searched for in the live part."
    assert display.searched([1, 2], 0.0123).startswith("2 searches in the live part")
    assert "12 ms" in display.searched([1, 2], 0.0123)


def test_cpu_times_are_compared() -> None:
    text = display.cpu(4.0, 10.0)
    assert "4.0 s for all that keeps it fresh, 10.0 s instead, 2.5" in text
    assert display.cpu(0.0, 1.0).endswith("1.0 s instead.")
