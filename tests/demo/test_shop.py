"""The shop is the same wherever it is made, and is told from other lakes."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tailrace.demo import shop
from tests.support.shop import SMALL


def test_the_shop_is_the_same_wherever_it_is_made() -> None:
    one, other = (shop.generate(SMALL) for _ in range(2))
    assert {name: rows.num_rows for name, rows in one.items()}.keys() == shop.TABLES.keys()
    assert all(one[name].equals(other[name]) for name in one)
    full = shop.Sizes(customers=5_000, products=500, orders=50_000, reviews=10_000)
    assert shop.Sizes.of(1) == full


def test_a_lake_with_other_tables_is_refused(tmp_path: Path) -> None:
    with tailrace.connect(tmp_path / "lake") as lake:
        lake.create_table("mine", {"id": "bigint"})
        with pytest.raises(tailrace.InvalidError, match=r"not made by the demo \(it has main.mine"):
            shop.is_there(lake)
