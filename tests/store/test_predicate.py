"""The conditions by which files are left out: necessary ones only."""

from __future__ import annotations

from decimal import Decimal

import pytest

import tailrace
from tailrace.store.predicate import necessary_conditions
from tests.store.test_schema import make
from tests.support import objects


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("id = 3", [("id", "=", Decimal(3))]),
        ("3 < id", [("id", ">", Decimal(3))]),
        ("id >= -3 AND (name = 'x') AND name > 'a'", None),
        ("ID <= 1.5", [("id", "<=", Decimal("1.5"))]),
        ("id = 3 OR id = 4", []),
        ("NOT id = 3", []),
        ("id = other", []),
        ("d = 1", []),  # NaN is above everything in Spark: no pruning by floats
        ("name = 3", []),  # compared as numbers by Spark
        ("nonsense (", []),
        ("id = 9007199254740992e0", []),  # a double, which also equals the next bigint
    ],
)
def test_conditions_are_those_that_every_match_satisfies(
    predicate: str, expected: list[tuple[str, str, object]] | None
) -> None:
    table = make({"id": "int", "other": "int", "name": "string", "d": "double"})
    found = [(c.column.name, c.operator, c.least) for c in necessary_conditions(predicate, table)]
    if expected is None:
        assert found == [("id", ">=", Decimal(-3)), ("name", "=", "x"), ("name", ">", "a")]
    else:
        assert found == expected


def test_a_delete_opens_only_the_files_that_can_match(sqlite_lake: tailrace.Lake) -> None:
    table = sqlite_lake.create_table("t", {"id": "bigint", "note": "string"})
    for start in (0, 100, 200):
        table.append([{"id": start + i, "note": "x"} for i in range(10)])
    snapshot = sqlite_lake.snapshot
    # The objects that must not be opened are gone: opening one would be an error.
    files = objects.data_files(sqlite_lake, "t")
    for file in (files[0], files[2]):
        file.rename(file.with_suffix(".away"))
    table.delete("id >= 105 AND id < 150")
    for file in (files[0], files[2]):
        file.with_suffix(".away").rename(file)
    assert sqlite_lake.snapshot == snapshot + 1
    assert table.to_arrow().num_rows == 25
