"""Values at the edge of their types: views equal Spark's own answer, to the sign of a zero.

In memory, and on Spark: a view has to be right either way.
"""

from __future__ import annotations

import datetime as dt
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tailrace

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.early  # each builds and refreshes many views

NAN = float("nan")
# Of several views, `make test` refreshes a third on Spark, too, and `make stress` all of them.
IN_SHARES = pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.stress)])


@pytest.fixture
def lake(in_memory: tailrace.Lake) -> tailrace.Lake:
    return in_memory


# --- zeros and NaN ------------------------------------------------------------------------------

FLOATS = {
    "joined": "SELECT p.k AS a, q.k AS b, p.x FROM f p JOIN f q ON p.x = q.x",
    "outer_": "SELECT p.k AS a, q.k AS b, q.x FROM f p LEFT JOIN f q ON p.x = q.x AND p.k < q.k",
    "lone": "SELECT k, x FROM f p WHERE NOT EXISTS "
    "(SELECT 1 FROM f q WHERE q.x = p.x AND q.k <> p.k)",
    "grouped": "SELECT x, count(*) AS n, max(k) AS m FROM f GROUP BY x",
    "counted": "SELECT x, count(DISTINCT k) AS n FROM f GROUP BY x",
    "different": "SELECT DISTINCT x FROM f",
    "ranked": "SELECT k, x, count(*) OVER (PARTITION BY x) AS n FROM f",
    "plain": "SELECT x, y FROM f",
    "less": "SELECT x FROM f EXCEPT ALL SELECT x FROM g",
    "shared": "SELECT x FROM f INTERSECT SELECT x FROM g",
    "united": "SELECT x FROM f UNION SELECT x FROM g",
}
USING = {
    "using_": "SELECT f.x AS fx, g.x AS gx, x FROM f JOIN g USING (x)",
    "left_": "SELECT k, f.x AS fx, g.x AS gx, x FROM f LEFT JOIN g USING (x)",
    "right_": "SELECT f.*, g.x AS gx, x AS plain FROM g RIGHT JOIN f USING (x)",
    "star": "SELECT * FROM f JOIN g USING (x)",
}


@IN_SHARES
def test_zeros_and_nans_are_matched_as_spark_does(
    lake: tailrace.Lake, follow: Any, share: int
) -> None:
    lake.create_table("f", {"k": "int", "x": "double", "y": "float"})
    lake.create_table("g", {"x": "double"})
    f, g = lake.table("f"), lake.table("g")

    def rows(*pairs: tuple[int, float]) -> list[dict[str, Any]]:
        return [{"k": k, "x": x, "y": x} for k, x in pairs]

    f.append(rows((1, 0.0), (2, 5.0)))
    g.append([{"x": -0.0}, {"x": NAN}])

    def turn_signs() -> None:
        g.append([{"x": 0.0}, {"x": 5.0}])
        f.delete("k IN (1, 3, 4)")
        f.append(rows((1, -0.0), (3, 0.0)))

    changes: list[Callable[[], object]] = [
        lambda: f.append(rows((3, -0.0), (4, NAN), (5, NAN))),
        turn_signs,
        lambda: (f.delete("x = 0"), g.delete("isnan(x)")),
    ]
    follow(FLOATS, changes, share=share, verify=share == 1)


def test_each_side_of_using_keeps_its_zeros(lake: tailrace.Lake, follow: Any) -> None:
    lake.create_table("f", {"k": "int", "x": "double"}, primary_key="k")
    lake.create_table("g", {"x": "double"})
    lake.table("f").append([{"k": 1, "x": 0.0}, {"k": 2, "x": 5.0}])
    lake.table("g").append([{"x": -0.0}, {"x": NAN}])

    def change() -> None:
        lake.table("f").append([{"k": 3, "x": -0.0}, {"k": 4, "x": NAN}])
        lake.table("g").append([{"x": 0.0}])

    follow(USING, [change, lambda: lake.table("f").delete("x = 0")])


