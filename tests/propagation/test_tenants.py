"""Tenants: each sees and touches its own schemas and jobs."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest

import tailrace
from tests.support.jobs import ORDERS, replica, same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs


@pytest.fixture
def main(lake_args: LakeArgs, spark: SparkSession) -> Iterator[tailrace.Lake]:
    with lake_args.connect(spark=spark) as lake:
        lake.create_schema("sales")
        lake.create_table("sales.orders", ORDERS, primary_key="id")
        lake.table("sales.orders").append([{"id": 1, "v": "secret"}])
        lake.jobs.register("sales.orders", "copy", replica("sales.copy"))
        yield lake


@pytest.fixture
def acme(main: tailrace.Lake, lake_args: LakeArgs, spark: SparkSession) -> Iterator[tailrace.Lake]:
    with lake_args.connect(spark=spark, tenant="acme") as lake:
        lake.create_schema("acme")
        lake.create_table("acme.orders", ORDERS, primary_key="id")
        lake.table("acme.orders").append([{"id": 2, "v": "ours"}])
        lake.jobs.register("acme.orders", "copy", replica("acme.copy"))
        yield lake


def test_each_sees_its_own(main: tailrace.Lake, acme: tailrace.Lake) -> None:
    assert main.tables() == ["sales.copy", "sales.orders"]
    assert acme.tables() == ["acme.copy", "acme.orders"]
    assert [job.table for job in main.jobs.list()] == ["sales.orders"]
    assert [job.table for job in acme.jobs.list()] == ["acme.orders"]
    assert {table for table, _ in main.changed_tables(0)}.isdisjoint(
        table for table, _ in acme.changed_tables(0)
    )
    theirs = " ".join(snapshot.changes for snapshot in acme.snapshots())
    assert "sales" not in theirs
    assert 'created_table:"acme"."orders"' in theirs
    ours = " ".join(snapshot.changes for snapshot in main.snapshots())
    assert "acme" not in ours
    assert 'created_table:"sales"."orders"' in ours


def test_a_tenant_without_a_schema_sees_nothing(
    main: tailrace.Lake, lake_args: LakeArgs, spark: SparkSession
) -> None:
    with lake_args.connect(spark=spark, tenant="new") as new:
        assert new.tables() == []
        assert {snapshot.changes for snapshot in new.snapshots()} == {""}
        with pytest.raises(tailrace.NotFoundError, match="'new' has no schema 'main'"):
            new.create_table("orders", ORDERS)
    assert main.tables()


def test_nobody_touches_what_is_anothers(main: tailrace.Lake, acme: tailrace.Lake) -> None:
    for call in (
        lambda: acme.table("sales.orders"),
        lambda: acme.drop_table("sales.orders"),
        lambda: acme.create_table("sales.mine", ORDERS),
        lambda: acme.drop_schema("sales"),
        lambda: acme.create_table("mine", ORDERS),  # main is the default tenant's
        lambda: acme.jobs.register("sales.orders", "spy", replica("acme.spy")),
        lambda: acme.jobs.register(
            "acme.orders",
            "spy",
            {"sources": ["acme.orders", "sales.orders"], "consumer": {"kind": "x"}},
        ),
        lambda: acme.jobs.register("acme.orders", "spy", replica("sales.spy")),
        lambda: acme.jobs.status("sales.orders", "copy"),
        lambda: acme.jobs.pause("sales.orders", "copy"),
        lambda: main.table("acme.orders"),
    ):
        with pytest.raises(tailrace.NotFoundError):
            call()
    with pytest.raises(tailrace.InvalidError, match="is taken"):
        acme.create_schema("Sales")
    assert acme.jobs.unregister("sales.orders", "copy") is False
    main.table("sales.orders").append([{"id": 3, "v": "fine"}])
    for at in (None, main.snapshot):
        assert main.table("sales.orders").to_arrow(at=at).num_rows == 2


def test_a_server_works_for_all_and_everyone_is_charged_for_its_own(
    main: tailrace.Lake, acme: tailrace.Lake
) -> None:
    acme.run_until_fresh()  # only its own
    assert same(acme, "acme.orders", "acme.copy")
    assert not main.jobs.status("sales.orders", "copy").is_fresh
    with main.serving():
        main.jobs.wait("sales.orders", "copy", timeout=30)
        snapshot = acme.table("acme.orders").append([{"id": 5, "v": "x"}])
        acme.jobs.wait("acme.orders", "copy", snapshot, timeout=30)
    assert same(acme, "acme.orders", "acme.copy")
    assert same(main, "sales.orders", "sales.copy")
    ours = acme.usage(since=date(2020, 1, 1))
    assert [(u.tenant, u.iterations, u.rows_read) for u in ours] == [("acme", 2, 2)]
    assert [u.iterations for u in main.usage(since=date(2020, 1, 1))] == [1]
    assert {done.tenant for done in acme.jobs.history()} == {"acme"}


def test_a_tenant_needs_a_name(lake_args: LakeArgs) -> None:
    with pytest.raises(tailrace.InvalidError, match="a name of 1 to 255 characters"):
        lake_args.connect(tenant="")
