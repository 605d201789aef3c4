"""Rows with the same key are found, for each type that a key may have."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.loading.locally import runs
from tailrace.loading.rows import PartStarts, key_misfit
from tailrace.spark_sql.types import parse_type
from tests.support.loading import a_table


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("boolean", True, False),
        ("tinyint", 1, 2),
        ("bigint", 2**62, 2**62 + 1),
        ("decimal(38,2)", Decimal("1.10"), Decimal("1.11")),
        ("string", "a", "a "),
        ("binary", b"a", b""),
        ("date", date(2024, 1, 1), date(2024, 1, 2)),
        ("timestamp", datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)),
        ("timestamp_ntz", datetime(2024, 1, 1), datetime(2024, 1, 2)),  # noqa: DTZ001
    ],
)
def test_the_first_and_the_last_row_of_each_key_are_known(kind: str, one: Any, other: Any) -> None:
    keys = pa.table({".k": pa.array([one, other, one, other, one], parse_type(kind)), "n": [1] * 5})
    same = runs(keys)
    assert same.first.tolist() == [0, 1, 0, 1, 0]
    assert same.last.tolist() == [4, 3, 4, 3, 4]


def test_all_columns_of_a_key_count() -> None:
    same = runs(pa.table({"a": [1, 1, 1], "b": ["x", "y", "x"]}))
    assert same.first.tolist() == [0, 1, 0]


def test_no_rows_have_no_keys() -> None:
    assert runs(pa.table({"a": pa.array([], pa.int64())})).first.tolist() == []


def test_a_row_whose_key_is_taken_says_by_which() -> None:
    table = a_table(id="bigint", name="string", key=("id",))
    starts = PartStarts(files=("a.csv", "b.csv"), first_lines=(1, 10))
    row = {"id": 7, "name": "x"}
    twice = key_misfit(table, row, part=1, line=2, first=starts.text(0, 4))
    assert (
        str(starts.of(twice)) == "b.csv, line 12: the key {'id': 7} stands in a.csv, line 5 already"
    )
    there = key_misfit(table, row, part=1, line=2, first=None)
    assert there.reason == "the key {'id': 7} exists in main.t already"
    assert there.text == '{"id": 7, "name": "x"}'
