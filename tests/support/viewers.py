"""Views over two tables, for tests that check every version of them with DuckDB."""

from __future__ import annotations

import os
import signal
from random import Random
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

import tailrace
from tailrace.propagation import tables as t
from tailrace.store import tables as st
from tests.support import duck
from tests.support.rows import bag

if TYPE_CHECKING:
    from tests.support.lakes import LakeArgs

# A chain of three, and a diamond; `{x}` is a table or another view.
QUERIES = {
    "totals": "SELECT k, sum(v) AS s, count(*) AS n FROM {facts} GROUP BY k",
    "large": "SELECT k, s FROM {totals} WHERE s > 10",
    "named": "SELECT l.k, l.s, d.name FROM {large} AS l LEFT JOIN {names} AS d ON l.k = d.k",
    "low": "SELECT k, min(v) AS lo FROM {facts} GROUP BY k",
    "joined": "SELECT a.k, a.n, b.lo FROM {totals} AS a JOIN {low} AS b ON a.k = b.k",
}
TRIGGERS = {"low": "greedy"}


def make(lake: tailrace.Lake) -> None:
    lake.create_table("facts", {"id": "bigint", "k": "int", "v": "bigint"}, primary_key="id")
    lake.create_table("names", {"k": "int", "name": "string"}, primary_key="k")
    write(lake, 0)
    for name, query in QUERIES.items():
        plain = query.format(**{x: x for x in (*QUERIES, "facts", "names")})
        lake.create_view(name, plain, trigger=TRIGGERS.get(name))


def write(lake: tailrace.Lake, number: int) -> None:
    """A commit that depends on its number alone."""
    random = Random(number)
    ids = random.sample(range(60), 12)
    with lake.transaction() as txn:
        txn.table("facts").upsert(
            [{"id": i, "k": random.randint(0, 5), "v": random.randint(0, 9)} for i in ids]
        )
        if number % 3 == 1:
            txn.table("facts").delete([{"id": random.randrange(60)} for _ in range(8)])
        if number % 2 == 0:
            txn.table("names").upsert([{"k": random.randint(0, 5), "name": f"n{number}"}])


def expanded(name: str, label: int) -> str:
    """A view's query in terms of tables at a snapshot."""
    if name in QUERIES:
        inner = {x: f"({expanded(x, label)})" for x in QUERIES if f"{{{x}}}" in QUERIES[name]}
        base = {x: f"(SELECT * FROM {x} AT (VERSION => {label}))" for x in ("facts", "names")}
        return QUERIES[name].format(**base, **inner)
    raise AssertionError(name)


def check_versions(args: LakeArgs, lake: tailrace.Lake) -> int:
    """Every version of every view equals its query at the version's label; returns how many.

    At each of them, what the view reads shows the same label.
    """
    with lake._runtime.database.read() as connection:
        names = {
            row.table_id: row.home.removeprefix("main.")
            for row in connection.execute(
                sa.select(st.output.c.table_id, t.job.c.home).join(
                    t.job, t.job.c.job_id == st.output.c.owner
                )
            )
        }
        versions = connection.execute(sa.select(t.version)).all()
    with duck.attach(args) as duckdb:
        duckdb.execute("USE lake")
        for version in versions:
            name, at, label = names[version.table_id], version.commit_snapshot, version.label
            for shown in [name, *(x for x in QUERIES if f"{{{x}}}" in QUERIES[name])]:
                have = duckdb.execute(f"SELECT * FROM {shown} AT (VERSION => {at})")
                got = bag(have.to_arrow_table())
                want = bag(duckdb.execute(expanded(shown, label)).to_arrow_table())
                assert [tuple(map(_number, r)) for r in got] == [
                    tuple(map(_number, r)) for r in want
                ], f"{shown} at {at}, label {label}"
    return len(versions)


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, int) else value


def refresh(args: LakeArgs, step: str | None, nth: int, settings: Any) -> None:
    """In a process of its own: bring all views up to date, or be killed on the way."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    seen = 0

    def on_step(name: str) -> None:
        nonlocal seen
        seen += name == step
        if seen == nth and name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    with args.connect(on_step=on_step, settings=settings) as lake:
        lake.run_until_fresh(timeout=120)
