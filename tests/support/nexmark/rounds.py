"""A round of Nexmark: the next events, and changes of what came before, as one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tests.support.nexmark import tables

if TYPE_CHECKING:
    import tailrace

EVENTS, PERSONS, AUCTIONS, BIDS = 1_000, 15, 40, 20


def apply(lake: tailrace.Lake, stream: tables.Stream, number: int) -> int:
    """Change the lake once, and return the snapshot; rounds count from 1, each differs."""
    draw = np.random.default_rng([stream.seed, number])
    came = stream.take(EVENTS)
    persons, auctions, bids = (lake.table(name).to_arrow() for name in tables.TABLES)
    with lake.transaction() as txn:
        for name, rows in came.items():
            txn.table(name).append(rows)
        some = _sample(draw, persons, PERSONS)
        state = pa.array(draw.choice(tables.STATES, some.num_rows))
        txn.table("person").upsert(_with(some, "state", state))
        txn.table("person").delete(_sample(draw, persons, 3).select(["id"]))
        some = _sample(draw, auctions, AUCTIONS)
        category = pa.array(draw.integers(10, 15, some.num_rows))
        # Some of them end later, so that other bids count.
        later = pa.array(some.column("expires").cast(pa.int64()).to_numpy() + 10_000_000)
        changed = _with(some, "category", category)
        txn.table("auction").upsert(_with(changed, "expires", later.cast(some.schema[6].type)))
        txn.table("auction").delete(_sample(draw, auctions, 5).select(["id"]))
        # The same bids again: rows without a key can be there twice.
        txn.table("bid").append(_sample(draw, bids, BIDS))
        # Gone: whole auctions' bids, the highest ones, and one copy's worth of others.
        highest = int(np.sort(bids.column("price").to_numpy())[-10])
        txn.table("bid").delete(
            f"auction % 89 = {number} OR price >= {highest} OR (bidder + price) % 97 = {number}"
        )
    return txn.snapshot


def _sample(draw: np.random.Generator, rows: pa.Table, count: int) -> pa.Table:
    return rows.take(pa.array(draw.choice(rows.num_rows, count, replace=False)))


def _with(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)
