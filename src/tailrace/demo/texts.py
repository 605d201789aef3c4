"""What the demo says: a sentence or two for each part, and what to try next."""

from __future__ import annotations

import shlex
from collections.abc import Sized
from pathlib import Path

SHOP = (
    "Five tables with primary keys: Parquet files in a directory, and a catalog in SQLite beside "
    "them. They are filled in one transaction, while Spark starts."
)
SHOP_THERE = (
    "Five tables with primary keys: Parquet files in a directory, and a catalog in SQLite beside "
    "them. They are as the last commit left them, and the demo goes on from there."
)
DERIVED = (
    "Materialized views of several kinds, a replica, a full-text index and a vector index. Each is "
    "a job that follows its tables; the first build of a view runs on Spark."
)
LIVE = (
    "Another process sells, ships, changes prices and writes reviews. What is derived follows by "
    "itself: each refresh reads what has changed, and commits its rows together with the snapshot "
    "that they reflect, the watermark. Meanwhile the indexes are searched, as of the newest "
    "commit. Ctrl-C skips to the checks."
)
CHECKED = (
    "The writer stops. Each derived table is compared, row by row, with a recompute by Spark from "
    "the shop's tables at the same snapshot. What the indexes find, now and in some of the earlier "
    "searches, is compared with a look at every row of their table at the snapshot of the search."
)
TOOK = "The refreshes, and what it takes to run the same queries anew each time, as without views."
HOW_MEASURED = (
    "took: all refreshes as they were recorded, beside the writer and each other. one recompute: "
    "the query in plain Spark SQL over the tables as the live part found them, written as "
    "Parquet, or the index built anew; the second of two runs, with nothing else running. "
    "instead: that, once for each refresh. delay: from a commit to what has it, the median."
)
IN_MEMORY = (
    "Refreshes as small as these run in this process and start no Spark job (only the replica's "
    "condition needs one); with tables as small as these, that decides. --scale 10 has ten times "
    "the rows, and the same changes."
)
NEXT = "This lake was temporary. Keep one with the first of these, and look around with the others:"
NEXT_KEPT = "The lake stays where it is. Look around:"


def commands(place: Path | None) -> list[str]:
    """What to type next, on a lake that was kept or on one that will be."""
    lake = "shop.lake" if place is None else shlex.quote(str(place))
    query = "SELECT name, price, sold FROM shop.best_sellers ORDER BY sold DESC"
    look = [
        f"tailrace status --lake {lake}",
        f'tailrace sql --lake {lake} -c "{query}"',
        f"tailrace search review_text 'sturdy gift' --lake {lake}",
        f"tailrace explain shop.revenue --lake {lake}",
        f"tailrace verify --lake {lake}",
        f"tailrace serve --lake {lake}",
    ]
    again = f"tailrace demo --keep {lake}"
    return [again, *look] if place is None else [*look, f"{again}   # goes on"]


def searched(searches: Sized, seconds: float | None) -> str:
    """What to say of the searches in the live part."""
    if seconds is None:
        return "Nothing was searched for in the live part."
    return (
        f"{len(searches)} searches in the live part, each as of the newest commit: what the index "
        f"did not have yet was read from the table. The median took {1000 * seconds:.0f} ms."
    )


def counted(rows: dict[str, int]) -> str:
    """How many rows there are, table by table."""
    parts = (f"{count:,} {name.rpartition('.')[2]}" for name, count in rows.items())
    return ", ".join(parts).replace("_", " ")
