"""Change feed of 1,000 updated rows in a table of 500,000 and in one ten times as large.

Each round upserts other rows, of the newest keys or of any, and times `changes(…).toArrow()` of
that snapshot; the tables' files are of one size.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tailrace
from bench import data, report, timing
from bench.bench import Bench
from bench.report import Row

SMALL, LARGE, BATCH, ROWS, RECENT, ROUNDS = 500_000, 5_000_000, 500_000, 1_000, 5_000, 9


def measure(bench: Bench) -> Iterator[Row]:
    small, large = bench.size(SMALL), bench.size(LARGE)
    with bench.lake() as (lake, _):
        for kind in ("recent", "uniform"):
            contestants = {
                size: _feed(lake, f"{kind}_{size}", rows, bench.size(BATCH), kind)
                for size, rows in (("small", small), ("large", large))
            }
            taken = timing.alternate(ROUNDS, **contestants)
            changed = f"change feed of {report.count(ROWS)} rows, {kind} keys"
            yield report.absolute(f"{changed}, of {report.count(small)}", taken["small"], most=1.0)
            yield report.absolute(f"{changed}, of {report.count(large)}", taken["large"], most=1.0)
            yield report.relative(
                "  the latter", taken["large"], taken["small"], to="the former", most=1.3
            )


def _feed(lake: tailrace.Lake, name: str, rows: int, batch: int, kind: str) -> timing.Contestant:
    table = lake.create_table(name, data.ORDERS, primary_key="id")
    for piece in data.orders_batches(rows, batch):
        table.append(piece)
    draw = np.random.default_rng(1)
    among = np.arange(max(0, rows - RECENT), rows) if kind == "recent" else np.arange(rows)

    def prepare(number: int) -> timing.Action:
        ids = draw.choice(among, ROWS, replace=False)
        before = lake.snapshot
        after = table.upsert(data.orders_rows(ids, version=number + 10))

        def read() -> None:
            changes = table.changes(before, after).toArrow()
            assert changes.num_rows == 2 * ROWS, changes.num_rows

        return read

    return prepare
