"""A round of inserts, updates and deletes in every table, drawn so that the queries' results move.

Made for small tables: a few rows of each change, and of those with many rows about one in a
hundred. What a row becomes is made of other rows of its table and of what the queries ask for.
"""

from __future__ import annotations

import os
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.support.tpcds.aim import Aim
from tests.support.tpcds.keys import COMPLETE, FACTS, KEYS, Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import tailrace
    from tests.support.tpcds.wishes import Wish

SEED = int(os.environ.get("TAILRACE_SEED") or 1)
# What stays as it is: queries ask for the one month or week of a day, and get an error from Spark
# if there are two.
FIXED = {
    "d_date", "d_date_id", "d_month_seq", "d_week_seq", "d_quarter_seq", "d_year", "d_moy",
}  # fmt: skip


def apply(lake: tailrace.Lake, asked: list[Wish], number: int) -> None:
    """Change the lake once; rounds count from 1, each differs."""
    before = {name: lake.table(name).to_arrow() for name in KEYS}
    changes = draw({name: rows.to_pylist() for name, rows in before.items()}, asked, number)
    with lake.transaction() as txn:
        for name, (written, gone) in changes.items():
            schema = before[name].schema
            keys = pa.schema([schema.field(key) for key in KEYS[name]])
            txn.table(name).delete(pa.Table.from_pylist(gone, schema=keys))
            txn.table(name).upsert(pa.Table.from_pylist(written, schema=schema))


def draw(
    before: Mapping[str, list[Row]], asked: list[Wish], number: int
) -> dict[str, tuple[list[Row], list[Row]]]:
    """By table, the rows that are new or changed, and those that go."""
    aim = Aim(asked)
    changes = {}
    for name, rows in before.items():
        random = Random(f"seed {SEED}, round {number} of {name}")
        changes[name] = _changes(name, rows, aim, random)
        aim.learn(name, _after(name, rows, *changes[name]))
    return changes


def _changes(name: str, rows: list[Row], aim: Aim, random: Random) -> tuple[list[Row], list[Row]]:
    key = KEYS[name]
    rows.sort(key=lambda row: _key(name, row))
    aim.learn(name, rows)
    count = 2 + len(rows) // 60
    changed, gone, new = {}, {}, {}
    for _ in range(count):
        row = aim.pick(name, rows, random)
        changed[_key(name, row)] = _mixed(name, row, rows, aim, random, key)
    for _ in range(count if name in FACTS else len(rows) // 40):
        row = aim.pick(name, rows, random)
        if _key(name, row) not in changed:
            gone[_key(name, row)] = row
    there = {_key(name, row) for row in rows}
    last = max(row[key[-1]] for row in rows)
    for _ in range(count):
        row = _mixed(name, random.choice(rows), rows, aim, random, key[1:])
        if len(key) == 1 or (name != "inventory" and random.random() < 0.3):
            row[key[-1]] = last = last + 1  # a dimension's new row, or a new order
        if name == "date_dim":
            row["d_date"] += timedelta(10_000)
        if _key(name, row) not in there:
            new[_key(name, row)] = row
    return [*changed.values(), *new.values()], list(gone.values())


def _mixed(
    name: str, row: Row, rows: list[Row], aim: Aim, random: Random, kept: Sequence[str]
) -> Row:
    """The row with some values of another, some that are asked for, and sometimes a NULL."""
    other = random.choice(rows)
    share = random.choice((0.1, 0.5))
    mixed = {
        column: other[column] if random.random() < share else value for column, value in row.items()
    }
    if random.random() < 0.5 and name not in COMPLETE:
        aim.row(name, mixed, random, kept)
    if random.random() < 0.2:
        mixed[random.choice([column for column in row if column not in KEYS[name]])] = None
    return {
        column: row[column] if column in kept or column in FIXED else value
        for column, value in mixed.items()
    }


def _key(name: str, row: Row) -> tuple[Any, ...]:
    return tuple(row[column] for column in KEYS[name])


def _after(name: str, rows: list[Row], written: list[Row], gone: list[Row]) -> list[Row]:
    found = {_key(name, row): row for row in rows}
    for row in gone:
        del found[_key(name, row)]
    return list({**found, **{_key(name, row): row for row in written}}.values())
