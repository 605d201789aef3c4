"""Names in queries: which column each means, and what is known of types."""

from __future__ import annotations

import pytest
from sqlglot import exp, parse_one

from tailrace.errors import InvalidError
from tailrace.views.query.scope import Names, Scope, UnsupportedError, Visible, common_type
from tailrace.views.query.trees import all_of, balanced, column_of, conjuncts, renamed


def tree(text: str) -> exp.Expr:
    return parse_one(text, dialect="spark")


def scope(*columns: tuple[str | None, str, str], outer: Scope | None = None) -> Scope:
    visible = [Visible(relation=r, name=name, column=column) for r, name, column in columns]
    return Scope(columns=visible, outer=outer)


def bound(given: Scope, text: str) -> str:
    return str(given.bind(tree(text)).sql("spark"))


def test_a_name_is_the_column_of_its_relation() -> None:
    both = scope(("t", "a", "a_1"), ("u", "a", "a_2"), ("u", "b", "b_3"))
    assert bound(both, "t.a + U.A + B") == "a_1 + a_2 + b_3"


def test_a_name_that_two_relations_have_is_ambiguous() -> None:
    with pytest.raises(InvalidError, match=r"write it as table\.a"):
        scope(("t", "a", "a_1"), ("u", "a", "a_2")).bind(tree("a"))


def test_a_name_that_nobody_has_is_told_with_those_that_there_are() -> None:
    with pytest.raises(InvalidError, match=r"there is no column 'c'.*; there are a, b"):
        scope(("t", "a", "a_1"), ("t", "b", "b_2")).bind(tree("c"))


def test_a_name_may_be_a_column_of_the_query_around() -> None:
    around = scope(("t", "a", "a_1"))
    assert bound(scope(("u", "b", "b_2"), outer=around), "a = b AND t.a = u.b") == (
        "a_1 = b_2 AND a_1 = b_2"
    )


def test_what_follows_a_column_is_a_field() -> None:
    assert bound(scope(("t", "a", "a_1")), "t.a.f") == "a_1.`f`"


def test_a_star_inside_an_expression_has_no_rule() -> None:
    with pytest.raises(UnsupportedError):
        scope(("t", "a", "a_1")).bind(tree("coalesce(t.*)"))


def test_what_was_one_value_stays_one_where_it_takes_a_columns_place() -> None:
    assert renamed(tree("a * 2"), {"a": tree("b + 1")}).sql() == "(b + 1) * 2"


def test_the_parts_of_an_and_come_apart_and_together_again() -> None:
    parts = conjuncts(tree("a = 1 AND (b = 2 AND (c = 3 OR d = 4))"))
    assert [part.sql() for part in parts] == ["a = 1", "b = 2", "c = 3 OR d = 4"]
    assert conjuncts(all_of(parts)) == parts
    assert all_of([]).sql() == "TRUE"


def test_a_long_or_becomes_a_low_tree() -> None:
    query = tree("SELECT 1 FROM t WHERE " + " OR ".join(f"a = {n}" for n in range(256)))
    assert isinstance(query, exp.Query)
    deepest = max(
        sum(1 for _ in _above(part)) for part in balanced(query).find_all(exp.EQ)
    )  # fmt: skip
    assert deepest < 20


def _above(part: exp.Expr) -> list[exp.Expr]:
    found = []
    while part.parent is not None:
        part = part.parent
        found.append(part)
    return found


