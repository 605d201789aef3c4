"""Rows that fit a table with every type, and a check that bad input leaves a lake as it was."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

import tailrace
from tailrace.store import tables as t
from tests.support.rows import bag

if TYPE_CHECKING:
    from collections.abc import Iterator


COLUMNS = {
    "id": "bigint",
    "flag": "boolean",
    "tiny": "tinyint",
    "number": "int",
    "small_float": "float",
    "big_float": "double",
    "price": "decimal(5,2)",
    "word": "string not null",
    "bytes": "binary",
    "day": "date",
    "moment": "timestamp",
    "local": "timestamp_ntz",
    "list": "array<int>",
    "times": "array<timestamp>",
    "pair": "struct<a:int,b:float>",
    "map": "map<string,smallint>",
}
ROW: dict[str, Any] = {
    "id": 1,
    "flag": True,
    "tiny": 1,
    "number": 1,
    "small_float": 0.5,
    "big_float": 0.5,
    "price": Decimal("1.50"),
    "word": "one",
    "bytes": b"one",
    "day": date(2024, 2, 29),
    "moment": datetime(2024, 2, 29, 12, tzinfo=UTC),
    "local": datetime(2024, 2, 29, 12),  # noqa: DTZ001  (without a zone is the point)
    "list": [1, None],
    "times": [datetime(2024, 2, 29, 12, tzinfo=UTC)],
    "pair": {"a": 1, "b": None},
    "map": {"x": 1},
}
NAIVE = datetime(2024, 1, 1)  # noqa: DTZ001
AWARE = datetime(2024, 1, 1, tzinfo=UTC)
MAP = pa.map_(pa.string(), pa.int16())


def state(lake: tailrace.Lake) -> Any:
    """What a commit would have changed, and what a transaction would have left behind."""
    with lake._runtime.database.read() as connection:
        transactions = connection.execute(sa.select(t.transaction)).all()
    return lake.snapshot, transactions


def everything(lake: tailrace.Lake) -> Any:
    """The same and all that there is: too much to look at after each of these tests."""
    rows = {name: bag(lake.table(name).to_arrow()) for name in lake.tables()}
    columns = {name: lake.table(name).columns for name in lake.tables()}
    return state(lake), rows, columns


@contextlib.contextmanager
def refused(lake: tailrace.Lake, error: type[Exception], *parts: str) -> Iterator[None]:
    """The block fails with the error, whose text has all the parts; the lake is as before."""
    before = state(lake)
    with pytest.raises(error) as caught:
        yield
    assert type(caught.value) is error
    for part in parts:
        assert part in str(caught.value)
    assert state(lake) == before


def good(**changes: Any) -> dict[str, Any]:
    return ROW | {"id": 2} | changes


def arrow(**changes: Any) -> pa.Table:
    row = {
        name: pa.array([value]) if name != "map" else pa.array([value], MAP)
        for name, value in good().items()
    }
    return pa.table(row | changes)
