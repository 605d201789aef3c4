"""What does not exist is not found: tables, columns, snapshots, and places of lakes."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tests.support.lakes import LakeArgs
from tests.support.refused import refused

if TYPE_CHECKING:
    from collections.abc import Callable


def test_what_does_not_exist_is_not_found(lake: tailrace.Lake) -> None:
    newest = lake.snapshot
    table = lake.table("t")
    uses: list[tuple[Callable[[], object], str]] = [
        (lambda: lake.table("nothing"), "main.nothing"),
        (lambda: lake.table("nowhere.t"), "nowhere.t"),
        (lambda: lake.drop_table("nothing"), "main.nothing"),
        (lambda: lake.drop_schema("nowhere"), "'nowhere'"),
        (lambda: lake.create_table("nowhere.t", {"id": "int"}), "'nowhere'"),
        (lambda: lake.transaction().table("nothing"), "main.nothing"),
        (lambda: table.drop_column("nothing"), "'nothing'"),
        (lambda: table.rename_column("nothing", "x"), "'nothing'"),
        (lambda: table.widen_column("nothing", "bigint"), "'nothing'"),
        (lambda: table.to_arrow(at=newest + 1), str(newest + 1)),
        (lambda: table.to_df(at=-1), "-1"),
        (lambda: table.to_arrow(at=0), "snapshot 0"),
        (lambda: lake.tables(at=newest + 1), str(newest + 1)),
        (lambda: table.changes(0, newest + 1), str(newest + 1)),
        (lambda: table.changes(-1, newest), "-1"),
        (lambda: table.changes(newest + 1, newest + 2), str(newest + 2)),
        (lambda: table.changes(0, 1), "snapshot 1"),
    ]
    for use, shown in uses:
        with refused(lake, tailrace.NotFoundError, shown):
            use()


def test_snapshots_that_make_no_sense(lake: tailrace.Lake) -> None:
    table = lake.table("t")
    with refused(lake, tailrace.InvalidError, "since=3", "until=2"):
        table.changes(3, 2)
    uses: list[Callable[[Any], object]] = [
        lambda at: table.to_arrow(at=at),
        lambda at: table.to_df(at=at),
        lambda at: lake.tables(at=at),
        table.changes,
        lambda at: table.changes(0, at),
    ]
    for wrong in ("1", 1.0, True, date(2024, 1, 1)):
        for use in uses:
            with refused(lake, tailrace.InvalidError, repr(wrong)):
                use(wrong)
    with refused(lake, tailrace.InvalidError, "None"):
        table.changes(None)  # type: ignore[arg-type]


def test_a_transaction_has_neither_time_travel_nor_a_feed(lake: tailrace.Lake) -> None:
    mine = lake.transaction().table("t")
    with refused(lake, tailrace.InvalidError, "lake.table"):
        mine.to_arrow(at=1)
    with refused(lake, tailrace.InvalidError, "lake.table"):
        mine.changes(0)


def test_a_place_that_is_none(tmp_path: Any) -> None:
    for place in ("mysql://u:secret@h/db", "postgresql://u:secret@h:port/db", "http://secret@x/y"):
        with pytest.raises(tailrace.InvalidError) as caught:
            tailrace.connect(place)
        assert "secret" not in str(caught.value)
    with pytest.raises(tailrace.InvalidError, match=re.escape("ftp://x/y")):
        tailrace.connect(tmp_path / "lake", data="ftp://x/y")


def test_a_lake_keeps_its_objects_where_they_are(lake: tailrace.Lake, args: LakeArgs) -> None:
    with refused(lake, tailrace.InvalidError, "elsewhere", "data="):
        args.connect(data="elsewhere")


def test_a_new_lake_on_postgres_needs_a_place_for_objects(postgres_url: str) -> None:
    with pytest.raises(tailrace.InvalidError, match="data="):
        tailrace.connect(postgres_url)
