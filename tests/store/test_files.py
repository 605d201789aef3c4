"""Row ranges name the same rows however they are cut."""

from __future__ import annotations

import pickle
from random import Random

import numpy as np
import pytest

from tailrace.store.files import DataFile, Op, RowRange, split

FILE = DataFile(key=7, path="p", rows=100, size=1000, footer=10, op=Op.APPEND)


def some(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def ids(rows: RowRange) -> list[int]:
    return [int(p) for p in rows.positions()]


def test_a_range_is_all_rows_or_all_but_some_or_only_some() -> None:
    assert ids(RowRange.of(FILE)) == list(range(100))
    assert ids(RowRange.of(FILE, without=some(0, 99))) == list(range(1, 99))
    assert ids(RowRange.at(FILE, some(3, 50))) == [3, 50]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_cut_out_is_what_was_there(seed: int) -> None:
    random = Random(seed)
    few = some(*sorted(random.sample(range(100), random.randint(0, 40))))
    whole = random.choice(
        [RowRange.of(FILE), RowRange.of(FILE, without=few), RowRange.at(FILE, few)]
    )
    first, last = random.randint(-5, 105), random.randint(-5, 105)
    cut = whole.between(first, last)
    expected = [p for p in ids(whole) if first <= p < last]
    assert ids(cut) == expected
    assert cut.rows == whole.count(first, last) == len(expected)
    assert ids(pickle.loads(pickle.dumps(cut))) == expected
    tasks = random.randint(1, 6)
    shares = split([whole, cut], tasks, 16, whole_groups=random.random() < 0.5)
    assert len(shares) <= tasks
    assert [p for share in shares for one in share for p in ids(one)] == ids(whole) + expected


def test_a_range_without_rows_has_a_share_too() -> None:
    """So that whoever builds something of files knows that this one was looked at."""
    assert [ids(one) for share in split([RowRange.at(FILE, some())], 4, 16) for one in share] == [
        []
    ]
