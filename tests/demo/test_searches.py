"""Searches of the live part, and how they are checked."""

from __future__ import annotations

from dataclasses import replace

import tailrace
from tailrace.demo import derived, searches
from tests.support.shop import trader


def test_searches_of_the_live_part_are_as_of_the_newest_commit_and_are_checked_later(
    small_shop: tailrace.Lake,
) -> None:
    for index in derived.INDEXES:
        small_shop.create_index(*index.job, using=index.using, columns=index.column)
        small_shop.index(*index.job).wait()
    searcher, trade = searches.Searcher(small_shop, pause=0, turn=1), trader(small_shop)
    for _ in range(10):
        assert all(one.snapshot == small_shop.snapshot for one in searcher.look())
        for _ in range(4):
            trade.step()
    assert {one.asked for one in searcher.done} == {
        w for asked in searches.ASKED.values() for w in asked
    }
    assert all(searches.compare(small_shop, one) == (0, 0) for one in searcher.done)
    for one in searcher.done:
        assert one.keys
        word = one.asked.strip('"') if one.index is derived.REVIEW_TEXT else ", "
        assert word in one.shown.lower(), one


def test_a_search_that_is_wrong_is_found_out(small_shop: tailrace.Lake) -> None:
    for index in derived.INDEXES:
        small_shop.create_index(*index.job, using=index.using, columns=index.column)
        small_shop.index(*index.job).wait()
        asked = searches.ASKED[index][0]
        right = searches.search(small_shop, index, asked)
        assert searches.compare(small_shop, right) == (0, 0)
        less = replace(right, keys=right.keys[:-1])
        assert searches.compare(small_shop, less) == (1, 0)
        twice = replace(right, keys=(*right.keys[:-1], right.keys[0]))
        assert sum(searches.compare(small_shop, twice)) > 0
        other = replace(right, keys=(*right.keys[:-1], 10**9))
        assert searches.compare(small_shop, other) == (1, 1)
