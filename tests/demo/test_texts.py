"""The sentences of the demo that depend on what happened."""

from __future__ import annotations

from pathlib import Path

from tailrace.demo import texts


def test_tables_are_counted_in_words() -> None:
    counts = {"shop.orders": 50_000, "shop.order_lines": 150_000}
    assert texts.counted(counts) == "50,000 orders, 150,000 order lines"


def test_what_to_try_next_names_the_lake() -> None:
    kept = texts.commands(Path("/tmp/my shop"))
    assert kept[0] == "tailrace status --lake '/tmp/my shop'"
    assert kept[-1].startswith("tailrace demo --keep '/tmp/my shop'")
    assert texts.commands(None)[0] == "tailrace demo --keep shop.lake"  # there is none yet


def test_searches_are_summed_up() -> None:
    assert texts.searched([], None) == "Nothing was searched for in the live part."
    assert texts.searched([1, 2], 0.0123).startswith("2 searches in the live part")
    assert "12 ms" in texts.searched([1, 2], 0.0123)
