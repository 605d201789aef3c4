"""Scan of 5 million rows without and with deletes, against plain Parquet of the same rows.

Both sides run from the call that makes the DataFrame to the end of a write to Spark's `noop`
sink, which reads every column of every row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bench import data, report, timing
from bench.bench import Bench
from bench.report import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS, FILES, ROUNDS = 5_000_000, 8, 7
# What is deleted, step after step, and what then remains.
STEPS = (
    ("no deletes", None, "true", 1.05),
    ("1 % deleted", "id % 100 = 7", "id % 100 <> 7", 1.3),
    ("10 % deleted", "id % 100 >= 91", "id % 100 <> 7 AND id % 100 < 91", 1.3),
)


def measure(bench: Bench) -> Iterator[Row]:
    rows = bench.size(ROWS)
    orders = data.orders_frame(bench.spark, rows, files=FILES)
    with bench.lake() as (lake, place):
        table = lake.create_table("orders", data.ORDERS)
        table.append(orders)
        for name, delete, remains, most in STEPS:
            if delete is not None:
                table.delete(delete)
            plain = str(place / name.replace(" ", "-"))
            orders.where(remains).write.parquet(plain)
            assert table.to_df().count() == bench.spark.read.parquet(plain).count()
            taken = timing.alternate(
                ROUNDS,
                ours=lambda _: lambda: _read(table.to_df()),
                parquet=lambda _, plain=plain: lambda: _read(bench.spark.read.parquet(plain)),
            )
            yield report.relative(
                f"scan of {report.count(rows)} rows, {name}",
                taken["ours"],
                taken["parquet"],
                to="spark.read.parquet",
                most=most,
            )


def _read(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
