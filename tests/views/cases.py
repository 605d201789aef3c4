"""Random queries and changes, checked in a process of their own."""

from __future__ import annotations

import gc
from random import Random

from sqlglot import exp

from tailrace.views.incremental.program import End
from tailrace.views.query.plan import Query
from tailrace.views.query.scope import UnsupportedError
from tests.views.engine import (
    Engine,
    World,
    as_one_query,
    bag,
    builder,
    check_delta,
    parsed,
    planned,
)
from tests.views.random_queries import Queries

QUERIES_PER_WORLD = 10


def random_cases(seed: int, part: int, count: int) -> int:
    """Check so many random queries; returns how many there were."""
    random = Random(f"{seed}/{part}")
    engine = Engine()
    # Trees die by the thousand, and modules never: look for garbage seldom, and not in modules.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    done = 0
    while done < count:
        old = World.random(random, random.choice([2, 6, 10]))
        changed = engine.load(old, old.changed(random))
        for _ in range(QUERIES_PER_WORLD):
            sql = Queries(random).query(random.choice([0, 0, 0, 1, 1, 2])).sql
            tree = parsed(sql)
            try:
                query = planned(tree.copy())
            except UnsupportedError:
                continue
            try:
                check(engine, tree, query, changed, sideways=random.random() < 0.7)
            except Exception as error:
                raise AssertionError(f"TAILRACE_SEED={seed} part {part}: {sql}\n{error}") from error
            done += 1
    return done


def check(
    engine: Engine, sql: str | exp.Expression, query: Query, changed: set[str], **options: bool
) -> None:
    """The plan means what DuckDB reads in the query, and its change is right."""
    shown = len(query.outputs)
    b = builder(changed)
    rows = engine.fetch(as_one_query(b.program(b.rows(query.root, End.NEW))))
    assert bag(row[:shown] for row in rows) == bag(engine.plain(sql, "new")), "the plan is wrong"
    check_delta(engine, query, changed, **options)
