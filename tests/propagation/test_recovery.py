"""After the catalog's server has been away: everything is fresh as soon as it is back."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import tailrace
from tests.support.jobs import Recorder, orders, replica, same, spec
from tests.support.postgres import run_postgres
from tests.support.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import PostgresServer

# Nothing that only happens now and then may be what helps.
RARELY = tailrace.Settings(reconcile_interval=timedelta(hours=1), retry_first=timedelta(hours=1))


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of these tests' own: they stop it."""
    with run_postgres() as made:
        yield made


def test_jobs_are_fresh_soon_after_the_catalog_is_back(
    server: PostgresServer, tmp_path: Path
) -> None:
    url = server.url(server.create_database())
    with tailrace.connect(url, data=tmp_path, settings=RARELY) as lake:
        table, slow = orders(lake), Recorder(lake)
        lake.jobs.register("orders", "copy", replica("orders_copy"))
        lake.jobs.register("orders", "slow", spec(slow.kind, "greedy"))
        with lake.serving() as serving:
            lake.jobs.wait("orders", "copy", timeout=60)
            lake.jobs.wait("orders", "slow", timeout=60)
            slow.started.clear()
            slow.go.clear()
            snapshot = table.append([{"id": 100, "v": "before"}])
            lake.jobs.wait("orders", "copy", snapshot, timeout=60)
            assert slow.started.wait(60)
            server.stop()
            # It looks in vain, and what runs cannot even say that it has failed.
            wait_until(lambda: serving.service.runner._reconciled is None, what="a vain look")
            slow.go.set()
            wait_until(lambda: serving.service.scheduler.running == 0, what="a vain commit")
            server.start()
            table.append([{"id": 101, "v": "after"}])
            for name in ("copy", "slow"):
                wait_until(lambda: lake.jobs.status("orders", name).is_fresh, what=name)  # noqa: B023
        assert same(lake, "orders", "orders_copy")
        assert len(slow.net()) == 7


@pytest.mark.stress
def test_freshness_takes_less_than_five_seconds_after_the_catalog_is_back(
    server: PostgresServer, tmp_path: Path
) -> None:
    url = server.url(server.create_database())
    took: list[float] = []
    with tailrace.connect(url, data=tmp_path) as lake:
        table = orders(lake)
        lake.jobs.register("orders", "copy", replica("orders_copy"))
        with lake.serving() as serving:
            for number in range(5):
                table.append([{"id": 100 + number, "v": "before"}])
                server.stop()
                wait_until(lambda: serving.service.runner._reconciled is None, what="a vain look")
                server.start()
                began = time.monotonic()
                table.append([{"id": 200 + number, "v": "after"}])
                wait_until(lambda: lake.jobs.status("orders", "copy").is_fresh, what="the copy")
                took.append(time.monotonic() - began)
        assert same(lake, "orders", "orders_copy")
        assert max(took) < 5.0