def test_a_row_is_looked_for_by_zero_or_nan_among_many_files(
    lake: tailrace.Lake, follow: Any
) -> None:
    """Files and row groups are skipped by bounds, which say nothing of NaN."""
    lake.create_table("f", {"k": "int", "x": "double"}, primary_key="k")
    lake.create_table("g", {"x": "double", "n": "int"})
    for n in range(4):
        lake.table("f").append([{"k": 10 * n + m, "x": float(10 * n + m)} for m in range(1, 8)])
    lake.table("f").append([{"k": 100, "x": NAN}, {"k": 101, "x": 1e9}, {"k": 102, "x": -0.0}])
    lake.table("g").append([{"x": 3.0, "n": 1}])
    queries = {"v": "SELECT f.k, g.n, f.x FROM g JOIN f ON f.x = g.x"}
    follow(
        queries,
        [
            lambda: lake.table("g").append([{"x": NAN, "n": 2}]),
            lambda: lake.table("g").append([{"x": 0.0, "n": 3}]),
            lambda: lake.table("g").delete("n = 2"),
        ],
    )


@IN_SHARES
def test_nested_zeros_and_nans_are_matched_as_spark_does(
    lake: tailrace.Lake, follow: Any, share: int
) -> None:
    kinds = {"k": "int", "a": "array<double>", "s": "struct<x: double, t: string>"}
    lake.create_table("f", kinds, primary_key="k")
    f = lake.table("f")

    def row(k: int, *values: float) -> dict[str, Any]:
        return {"k": k, "a": list(values), "s": {"x": values[0], "t": "t"}}

    f.append([row(1, 0.0, 1.0), row(2, NAN), {"k": 3, "a": None, "s": None}])
    queries = {
        "plain": "SELECT a, s FROM f",
        "grouped": "SELECT a, count(*) AS n FROM f GROUP BY a",
        "joined": "SELECT p.k, q.k AS other, p.a FROM f p JOIN f q ON p.a = q.a AND p.s = q.s",
        "fields": "SELECT s.x AS x, sum(k) AS n FROM f GROUP BY s.x",
    }
    follow(
        queries,
        [
            lambda: f.append([row(4, -0.0, 1.0), row(5, NAN)]),
            lambda: f.upsert([row(1, -0.0, 1.0)]),
            lambda: f.delete("k IN (2, 4)"),
        ],
        share=share,
    )


# --- numbers with many digits -------------------------------------------------------------------

DECIMALS = [
    (28, 8), (10, 2), (18, 2), (38, 18), (32, 10), (38, 10), (38, 30), (38, 0), (38, 38),
]  # fmt: skip


