"""A shop that is small enough to be made for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tailrace.demo import shop
from tests.support.shop import SMALL


@pytest.fixture
def small_shop(tmp_path: Path) -> Iterator[tailrace.Lake]:
    with tailrace.connect(tmp_path / "lake") as lake:
        assert not shop.is_there(lake)
        shop.create(lake, SMALL)
        assert shop.is_there(lake)
        yield lake
