"""Positions in a segment, and the addresses of its rows in the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tailrace.indexes.row_addresses import RowAddresses, key_name, write_rows
from tailrace.store.schema import Column

ID = Column(id=4, name="id", physical="id", type=pa.int32())
# As a merge leaves them: rows of two files, in no order.
FILES, POSITIONS = [9, 9, 5, 9, 5], [20, 3, 0, 11, 8]


@pytest.fixture
def addresses(tmp_path: Path) -> RowAddresses:
    keys = pa.table({key_name(ID): pa.array([1, 2, 3, 4, 5], pa.int32())})
    write_rows(tmp_path, np.array(FILES), np.array(POSITIONS), keys)
    return RowAddresses.read(tmp_path)


def positions(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, np.int64)


def test_what_was_written_is_read(addresses: RowAddresses) -> None:
    assert len(addresses) == 5
    assert addresses.files.tolist() == FILES
    assert addresses.positions.tolist() == POSITIONS


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ({}, []),
        ({9: positions(3, 20)}, [0, 1]),
        ({9: positions(4, 21), 5: positions(8)}, [4]),
        ({9: positions()}, []),
        ({5: None}, [2, 4]),  # the whole file
        ({5: None, 9: positions(11)}, [2, 3, 4]),
        ({7: None}, []),  # a file that the segment doesn't have
    ],
)
def test_rows_are_found_by_their_addresses(
    addresses: RowAddresses, rows: dict[int, np.ndarray | None], found: list[int]
) -> None:
    assert np.flatnonzero(addresses.find(rows)).tolist() == found


def test_some_rows_by_file_in_the_order_of_the_file(addresses: RowAddresses) -> None:
    some = np.array([True, True, False, False, True])
    by_file = addresses.by_file(some)
    assert {file: list(own) for file, own in by_file.items()} == {9: [3, 20], 5: [8]}


def test_keys_come_in_the_type_that_the_column_has_now(addresses: RowAddresses) -> None:
    widened = Column(id=4, name="number", physical="id", type=pa.int64())
    (keys,) = addresses.key_values(positions(4, 0), [widened])
    assert keys.type == pa.int64()
    assert keys.to_pylist() == [5, 1]
