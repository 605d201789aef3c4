"""`make demo`: a lake in a temporary directory, and what one can do with it today.

Each step prints the call that it makes. At the end DuckDB reads the same lake, if it is installed.
"""

from __future__ import annotations

import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tailrace
from tailrace.lake import CATALOG_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def main() -> None:
    """Run the demo."""
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as directory:
        place = Path(directory) / "shop.lake"
        with tailrace.connect(place) as lake:
            _tables(lake)
            _time(lake)
            _spark(lake)
            _jobs(lake)
        _duckdb(place)
    print("\nThat lake was temporary. Make your own: tailrace.connect('shop.lake')")


def _say(title: str, call: str) -> None:
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}{title}{plain}\n  >>> {call}", flush=True)


def _show(rows: Iterable[Mapping[str, Any]]) -> None:
    rows = list(rows)
    names = list(rows[0]) if rows else []
    cells = [names, *([str(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    for line in cells:
        print("      " + "  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)))


def _tables(lake: tailrace.Lake) -> None:
    _say("Two tables with primary keys", "lake.create_table('sales.orders', {…}, primary_key=…)")
    lake.create_schema("sales")
    lake.create_table(
        "sales.orders",
        {"id": "bigint", "customer": "string", "amount": "decimal(12,2)"},
        primary_key=["id"],
    )
    lake.create_table("sales.stock", {"item": "string", "left": "int"}, primary_key=["item"])

    _say("Both in one transaction: one snapshot", "with lake.transaction() as txn: …")
    with lake.transaction() as txn:
        txn.table("sales.orders").append(
            [
                {"id": 1, "customer": "ada", "amount": Decimal("12.50")},
                {"id": 2, "customer": "bob", "amount": Decimal("-1.00")},
                {"id": 3, "customer": "ada", "amount": Decimal("99.00")},
            ]
        )
        txn.table("sales.stock").append([{"item": "tea", "left": 7}, {"item": "jam", "left": 0}])
    print(f"      snapshot {txn.snapshot}")

    orders = lake.table("sales.orders")
    _say("Insert or replace by key", "orders.upsert([{'id': 3, …}, {'id': 4, …}])")
    print(
        "      snapshot",
        orders.upsert(
            [
                {"id": 3, "customer": "ada", "amount": Decimal("89.00")},
                {"id": 4, "customer": "eve", "amount": Decimal("5.75")},
            ]
        ),
    )
    _say("What does not fit is refused, and says why", "orders.append([{'id': 4, …}])")
    try:
        orders.append([{"id": 4, "customer": "eve", "amount": Decimal(1)}])
    except tailrace.InvalidError as error:
        print(f"      InvalidError: {error}")


def _time(lake: tailrace.Lake) -> None:
    orders = lake.table("sales.orders")
    _say("The rows now, without starting Spark", "orders.to_arrow()")
    _show(orders.to_arrow().sort_by("id").to_pylist())
    before = lake.snapshot - 1
    _say("The rows as they were", f"orders.to_arrow(at={before})")
    _show(orders.to_arrow(at=before).sort_by("id").to_pylist())


def _spark(lake: tailrace.Lake) -> None:
    orders = lake.table("sales.orders")
    _say("Delete by a predicate (Spark starts here)", "orders.delete('amount < 0')")
    print("      snapshot", orders.delete("amount < 0"))
    first = lake.snapshot - 2
    _say("What changed since", f"orders.changes(since={first})")
    changes = orders.changes(since=first).orderBy("_snapshot", "id", "_change")
    _show(row.asDict() for row in changes.collect())
    _say("Any Spark query", "orders.to_df().groupBy('customer').sum('amount')")
    sums = orders.to_df().groupBy("customer").sum("amount").orderBy("customer")
    _show(row.asDict() for row in sums.collect())


def _jobs(lake: tailrace.Lake) -> None:
    consumer = {"kind": "replica", "table": "sales.large", "where": "amount > 10"}
    _say(
        "A copy of some rows that stays fresh",
        "lake.jobs.register('sales.orders', 'large', {'consumer': {'kind': 'replica', …}})",
    )
    lake.jobs.register("sales.orders", "large", {"consumer": consumer})
    orders = lake.table("sales.orders")
    with lake.serving():  # in the background, as lake.serve() does for good
        lake.jobs.wait("sales.orders", "large")
        _show(lake.table("sales.large").to_arrow().sort_by("id").to_pylist())
        _say("It follows each commit", "orders.upsert([{'id': 4, 'amount': 42, …}])")
        snapshot = orders.upsert([{"id": 4, "customer": "eve", "amount": Decimal(42)}])
        lake.jobs.wait("sales.orders", "large", snapshot)
        _show(lake.table("sales.large").to_arrow().sort_by("id").to_pylist())
    done = lake.jobs.history("sales.orders", "large")[0]
    print(f"      {done.rows_read} changed rows read, {done.seconds:.2f} s")


def _duckdb(place: Path) -> None:
    try:
        import duckdb
        from duckdb_extensions import import_extension
    except ImportError:
        print("\n(DuckDB is not installed: pip install duckdb, to read a lake with it)")
        return
    attach = f"ATTACH 'ducklake:sqlite:{place / CATALOG_FILE}' AS shop (READ_ONLY)"
    _say(
        "Another engine reads the same lake", "duckdb> SELECT * FROM shop.sales.orders ORDER BY id"
    )
    with duckdb.connect() as connection:
        for extension in ("ducklake", "sqlite_scanner"):
            import_extension(extension, con=connection)
            connection.load_extension(extension)
        connection.execute(attach)
        found = connection.execute("SELECT * FROM shop.sales.orders ORDER BY id")
        names = [column[0] for column in found.description]
        _show(dict(zip(names, row, strict=True)) for row in found.fetchall())


if __name__ == "__main__":
    main()
