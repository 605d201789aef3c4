"""Spark append of 2 million rows, against `df.write.parquet`, sorted where there is a key.

The rows come from the same Parquet files each time, not in the order of the key; each round
appends to a new, empty table.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import data, report, timing
from bench.bench import Bench
from bench.report import Row

ROWS, FILES, ROUNDS = 2_000_000, 4, 5


def measure(bench: Bench) -> Iterator[Row]:
    rows = bench.size(ROWS)
    with bench.lake() as (lake, place):
        given = str(place / "given")
        data.line_items_frame(bench.spark, rows, files=FILES).write.parquet(given)
        frame = bench.spark.read.parquet(given)
        for key, most in ((None, 1.15), (data.LINE_ITEM_KEY, 1.3)):
            ordered = frame if key is None else frame.sort(*key)
            kind = "plain" if key is None else "keyed"

            def ours(number: int, kind: str = kind, key: list[str] | None = key) -> timing.Action:
                name = f"{kind}{number + 1}"
                table = lake.create_table(name, data.LINE_ITEMS, primary_key=key)
                return lambda: table.append(frame)

            taken = timing.alternate(
                ROUNDS,
                ours=ours,
                parquet=lambda number, kind=kind, ordered=ordered: (
                    lambda: ordered.write.parquet(str(place / f"{kind}{number + 1}"))
                ),
            )
            yield report.relative(
                f"Spark append of {report.count(rows)} rows, "
                + ("no primary key" if key is None else "with primary key"),
                taken["ours"],
                taken["parquet"],
                to="df.write.parquet" if key is None else "df.sort(key).write.parquet",
                most=most,
            )