def names() -> tuple[Names, dict[str, str]]:
    made = Names()
    kinds = {
        "whole": "bigint",
        "exact": "decimal(10,2)",
        "inexact": "double",
        "map": "map<int, int>",
    }
    return made, {n: made.new(n, exp.DataType.build(k, "spark")) for n, k in kinds.items()}


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("whole", True),
        ("exact * whole - 1", True),
        ("inexact", False),
        ("exact + inexact", False),
        ("whole / whole", False),  # a double
        ("exact / whole", True),
        ("1.5", True),
        ("1e3", False),
        ("CASE WHEN whole > 0 THEN exact ELSE 0 END", True),
        ("CASE WHEN whole > 0 THEN exact ELSE inexact END", False),
        ("coalesce(whole, 0)", True),
        ("CAST(inexact AS decimal(10,2))", True),
        ("sqrt(whole)", False),
    ],
)
def test_only_sums_of_exact_numbers_do_not_depend_on_their_order(text: str, exact: bool) -> None:
    made, columns = names()
    placed = renamed(tree(text), {name: column_of(own) for name, own in columns.items()})
    assert made.is_exact(placed) is exact


def test_groups_by_maps_are_refused() -> None:
    made, columns = names()
    made.check_groupable([columns["whole"], columns["inexact"]])
    with pytest.raises(UnsupportedError, match="map"):
        made.check_groupable([columns["map"]])


def test_no_name_is_given_twice() -> None:
    made = Names()
    given = [made.new("a"), made.new("a"), made.new("sum(x)"), made.new("123"), made.new("é")]
    assert len(set(given)) == len(given)
    assert all(name.isidentifier() and name.isascii() for name in given)


COMMON = [
    ("int", "int", "int"),
    ("tinyint", "bigint", "bigint"),
    ("float", "double", "double"),
    ("date", "timestamp", "timestamp"),
    ("varchar(10)", "string", "string"),
    ("null", "date", "date"),
    ("int", "decimal(12, 2)", "decimal(12, 2)"),
    ("bigint", "decimal(12, 2)", "decimal(22, 2)"),
    ("decimal(10, 4)", "decimal(12, 2)", "decimal(14, 4)"),
    ("decimal(38, 18)", "bigint", "decimal(38, 18)"),
    ("array<int>", "array<int>", "array<int>"),
]
# By Spark's conversion, two values of one would be equal to the same of the other.
NONE = [
    ("string", "int"),
    ("string", "date"),
    ("bigint", "double"),
    ("int", "float"),
    ("decimal(10, 2)", "double"),
    ("timestamp", "timestamp_ntz"),
    ("decimal(38, 38)", "bigint"),
    ("array<int>", "array<string>"),
    ("struct<a: int>", "struct<a: bigint>"),
]


def _type(text: str) -> exp.DataType:
    return exp.DataType.build(text, dialect="spark")


@pytest.mark.parametrize(("one", "other", "common"), COMMON)
def test_the_wider_type_holds_both(one: str, other: str, common: str) -> None:
    for pair in ((one, other), (other, one)):
        assert common_type(*map(_type, pair)) == _type(common)


@pytest.mark.parametrize(("one", "other"), NONE)
def test_types_of_different_kinds_have_no_common_one(one: str, other: str) -> None:
    assert common_type(_type(one), _type(other)) is None
    assert common_type(_type(other), _type(one)) is None


def test_what_is_not_known_has_no_common_type() -> None:
    assert common_type(None, _type("int")) is None
    assert common_type(exp.DataType.build("unknown"), exp.DataType.build("unknown")) is None


def test_a_decimal_beside_a_double_or_a_text_is_no_decimal() -> None:
    names = Names()
    names.types |= {
        "d": _type("decimal(10, 2)"), "x": _type("double"), "i": _type("int"), "s": _type("string")
    }  # fmt: skip
    for text in (
        "d + x",
        "-(x * d)",
        "coalesce(d, x)",
        "CASE WHEN i > 1 THEN d ELSE x END",
        "d * 1e0",
    ):
        assert names.type_of(tree(text)) == _type("double"), text
    assert names.type_of(tree("d + s")) == exp.DataType.build("unknown")
    for text in (
        "d + i",
        "d * 2.5",
        "CASE WHEN x > 1 THEN d ELSE 0 END",
        "d + CAST(x AS decimal(10, 2))",
    ):
        assert names.type_of(tree(text)).is_type("decimal"), text
