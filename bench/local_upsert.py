"""Local upsert of 1,000 rows into 1 million: half new keys, half among the newest 5,000."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench import data, report, timing
from bench.bench import Bench
from bench.report import Row

INTO, ROWS, RECENT, ROUNDS = 1_000_000, 1_000, 5_000, 30


def measure(bench: Bench) -> Iterator[Row]:
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
    yield report.absolute(
        f"local upsert of {report.count(ROWS)} rows with recent keys into {report.count(into)}",
        taken["upsert"],
        most=0.1,
    )
