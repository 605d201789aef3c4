"""What the writer does to the shop."""

from __future__ import annotations

from pathlib import Path

import tailrace
from tailrace.demo import shop
from tailrace.demo.writer import Commit
from tests.support.shop import SMALL, trader


def test_the_writer_makes_commits_of_every_kind_and_leaves_no_line_without_its_order(
    small_shop: tailrace.Lake,
) -> None:
    before = small_shop.snapshot
    done = _trade(small_shop, 100)
    assert [commit.snapshot for commit in done] == list(range(before + 1, before + 101))
    kinds = {"order", "status", "cancel", "price", "customer", "product"}
    assert {commit.kind for commit in done} == kinds | {"review", "edit", "withdrawal"}
    orders = set(small_shop.table(shop.ORDERS).to_arrow()["id"].to_pylist())
    lines = set(small_shop.table(shop.LINES).to_arrow()["order_id"].to_pylist())
    assert lines == orders
    assert max(orders) > SMALL.orders


def test_the_same_start_leads_to_the_same_trade(tmp_path: Path) -> None:
    told = []
    for name in ("one", "other"):
        with tailrace.connect(tmp_path / name) as lake:
            shop.create(lake, SMALL)
            told.append([(commit.kind, commit.text) for commit in _trade(lake, 20)])
    assert told[0] == told[1]


def _trade(lake: tailrace.Lake, commits: int) -> list[Commit]:
    trade = trader(lake)
    return [trade.step() for _ in range(commits)]
