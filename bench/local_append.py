"""Local append of 1,000 rows, beside deltalake, pyiceberg and pylance.

Every contestant keeps its table open from one append to the next. Ours is on SQLite and flushes
what it commits to the disk; of the others only pyiceberg's catalog does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import tailrace
from bench import data, report, timing
from bench.bench import Bench
from bench.report import Row

ROWS, ROUNDS = 1_000, 30


def measure(bench: Bench) -> Iterator[Row]:
    for key in (None, "id"):
        with bench.directory() as place, tailrace.connect(place / "lake") as lake:
            table = lake.create_table("orders", data.ORDERS, primary_key=key)
            taken = timing.alternate(
                ROUNDS,
                warm_up=3,
                ours=_appending(table.append),
                deltalake=_appending(_deltalake(place / "delta")),
                pyiceberg=_appending(_pyiceberg(place / "iceberg")),
                pylance=_appending(_pylance(place / "lance")),
            )
        ours = taken.pop("ours")
        yield report.absolute(
            f"local append of {report.count(ROWS)} rows, "
            + ("no primary key" if key is None else "with primary key"),
            ours,
            most=0.025,
            compared=", ".join(f"{name} {report.duration(t)}" for name, t in taken.items()),
        )


def _appending(append: Callable[[pa.Table], object]) -> timing.Contestant:
    def prepare(number: int) -> timing.Action:
        start = (number + 10) * ROWS
        rows = data.orders_rows(np.arange(start, start + ROWS))
        return lambda: append(rows)

    return prepare


def _deltalake(place: Path) -> Callable[[pa.Table], object]:
    from deltalake import DeltaTable, write_deltalake

    table = DeltaTable.create(str(place), data.orders_rows(np.arange(0)).schema)
    return lambda rows: write_deltalake(table, rows, mode="append")


def _pyiceberg(place: Path) -> Callable[[pa.Table], object]:
    from pyiceberg.catalog.sql import SqlCatalog

    place.mkdir()
    catalog = SqlCatalog(
        "bench", uri=f"sqlite:///{place / 'catalog.sqlite'}", warehouse=place.as_uri()
    )
    catalog.create_namespace("main")
    return catalog.create_table("main.orders", data.orders_rows(np.arange(0)).schema).append


def _pylance(place: Path) -> Callable[[pa.Table], object]:
    import lance

    dataset = lance.write_dataset(data.orders_rows(np.arange(0)), str(place))

    def append(rows: pa.Table) -> None:
        nonlocal dataset
        dataset = lance.write_dataset(rows, dataset, mode="append")

    return append
