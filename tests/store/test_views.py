"""Hidden tables: who sees them, and who may take a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import tailrace
from tailrace.store import spark_scan
from tailrace.store.schema import FILE, POS
from tests.support import duck
from tests.support.rows import bag

if TYPE_CHECKING:
    from tailrace.store.keys import Places
    from tailrace.store.transaction import Transaction
    from tests.support.lakes import LakeArgs

STORED = "_tailrace_0a1b"
COLUMNS = {"city": "string", "total": "bigint", "_tailrace_count": "bigint", "_visible": "boolean"}

# --- hidden tables ----------------------------------------------------------------------------


def test_hidden_tables_are_not_listed_and_not_for_users_to_create(
    sqlite_lake: tailrace.Lake,
) -> None:
    with sqlite_lake.transaction() as txn:
        made = txn.create_table(STORED, COLUMNS, hidden=True)
        made.add_column("_tailrace_sum", "bigint")
        for name in ("_tailrace_store_bits", "_pos"):
            with pytest.raises(tailrace.InvalidError, match="reserved"):
                made.add_column(name, "int")
        with pytest.raises(tailrace.InvalidError, match="begins with _tailrace_"):
            txn.create_table("visible", COLUMNS, hidden=True)
    assert sqlite_lake.tables() == []
    assert "_tailrace_sum" in sqlite_lake.table(STORED).columns
    for name in ("_tailrace_x", "_Tailrace_x"):
        with pytest.raises(tailrace.InvalidError, match="reserved"):
            sqlite_lake.create_table(name, {"id": "int"})
    with pytest.raises(tailrace.InvalidError, match="reserved"):
        sqlite_lake.create_table("visible", COLUMNS)


def test_rows_are_removed_at_places_that_a_consumer_found(
    sqlite_lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    table = sqlite_lake.create_table("t", {"id": "int"})
    table.append([{"id": 1}, {"id": 2}, {"id": 3}])
    table.delete("id = 1")
    with sqlite_lake.transaction() as txn:
        txn.table("t").append([{"id": 4}, {"id": 5}])
        places = find(txn, "id IN (2, 4)")
        assert len(places) == 2
        txn.remove("t", places)
        txn.remove("t", {})
        assert bag(txn.table("t").to_arrow()) == [(3,), (5,)]
        file = next(iter(places))
        for wrong in ({7: np.array([0])}, {file: np.array([3])}, {file: np.array([-1])}):
            with pytest.raises(tailrace.InvalidError, match="places of file"):
                txn.remove("t", wrong)
    assert bag(table.to_arrow()) == [(3,), (5,)]
    # Also if the transaction has not looked at the table before; and nothing is no commit.
    mine, theirs = sqlite_lake.transaction(), sqlite_lake.transaction()
    places = {theirs.scan("main", "t").files[0].file.key: np.array([2])}  # where 3 is
    mine.remove("t", places)
    theirs.remove("t", places | {0: np.array([], np.int64)})
    mine.commit()
    with pytest.raises(tailrace.ConflictError, match="changed by another"):
        theirs.commit()
    newest = sqlite_lake.snapshot
    with sqlite_lake.transaction() as txn:
        txn.remove("main.t", {0: np.array([], np.int64)})
    assert sqlite_lake.snapshot == newest
    with duck.attach(sqlite_lake_args) as reader:
        assert bag(duck.read(reader, "t")) == [(5,)]


def find(txn: Transaction, predicate: str) -> Places:
    """Where a transaction sees the rows that match."""
    rows = spark_scan.to_df(txn.runtime, txn.scan("main", "t"), places=True).where(predicate)
    found: Places = {}
    for one in rows.collect():
        found[one[FILE]] = np.append(found.get(one[FILE], np.array([], np.int64)), one[POS])
    return found
