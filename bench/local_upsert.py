"""Local upsert of 1,000 rows: recent and new keys into 1 million, any keys into 60 million."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from bench import data, report, timing
from bench.bench import Bench
from bench.report import Row

INTO, ROWS, RECENT, ROUNDS = 1_000_000, 1_000, 5_000, 30
UNIFORM_INTO, FILES, UNIFORM_ROUNDS = 60_000_000, 10, 10


def measure(bench: Bench) -> Iterator[Row]:
    yield _recent(bench)
    yield _uniform(bench)


def _recent(bench: Bench) -> Row:
    into = bench.size(INTO)
    draw = np.random.default_rng(1)
    with bench.lake() as (lake, _):
        table = lake.create_table("orders", data.ORDERS, primary_key="id")
        table.append(data.orders_frame(bench.spark, into, files=4))
        newest = into

        def upsert(number: int) -> timing.Action:
            nonlocal newest
            rows = data.orders_rows(
                data.recent_ids(draw, newest, ROWS, among=RECENT), version=number + 10
            )
            newest += ROWS // 2
            return lambda: table.upsert(rows)

        taken = timing.alternate(ROUNDS, warm_up=3, upsert=upsert)
    return report.absolute(
        f"local upsert of {report.count(ROWS)} rows with recent keys into {report.count(into)}",
        taken["upsert"],
        most=0.1,
    )


def _uniform(bench: Bench) -> Row:
    """Keys from anywhere, so that each is in another row group."""
    into = bench.size(UNIFORM_INTO)
    draw = np.random.default_rng(1)

    def rows(ids: data.Ids) -> pa.Table:
        return pa.table({"id": ids, "amount": draw.random(len(ids))})

    def upsert(_number: int) -> timing.Action:
        ids = np.sort(draw.choice(into, ROWS, replace=False))
        changed = rows(ids)
        return lambda: table.upsert(changed)

    with bench.lake() as (lake, _):
        columns = {"id": "bigint", "amount": "double"}
        table = lake.create_table("orders", columns, primary_key="id")
        for ids in np.array_split(np.arange(into), FILES):
            table.append(rows(ids))
        taken = timing.alternate(UNIFORM_ROUNDS, upsert=upsert)
    return report.absolute(
        f"… with uniform keys into {report.count(into)}", taken["upsert"], most=1.5
    )
