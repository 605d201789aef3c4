"""Every rule obeys its law, for fixed queries with the known traps and for random ones.

`TAILRACE_SEED=n` runs the random ones with that seed.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random

import pytest

from tailrace.views.query.scope import UnsupportedError
from tests.support import counted
from tests.support.seeds import seed
from tests.views.cases import check, random_cases
from tests.views.engine import Engine, StoredView, World, bag, check_delta, planned
from tests.views.random_queries import Queries

SEED = seed()
RANDOM_CASES = [5_000, pytest.param(50_000, marks=[pytest.mark.stress, pytest.mark.timeout(7200)])]

FIXED = {
    "filter and project": "SELECT id, a + 1 AS y FROM t WHERE v > 0",
    "join": "SELECT t.id, u.w FROM t JOIN u ON t.a = u.a",
    "join of three, also by less than": (
        "SELECT t.id, u.w, r.n FROM t, u, r WHERE t.a = u.a AND r.b = t.b AND u.w < r.n"
    ),
    "self-join": "SELECT x.id, y.id AS j FROM t x JOIN t y ON x.a = y.a AND x.b < y.b",
    "join on a key that may be NULL": "SELECT t.id, r.n FROM t JOIN r ON t.a = r.a",
    "cross join": "SELECT t.id, r.n FROM t CROSS JOIN r",
    "aggregates of all kinds": (
        "SELECT b, sum(v) AS s, count(*) AS n, avg(v) AS av, min(x) AS m, max(a) AS h, "
        "count(DISTINCT a) AS d, count(v) AS c FROM t GROUP BY b"
    ),
    "sums and counts": "SELECT a, b, sum(v) AS s, count(v) AS c, avg(v) AS av FROM t GROUP BY a, b",
    "minima": "SELECT b, min(v) AS lo, max(v) AS hi, min(a) AS la FROM t GROUP BY b",
    "sums of floats": "SELECT b, sum(x) AS s FROM t GROUP BY b",
    "the aggregate of all rows": "SELECT sum(v) AS s, count(*) AS n, min(v) AS lo FROM t",
    "expressions over aggregates": "SELECT 100 * sum(v) / (count(*) + 1) AS p, b FROM t GROUP BY b",
    "HAVING": "SELECT b, sum(v) AS s FROM t GROUP BY b HAVING count(*) > 2",
    "HAVING of a minimum": "SELECT b FROM t GROUP BY b HAVING min(v) < 0 AND sum(v) > 0",
    "a hidden group key": "SELECT sum(v) AS s FROM t GROUP BY b",
    "a group key shown twice": (
        "SELECT b, b AS again, upper(b) AS u, count(*) AS n FROM t GROUP BY b"
    ),
    "a computed group key": (
        "SELECT CASE WHEN a > 1 THEN 'h' ELSE b END AS k, count(*) AS n FROM t GROUP BY 1"
    ),
    "FILTER": (
        "SELECT b, sum(v) FILTER (WHERE a > 1) AS s, count(*) FILTER (WHERE a > 2) AS n "
        "FROM t GROUP BY b"
    ),
    "DISTINCT": "SELECT DISTINCT a, b FROM t",
    "UNION": "SELECT a FROM t UNION SELECT a FROM u",
    "UNION ALL": "SELECT a FROM t UNION ALL SELECT c FROM u",
    "INTERSECT": "SELECT a, b FROM t INTERSECT SELECT a, b FROM r",
    "INTERSECT ALL": "SELECT a, b FROM t INTERSECT ALL SELECT a, b FROM r",
    "EXCEPT": "SELECT a, b FROM t EXCEPT SELECT a, b FROM r",
    "EXCEPT ALL": "SELECT a, b FROM t EXCEPT ALL SELECT a, b FROM r",
    "duplicates without a key": "SELECT a, b FROM r",
    "left join": "SELECT t.id, u.w FROM t LEFT JOIN u ON t.a = u.a AND u.w > 1",
    "right join": "SELECT t.id, u.id AS j, u.w FROM t RIGHT JOIN u ON t.a = u.a",
    "full join": "SELECT t.id, u.id AS j FROM t FULL JOIN u ON t.a = u.a",
    "full join by two columns": (
        "SELECT t.id, u.id AS j FROM t FULL JOIN u ON t.a = u.a AND t.b = u.s"
    ),
    "left join without a key": "SELECT t.id, r.n FROM t LEFT JOIN r ON t.a = r.a AND t.b = r.b",
    "left join by less than alone": "SELECT t.id, r.n FROM t LEFT JOIN r ON t.a < r.n",
    "EXISTS": "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.w <> t.id)",
    "NOT EXISTS": (
        "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.s = t.b)"
    ),
    "IN": "SELECT id FROM t WHERE a IN (SELECT c FROM u)",
    "NOT IN with NULLs": "SELECT id FROM t WHERE a NOT IN (SELECT c FROM u)",
    "NOT IN without NULLs": "SELECT id FROM t WHERE id NOT IN (SELECT id FROM u WHERE w > 1)",
    "IN of pairs": "SELECT id FROM t WHERE (a, b) IN (SELECT a, s FROM u)",
    "row_number": "SELECT id, row_number() OVER (PARTITION BY b ORDER BY v DESC, id) AS r FROM t",
    "windows by different partitions": (
        "SELECT id, sum(v) OVER (PARTITION BY a) AS s, "
        "rank() OVER (PARTITION BY a, b ORDER BY v) AS k FROM t"
    ),
    "a window over all": "SELECT id, count(*) OVER () AS n FROM t",
    "top rows": "SELECT id, v FROM t ORDER BY v DESC, id LIMIT 3",
    "top groups": "SELECT b, sum(v) AS s FROM t GROUP BY b ORDER BY s DESC, b LIMIT 2",
    "ordered by what is not shown": "SELECT b FROM t ORDER BY v, id LIMIT 2 OFFSET 1",
    "top rows inside": (
        "SELECT q.id, u.w FROM (SELECT id, a FROM t ORDER BY v, id LIMIT 4) q JOIN u ON u.a = q.a"
    ),
    "a scalar subquery": "SELECT id FROM t WHERE v > (SELECT avg(v) FROM t)",
    "a correlated scalar subquery": (
        "SELECT id, v FROM t WHERE v > (SELECT avg(w) FROM u WHERE u.a = t.a)"
    ),
    "a count of nothing is 0": "SELECT id, (SELECT count(*) FROM u WHERE u.a = t.a) AS n FROM t",
    "a maximum of nothing is NULL": "SELECT id, (SELECT max(w) FROM u WHERE u.a = t.a) AS n FROM t",
    "a sum of nothing is what it is made of": (
        "SELECT id, (SELECT coalesce(sum(w), 0) FROM u WHERE u.a = t.a) AS n FROM t"
    ),
    "a case of nothing": (
        "SELECT id, (SELECT CASE WHEN max(w) > 1 THEN 'a' ELSE 'b' END FROM u WHERE u.a = t.a) "
        "AS n FROM t"
    ),
    "a count of nothing under HAVING": (
        "SELECT id, (SELECT count(*) FROM u WHERE u.a = t.a HAVING count(*) < 2) AS n FROM t"
    ),
    "a comparison with a sum of nothing": (
        "SELECT id FROM t WHERE v >= (SELECT coalesce(sum(w), 0) FROM u WHERE u.a = t.a)"
    ),
    "a WITH query whose columns are named again": (
        "WITH q (x, y) AS (SELECT a, v FROM t) SELECT k, sum(l) AS s FROM q AS r (k, l) GROUP BY k"
    ),
    "a scalar subquery of a WITH's one row": (
        "WITH q AS (SELECT max(w) AS m FROM u) SELECT id, (SELECT m + 1 FROM q) AS n FROM t "
        "WHERE v < (SELECT m FROM q)"
    ),
    "a scalar subquery whose group is told": (
        "SELECT id, (SELECT avg(w) FROM u WHERE s = 'x' AND 2 = a GROUP BY a, s) AS n FROM t"
    ),
    "a comparison with what a told group has": (
        "SELECT b, sum(v) AS s FROM t GROUP BY b "
        "HAVING sum(v) > 0.5 * (SELECT avg(w) FROM u WHERE a = 1 GROUP BY a)"
    ),
    "a comparison that is shown": (
        "SELECT id, v > (SELECT max(w) FROM u WHERE u.a = t.a) AS f FROM t"
    ),
    "a comparison with a group that may not be there": (
        "SELECT id, v > (SELECT max(w) FROM u WHERE a = 1 GROUP BY a) AS f FROM t"
    ),
    "a scalar subquery of the first row": (
        "SELECT id, (SELECT w FROM u ORDER BY id LIMIT 1) AS n FROM t"
    ),
    "HAVING with a subquery": (
        "SELECT b, sum(v) AS s FROM t GROUP BY b HAVING sum(v) > (SELECT sum(v) * 0.2 FROM t)"
    ),
    "GROUPING SETS": (
        "SELECT b, a, count(*) AS n, grouping(a) AS g FROM t GROUP BY GROUPING SETS ((b), (a, b))"
    ),
    "a join of groups": (
        "WITH g AS (SELECT a, sum(v) AS s FROM t GROUP BY a) "
        "SELECT g.s, u.id FROM g JOIN u ON g.a = u.a"
    ),
    "an outer join of groups": (
        "WITH g AS (SELECT a, sum(v) AS s FROM t GROUP BY a), "
        "h AS (SELECT a, count(*) AS n FROM u GROUP BY a) "
        "SELECT g.a, g.s, h.n FROM g LEFT JOIN h ON g.a = h.a"
    ),
    "groups of groups": (
        "SELECT n, count(*) AS m FROM (SELECT t.id, count(u.id) AS n FROM t LEFT JOIN u "
        "ON t.a = u.a AND u.s NOT LIKE 'x%' GROUP BY t.id) GROUP BY n"
    ),
    "rows against their group's average": (
        "SELECT t.b, sum(t.v) AS s FROM t, u WHERE t.a = u.a "
        "AND t.v < (SELECT 0.5 * avg(z.v) FROM t z WHERE z.b = t.b) GROUP BY t.b"
    ),
    "EXISTS and NOT EXISTS of the same table": (
        "SELECT u.s, count(*) AS n FROM t, u WHERE t.a = u.a "
        "AND EXISTS (SELECT 1 FROM t y WHERE y.a = t.a AND y.id <> t.id) "
        "AND NOT EXISTS (SELECT 1 FROM t z WHERE z.a = t.a AND z.id <> t.id AND z.v > 0) "
        "GROUP BY u.s"
    ),
    "IN within IN": (
        "SELECT id FROM u WHERE id IN (SELECT a FROM t WHERE b IN (SELECT b FROM r) "
        "AND v > (SELECT 0.5 * sum(n) FROM r WHERE r.a = t.a))"
    ),
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


@pytest.mark.parametrize("name", FIXED)
def test_a_change_is_what_came_and_went(engine: Engine, name: str) -> None:
    query = planned(FIXED[name])
    for number in range(2):
        random = Random(f"{SEED}{name}{number}")
        old = World.random(random, 10)
        changed = engine.load(old, old.changed(random))
        check(engine, FIXED[name], query, changed)
        check_delta(engine, query, changed, sideways=False)
        check_delta(engine, query, changed, keyed=False)


@pytest.mark.parametrize("name", FIXED)
def test_a_stored_view_follows_its_tables(engine: Engine, name: str) -> None:
    query = planned(FIXED[name])
    for number in range(2):
        random = Random(f"{SEED}{name}{number}")
        now = World.random(random, 10)
        engine.load(now, now)
        view = StoredView(engine, query)
        for _ in range(4):
            before, now = now, now.changed(random)
            changed = engine.load(before, now)
            view.refresh(changed, full=random.random() < 0.2, sideways=random.random() < 0.5)
            assert bag(view.visible()) == bag(engine.plain(FIXED[name], "new")), f"seed {SEED}"


# An aggregate has a row of no rows: no join says so.
NO_RULE = [
    "SELECT id FROM t WHERE EXISTS (SELECT count(*) FROM u WHERE u.a = t.a)",
    "SELECT id FROM t WHERE v NOT IN (SELECT max(w) FROM u WHERE u.a = t.a)",
    "SELECT id FROM t WHERE v IN (SELECT count(*) FROM u WHERE u.a = t.a)",
    "SELECT id, (SELECT size(collect_list(w)) FROM u WHERE u.a = t.a) AS n FROM t",
    "SELECT b, sum(v) > (SELECT max(w) FROM u) AS f FROM t GROUP BY b",
    # Two groups are equal to the literal: '1' and '01'.
    "SELECT id, (SELECT max(w) FROM u WHERE s = 1 GROUP BY s) AS n FROM t",
    "SELECT id, (SELECT max(w) FROM u WHERE a = 1 GROUP BY a, s) AS n FROM t",
]


@pytest.mark.parametrize("query", NO_RULE)
def test_what_no_join_says_has_no_rule(query: str) -> None:
    with pytest.raises(UnsupportedError):
        planned(query)


@pytest.mark.early
@pytest.mark.parametrize("count", RANDOM_CASES)
def test_random_queries_obey_the_law(count: int) -> None:
    """In processes of their own, one for each of two cores."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        parts = [pool.submit(random_cases, SEED, part, count // 4) for part in range(4)]
        done = sum(part.result() for part in parts)
    assert done >= count
    counted.count("random queries with a change", done)


@pytest.mark.parametrize("part", range(2))
def test_random_views_follow_their_tables(engine: Engine, part: int) -> None:
    random = Random(f"{SEED}/views/{part}")
    done = 0
    while done < 60:
        sql = Queries(random).query(random.choice([0, 1, 2])).sql
        now = World.random(random, 8)
        engine.load(now, now)
        try:
            view = StoredView(engine, planned(sql))
        except UnsupportedError:
            continue
        for _ in range(3):
            before, now = now, now.changed(random)
            changed = engine.load(before, now)
            view.refresh(changed, full=random.random() < 0.2)
            got, want = bag(view.visible()), bag(engine.plain(sql, "new"))
            assert got == want, f"TAILRACE_SEED={SEED} part {part}: {sql}"
        done += 1
    counted.count("random stored views", done)
