"""The commit lock: work in the background lets the commits of its process go first."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from tailrace.catalog.database import Database
from tests.support.process import wait_until

if TYPE_CHECKING:
    from pathlib import Path

LONG = 60.0


def test_background_work_waits_while_commits_wait_for_each_other(tmp_path: Path) -> None:
    order: list[str] = []
    with closing(Database(tmp_path / "catalog", lock_timeout=timedelta(seconds=LONG))) as database:

        def commit() -> None:
            with database.lock() as connection:
                connection.execute(sa.select(1))
                order.append("commit")

        def maintain() -> None:
            database.give_way(threading.Event(), LONG)
            order.append("maintenance")

        with database.lock() as connection:
            connection.execute(sa.select(1))
            # One that holds the lock keeps nobody waiting.
            database.give_way(threading.Event(), LONG)
            waiting = threading.Thread(target=commit)
            waiting.start()
            wait_until(lambda: database._locking == 2, what="a commit that waits")
            background = threading.Thread(target=maintain)
            background.start()
            assert order == []
        waiting.join(LONG)
        background.join(LONG)
    assert sorted(order) == ["commit", "maintenance"]


def test_background_work_does_not_wait_for_ever(tmp_path: Path) -> None:
    with closing(Database(tmp_path / "catalog", lock_timeout=timedelta(seconds=LONG))) as database:
        database._locking = 2  # a process that always has commits waiting
        database.give_way(threading.Event(), 0.01)
        stop = threading.Event()
        stop.set()
        database.give_way(stop, LONG)
