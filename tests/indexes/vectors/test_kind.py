"""A vector index keeps vectors that do not fit out of its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tailrace
from tests.indexes.review import COLUMNS, ROWS, fill, vector_index

if TYPE_CHECKING:
    pass


def test_a_vector_index_keeps_wrong_vectors_out(sqlite_lake: tailrace.Lake) -> None:
    table = fill(sqlite_lake)
    vector_index(sqlite_lake)
    with pytest.raises(tailrace.InvalidError, match=r"'id': 9.* has 3 elements"):
        table.append([{**ROWS[0], "id": 8}, {**ROWS[0], "id": 9, "v": [1, 2, 3]}])
    with pytest.raises(tailrace.InvalidError, match=r"'id': 9.* not finite"):
        table.append([{**ROWS[0], "id": 9, "v": [1.0, float("inf")]}])
    shape = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    frame = sqlite_lake.spark.createDataFrame([(9, "x", "y", [1.0])], shape)
    with pytest.raises(tailrace.InvalidError, match=r"'id': 9.* has 1 elements"):
        table.append(frame)
    table.append([{**ROWS[3], "id": 10}])  # NULL is fine
    sqlite_lake.drop_index("review", "near")
    table.append([{**ROWS[0], "id": 9, "v": [1, 2, 3]}])


def test_rows_that_do_not_fit_are_named(sqlite_lake: tailrace.Lake) -> None:
    fill(sqlite_lake)
    for options in ({"dimension": 3}, {}):
        if not options:
            sqlite_lake.table("review").append([{**ROWS[0], "id": 0, "v": [float("nan"), 1.0]}])
        with pytest.raises(tailrace.InvalidError, match=r"not so in \{'id': "):
            vector_index(sqlite_lake, **options)
    assert sqlite_lake.indexes() == []


def test_two_indexes_of_one_column_share_its_constraint(sqlite_lake: tailrace.Lake) -> None:
    table = fill(sqlite_lake)
    vector_index(sqlite_lake)
    sqlite_lake.create_index("review", "far", using="vector", columns="v", options={"metric": "l2"})
    sqlite_lake.drop_index("review", "near")
    with pytest.raises(tailrace.InvalidError, match="2 finite numbers"):
        table.append([{**ROWS[0], "id": 9, "v": [1, 2, 3]}])
    sqlite_lake.drop_index("review", "far")
    table.append([{**ROWS[0], "id": 9, "v": [1, 2, 3]}])


def test_a_write_beside_the_creation_cannot_break_the_constraint(
    sqlite_lake: tailrace.Lake,
) -> None:
    table = fill(sqlite_lake)
    txn = sqlite_lake.transaction()
    txn.table("review").append([{**ROWS[0], "id": 9, "v": [1, 2, 3]}])
    vector_index(sqlite_lake)
    with pytest.raises(tailrace.ConflictError):
        txn.commit()
    assert table.to_arrow().num_rows == 4
