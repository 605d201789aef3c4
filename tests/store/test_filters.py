"""What statistics can rule out, and what they must not."""

from __future__ import annotations

import pytest

from tailrace.store.files import ColumnStats, DataFile, Op
from tailrace.store.stats import Comparison, Comparisons, Known, known_of, size_of
from tests.store.test_schema import make

ID, NAME = make({"id": "bigint", "name": "string"}).columns


@pytest.mark.parametrize(
    ("operator", "possible"),
    [
        ("=", [False, True, True, True, False]),
        ("<", [False, False, True, True, True]),
        ("<=", [False, True, True, True, True]),
        (">", [True, True, True, False, False]),
        (">=", [True, True, True, True, False]),
    ],
)
def test_a_comparison_with_a_value_below_at_between_or_above_the_bounds(
    operator: str, possible: list[bool]
) -> None:
    known = Known(bounds=(10, 20), nulls=0)
    found = [
        Comparison(column=ID, operator=operator, least=v, most=v).may_hold(known)
        for v in (9, 10, 15, 20, 21)
    ]
    assert found == possible


def test_what_is_not_known_may_be_anything_and_a_null_nothing() -> None:
    equal = Comparison(column=ID, operator="=", least=1, most=1)
    assert equal.may_hold(Known(bounds=None, nulls=None))
    assert not equal.may_hold(Known(bounds=None, nulls=3, only_nulls=True))


def test_all_comparisons_have_to_be_possible() -> None:
    both = Comparisons.of(
        [
            Comparison(column=ID, operator=">", least=5, most=5),
            Comparison(column=NAME, operator="=", least="b", most="d"),
        ]
    )
    assert both.columns == {ID.id, NAME.id}
    assert both.may_hold({ID: Known(bounds=(0, 6), nulls=0), NAME: unknown()}.__getitem__)
    assert not both.may_hold({ID: Known(bounds=(0, 5), nulls=0), NAME: unknown()}.__getitem__)
    assert not both.may_hold({ID: unknown(), NAME: Known(bounds=("e", "f"), nulls=0)}.__getitem__)


def unknown() -> Known:
    return Known(bounds=None, nulls=None)


def test_statistics_are_the_catalogs_or_of_a_new_file_its_own() -> None:
    own = stats("1", "2", values=5)
    new = DataFile(key=1, path="p", rows=5, size=9, footer=1, op=Op.APPEND, stats=(own,))
    old = DataFile(key=2, path="q", rows=5, size=9, footer=1, op=Op.APPEND, id=40)
    catalog = {40: {ID.id: stats(None, None, values=0)}}
    assert known_of(new, catalog)(ID) == Known(bounds=(1, 2), nulls=0)
    assert known_of(old, catalog)(ID) == Known(bounds=None, nulls=5, only_nulls=True)
    assert known_of(old, catalog)(NAME) == unknown()
    assert size_of(new, (ID, NAME), catalog) == 7


def stats(low: str | None, high: str | None, *, values: int) -> ColumnStats:
    return ColumnStats(column_id=ID.id, size=7, values=values, nulls=5 - values, min=low, max=high)
