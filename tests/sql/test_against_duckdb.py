"""The same statements on a lake and on DuckDB leave the same rows.

`TAILRACE_SEED=n` runs it with that seed.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb
import pytest

import tailrace
from tests.support import counted
from tests.support.seeds import seed

SEED = seed()
COLUMNS = "id BIGINT, g INT, v DECIMAL(10,2), s VARCHAR"
STATEMENTS = [8, pytest.param(100, marks=pytest.mark.stress)]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("statements", STATEMENTS)
@pytest.mark.parametrize("key", ["PRIMARY KEY (id)", None])
def test_statements_do_what_they_do_elsewhere(
    tmp_path: Path, key: str | None, statements: int
) -> None:
    random = Random(f"{SEED}{key}")
    with (
        tailrace.connect(tmp_path / "lake") as lake,
        duckdb.connect() as other,
    ):
        own = COLUMNS.replace("VARCHAR", "STRING")
        lake.sql(f"CREATE TABLE t ({own}{', ' + key if key else ''}); CREATE TABLE u ({own})")
        other.execute(f"CREATE TABLE t ({COLUMNS}); CREATE TABLE u ({COLUMNS})")
        for name in "tu":
            insert = f"INSERT INTO {name} VALUES {values(random, 12)}"
            lake.sql(insert)
            other.execute(insert)
        for _ in range(statements):
            statement = random.choice([update, delete, insert_some, merge])(random)
            lake.sql(statement)
            other.execute(statement)
            mine = sorted(
                map(str, (tuple(r.values()) for r in lake.table("t").to_arrow().to_pylist()))
            )
            theirs = sorted(map(str, other.execute("SELECT * FROM t").fetchall()))
            assert mine == theirs, f"TAILRACE_SEED={SEED}: {statement}"
            counted.count("statements, compared with DuckDB")


def values(random: Random, count: int) -> str:
    ids = random.sample(range(20), count)
    return ", ".join(f"({number}, {literals(random)})" for number in ids)


def literals(random: Random) -> str:
    group = random.choice(["NULL", "0", "1", "2"])
    text = random.choice(["NULL", "''", "'x'", "'y y'"])
    return f"{group}, {random.randint(-300, 300) / 100}, {text}"


def condition(random: Random, table: str) -> str:
    return random.choice(
        [
            f"{table}.g = {random.randint(0, 2)}",
            f"{table}.v > {random.randint(-2, 2)}",
            f"{table}.s IS NULL OR {table}.g IS NULL",
            f"{table}.id IN (SELECT id FROM u WHERE g = {random.randint(0, 2)})",
            f"NOT ({table}.s = 'x')",
        ]
    )


def update(random: Random) -> str:
    sets = random.choice(
        ["v = v * 1.1", "g = g + 1, s = concat(coalesce(s, ''), '!')", "s = NULL",
         "v = (SELECT max(v) FROM u)", "g = CASE WHEN g = 1 THEN 2 ELSE 1 END"]
    )  # fmt: skip
    return f"UPDATE t SET {sets} WHERE {condition(random, 't')}"


def delete(random: Random) -> str:
    return f"DELETE FROM t WHERE {condition(random, 't')}"


def insert_some(random: Random) -> str:
    if random.random() < 0.5:
        return "INSERT INTO t (s, id) SELECT s, id FROM u WHERE id NOT IN (SELECT id FROM t)"
    return "INSERT INTO t SELECT max(id) + 1, 1, sum(v), 'new' FROM t HAVING max(id) IS NOT NULL"


def merge(random: Random) -> str:
    matched = random.choice(
        ["UPDATE SET v = s.v, g = t.g", "DELETE", "UPDATE SET s = s.s", "UPDATE SET v = t.v + s.v"]
    )
    clauses = [
        f"WHEN MATCHED AND {random.choice(['s.g = 1', 't.v < s.v', 's.s IS NULL'])} THEN {matched}"
    ]
    if random.random() < 0.7:
        clauses.append("WHEN MATCHED THEN UPDATE SET g = 9")
    if random.random() < 0.7:
        clauses.append(
            "WHEN NOT MATCHED AND s.g IS NOT NULL THEN INSERT (id, v) VALUES (s.id, s.v)"
        )
    if random.random() < 0.5:
        clauses.append("WHEN NOT MATCHED BY SOURCE AND t.g = 2 THEN UPDATE SET s = 'alone'")
    if random.random() < 0.3:
        clauses.append("WHEN NOT MATCHED BY SOURCE THEN DELETE")
    return f"MERGE INTO t USING u AS s ON t.id = s.id {' '.join(clauses)}"
