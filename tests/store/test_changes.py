"""Rows that are the same, and rows that only look so."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.spark_sql.types import parse_type
from tailrace.store.changes import same_rows

NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "left", "right", "same"),
    [
        ("int", 1, 1, True),
        ("int", 1, None, False),
        ("int", None, None, True),
        ("double", NAN, NAN, True),
        ("double", 0.0, -0.0, False),
        ("float", None, 0.0, False),
        ("string", "a", "a", True),
        ("binary", b"\x00", b"", False),
        ("array<int>", [], [], True),
        ("array<int>", [], None, False),
        ("array<int>", [1, None], [1, None], True),
        ("array<int>", [1, None], [1, 2], False),
        ("array<int>", [1], [1, 1], False),
        ("array<array<double>>", [[NAN], []], [[NAN], []], True),
        ("array<array<double>>", [[NAN], []], [[], [NAN]], False),
        ("struct<a: int, b: string>", {"a": 1, "b": None}, {"a": 1, "b": None}, True),
        ("struct<a: int, b: string>", {"a": None, "b": None}, None, False),
        ("map<string, int>", [("a", 1)], [("a", 1)], True),
        ("map<string, int>", [("a", 1)], [("a", None)], False),
        ("map<string, int>", [("a", 1)], [("b", 1)], False),
        ("map<string, array<int>>", [("a", [1])], [("a", [1])], True),
    ],
)
def test_images_are_the_same_just_if_nothing_tells_them_apart(
    kind: str, left: object, right: object, same: bool
) -> None:
    # Between others, so that a mistake about where values start would show.
    filler = {"array": [[9]], "map": [[("z", None)]]}.get(kind.split("<", maxsplit=1)[0], [None])
    if kind == "array<array<double>>":
        filler = [[[9.0]]]
    tables = [
        pa.table({"v": pa.array([*filler, value, *filler], parse_type(kind))})
        for value in (left, right)
    ]
    assert same_rows(*tables).tolist() == [True, same, True]