@pytest.mark.parametrize(
    ("precision", "scale", "share"),
    [
        pytest.param(38, 38, 3, id="decimal(38,38)"),
        *(
            pytest.param(*one, 1, id=f"decimal({one[0]},{one[1]})-all", marks=pytest.mark.stress)
            for one in DECIMALS
        ),
    ],
)
def test_sums_and_averages_of_decimals_have_sparks_digits(
    lake: tailrace.Lake, follow: Any, precision: int, scale: int, share: int
) -> None:
    kind = pa.decimal128(precision, scale)
    decimal = Context(prec=60)
    lake.create_table(
        "d",
        {"k": "int", "g": "int", "x": f"decimal({precision},{scale})"},
        primary_key="k",
    )
    step = Decimal(1).scaleb(-scale)
    # The largest of which a hundred still have a sum.
    large = Decimal("9" * (precision - (6 if precision > 30 else 0))).scaleb(-scale)

    def rows(first: int, count: int, value: Decimal) -> pa.Table:
        ids = list(range(first, first + count))
        values = [value if n % 3 else decimal.subtract(step, value) for n in ids]
        return pa.table(
            {
                "k": pa.array(ids, pa.int32()),
                "g": pa.array([n % 2 for n in ids], pa.int32()),
                "x": pa.array([v.quantize(step, context=decimal) for v in values], kind),
            }
        )

    d = lake.table("d")
    d.append(rows(0, 7, step * 3))
    queries = {
        "by_group": "SELECT g, sum(x) AS s, avg(x) AS a, count(x) AS n FROM d GROUP BY g",
        "all_of_it": "SELECT sum(x) AS s, avg(x) AS a, min(x) AS lo, max(x) AS hi FROM d",
        "had": "SELECT g, avg(x) AS a FROM d GROUP BY g HAVING avg(x) > 0",
        "more": "SELECT g, sum(x) - min(x) AS s, avg(x) * 2 AS a FROM d GROUP BY g",
    }
    taken = follow(
        queries,
        [
            lambda: d.append(rows(10, 7, step * 7)),
            lambda: d.append(rows(20, 6, large)),
            lambda: d.delete("k < 5 OR k = 21"),
            lambda: d.append([{"k": 50, "g": 7, "x": None}, {"k": 51, "g": 0, "x": None}]),
            lambda: d.delete("k >= 20"),
        ],
        share=share,
        verify=True,
    )
    assert set(taken) == {"merge"}


def test_an_average_has_a_value_where_a_sum_has_none(lake: tailrace.Lake, follow: Any) -> None:
    most = 2**63 - 1
    lake.create_table("t", {"k": "int", "x": "bigint"}, primary_key="k")
    t = lake.table("t")
    t.append([{"k": n, "x": most} for n in range(3)])
    follow(
        {"v": "SELECT avg(x) AS a FROM t", "w": "SELECT k % 2 AS g, avg(x) AS a FROM t GROUP BY 1"},
        [
            lambda: t.append([{"k": 7, "x": most - 5}, {"k": 8, "x": -most - 1}]),
            lambda: t.delete("k < 2"),
            lambda: t.delete("k < 9"),
        ],
    )


def test_a_decimal_with_a_double_is_a_double(lake: tailrace.Lake, follow: Any) -> None:
    kinds = {"i": "int", "k": "int", "d": "decimal(10,2)", "x": "double"}
    lake.create_table("t", kinds, primary_key="i")
    t = lake.table("t")
    for i, (d, x) in enumerate([(1, 0.1), (0, 1e16), (0, 0.7), (2, 0.3)]):
        t.append([{"i": i, "k": i % 2, "d": d, "x": x}])
    inside = {"sum": "d + x", "case": "CASE WHEN i < 9 THEN x ELSE d END", "some": "coalesce(x, d)"}
    queries = {
        name: f"SELECT k, sum(v) AS s FROM (SELECT k, {value} AS v FROM t WHERE i < 99) GROUP BY k"
        for name, value in inside.items()
    }
    follow(
        queries,
        [
            lambda: t.append([{"i": 8, "k": 0, "d": 3, "x": 1e15}]),
            lambda: t.delete("i IN (1, 8)"),
        ],
        verify=True,
    )


# --- the least and the greatest -----------------------------------------------------------------

WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


@pytest.mark.parametrize(
    "kind",
    [
        "tinyint",
        "bigint",
        *(pytest.param(k, marks=pytest.mark.stress) for k in ("smallint", "int")),
    ],
)
@IN_SHARES
def test_the_least_value_of_a_type_can_be_deleted(
    lake: tailrace.Lake, follow: Any, kind: str, share: int
) -> None:
    least = -(2 ** (WHOLE[kind] - 1))
    lake.create_table("t", {"k": "int", "x": kind}, primary_key="k")
    t = lake.table("t")
    t.append([{"k": 1, "x": least}, {"k": 2, "x": 100}, {"k": 3, "x": 7}])
    queries = {
        "totals": "SELECT sum(x) AS s, min(x) AS lo, max(x) AS hi FROM t",
        "grouped": "SELECT k % 2 AS g, sum(x) AS s FROM t GROUP BY 1",
        # Of large numbers that cancel out, Spark's own average depends on their order.
        "average": "SELECT avg(abs(x % 100)) AS a FROM t",
        "plain": "SELECT p.x, q.k FROM t p JOIN t q ON p.x = q.x",
    }
    follow(
        queries,
        [
            lambda: t.delete("k = 1"),
            lambda: t.append([{"k": 4, "x": least}, {"k": 6, "x": -least - 1}]),
            lambda: t.upsert([{"k": 4, "x": 0}, {"k": 6, "x": least + 108}]),
        ],
        share=share,
    )


