"""Statistics are exact or absent, and compare like the values they stand for."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.spark_sql.types import parse_type
from tailrace.store import stats
from tests.store.test_schema import make

NAN = float("nan")
LATE = 20_000 * 365 * 86_400 * 1_000_000  # a timestamp beyond the year 9999


def of_values(kind: str, values: list[Any], tmp_path: Any, group_rows: int = 2) -> Any:
    table = make({"v": kind})
    array = pa.array(values, parse_type(kind))
    path = tmp_path / "f.parquet"
    pq.write_table(
        pa.table([array], names=["v"]),
        path,
        row_group_size=group_rows,
        store_decimal_as_integer=True,
    )
    nans = {"v": any(v != v for v in values if v is not None)} if kind == "double" else {}  # noqa: PLR0124
    (found,) = stats.of_file(pq.read_metadata(path), table.columns, nans)
    return found


@pytest.mark.parametrize(
    ("kind", "values", "low", "high"),
    [
        ("bigint", [3, None, -(2**63), 2**63 - 1], "-9223372036854775808", "9223372036854775807"),
        ("boolean", [True, True, True], "1", "1"),
        ("decimal(30,2)", [Decimal("9.50"), Decimal("10.00")], "9.50", "10.00"),
        ("string", ["b", "ä", "a", "z"], "a", "ä"),
        ("string", ["a", "x" * 300], "a", None),
        ("string", ["a\0", "b"], None, "b"),
        ("binary", [b"a", b"b"], None, None),
        ("double", [1.0, -0.5, 2.0], "-0.5", "2.0"),
        ("double", [1.0, NAN, 2.0], None, None),
        ("float", [0.1], repr(0.10000000149011612), repr(0.10000000149011612)),
        ("date", [date(1, 1, 1), date(9999, 12, 31)], "0001-01-01", "9999-12-31"),
        (
            "timestamp",
            [datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC)],
            "0001-01-01 00:00:00.000000+00",
            "2024-05-06 07:08:09.000010+00",
        ),
        ("timestamp_ntz", [0, LATE], "1970-01-01 00:00:00.000000", None),
        ("int", [None, None], None, None),
    ],
)
def test_bounds_are_exact_or_absent(
    kind: str, values: list[Any], low: str | None, high: str | None, tmp_path: Any
) -> None:
    found = of_values(kind, values, tmp_path)
    assert (found.min, found.max) == (low, high)
    assert found.nulls == values.count(None)
    assert found.values == len(values) - values.count(None)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int", [9, 10, -1]),
        ("decimal(10,2)", [Decimal("9.5"), Decimal("10.25")]),
        ("date", [date(999, 1, 1), date(2024, 1, 1)]),
        ("timestamp", [datetime(999, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 1, tzinfo=UTC)]),
        ("string", ["Z", "a", "ü", "漢"]),
        ("double", [9.0, 10.0]),
    ],
)
def test_bounds_in_the_catalog_in_row_groups_and_at_hand_agree(
    kind: str, values: list[Any], tmp_path: Any
) -> None:
    found = of_values(kind, values, tmp_path, group_rows=100)
    column = parse_type(kind)
    at_hand = stats.of_values(pa.chunked_array([pa.array(values, column)]))
    footer = pq.read_metadata(tmp_path / "f.parquet")
    in_group = stats.of_chunk(column, footer.row_group(0).column(0).statistics)
    assert stats.of_text(column, found) == at_hand == in_group
