"""What holds for a whole lake is the lake's: kept in its catalog, and changed by its owner."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tailrace.clock import SystemClock
from tailrace.configuration import FLOORS
from tests.support.lakes import LakeArgs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COLUMNS = {"id": "bigint"}


def test_every_connection_sees_what_the_owner_configured(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake, lake_args.connect(tenant="acme") as other:
        assert lake.configuration == other.configuration == tailrace.Configuration()
        changed = lake.configure(snapshot_retention=timedelta(days=30, milliseconds=1))
        assert changed == tailrace.Configuration(
            snapshot_retention=timedelta(days=30, milliseconds=1)
        )
        assert lake.configure(object_grace=timedelta(hours=2)).snapshot_retention.days == 30
        assert other.configuration == lake.configuration
    with lake_args.connect() as lake:
        assert lake.configuration.object_grace == timedelta(hours=2)
        assert lake.configure() == lake.configuration


CONCERNS_ALL: list[Callable[[tailrace.Lake], object]] = [
    lambda lake: lake.configure(snapshot_retention=timedelta(0)),
    lambda lake: lake.purge(),
    lambda lake: lake.sweep(),
]


@pytest.mark.parametrize("act", CONCERNS_ALL)
def test_a_tenant_cannot_touch_what_concerns_all(
    lake_args: LakeArgs, act: Callable[[tailrace.Lake], object]
) -> None:
    with lake_args.connect() as lake, lake_args.connect(tenant="acme") as other:
        table = lake.create_table("t", COLUMNS)
        table.append([{"id": 1}])
        table.delete("id = 1")
        txn = lake.transaction()
        txn.table("t").append([{"id": 2}])
        with pytest.raises(tailrace.InvalidError, match="lake's owner"):
            act(other)
        assert [s.id for s in lake.snapshots()] == [0, 1, 2, 3]
        assert lake.configuration == tailrace.Configuration()
        txn.commit()
        assert table.to_arrow().num_rows == 1


WRONG = [
    ({"retention": timedelta(1)}, "there are snapshot_retention"),
    ({"snapshot_retention": 7}, "takes a timedelta"),
    ({"snapshot_retention": timedelta(days=-1)}, "between 0:00:00 and"),
    ({"snapshot_retention": timedelta.max}, "between"),
    ({"object_grace": timedelta(0)}, "between 0:01:00 and"),
    ({"transaction_timeout": timedelta(seconds=1)}, "others depend on it"),
    ({"commit_timeout": timedelta(0)}, "between 0:00:02 and"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_what_would_harm_others_is_refused(
    sqlite_lake: tailrace.Lake, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(tailrace.InvalidError, match=message):
        sqlite_lake.configure(**changes)
    assert sqlite_lake.configuration == tailrace.Configuration()


def test_everything_has_a_floor_that_its_default_keeps() -> None:
    default = tailrace.Configuration()
    assert set(FLOORS) == {field.name for field in fields(default)}
    assert all(FLOORS[name] <= getattr(default, name) for name in FLOORS)


def test_settings_of_a_process_cannot_shorten_what_the_lake_keeps() -> None:
    for name in FLOORS:
        with pytest.raises(TypeError, match=name):
            tailrace.Settings(**{name: timedelta(0)})  # type: ignore[arg-type]


def test_a_machine_whose_clock_is_days_ahead_purges_nothing(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = LakeArgs(catalog="postgres", url=postgres_url, data=str(tmp_path))
    with place.connect() as lake:
        table = lake.create_table("t", COLUMNS)
        table.append([{"id": 1}])
        txn = lake.transaction()
        txn.table("t").append([{"id": 2}])

        def ahead(_: SystemClock) -> datetime:
            return datetime.now(UTC) + timedelta(days=10)

        monkeypatch.setattr(SystemClock, "now", ahead)
        with place.connect() as wrong:
            assert not wrong.purge().did_something
            assert wrong.sweep() == tailrace.Sweep(deleted=0, expired=0)
            wrong.table("t").append([{"id": 3}])
            at = wrong.snapshots()[-1].time
        assert abs(at - datetime.now(UTC)) < timedelta(days=1)
        assert txn.commit() == lake.snapshot
        assert lake.snapshots()[0].id == 0