# --- types that are compared by converting one of them ------------------------------------------

MIXED = {
    "three": "SELECT a.i AS x, b.i AS y, c.i AS z FROM a, b, c WHERE a.k = b.k AND b.k = c.k",
    "groups": "SELECT a.k, count(*) AS n FROM a, b, c WHERE a.k = b.k AND b.k = c.k GROUP BY a.k",
    "full_": "SELECT a.i AS x, b.i AS y FROM a FULL JOIN b ON a.k = b.k",
    "large": "SELECT d.i AS x, e.i AS y FROM d FULL JOIN e ON d.k = e.k",
    "shared": "SELECT k FROM e INTERSECT SELECT k FROM d",
    "united": "SELECT k, count(*) AS n FROM (SELECT k FROM e UNION ALL SELECT k FROM d) GROUP BY k",
}


@IN_SHARES
def test_keys_of_different_types_find_all_that_is_equal(
    lake: tailrace.Lake, follow: Any, share: int
) -> None:
    """'1' and '01' are both 1, and some large numbers are the same double."""
    kinds = {"a": "string", "b": "int", "c": "string", "d": "double", "e": "bigint"}
    for name, kind in kinds.items():
        lake.create_table(name, {"i": "int", "k": kind}, primary_key="i")
    large = 2**53

    def put(name: str, *pairs: tuple[int, Any]) -> None:
        lake.table(name).append([{"i": i, "k": k} for i, k in pairs])

    put("a", (1, "01"), (2, "1"), (3, "2"))
    put("b", (1, 1), (2, 2))
    put("c", (1, "1"), (2, "2"), (3, "001"))
    put("d", (1, float(large)))
    put("e", (1, large), (2, large + 1))

    def all_at_once() -> None:
        put("b", (4, 2))
        put("a", (6, "02"))
        lake.table("c").delete("i = 1")
        lake.table("e").delete("i = 1")

    follow(
        MIXED,
        [
            lambda: (put("a", (4, "0001")), put("e", (3, large + 2), (4, large + 1))),
            lambda: (
                lake.table("a").delete("i = 1"),
                put("c", (4, "01")),
                put("d", (2, large + 2.0)),
            ),
            all_at_once,
        ],
        share=share,
    )


def test_sides_of_a_union_that_have_no_common_type_are_computed_in_full(
    lake: tailrace.Lake, follow: Any
) -> None:
    lake.create_table("a", {"i": "int", "k": "string"}, primary_key="i")
    lake.table("a").append([{"i": 1, "k": "01"}])
    query = "SELECT k FROM a UNION SELECT i FROM a"
    taken = follow({"v": query}, [lambda: lake.table("a").append([{"i": 2, "k": "1"}])], "auto")
    assert set(taken) == {"full"}
    assert "cast one side" in lake.view("v").explain().to_dict()["reason"]


# --- maps, and many columns ---------------------------------------------------------------------


