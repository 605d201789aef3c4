"""Upsert of 10,000 rows into 5 million, against deltalake's merge.

Both tables are loaded from the same rows in the same pieces, in the order of the key. Beside the
times: how many rows and files each wrote anew for the last upsert.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import tailrace
from bench import data, report, timing
from bench.bench import Bench
from bench.report import Row

if TYPE_CHECKING:
    from deltalake import DeltaTable

INTO, BATCH, ROWS, RECENT, ROUNDS = 5_000_000, 625_000, 10_000, 50_000, 5


def measure(bench: Bench) -> Iterator[Row]:
    for kind in ("uniform", "recent"):
        with bench.lake() as (lake, place):
            yield from _measure(bench, kind, lake, place)


def _measure(bench: Bench, kind: str, lake: tailrace.Lake, place: Path) -> Iterator[Row]:
    from deltalake import DeltaTable, write_deltalake

    into, count = bench.size(INTO), bench.size(ROWS)
    ours = lake.create_table("orders", data.ORDERS, primary_key="id")
    delta = DeltaTable.create(str(place / "delta"), data.orders_rows(np.arange(0)).schema)
    for batch in data.orders_batches(into, bench.size(BATCH)):
        ours.append(batch)
        write_deltalake(delta, batch, mode="append")

    draw = np.random.default_rng(1)
    given = [_rows(draw, kind, number, into, count) for number in range(ROUNDS + 1)]
    metrics = {}
    taken = timing.alternate(
        ROUNDS,
        ours=lambda number: lambda: ours.upsert(given[number + 1]),
        deltalake=lambda number: lambda: metrics.update(_merge(delta, given[number + 1])),
    )
    assert ours.to_df().count() == delta.count()
    yield report.relative(
        f"upsert of {report.count(count)} rows into {report.count(into)}, {kind} keys",
        taken["ours"],
        taken["deltalake"],
        to="deltalake merge",
        most=1,
    )
    yield Row(
        what="  written anew by it",
        measured=_written(place / "catalog.sqlite", lake.snapshot),
        compared=f"{report.count(metrics['num_output_rows'])} rows in "
        f"{metrics['num_target_files_added']} data files "
        f"(of them {report.count(metrics['num_target_rows_copied'])} unchanged), "
        f"{metrics['num_target_files_removed']} removed",
    )


def _rows(draw: np.random.Generator, kind: str, number: int, into: int, count: int) -> pa.Table:
    if kind == "uniform":
        ids = draw.choice(into, count, replace=False)
    else:
        ids = data.recent_ids(draw, into + number * (count // 2), count, among=RECENT)
    return data.orders_rows(ids, version=number + 1)


def _merge(table: DeltaTable, rows: pa.Table) -> dict[str, int]:
    return (
        table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )


def _written(catalog: Path, snapshot: int) -> str:
    """What the catalog says that a snapshot brought."""
    with closing(sqlite3.connect(f"{catalog.as_uri()}?mode=ro", uri=True)) as connection:
        files, rows = connection.execute(
            "SELECT count(*), sum(record_count) FROM ducklake_data_file WHERE begin_snapshot = ?",
            [snapshot],
        ).fetchone()
        deletes, positions = connection.execute(
            "SELECT count(*), sum(delete_count) FROM ducklake_delete_file"
            " WHERE coalesce(partial_max, begin_snapshot) = ?",
            [snapshot],
        ).fetchone()
    return (
        f"{report.count(rows)} rows in {files} data files, "
        f"{report.count(positions)} positions in {deletes} delete files"
    )
