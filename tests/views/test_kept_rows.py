"""Rows that a refresh keeps for the next: looked up once, they follow their table's changes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import tailrace
from tailrace.views.refresh import kept_rows
from tests.support import duck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

# A name that Arrow may take for a path.
KEY = ".id"
GROUP, LINES, PARTS = 100, 5_000, 500
# Less than all parts sell below the average of their own; the lines of a part are anywhere.
QUERY = """
SELECT kind, sum(price) AS total, count(*) AS n
FROM lines JOIN parts ON parts.id = lines.part
WHERE brand = 'rare' AND amount > 0
AND quantity < (SELECT avg(quantity) FROM lines others WHERE others.part = parts.id)
GROUP BY kind
"""


def line(number: int, part: int, quantity: int) -> dict[str, int]:
    return {KEY: number, "part": part, "quantity": quantity, "price": number, "amount": number % 3}


@pytest.fixture
def lake(
    sqlite_lake_args: LakeArgs, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tailrace.Lake]:
    monkeypatch.setattr(kept_rows, "_WORTH", 2_000)
    # Too little to keep whole columns of the lines.
    settings = tailrace.Settings(row_group_rows=GROUP, kept_bytes=600_000)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as opened:
        columns = {"id": "bigint", "brand": "string", "kind": "bigint"}
        parts = opened.create_table("parts", columns, primary_key="id")
        brands = ["rare" if n % 50 == 0 else "usual" for n in range(PARTS)]
        parts.append([{"id": n, "brand": b, "kind": n % 4} for n, b in enumerate(brands)])
        names = (KEY, "part", "quantity", "price", "amount")
        lines = opened.create_table("lines", dict.fromkeys(names, "bigint"), primary_key=KEY)
        numbers = np.arange(LINES)
        lines.append(
            pa.table(
                {
                    KEY: numbers,
                    "part": numbers * 7919 % PARTS,
                    "quantity": numbers * 31 % 50,
                    "price": numbers,
                    "amount": numbers % 3,
                }
            )
        )
        opened.create_table("other", {"id": "bigint"})
        opened.create_view("below", QUERY, policy="incremental").refresh()
        yield opened


def refresh(lake: tailrace.Lake) -> int:
    """How many rows are decoded."""
    kept = lake.runtime.kept_files
    before = kept.decoded
    lake.view("below").refresh()
    return kept.decoded - before


def assert_right(lake: tailrace.Lake, args: LakeArgs) -> None:
    with duck.attach(args) as connection:
        connection.execute("USE lake")
        expected = sorted(connection.execute(QUERY).fetchall(), key=repr)
    rows = lake.view("below").to_arrow().to_pylist()
    assert sorted((tuple(row.values()) for row in rows), key=repr) == expected


def test_rows_are_looked_up_in_the_whole_table_once(
    lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    lines = lake.table("lines")
    lines.upsert([line(17, 50, 1)])
    assert refresh(lake) > LINES
    for number, part in ((18, 100), (4_000, 150), (LINES, 50)):
        lines.upsert([line(number, part, 2)])
        # The row groups of the line's old values and of the parts, and what is new.
        assert refresh(lake) < 10 * GROUP
        assert_right(lake, sqlite_lake_args)


def test_a_key_that_is_new_is_looked_up(lake: tailrace.Lake, sqlite_lake_args: LakeArgs) -> None:
    lines, parts = lake.table("lines"), lake.table("parts")
    lines.upsert([line(17, 50, 1)])
    refresh(lake)
    parts.upsert([{"id": 51, "brand": "rare", "kind": 9}])
    refresh(lake)
    lines.upsert([line(18, 51, 1)])
    refresh(lake)
    assert_right(lake, sqlite_lake_args)
    lines.upsert([line(19, 51, 2)])
    assert refresh(lake) < 10 * GROUP
    assert_right(lake, sqlite_lake_args)


def test_rows_are_kept_while_other_tables_change(
    lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    lake.table("lines").upsert([line(17, 50, 1)])
    refresh(lake)
    lake.table("other").append([{"id": 1}])
    refresh(lake)
    lake.table("lines").upsert([line(18, 50, 1)])
    assert refresh(lake) < 10 * GROUP
    assert_right(lake, sqlite_lake_args)


def test_too_many_rows_are_not_kept(
    lake: tailrace.Lake, sqlite_lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.store.open_file.KeptFiles.fits", lambda *_: False)
    for number in range(3):
        lake.table("lines").upsert([line(number, 50, 1)])
        assert refresh(lake) > LINES
        assert_right(lake, sqlite_lake_args)


@pytest.mark.parametrize("seed", range(3))
def test_a_view_stays_right_whatever_changes(
    lake: tailrace.Lake, sqlite_lake_args: LakeArgs, seed: int
) -> None:
    draw = random.Random(seed)
    for _ in range(12):
        with lake.transaction() as txn:
            what = draw.choice(("lines", "lines", "lines", "parts", "both", "other"))
            if what in ("lines", "both"):
                ids = draw.sample(range(LINES + 20), 20)
                rare = [50 * draw.randrange(11) for _ in ids]
                part = [r if draw.random() < 0.6 else draw.randrange(PARTS) for r in rare]
                rows = [line(n, p, draw.randrange(60)) for n, p in zip(ids, part, strict=True)]
                txn.table("lines").upsert(rows)
                txn.table("lines").delete([{KEY: n} for n in draw.sample(range(LINES), 5)])
            if what in ("parts", "both"):
                some = draw.sample(range(PARTS), 3)
                brand = draw.choice(("rare", "usual"))
                txn.table("parts").upsert(
                    [{"id": n, "brand": brand, "kind": draw.randrange(4)} for n in some]
                )
            if what == "other":
                txn.table("other").append([{"id": 1}])
        if draw.random() < 0.8:  # or a later refresh takes two changes at once
            refresh(lake)
            assert_right(lake, sqlite_lake_args)
    rows = lake.runtime.kept_files.rows
    assert rows is not None
    assert rows.values()
