"""Jobs that stand on jobs: a consumer whose output is easy to check, at every commit.

A layer's table has one row: how many rows its base tables have (`counts`) plus what the layers
beneath say (`of`), and the snapshot that this is of.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

import tailrace
from tailrace.propagation import tables as t
from tailrace.propagation.consumer import Consumer, JobContext, register_consumer
from tailrace.propagation.outputs import version_at
from tests.support import servers

if TYPE_CHECKING:
    from tests.support.lakes import LakeArgs

COLUMNS = {"k": "bigint", "n": "bigint", "label": "bigint"}
# Jobs, by name: what they are to fail with, how often they ran, and what they wait for.
FAILS: dict[str, Exception] = {}
RUNS: list[tuple[str, int | None, int]] = []
GATES: dict[str, threading.Event] = {}
STARTED: dict[str, threading.Event] = {}


class Layer(Consumer):
    """See the module."""

    def run(self, changes: tailrace.Changes, txn: tailrace.Transaction, job: JobContext) -> str:
        RUNS.append((job.name, job.since, job.to))
        base = 0 if changes.kind == "snapshot" else job.memory["base"]
        for name in job.options["counts"]:
            for batch in changes[name].batches():
                for mark in batch.column("_change").to_pylist():
                    base += 1 if mark == "insert" else -1
        job.memory["base"] = base
        beneath = [txn.table(name).to_arrow().to_pylist()[0] for name in job.options["of"]]
        assert all(row["label"] <= job.to for row in beneath)
        if job.since is None:
            txn.create_table(job.options["table"], COLUMNS, primary_key="k")
            job.owns(job.options["table"])
        n = base + sum(row["n"] for row in beneath)
        txn.table(job.options["table"]).upsert([{"k": 1, "n": n, "label": job.to}])
        if job.name in STARTED:
            STARTED[job.name].set()
        if job.name in GATES:
            assert GATES[job.name].wait(60)
        if job.name in FAILS:
            raise FAILS[job.name]
        return "layer"


register_consumer("layer", Layer())


def clear() -> None:
    """Forget what a test has set."""
    for known in (FAILS, RUNS, GATES, STARTED):
        known.clear()


def base(lake: tailrace.Lake, name: str, rows: int = 2) -> tailrace.Table:
    """A base table."""
    table = lake.create_table(name, {"id": "bigint"}, primary_key="id")
    table.append([{"id": i} for i in range(rows)])
    return table


def layer(
    lake: tailrace.Lake,
    name: str,
    counts: Sequence[str] = (),
    of: Sequence[str] = (),
    job_type: str = "default",
    **more: Any,
) -> int:
    """A job `name`, which derives the table `name`; returns its id."""
    beneath = [lake.jobs.status(one, one) for one in of]
    sources = {source for status in beneath for source in status.sources}
    spec = {
        "consumer": {"kind": "layer", "table": name, "counts": list(counts), "of": list(of)},
        "sources": sorted(sources.union(f"main.{table}" for table in counts)),
        "trigger": {"job_type": job_type, "schedule": more.pop("schedule", {})},
        **more,
    }
    assert lake.jobs.register(
        name, name, spec, upstream=[status.job_id for status in beneath], free_home=True
    )
    return lake.jobs.status(name, name).job_id


def row_at(lake: tailrace.Lake, name: str, at: int | None = None) -> Mapping[str, int] | None:
    """The row of a layer at a commit, if there is one."""
    try:
        rows = lake.table(name).to_arrow(at=at).to_pylist()
    except tailrace.NotFoundError:
        return None
    return rows[0] if rows else None


def labels(lake: tailrace.Lake, names: Sequence[str], at: int | None = None) -> set[int]:
    """The labels of some layers at a commit, of those that are there."""
    rows = [row_at(lake, name, at) for name in names]
    return {row["label"] for row in rows if row is not None}


def check(lake: tailrace.Lake, names: Sequence[str], *, together: bool = False) -> None:
    """Every version of every layer is what its base tables said at its label.

    With `together`, all layers have the same label at every commit.
    """
    specs = {name: lake.jobs.status(name, name).spec["consumer"] for name in names}
    counted: dict[tuple[str, int], int] = {}

    def expected(name: str, label: int) -> int:
        if (name, label) not in counted:
            found = sum(
                lake.table(one).to_arrow(at=label).num_rows for one in specs[name]["counts"]
            )
            counted[name, label] = found + sum(expected(one, label) for one in specs[name]["of"])
        return counted[name, label]

    with lake._runtime.database.read() as connection:
        known = connection.execute(sa.select(t.version).order_by(t.version.c.commit_snapshot)).all()
        ids = {name: lake.table(name).info.id for name in names}
        for name in names:
            mine = [one for one in known if one.table_id == ids[name]]
            assert mine, f"{name} has no version"
            for one in mine:
                row = row_at(lake, name, one.commit_snapshot)
                assert row is not None
                assert row["label"] == one.label
                assert row["n"] == expected(name, one.label)
                for under in specs[name]["of"]:
                    made = version_at(connection, ids[under], one.label)
                    beneath = row_at(lake, under, made)
                    assert beneath is not None
                    assert beneath["n"] == expected(under, one.label)
    for at in sorted({one.commit_snapshot for one in known}) if together else ():
        assert len(labels(lake, names, at)) == 1, f"labels differ at {at}"


def serve(args: LakeArgs, ready: Any, step: str | None, nth: int, settings: Any) -> None:
    """In a process of its own, which knows layers."""
    servers.serve(args, ready, step, nth, settings)
