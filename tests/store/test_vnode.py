"""Vnodes."""

from __future__ import annotations

import pytest

import tailrace
from tailrace.store.vnode import VNODES, vnode


def test_a_vnode_is_the_hash_of_the_key_and_survives_renames(sqlite_lake: tailrace.Lake) -> None:
    table = sqlite_lake.create_table("t", {"id": "bigint", "v": "int"}, primary_key="id")
    table.append([{"id": i, "v": 0} for i in range(2000)])
    before = {r.id: r.n for r in table.to_df().select("id", vnode(table.info).alias("n")).collect()}
    assert set(before.values()) == set(range(VNODES))
    by_sql = table.to_df().selectExpr("id", "pmod(xxhash64(id), 256) AS n").collect()
    assert before == {row.id: row.n for row in by_sql}
    table.rename_column("id", "number")
    after = table.to_df().select("number", vnode(table.info).alias("n")).collect()
    assert before == {row.number: row.n for row in after}


def test_a_table_without_a_key_has_no_vnodes(sqlite_lake: tailrace.Lake) -> None:
    table = sqlite_lake.create_table("t", {"v": "int"})
    with pytest.raises(tailrace.InvalidError, match="no primary key"):
        vnode(table.info)