@IN_SHARES
def test_a_view_with_maps_follows_its_table(lake: tailrace.Lake, follow: Any, share: int) -> None:
    kinds = {
        "k": "int",
        "m": "map<string, int>",
        "deep": "array<struct<a: map<string, map<int, double>>, b: int>>",
    }
    lake.create_table("t", kinds, primary_key="k")
    t = lake.table("t")

    def row(k: int, *names: str) -> dict[str, Any]:
        deep = [{"a": {name: {k: -0.0}}, "b": None} for name in names]
        return {"k": k, "m": dict.fromkeys(names, k), "deep": deep}

    t.append([row(1, "a"), row(2, "a", "b"), {"k": 3, "m": None, "deep": None}])
    queries = {
        "plain": "SELECT m, deep FROM t",
        "joined": "SELECT p.k, q.m FROM t p JOIN t q ON p.k = q.k + 1",
        "sized": "SELECT size(m) AS n, count(*) AS c FROM t GROUP BY size(m)",
    }
    changes: list[Callable[[], object]] = [
        lambda: t.upsert([row(1, "a", "c"), row(4, "a")]),
        lambda: t.append(
            [{"k": 5, "m": {}, "deep": []}, {"k": 6, "m": {"x": None}, "deep": [None]}]
        ),
        lambda: t.delete("k IN (2, 3, 6)"),
    ]
    follow(queries, changes, share=share, verify=True)
    grouped = {"grouped": "SELECT m, count(*) AS n FROM t GROUP BY m"}
    assert set(follow(grouped, [lambda: t.append([row(8, "a", "c"), row(9, "z")])], "auto")) == {
        "full"
    }


# --- windows of time ----------------------------------------------------------------------------


def _at(minute: int, second: int = 0) -> dt.datetime:
    return dt.datetime(2026, 3, 1, 10, minute, second, tzinfo=dt.UTC)


@IN_SHARES
def test_windows_of_time_are_kept_up(lake: tailrace.Lake, follow: Any, share: int) -> None:
    lake.create_table("e", {"id": "int", "u": "string", "t": "timestamp"}, primary_key="id")
    e = lake.table("e")
    e.append([{"id": n, "u": "ab"[n % 2], "t": _at(7 * n)} for n in range(6)])
    e.append([{"id": 90, "u": "a", "t": None}])
    queries = {
        "first": "SELECT window.start AS s, window.end AS e, count(*) AS n FROM e "
        "GROUP BY window(t, '10 minutes')",
        "beside": "SELECT u, window, count(*) AS n FROM e GROUP BY u, window(t, '10 minutes')",
        "sliding": "SELECT window.start AS s, max(id) AS m FROM e "
        "GROUP BY window(t, '10 minutes', '5 minutes')",
        "aliased": "SELECT w.start AS s, sum(id) AS n FROM "
        "(SELECT id, window(t, '15 minutes') AS w FROM e) GROUP BY w.start",
        "had": "SELECT window.end AS till, count(*) AS n FROM e "
        "GROUP BY window(t, '20 minutes') HAVING count(*) > 1",
    }
    follow(
        queries,
        [
            lambda: e.append([{"id": 10, "u": "a", "t": _at(59)}, {"id": 11, "u": "a", "t": None}]),
            lambda: e.upsert([{"id": 2, "u": "b", "t": _at(1)}]),
            lambda: e.delete("id IN (0, 1, 90)"),
        ],
        share=share,
    )


def test_sessions_are_computed_in_full(lake: tailrace.Lake, follow: Any) -> None:
    lake.create_table("e", {"id": "int", "u": "string", "t": "timestamp"}, primary_key="id")
    e = lake.table("e")
    e.append([{"id": 1, "u": "a", "t": _at(0, 0)}, {"id": 2, "u": "a", "t": _at(0, 50)}])
    query = (
        "SELECT u, session_window.start AS s, count(*) AS n FROM e "
        "GROUP BY u, session_window(t, '30 seconds')"
    )
    taken = follow({"v": query}, [lambda: e.append([{"id": 3, "u": "a", "t": _at(0, 25)}])], "auto")
    assert taken == ["full", "full"]
    assert "session" in lake.view("v").explain().to_dict()["reason"]
