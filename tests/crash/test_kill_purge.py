"""A process killed at any step of a purge: the next one goes on, and nothing is missing."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog import ducklake as dl
from tailrace.store import tables as t
from tailrace.store.tasks import OPEN
from tests.support import children, duck, servers, victim
from tests.support.lakes import configure
from tests.support.rows import bag, column

if TYPE_CHECKING:
    from tests.support.lakes import LakeArgs

STEPS = [
    ("snapshots purged", 1),
    ("horizon moved", 1),
    ("files purged", 1),
    ("table purged", 1),
    ("replaced files deleted", 1),
]
COLUMNS = {"id": "bigint", "v": "string"}


def make(lake: tailrace.Lake) -> None:
    """Two tables with a past, one of them dropped."""
    for name in ("a", "b"):
        table = lake.create_table(name, COLUMNS, primary_key="id")
        table.append([{"id": i, "v": "first"} for i in range(4)])
        table.delete([{"id": 0}])
        table.upsert([{"id": i, "v": "second"} for i in range(1, 6)])
        table.delete([{"id": 5}])
    lake.drop_table("b")


@pytest.mark.parametrize(("step", "nth"), STEPS)
def test_a_purge_that_was_killed_is_finished_by_the_next(
    lake_args: LakeArgs, step: str, nth: int
) -> None:
    with lake_args.connect() as lake:
        # What is old is so at once.
        configure(lake, snapshot_retention=timedelta(0), object_grace=timedelta(0))
        servers.take_over_soon(lake)
        make(lake)
        before, newest = bag(lake.table("a").to_arrow()), lake.snapshot
        child = children.start(victim.run, lake_args, victim.purge, (), step, nth)
        assert children.join(child) == -signal.SIGKILL
        oldest = lake.snapshots()[0].id
        assert oldest == (0 if step == "snapshots purged" else newest)
        assert bag(lake.table("a").to_arrow()) == before
        with duck.attach(lake_args) as connection:
            assert bag(duck.read(connection, "a")) == before
        lake.purge()
        done = lake.purges()
        # Each purge says what it did: together, all there was.
        assert sum(one.snapshots for one in done) == newest
        assert sum(one.files for one in done) == 6  # data and delete files
        assert bag(lake.table("a").to_arrow()) == before
        with lake._runtime.database.read() as connection:
            assert connection.execute(sa.select(dl.scheduled_for_deletion)).all() == []
            left = sa.select(t.task).where(t.task.c.state.in_(OPEN))
            assert connection.execute(left).all() == []
        assert len(list(lake._runtime.storage.list())) == 2  # a data file and its deletes
        assert not lake.purge().did_something
        lake.table("a").append([{"id": 9, "v": "goes on"}])
        assert column(lake.table("a").to_arrow(), "id") == [1, 2, 3, 4, 9]
