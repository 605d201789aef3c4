"""A round of inserts, updates and deletes in every table, drawn so that the queries' results move.

Made for small tables: a few rows of each change, and of those with many rows about one in a
hundred. What a row becomes is made of other rows of its table and of what the queries ask for.
"""

from __future__ import annotations

import os
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa

from tests.support.tpcds import tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    import tailrace
    from tests.support.tpcds.tables import Row
    from tests.support.tpcds.wishes import Wish

SEED = int(os.environ.get("TAILRACE_SEED") or 1)
# What stays as it is: queries ask for the one month or week of a day, and get an error from Spark
# if there are two.
FIXED = {
    "d_date", "d_date_id", "d_month_seq", "d_week_seq", "d_quarter_seq", "d_year", "d_moy",
}  # fmt: skip


def apply(
    lake: tailrace.Lake, asked: Mapping[str, list[Wish]], number: int
) -> dict[str, tuple[int, int, int]]:
    """Change the lake once; returns how many rows came, changed and went, by table."""
    counts = {}
    with lake.transaction() as txn:
        for name in tables.KEYS:
            rows = lake.table(name).to_arrow()
            random = Random(f"seed {SEED}, round {number} of {name}")
            new, changed, gone = _changes(name, rows.to_pylist(), asked, random)
            table = txn.table(name)
            keys = pa.schema([rows.schema.field(key) for key in tables.KEYS[name]])
            table.delete(pa.Table.from_pylist(gone, schema=keys))
            table.upsert(pa.Table.from_pylist([*new, *changed], schema=rows.schema))
            counts[name] = (len(new), len(changed), len(gone))
    return counts


def _changes(
    name: str, rows: list[Row], asked: Mapping[str, list[Wish]], random: Random
) -> tuple[list[Row], list[Row], list[Row]]:
    """New rows, changed rows, and rows that go, all different."""
    key = tables.KEYS[name]
    rows.sort(key=lambda row: [row[column] for column in key])
    count = min(len(rows), 2 + len(rows) // 100)
    drawn = random.sample(rows, min(len(rows), 2 * count))
    changed = [_mixed(name, row, rows, asked[name], random) for row in drawn[:count]]
    gone = drawn[count:] if name in tables.FACTS else drawn[count : count + len(rows) // 40]
    new: dict[tuple[object, ...], Row] = {}
    there = {tuple(row[column] for column in key) for row in rows}
    for step in range(count):
        row = _mixed(name, random.choice(rows), rows, asked[name], random)
        if len(key) == 1 or random.random() < 0.3:
            # A dimension's new row, or a new order: its number is above all others.
            row[key[-1]] = max(each[key[-1]] for each in rows) + 1 + step
            if name == "date_dim":
                row["d_date"] = max(each["d_date"] for each in rows) + timedelta(1 + step)
        elif name == "inventory":
            row["inv_item_sk"] = random.choice(rows)["inv_item_sk"]
            row["inv_date_sk"] = random.choice(rows)["inv_date_sk"]
        else:
            row[key[0]] = random.choice(rows)[key[0]]  # a further item of an order
        found = tuple(row[column] for column in key)
        if found not in there:
            new[found] = row
    return list(new.values()), changed, gone


def _mixed(name: str, row: Row, rows: list[Row], asked: list[Wish], random: Random) -> Row:
    """The row with some values of another, some that are asked for, and sometimes a NULL."""
    other = random.choice(rows)
    mixed = {
        column: other[column] if random.random() < 0.3 else value for column, value in row.items()
    }
    if random.random() < 0.5 and name != "date_dim":
        tables.grant(name, mixed, asked, random)
    if random.random() < 0.3:
        mixed[random.choice(list(row))] = None
    kept = {*tables.KEYS[name], *FIXED}
    return {column: row[column] if column in kept else value for column, value in mixed.items()}
